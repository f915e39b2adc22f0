//! The wall clock of one process, under control: a shim that is preloaded into the process, and the
//! page from which the shim reads the time to show. `node.rs` uses it for masters, and other tools
//! for processes that they start under such a clock.
//!
//! `setting.rs` has the arithmetic and the page, which the shim shares; `change.rs` the possible
//! changes; `shim/shim.rs`, outside of `src`, is the shim.

mod change;
mod setting;

#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

pub use change::ClockChange;
pub use setting::ClockSetting;
use setting::{MAGIC, PAGE_BYTES, SLOTS};

use crate::{RigError, lock};

/// The library that `build.rs` compiled, or the reason why there is none.
const SHIM: Result<&[u8], &str> = include!(concat!(env!("OUT_DIR"), "/shim.rs"));

const SHIM_FILE: &str = "clock.so";
const PAGE_FILE: &str = "clock.page";

/// Whether processes can be started under a [`Clock`]: on Linux, on x86-64 and aarch64.
///
/// # Errors
///
/// - [`RigError::NoClocks`]: they cannot; the error gives the reason. A test that needs clocks is
///   then skipped.
pub fn clocks_supported() -> Result<(), RigError> {
    SHIM.map(|_| ()).map_err(|why| no_clocks(why.to_owned()))
}

/// The wall clock of one process, and of those that it starts.
///
/// ```no_run
/// use std::{process::Command, time::Duration};
/// use redquorum_rig::{Clock, ClockChange};
///
/// let clock = Clock::create("/tmp/an-empty-directory".as_ref())?;
/// clock.change(ClockChange::forward(Duration::from_secs(3600)))?;
/// Command::new("date").envs(clock.env()).status()?; // an hour ahead
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The clock starts at the real time. It can be changed at any time, from any thread, before the
/// process starts and while it runs. A paused process sees the change when it is resumed. The
/// process never sees a partial change.
///
/// Only the wall clock changes. Monotonic clocks, and with them timers, sleeps and event loops,
/// stay unchanged. The shim does not reach static executables, programs that ask the kernel without
/// the C library (Go), and a process that may not read the files. There is no notice whether the
/// shim was loaded, so check once which time the process reports before you rely on it.
///
/// The caller must remove the files when the process has ended.
#[derive(Debug)]
pub struct Clock {
    dir: PathBuf,
    page: Mutex<Page>,
}

#[derive(Debug)]
struct Page {
    file: File,
    sequence: u64,
    setting: ClockSetting,
}

impl Clock {
    /// Writes the shim and the page into a directory that exists and has neither.
    ///
    /// # Errors
    ///
    /// - [`RigError::NoClocks`]: as [`clocks_supported`], the files cannot be written, or the path
    ///   has a space or a colon, which separate the libraries in `LD_PRELOAD`.
    pub fn create(dir: &Path) -> Result<Self, RigError> {
        let shim = SHIM.map_err(|why| no_clocks(why.to_owned()))?;
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let shown = dir.display();
        if dir.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
            return Err(no_clocks(format!(
                "{shown} has a space or a colon: set TMPDIR to another"
            )));
        }
        let failed = |error| no_clocks(format!("nothing can be written to {shown}: {error}"));
        let page = Page::create(&dir, shim).map_err(failed)?;
        Ok(Self { dir, page: Mutex::new(page) })
    }

    /// The environment variables for the process: `Command::envs(clock.env())`. Libraries that this
    /// process itself preloads stay, behind the shim.
    pub fn env(&self) -> [(&'static str, OsString); 2] {
        Self::env_in(&self.dir)
    }

    /// The environment variables for a clock in this directory that does not exist yet.
    pub(crate) fn env_in(dir: &Path) -> [(&'static str, OsString); 2] {
        let [(preload, mut shim), page] = Self::env_at(dir);
        if let Some(others) = std::env::var_os(preload).filter(|others| !others.is_empty()) {
            shim.push(":");
            shim.push(others);
        }
        [(preload, shim), page]
    }

    /// The environment variables for a process that sees the directory under another path: in a
    /// container.
    pub(crate) fn env_at(dir: &Path) -> [(&'static str, OsString); 2] {
        [
            ("LD_PRELOAD", dir.join(SHIM_FILE).into_os_string()),
            ("REDQUORUM_CLOCK", dir.join(PAGE_FILE).into_os_string()),
        ]
    }

    /// Changes the shown time from now on, and returns the new setting.
    ///
    /// # Errors
    ///
    /// - [`io::ErrorKind::InvalidInput`]: the change is impossible, such as a negative rate.
    /// - Any error of the system if the page cannot be written.
    ///
    /// After an error the clock is unchanged.
    pub fn change(&self, change: ClockChange) -> io::Result<ClockSetting> {
        let mut page = lock(&self.page);
        let setting = page
            .setting
            .changed(real_nanos(), change)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        page.write(setting)?;
        Ok(setting)
    }

    /// The current setting.
    pub fn setting(&self) -> ClockSetting {
        lock(&self.page).setting
    }
}

impl Page {
    fn create(dir: &Path, shim: &[u8]) -> io::Result<Self> {
        fs::write(dir.join(SHIM_FILE), shim)?;
        let path = dir.join(PAGE_FILE);
        let file = File::options().write(true).create_new(true).open(&path)?;
        // For a process of another user, if the directory permits access: in a container.
        for name in [SHIM_FILE, PAGE_FILE] {
            make_readable(&dir.join(name))?;
        }
        file.set_len(PAGE_BYTES as u64)?;
        let mut page = Self { file, sequence: 0, setting: ClockSetting::REAL };
        write_words(&page.file, &[MAGIC], 0)?;
        page.write(ClockSetting::REAL)?;
        Ok(page)
    }

    /// Overwrites the older of the two slots: `setting.rs` explains why. If the write fails
    /// half-way, that slot is torn, the other is still the newest, and the next attempt uses the
    /// same slot.
    fn write(&mut self, setting: ClockSetting) -> io::Result<()> {
        let sequence = self.sequence + 1;
        let slot = SLOTS[usize::from(sequence % 2 == 1)];
        let words = setting.to_slot(sequence);
        debug_assert_eq!(ClockSetting::from_slot(&words), Some(setting));
        write_words(&self.file, &words, slot)?;
        self.sequence = sequence;
        self.setting = setting;
        Ok(())
    }
}

/// The real time, in nanoseconds since the Unix epoch. [`ClockSetting::shown`] takes it.
pub(crate) fn real_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(unix)]
fn write_words(file: &File, words: &[u64], at: usize) -> io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    std::os::unix::fs::FileExt::write_all_at(file, &bytes, at as u64 * 8)
}

#[cfg(unix)]
fn make_readable(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o644))
}

// Never called: without Unix there is no shim.
#[cfg(not(unix))]
fn write_words(_file: &File, _words: &[u64], _at: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
fn make_readable(_file: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn no_clocks(why: String) -> RigError {
    RigError::NoClocks { why }
}
