//! `masters [N]`: starts N masters, prints their URLs, and ends them at Ctrl-C. It is for manual
//! trials; tests use the library.
//!
//! Exit codes: 130 after Ctrl-C, 143 after SIGTERM, 3 without a server program, 64 for invalid
//! arguments, 1 if the masters did not start.

use std::{
    env, io,
    io::Write,
    process::{self, ExitCode},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use redquorum_rig::{Builder, Masters, RigError, find_server};

const USAGE: &str = "\
usage: masters [N]

Starts N independent Redis masters on free ports of this machine (default 5), prints their URLs,
and waits. Ctrl-C ends them; nothing is left behind.

While it waits, it takes commands, one on a line: kill 2, start 2, pause 2, resume 2. A master that
was killed starts again empty.";

const NO_SERVER: u8 = 3;
const BAD_USAGE: u8 = 64;

fn main() -> ExitCode {
    let args: Vec<String> =
        env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let counts = 1..=Builder::MAX_MASTERS;
    let count = match &args[..] {
        [] => Some(5),
        [count] => count.parse().ok().filter(|count| counts.contains(count)),
        _ => None,
    };
    let Some(count) = count else {
        let why = format!("{args:?} is not a number of masters: use 1 to {}", counts.end());
        return fail(BAD_USAGE, &format!("{why}\n\n{USAGE}"));
    };
    let masters = match Masters::start(count) {
        Ok(masters) => masters,
        Err(error @ RigError::NoServer { .. }) => return fail(NO_SERVER, &error.to_string()),
        Err(error) => return fail(1, &error.to_string()),
    };
    // Before the program prints the URLs: a reader may send the signal at once.
    let wait_for_the_end = match catch_the_end() {
        Ok(wait) => wait,
        Err(error) => return fail(1, &format!("Ctrl-C cannot be caught: {error}")),
    };
    // A reader that closes the pipe does not end the program.
    let _written = announce(&masters, &mut io::stdout().lock());
    let masters = Arc::new(Mutex::new(Some(masters)));
    let obeyed = masters.clone();
    thread::spawn(move || obey(&obeyed));
    let code = wait_for_the_end();
    // The thread may wait for a line all the while.
    drop(lock(&masters).take());
    ExitCode::from(code)
}

fn fail(code: u8, why: &str) -> ExitCode {
    eprintln!("masters: {why}");
    ExitCode::from(code)
}

fn lock(masters: &Mutex<Option<Masters>>) -> MutexGuard<'_, Option<Masters>> {
    masters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries out the commands on standard input, until it ends.
fn obey(masters: &Mutex<Option<Masters>>) {
    for line in io::stdin().lines().map_while(Result::ok) {
        let Some(masters) = &*lock(masters) else { return };
        if !line.trim().is_empty() {
            eprintln!("{}", carry_out(masters, &line).unwrap_or_else(|why| why));
        }
    }
}

fn carry_out(masters: &Masters, line: &str) -> Result<String, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let known = format!("write kill, start, pause or resume, and 1 to {}", masters.len());
    let [what, number] = *words else { return Err(known) };
    let Ok(node) = number.parse() else { return Err(known) };
    if !(1..=masters.len()).contains(&node) {
        return Err(known);
    }
    let (done, state) = match what {
        "kill" => (masters.kill(node), "is killed"),
        "start" => (masters.restart(node), "runs, empty"),
        "pause" => (masters.pause(node), "stands still"),
        "resume" => (masters.resume(node), "goes on"),
        _ => return Err(known),
    };
    done.map_err(|why| why.to_string())?;
    let pid = masters.pid(node).map_or(String::new(), |pid| format!(", process {pid}"));
    Ok(format!("master {node} {state}{pid}"))
}

fn announce(masters: &Masters, out: &mut impl Write) -> io::Result<()> {
    let urls = masters.urls();
    let server = find_server().map(|server| server.to_string()).unwrap_or_default();
    writeln!(out, "{} masters, {server}, process {}.", urls.len(), process::id())?;
    writeln!(out, "Ctrl-C ends them, nothing is left behind. To kill one, and to start it again:")?;
    writeln!(out, "write kill 2, start 2, pause 2 or resume 2, or send signals to its process.\n")?;
    for node in 1..=masters.len() {
        let pid = masters.pid(node).unwrap_or_default();
        writeln!(out, "master {node}: port {}, process {pid}", masters.port(node))?;
    }
    // For the examples of the library, and for the command `redquorum`.
    let all = urls.join(",");
    writeln!(out, "\nexport REDQUORUM_URLS={all} REDQUORUM_MASTERS={all}\n")?;
    for url in urls {
        writeln!(out, "{url}")?;
    }
    out.flush()
}

/// Catches Ctrl-C and SIGTERM from now on. The returned function waits for one of them, and returns
/// its exit code. The end of standard input has no effect: it may have been closed or `/dev/null`
/// from the start.
///
/// All other signals keep their effect, after which the keepers clean up: `nohup` works.
#[cfg(unix)]
fn catch_the_end() -> io::Result<impl FnOnce() -> u8> {
    use signal_hook::{
        consts::{SIGINT, SIGTERM},
        iterator::Signals,
    };
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    // 128 and the signal's number, by the convention of shells.
    Ok(move || if signals.forever().next() == Some(SIGTERM) { 143 } else { 130 })
}

#[cfg(not(unix))]
fn catch_the_end() -> io::Result<impl FnOnce() -> u8> {
    Ok(|| unreachable!("masters do not start here"))
}
