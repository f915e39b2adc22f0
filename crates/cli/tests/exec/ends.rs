//! A command is gone before a rival holds its resource: beside masters that are killed or hang, and
//! when this program is stopped or killed. And terminals.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::pty::openpty;
use nix::sys::signal::Signal;
use redquorum_rig::Masters;
use redquorum_rig::trials::{Case, eventually};

use crate::support::{Folder, Process, holder, number, redquorum, rival, rounds, runs};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        with_masters: a_command_is_gone_before_a_rival_holds_beside_masters_that_are_killed,
        with_masters: a_command_is_gone_before_a_rival_holds_beside_masters_that_hang,
        with_masters: a_program_that_is_stopped_and_continued_keeps_its_lease_or_kills_the_command,
        with_masters: what_a_command_has_started_ends_with_it_where_the_lease_is_over,
        with_masters: a_command_dies_with_its_parent_if_it_is_asked_to,
        with_masters: output_that_nobody_reads_keeps_no_command_alive,
        with_masters: a_program_that_is_asked_to_stop_stops_its_command_first,
        with_masters: a_terminal_works_and_a_command_that_was_stopped_for_too_long_does_not_go_on,
    ]
}

/// A command with a lease of a second that ignores SIGTERM. Returns the program, and the process of
/// the command.
fn stubborn(masters: &Masters, folder: &Folder, options: &[&str]) -> (Process, i32) {
    stubborn_for("1s", masters, folder, options)
}

fn stubborn_for(ttl: &str, masters: &Masters, folder: &Folder, options: &[&str]) -> (Process, i32) {
    let file = folder.file("pid");
    drop(std::fs::remove_file(&file));
    let script = format!(
        "trap '' TERM; echo $$ > {}; for i in $(seq 3000); do sleep 0.02; done",
        file.display()
    );
    let mut command = redquorum(masters);
    command.args(["exec", "--quiet", "--ttl", ttl, "--node-timeout", "200ms"]).args(options);
    let child = Process::start(command.args(["r", "--", "sh", "-c", &script]));
    (child, number(&file))
}

/// `fault` keeps the lease from being extended, and `mend` ends that as soon as the keys are over,
/// whatever has become of the command. A rival that waits all the while finds it gone.
fn gone_before_a_rival(
    masters: &Masters,
    fault: impl Fn(&Masters, usize),
    mend: impl Fn(&Masters, usize) + Sync,
) {
    let folder = Folder::new();
    for round in 0..rounds() {
        let (mut child, pid) = stubborn(masters, &folder, &[]);
        let broken = [round % 3 + 1, (round + 1) % 3 + 1];
        broken.iter().for_each(|master| fault(masters, *master));
        thread::scope(|scope| {
            let rival = scope.spawn(|| rival(masters, "r", Duration::from_secs(60), || runs(pid)));
            scope.spawn(|| {
                thread::sleep(Duration::from_secs(1));
                broken.iter().for_each(|master| mend(masters, *master));
            });
            assert!(!rival.join().unwrap(), "round {round}: the command runs beside a rival");
        });
        assert_eq!(child.code(), 74, "round {round}");
    }
}

fn a_command_is_gone_before_a_rival_holds_beside_masters_that_are_killed() {
    let masters = Masters::start(3).unwrap();
    gone_before_a_rival(
        &masters,
        |masters, master| masters.kill(master).unwrap(),
        |masters, master| masters.restart(master).unwrap(),
    );
}

fn a_command_is_gone_before_a_rival_holds_beside_masters_that_hang() {
    let masters = Masters::start(3).unwrap();
    gone_before_a_rival(
        &masters,
        |masters, master| masters.pause(master).unwrap(),
        |masters, master| masters.resume(master).unwrap(),
    );
}

