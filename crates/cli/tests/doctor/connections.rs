//! The ways to a master that the library has: TLS with certificates, Sentinels, Unix sockets. And
//! the masters of a file.

use crate::diagnosis::{durable, examine, run};
use redquorum_rig::trials::tls::{Authority, TlsMaster};
use redquorum_rig::trials::{Case, Sentinel, eventually};
use redquorum_rig::{Masters, cases};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: masters_with_tls_take_the_certificate_of_a_client,
        with_masters: the_master_behind_a_sentinel_is_examined,
        with_masters: a_unix_socket_is_a_way_to_a_master,
        with_masters: the_masters_of_a_file_are_examined,
    ]
}

/// A file that is removed.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("doctor-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Best effort: a file that stays is among the temporary files.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn masters_with_tls_take_the_certificate_of_a_client() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let master = TlsMaster::start(&authority.identity("localhost"), Some(&clients));
    let me = clients.identity("a client");
    let ca = File::new("ca.pem", &authority.pem());
    let chain = File::new("chain.pem", &me.chain);
    let key = File::new("key.pem", &me.key);
    let urls = [master.url("localhost")];
    let name = format!("localhost:{}", master.port);
    let trusting = ["--tls-ca-file", ca.path()];
    let known = ["--tls-cert-file", chain.path(), "--tls-key-file", key.path()];
    let (code, _, stderr) = run(&urls, &[&trusting[..], &known[..2]].concat());
    assert!(code == 64 && stderr.contains("give both"), "{code} {stderr}");
    let (code, diagnosis) = examine(&urls, &[&trusting[..], &known].concat());
    assert_eq!(code, 0, "{diagnosis:#?}");
    assert_eq!(diagnosis.masters[0].name, name);
    // Without its certificate the client is not let in, and the page says how.
    let (code, diagnosis) = examine(&urls, &trusting);
    assert_eq!(code, 69, "{diagnosis:#?}");
    diagnosis.has("error", "reachable", Some(&name), "fatal alert", "--tls-cert-file");
    let wrong = File::new("wrong.pem", &clients.pem());
    let (code, diagnosis) =
        examine(&urls, &[&["--tls-ca-file", wrong.path()], &known[..]].concat());
    assert_eq!(code, 69, "{diagnosis:#?}");
    diagnosis.has("error", "reachable", Some(&name), "certificate", "--tls-ca-file");
}

fn the_master_behind_a_sentinel_is_examined() {
    let masters = Masters::builder().count(1).password("hunter2").start().unwrap();
    let sentinel = Sentinel::start("jobs", masters.port(1), None);
    let port = sentinel.port();
    let url = format!("redis-sentinel://:hunter2@127.0.0.1:1,127.0.0.1:{port}/jobs");
    let (_, diagnosis) = examine(std::slice::from_ref(&url), &[]);
    assert_eq!(diagnosis.masters.len(), 1, "{diagnosis:#?}");
    let ok = |check: &str| {
        diagnosis.findings.iter().any(|found| found.check == check && found.level == "ok")
    };
    assert!(["reachable", "role", "permissions", "quorum"].into_iter().all(ok), "{diagnosis:#?}");
    // The Sentinel itself is none.
    let (code, diagnosis) = examine(&[sentinel.url()], &[]);
    assert_eq!(code, 1);
    let name = format!("127.0.0.1:{port}");
    diagnosis.has("error", "role", Some(&name), "it is a Sentinel", "URLs of masters");
    let (_, printed, stderr) = run(&[url], &[]);
    assert!(!format!("{printed}{stderr}").contains("hunter2"), "{printed}{stderr}");
}

fn a_unix_socket_is_a_way_to_a_master() {
    let masters = Masters::builder().count(1).unix_socket().password("pass word").start().unwrap();
    let (code, diagnosis) = examine(&[masters.socket_url(1).unwrap()], &[]);
    assert_eq!(code, 0, "{diagnosis:#?}");
    assert!(diagnosis.masters[0].name.ends_with(".sock"), "{diagnosis:#?}");
}

fn the_masters_of_a_file_are_examined() {
    let masters = durable(3);
    eventually("they answer", || (1..=3).all(|node| masters.ask(node, "PING").is_ok()));
    let text = format!("masters = {:?}\nrestart-guard = \"30s\"\n", masters.urls());
    let file = File::new("masters.toml", &text);
    let (code, diagnosis) = examine(&[], &["--config", file.path(), "--init"]);
    assert_eq!((code, diagnosis.bad()), (0, vec![]), "{diagnosis:#?}");
    assert_eq!(diagnosis.masters.len(), 3);
}
