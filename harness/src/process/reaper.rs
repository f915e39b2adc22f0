//! The reaper: one small shell for all client processes of the harness. It outlives the harness
//! just long enough to kill them. `reaper.sh` has its code; this module has the harness's end of
//! its pipes.
//!
//! A shell is needed, since `Drop` is not enough: no code of the harness runs after `kill -9`,
//! `exit` or `abort`. The kernel then closes the harness's end of the reaper's input, and the
//! reaper notices. Clients see the end of their own input, too, but a client that is stopped,
//! hangs or ignores its input cannot react.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use crate::mutex::unpoisoned;

struct Reaper {
    stdin: ChildStdin,
    replies: BufReader<ChildStdout>,
}

/// The reaper lives as long as this process, and no thread waits for it.
static REAPER: Mutex<Option<Reaper>> = Mutex::new(None);

/// From now on, the reaper kills this group when the harness ends.
pub(super) fn add(group: u32) -> io::Result<()> {
    send("add", group)
}

/// The group has ended, and its number can soon be reused.
pub(super) fn drop(group: u32) {
    // If the reaper has ended, it kills no group.
    let _ = send("drop", group);
}

fn send(word: &str, group: u32) -> io::Result<()> {
    let mut reaper = unpoisoned(&REAPER);
    let reaper = match &mut *reaper {
        Some(reaper) => reaper,
        none => none.insert(Reaper::start()?),
    };
    reaper.stdin.write_all(format!("{word} {group}\n").as_bytes())?;
    let mut reply = String::new();
    if reaper.replies.read_line(&mut reply)? == 0 {
        return Err(io::Error::other("the shell that watches over the clients is gone"));
    }
    Ok(())
}

impl Reaper {
    fn start() -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(include_str!("reaper.sh")).arg("redquorum-reaper");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Not in the terminal's foreground group: Ctrl-C is for the harness, not for the reaper.
        shell.process_group(0);
        let mut child = shell.spawn()?;
        let (Some(stdin), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes")
        };
        Ok(Self { stdin, replies: BufReader::new(replies) })
    }
}
