//! Bad input: each error names a remedy, and the contest touches nothing that it did not create.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use redquorum_rig::Process;

use crate::support::{Out, mariadb_is_installed, one_at_a_time, run, text};

fn complaint(args: &str, code: i32) -> String {
    let _turn = one_at_a_time();
    let out = Out::new("input");
    let output = run(&out, args);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args}\n{complaint}");
    assert!(!out.path().join("contest.json").exists(), "{args}");
    complaint
}

#[test]
fn wrong_usage_names_what_is_accepted() {
    for (args, expected) in [
        ("--database postgres://u@h/d", "PostgreSQL is not supported"),
        ("--database oracle", "use auto, sqlite, mariadb, container or mysql://"),
        ("--strategy hope", "use one of none, pessimistic"),
        ("--workload flood", "use one of rush, last-place"),
        ("--fault earthquake", "use none or one of pause-past-ttl"),
        ("--repeat 0", "1..=1000"),
        ("--quick --fault none", "cannot be used with"),
    ] {
        let complaint = complaint(args, 64);
        assert!(complaint.contains(expected), "{args}\n{complaint}");
    }
}

#[test]
fn a_server_that_does_not_reply_is_named() {
    let complaint_of = |args| complaint(args, 3);
    let database = complaint_of("--database mysql://root@127.0.0.1:1");
    assert!(
        database.contains("127.0.0.1:1") && database.contains("check host and port"),
        "{database}"
    );
    let masters = complaint_of("--database sqlite --masters redis://127.0.0.1:1");
    assert!(masters.contains("master 1 of --masters cannot be used"), "{masters}");
    let masters = complaint_of("--database sqlite --masters http://127.0.0.1:1");
    assert!(masters.contains("use redis://"), "{masters}");
}

/// A MariaDB server of the "user".
struct Server {
    process: Process,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let port = 19_000 + u16::try_from(std::process::id() % 900).unwrap();
        let dir = std::env::temp_dir().join(format!("contest-test-server-{port}"));
        let shown = dir.display();
        let args = [
            "--no-defaults".to_owned(),
            format!("--datadir={shown}/data"),
            format!("--socket={shown}/socket"),
            format!("--pid-file={shown}/pid"),
            format!("--port={port}"),
            format!("--tmpdir={shown}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--user=root".to_owned(),
        ];
        let program = ["/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd", "/usr/bin/mariadbd"];
        let program = program.map(PathBuf::from).into_iter().find(|file| file.exists()).unwrap();
        let process = Process::new(&dir, &program, &args).unwrap();
        let install = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--user=root"])
            .arg(format!("--datadir={shown}/data"))
            .env("TMPDIR", &dir)
            .output()
            .unwrap();
        assert!(install.status.success(), "{}", text(&install.stderr));
        process.launch().unwrap();
        let server = Self { process, port };
        let until = Instant::now() + Duration::from_secs(30);
        while server.client("SELECT 1").is_err() {
            assert!(Instant::now() < until, "{}", server.process.log());
            thread::sleep(Duration::from_millis(50));
        }
        server
    }

    /// What MariaDB's own client prints, by the socket.
    fn client(&self, sql: &str) -> Result<String, String> {
        let socket = self.process.dir().join("socket");
        let output = Command::new("mariadb")
            .args(["--no-defaults", "--user=root", "--skip-column-names"])
            .arg(format!("--socket={}", socket.display()))
            .args(["--execute", sql])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn sql(&self, sql: &str) -> String {
        self.client(sql).unwrap()
    }

    fn contests(&self) -> String {
        self.sql("SHOW DATABASES LIKE 'redquorum_contest%'")
    }
}

#[test]
fn a_server_of_the_user_is_left_as_it_was() {
    if !mariadb_is_installed() {
        return;
    }
    let server = Server::start();
    let port = server.port;
    server.sql(
        "CREATE DATABASE redquorum_contest_mine; \
         CREATE TABLE redquorum_contest_mine.applicant (id INT); \
         INSERT INTO redquorum_contest_mine.applicant VALUES (42); \
         CREATE USER 'poor'@'127.0.0.1' IDENTIFIED BY 'poor'; \
         CREATE USER 'poor'@'localhost' IDENTIFIED BY 'poor'",
    );
    let mine = "redquorum_contest_mine\n";

    let args = format!("--quick --database mysql://root@127.0.0.1:{port}/redquorum_contest_mine");
    let existing = complaint(&args, 3);
    assert!(existing.contains("exists") && existing.contains("name another one"), "{existing}");

    let denied = complaint(&format!("--database mysql://poor:wrong@127.0.0.1:{port}"), 3);
    assert!(denied.contains("refuses user and password"), "{denied}");
    let poor = complaint(&format!("--database mysql://poor:poor@127.0.0.1:{port}"), 3);
    assert!(poor.contains("GRANT ALL ON"), "{poor}");

    // A contest that ends removes its own database, and only that.
    let args = "--workload last-place --strategy atomic-update";
    {
        let _turn = one_at_a_time();
        let out = Out::new("remote");
        let output = run(&out, &format!("{args} --database mysql://root@127.0.0.1:{port}"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(server.contests(), mine);

        let args = format!(
            "{args} --keep --database mysql://root@127.0.0.1:{port}/redquorum_contest_kept"
        );
        let output = run(&out, &args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("redquorum_contest_kept was kept"));
        assert_eq!(server.contests(), "redquorum_contest_kept\nredquorum_contest_mine\n");
    }
    assert_eq!(server.sql("SELECT * FROM redquorum_contest_mine.applicant"), "42\n");
    stops_in_the_middle(&server);
}

fn stops_in_the_middle(server: &Server) {
    let _turn = one_at_a_time();
    let out = Out::new("stops");
    let url = format!("mysql://root@127.0.0.1:{}", server.port);
    let args = format!(
        "--workload throughput --seconds 3 --repeat 9 --strategy atomic-update --database {url}"
    );
    let contest = crate::support::program(&out, &args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(4));
    server.process.kill().unwrap();
    let output = contest.wait_with_output().unwrap();
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{complaint}");
    assert!(complaint.contains("the database stopped responding"), "{complaint}");
    assert!(text(&output.stdout).contains("PARTIAL"));
    let contest = out.contest();
    assert!(contest.stopped.is_some() && contest.runs.len() < 9, "{}", contest.runs.len());
}
