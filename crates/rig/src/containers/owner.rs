//! The process that owns a container, encoded so that another process can check whether it still
//! lives. Called by `sweep.rs`.

use std::{fmt, fs, process};

use crate::process::stat;

/// A process, as a label and as a part of file names: `BOOT-NAMESPACE-USER-PID-START`, all of them
/// letters and digits.
///
/// The system reuses process ids; the start time distinguishes processes with the same id. A
/// process id also means nothing after the next boot or in another container, hence the first two
/// parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    boot: String,
    namespace: String,
    user: String,
    pid: u32,
    start: String,
}

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessState {
    Dead,
    /// Of another boot: dead, if it ran on this machine.
    Rebooted,
    /// Alive, or not visible from here: then it must count as alive.
    Alive,
}

impl Owner {
    /// This process. A part is `0` on systems where all processes share it.
    pub(crate) fn this() -> Self {
        let pid = process::id();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let digits = namespace.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
        Self {
            boot: or_zero(letters(&boot).chars().take(8).collect()),
            // Process ids have the same meaning in it.
            namespace: or_zero(digits),
            user: user(),
            pid,
            start: or_zero(start_of(pid).unwrap_or_default()),
        }
    }

    /// The opposite of `Display`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let [boot, namespace, user, pid, start] = parts[..] else { return None };
        let [boot, namespace, user, start] = [boot, namespace, user, start].map(str::to_owned);
        Some(Self { boot, namespace, user, pid: pid.parse().ok()?, start })
    }

    /// Whether it still lives, as far as the process `from` can see.
    pub(crate) fn state(&self, from: &Self) -> ProcessState {
        if self.boot != from.boot {
            return ProcessState::Rebooted;
        }
        // Processes of other users may be hidden from all users but root. A process that is not
        // visible may be alive.
        let can_see = self.user == from.user || from.user == "0";
        if self.namespace != from.namespace || !can_see {
            return ProcessState::Alive;
        }
        match start_of(self.pid) {
            Some(start) if start == self.start => ProcessState::Alive,
            _ => ProcessState::Dead,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { boot, namespace, user, pid, start } = self;
        write!(f, "{boot}-{namespace}-{user}-{pid}-{start}")
    }
}

/// The start time of a process, in an arbitrary unit; none if there is no process or only a zombie.
fn start_of(pid: u32) -> Option<String> {
    if cfg!(target_os = "linux") {
        let fields = stat(pid)?;
        let dead = matches!(fields[0].as_str(), "Z" | "X" | "x");
        return if dead { None } else { fields.get(19).cloned() };
    }
    let pid = pid.to_string();
    let output = process::Command::new("ps").args(["-o", "lstart=", "-p", &pid]).output().ok()?;
    Some(letters(&String::from_utf8_lossy(&output.stdout))).filter(|start| !start.is_empty())
}

fn or_zero(text: String) -> String {
    if text.is_empty() { "0".to_owned() } else { text }
}

fn user() -> String {
    #[cfg(target_os = "linux")]
    if let Ok(own) = fs::metadata("/proc/self") {
        return std::os::unix::fs::MetadataExt::uid(&own).to_string();
    }
    "0".to_owned()
}

fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_survives_its_own_text() {
        let owner = Owner::this();
        assert_eq!(Owner::parse(&owner.to_string()), Some(owner.clone()));
        let safe = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(owner.to_string().chars().all(safe), "{owner}");
        for strange in ["", "1-2-3", "a-b-c-d-e", "1-2-3-4-5-6"] {
            assert_eq!(Owner::parse(strange), None, "{strange}");
        }
    }

    #[test]
    fn only_a_process_that_is_certainly_gone_is_dead() {
        let this = Owner::this();
        assert_eq!(this.state(&this), ProcessState::Alive);
        // The same pid, which the system gave to another process later.
        let earlier = Owner { start: "1".into(), ..this.clone() };
        assert_eq!(earlier.state(&this), ProcessState::Dead);
        let elsewhere = Owner { namespace: "1".into(), ..earlier.clone() };
        assert_eq!(elsewhere.state(&this), ProcessState::Alive);
        let rebooted = Owner { boot: "1".into(), ..this.clone() };
        assert_eq!(rebooted.state(&this), ProcessState::Rebooted);
        let mine = Owner { user: "1000".into(), ..this };
        let of_another = Owner { user: "1001".into(), ..earlier };
        assert_eq!(of_another.state(&mine), ProcessState::Alive);
        let root = Owner { user: "0".into(), ..mine };
        assert_eq!(of_another.state(&root), ProcessState::Dead);
        let mut zombie = process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(start_of(zombie.id()).is_some());
        zombie.kill().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while start_of(zombie.id()).is_some() {
            assert!(std::time::Instant::now() < until, "killed, and taken for alive");
        }
        zombie.wait().unwrap();
    }
}
