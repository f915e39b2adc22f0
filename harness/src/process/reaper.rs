//! The reaper: one tiny shell for all clients of this process, which outlives it just long enough to
//! kill them. What it does is in `reaper.sh`; here is this end of its pipes.
//!
//! Why a shell, and not a kill in `Drop`: no code of ours runs after `kill -9`, `exit` or `abort`.
//! The kernel closes our end of the reaper's input then, and the reaper sees that. The same end of
//! input tells a client that it should go, but not one that is stopped, or hangs, or does not listen.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use crate::mutex::unpoisoned;

struct Reaper {
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// It lives as long as this process, and nobody waits for it.
static REAPER: Mutex<Option<Reaper>> = Mutex::new(None);

/// From now on the group does not outlive us.
pub(super) fn add(group: u32) -> io::Result<()> {
    tell("add", group)
}

/// The group is gone, and its number is about to be free for others.
pub(super) fn drop(group: u32) {
    // A reaper that is gone kills nobody.
    let _ = tell("drop", group);
}

fn tell(word: &str, group: u32) -> io::Result<()> {
    let mut reaper = unpoisoned(&REAPER);
    let reaper = match &mut *reaper {
        Some(reaper) => reaper,
        none => none.insert(Reaper::start()?),
    };
    reaper.words.write_all(format!("{word} {group}\n").as_bytes())?;
    let mut answer = String::new();
    if reaper.answers.read_line(&mut answer)? == 0 {
        return Err(io::Error::other("the shell that watches over the clients is gone"));
    }
    Ok(())
}

impl Reaper {
    fn start() -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(include_str!("reaper.sh")).arg("redquorum-reaper");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Out of the terminal's foreground group: Ctrl-C is for us, not for it.
        shell.process_group(0);
        let mut child = shell.spawn()?;
        let (Some(words), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes")
        };
        Ok(Self { words, answers: BufReader::new(answers) })
    }
}