fn a_program_that_is_stopped_and_continued_keeps_its_lease_or_kills_the_command() {
    let masters = Masters::start(3).unwrap();
    let folder = Folder::new();
    for round in 0..rounds() {
        let (mut child, pid) = stubborn_for("5s", &masters, &folder, &[]);
        // Short stops do no harm.
        for _ in 0..3 {
            child.signal(Signal::SIGSTOP);
            thread::sleep(Duration::from_millis(50));
            child.signal(Signal::SIGCONT);
            thread::sleep(Duration::from_millis(50));
        }
        assert!(child.try_wait().unwrap().is_none() && runs(pid), "round {round}: it was stopped");
        child.signal(Signal::SIGSTOP);
        // Others get the resource at the end of the lease, and not before.
        rival(&masters, "r", Duration::from_secs(60), || ());
        child.signal(Signal::SIGCONT);
        assert_eq!(child.code(), 74, "round {round}");
        assert!(!runs(pid), "round {round}");
    }
}

fn what_a_command_has_started_ends_with_it_where_the_lease_is_over() {
    let masters = Masters::start(3).unwrap();
    let folder = Folder::new();
    let file = folder.file("background");
    let background = format!(
        "sh -c 'trap \"\" TERM; echo $$ > {}; for i in $(seq 3000); do sleep 0.02; done' &",
        file.display()
    );
    // The command itself ends at once when it is asked to.
    let script = format!("{background} wait");
    let words = ["exec", "-q", "--ttl", "1s", "--max-hold", "3s", "r", "--", "sh", "-c", &script];
    let mut child = Process::start(redquorum(&masters).args(words));
    let pid = number(&file);
    assert_eq!(child.code(), 124);
    assert!(!runs(pid), "it ran on without the lease");
    // One that ends by itself may leave something behind, and is told.
    let script = "sleep 5 & exit 3";
    let mut command = redquorum(&masters);
    command.args(["exec", "r", "--", "sh", "-c", script]);
    let mut child = Process::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut stderr = child.stderr.take().unwrap();
    let mut text = String::new();
    eventually("it says so", || {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
        text.ends_with("without the lease")
    });
    assert_eq!(child.code(), 3);
}

