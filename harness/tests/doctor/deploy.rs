//! The settings in `docs/deploy`: doctor finds nothing wrong with masters that have them, keeps
//! no key, and all files have the same settings.

use redquorum_rig::trials::Case;
use redquorum_rig::{Masters, cases};

use crate::diagnosis::{examine, name, run};

pub(crate) fn cases() -> Vec<Case> {
    cases![with_masters: masters_with_the_documented_settings_have_no_finding_and_keep_no_key]
}

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/deploy");

/// What a machine decides for itself.
const LOCAL: [&str; 6] = ["port", "bind", "protected-mode", "tcp-keepalive", "aclfile", "dir"];

fn masters_with_the_documented_settings_have_no_finding_and_keep_no_key() {
    let read = |file| std::fs::read_to_string(format!("{DEPLOY}/{file}")).unwrap();
    let text = read("master.conf");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let settings: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
    let shared = settings.iter().filter(|(name, _)| !LOCAL.contains(name));
    let builder = shared.clone().fold(Masters::builder().count(5), |builder, (name, value)| {
        builder.config(name, value.trim_matches('"'))
    });
    let masters = builder.start().unwrap();
    // The user of the lock, as `users.acl` has it.
    let users = read("users.acl");
    let user = users.lines().find_map(|line| line.strip_prefix("user locks ")).unwrap();
    let urls = (1..=5).map(|node| {
        masters.ask(node, &format!("ACL SETUSER locks {user}")).unwrap();
        format!("redis://locks:CHANGE-ME@127.0.0.1:{}", masters.port(node))
    });
    let urls: Vec<String> = urls.collect();
    let (code, diagnosis) = examine(&urls, &["--prefix", "lock:"]);
    assert_eq!((code, diagnosis.bad()), (0, vec![]), "{diagnosis:#?}");
    assert_eq!((diagnosis.schema, diagnosis.masters.len()), (1, 5));
    assert!(diagnosis.masters.iter().all(|master| master.reached));
    for node in 1..=5 {
        assert_eq!(masters.ask(node, "DBSIZE").unwrap(), redquorum_rig::RespValue::Integer(0));
    }
    let (code, printed, _) = run(&[&["--prefix".into(), "lock:".into()], &urls[..]].concat());
    assert_eq!(code, 0, "{printed}");
    assert!(printed.lines().last().unwrap().starts_with("5 masters: 0 errors, "), "{printed}");
    let places: Vec<usize> = urls.iter().map(|url| printed.find(&name(url)).unwrap()).collect();
    assert!(places.is_sorted(), "{printed}");
    for file in ["compose.yaml", "kubernetes.yaml"] {
        let text = read(file);
        for (name, value) in shared.clone() {
            assert!(text.contains(&format!("--{name} {value}")), "{file} lacks {name} {value}");
        }
    }
}
