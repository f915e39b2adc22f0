//! Bad input: each error names a remedy, and the contest touches nothing that it did not create.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::support::{Out, eventually, mariadb_is_installed, one_at_a_time, program, run, text};

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
fn wrong_usage_names_the_accepted_values() {
    for (args, expected) in [
        ("--database postgres://u@h/d", "PostgreSQL is not supported"),
        ("--database sqlite:///etc/passwd", "makes its own SQLite file"),
        ("--database mysql://u@h:port", "mysql://USER:PASSWORD@HOST:PORT"),
        ("--database oracle://h", "mysql://USER:PASSWORD@HOST:PORT"),
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
    let database = complaint_of("--database mariadb://root:a%40b@127.0.0.1:1");
    assert!(
        database.contains("127.0.0.1:1") && database.contains("check host and port"),
        "{database}"
    );
    let masters = complaint_of("--database sqlite --masters redis://127.0.0.1:1");
    assert!(masters.contains("master 1 of --masters cannot be used"), "{masters}");
    let masters = complaint_of("--database sqlite --masters http://127.0.0.1:1");
    assert!(masters.contains("use redis://"), "{masters}");
}

/// A MariaDB server of the "user": the private one of a contest that keeps it.
struct Server {
    contest: Child,
    /// Kept open, because the contest still prints.
    _printed: Lines<BufReader<ChildStdout>>,
    socket: String,
    port: String,
    _out: Out,
}

impl Server {
    fn start() -> Self {
        let out = Out::new("server");
        let args = "--database mariadb --workload last-place --strategy atomic-update --keep";
        let mut contest = program(&out, args);
        // Other tests look for leftovers in the usual directory.
        contest.env("TMPDIR", out.path()).stdout(Stdio::piped());
        let mut contest = contest.spawn().unwrap();
        let mut printed = BufReader::new(contest.stdout.take().unwrap()).lines();
        let line =
            printed.find_map(|line| Some(line.unwrap().split_once("--socket=")?.1.to_owned()));
        let line = line.expect("the socket and the name of the database");
        let (socket, name) = line.split_once(' ').unwrap();
        let (socket, port) = (socket.to_owned(), String::new());
        let mut server = Self { contest, _printed: printed, socket, port, _out: out };
        server.sql(&format!("DROP DATABASE {name}; CREATE USER 'root'@'127.0.0.1'"));
        server.sql("GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION");
        server.port = server.sql("SELECT @@port").trim().to_owned();
        server
    }

    fn kill(&mut self) {
        self.contest.kill().unwrap();
        self.contest.wait().unwrap();
    }

    /// What MariaDB's own client prints, by the socket.
    fn client(&self, sql: &str) -> Result<String, String> {
        let output = Command::new("mariadb")
            .args(["--no-defaults", "--user=root", "--skip-column-names"])
            .arg(format!("--socket={}", self.socket))
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

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_server_of_the_user_is_left_as_it_was() {
    if !mariadb_is_installed() {
        return;
    }
    let mut server = Server::start();
    let port = server.port.clone();
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
    stops_in_the_middle(&mut server);
}

fn stops_in_the_middle(server: &mut Server) {
    let _turn = one_at_a_time();
    let out = Out::new("stops");
    let url = format!("mysql://root@127.0.0.1:{}/redquorum_contest_stops", server.port);
    let args = format!(
        "--workload throughput --seconds 60 --strategy atomic-update optimistic --database {url}"
    );
    let mut contest = program(&out, &args);
    let contest = contest.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let count = "SELECT COUNT(*) > 0 FROM redquorum_contest_stops.applicant";
    eventually("an applicant is signed up", || server.client(count).as_deref() == Ok("1\n"));
    server.kill();
    let output = contest.wait_with_output().unwrap();
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{complaint}");
    assert!(complaint.contains("the database stopped responding"), "{complaint}");
    assert!(text(&output.stdout).contains("PARTIAL"));
    let contest = out.contest();
    assert!(contest.stopped.is_some() && contest.runs.len() < 2, "{}", contest.runs.len());
}