fn a_command_dies_with_its_parent_if_it_is_asked_to() {
    let masters = Masters::start(3).unwrap();
    let folder = Folder::new();
    if !cfg!(target_os = "linux") {
        return;
    }
    let (mut child, pid) = stubborn(&masters, &folder, &["--die-with-parent"]);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the command is dead", || !runs(pid));
    // Without it the command lives on, as the documentation says. The lease ends by itself.
    let (mut child, pid) = stubborn(&masters, &folder, &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the lease is over", || holder(&masters, "r") == "r: free");
    assert!(runs(pid));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

fn output_that_nobody_reads_keeps_no_command_alive() {
    let masters = Masters::start(3).unwrap();
    let folder = Folder::new();
    let (_reader, writer) = std::io::pipe().unwrap();
    // A pipe that is full.
    let mut full = Command::new("sh");
    full.args(["-c", "dd if=/dev/zero of=/dev/stdout bs=4096 oflag=nonblock 2>/dev/null"]);
    full.stdout(writer.try_clone().unwrap()).status().unwrap();
    let file = folder.file("pid");
    let script = format!("echo $$ > {}; exec sleep 600 2>/dev/null", file.display());
    let mut command = redquorum(&masters);
    command.args(["exec", "--ttl", "1s", "--max-hold", "500ms", "r", "--", "sh", "-c", &script]);
    let mut child = Process::start(command.stderr(writer).stdout(Stdio::null()));
    let pid = number(&file);
    assert_eq!(child.code(), 124);
    assert!(!runs(pid));
}

fn a_program_that_is_asked_to_stop_stops_its_command_first() {
    let masters = Masters::start(3).unwrap();
    let folder = Folder::new();
    if !cfg!(target_os = "linux") {
        return;
    }
    let (mut child, pid) = loop {
        let (mut child, pid) = stubborn_for("5s", &masters, &folder, &[]);
        child.signal(Signal::SIGTSTP);
        let own = i32::try_from(child.id()).unwrap();
        // A machine that stalls for a TTL costs the lease: then the program kills the command, and
        // ends, or is stopped before it can. Once more.
        eventually("both stand still", || {
            let is_lost = !runs(pid) && is_stopped(own);
            is_lost || is_stopped(pid) && is_stopped(own) || child.try_wait().unwrap().is_some()
        });
        if is_stopped(pid) && is_stopped(own) {
            break (child, pid);
        }
        child.signal(Signal::SIGCONT);
        assert_eq!(child.code(), 74);
    };
    eventually("the lease is over", || holder(&masters, "r") == "r: free");
    child.signal(Signal::SIGCONT);
    assert_eq!(child.code(), 74);
    assert!(!runs(pid));
}

fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// An interactive shell on a terminal of its own.
struct Terminal {
    shell: Child,
    keys: File,
    shown: std::sync::mpsc::Receiver<Vec<u8>>,
}

impl Terminal {
    fn open(masters: &Masters) -> Self {
        let pty = openpty(None, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        // Where tests run in the background, Ctrl-C is ignored: not so in this shell.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,QUIT,HUP", "setsid", "--ctty", "--wait", "sh", "-i"]);
        command.stdin(end()).stdout(end()).stderr(end());
        command
            .env("REDQUORUM_MASTERS", masters.urls().join(","))
            .env("PS1", "$ ")
            .env_remove("ENV");
        let shell = command.spawn().unwrap();
        let keys = File::from(pty.master);
        let mut screen = keys.try_clone().unwrap();
        let (sender, shown) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = screen.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { shell, keys, shown }
    }

    /// Types the keys, and waits until the terminal shows the text.
    fn types(&mut self, keys: &str, text: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        let mut shown = String::new();
        while !shown.contains(text) {
            match self.shown.recv_timeout(Duration::from_secs(60)) {
                Ok(bytes) => shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{text:?} is not in {shown:?}"),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.keys.write_all(b"\nexit\nexit\n"));
        drop(self.shell.kill());
        drop(self.shell.wait());
    }
}

fn a_terminal_works_and_a_command_that_was_stopped_for_too_long_does_not_go_on() {
    let masters = Masters::start(3).unwrap();
    let program = env!("CARGO_BIN_EXE_redquorum");
    if !cfg!(target_os = "linux") {
        return;
    }
    let folder = Folder::new();
    let mut terminal = Terminal::open(&masters);
    terminal.types(&format!("{program} exec --ttl 1h r -- cat\n"), "cat\r\n");
    eventually("it is held", || holder(&masters, "r") != "r: free");
    terminal.types("hello\n", "hello\r\nhello\r\n");
    terminal.types("\x1a", "$ ");
    terminal.types("fg\n", "cat\r\n");
    terminal.types("again\n", "again\r\nagain\r\n");
    terminal.types("\x03", "$ ");
    terminal.types("echo code=$?.\n", "code=130.");
    assert_eq!(holder(&masters, "r"), "r: free");
    // Behind `bg`, a command that reads the terminal stops, and so does the program, until `fg`.
    let file = folder.file("pid");
    let script = format!("echo $PPID > {}; exec cat", file.display());
    terminal.types(&format!("{program} exec --ttl 1h r -- sh -c '{script}'\n"), "cat'\r\n");
    let own = number(&file);
    terminal.types("\x1a", "$ ");
    terminal.types("bg\n", "$ ");
    eventually("it stands still", || is_stopped(own));
    // The shell quotes in its own way.
    terminal.types("fg\n", "cat\"\r\n");
    terminal.types("once more\n", "once more\r\nonce more\r\n");
    terminal.types("\x03", "$ ");
    // A lease that ends while both are stopped.
    terminal.types(&format!("{program} exec --ttl 2s r -- cat\n"), "cat\r\n");
    eventually("it is held", || holder(&masters, "r") != "r: free");
    terminal.types("\x1a", "$ ");
    eventually("it is over", || holder(&masters, "r") == "r: free");
    terminal.types("fg\n", "SIGKILL");
    terminal.types("echo code=$?.\n", "code=74.");
}
