//! The clock of a master in a container. The directory with the shim and the page is mounted into
//! the container. This process changes the clock through the page, and checks it with `TIME`.

use std::{fs, path::Path, sync::atomic::Ordering, time::Duration};

use testcontainers::{ContainerRequest, GenericImage, ImageExt, core::Mount};

use super::{PATIENCE, node::Node};
use crate::{Clock, ClockChange, RigError, clock::clocks_supported, node::clock::verify};

/// The directory within a container.
const INSIDE: &str = "/redquorum";

/// Longer than a command takes, shorter than any action that a server does by the clock.
const TRIAL: Duration = Duration::from_millis(50);

/// Creates the clock of one master, in a directory of its own within that of the set.
pub(super) fn create(set: &Path, number: usize) -> Result<Clock, RigError> {
    let directory = set.join(number.to_string());
    fs::create_dir(&directory).map_err(|error| RigError::NoClocks {
        why: format!("{} cannot be made: {error}", directory.display()),
    })?;
    Clock::create(&directory)
}

/// Puts a container under a clock.
pub(super) fn mounted(
    request: ContainerRequest<GenericImage>,
    clock: &Clock,
) -> ContainerRequest<GenericImage> {
    let outside = clock.dir().to_string_lossy();
    // Not as a "bind" of the engine, which would create the directory if the engine does not see
    // ours. The engine does not label it for SELinux either, so the container runs without labels.
    let mount = Mount::bind_mount(outside, INSIDE)
        .with_access_mode(testcontainers::core::AccessMode::ReadOnly);
    let request = request.with_mount(mount).with_security_opt("label=disable");
    Clock::env_at(Path::new(INSIDE))
        .into_iter()
        .fold(request, |request, (name, value)| request.with_env_var(name, value.to_string_lossy()))
}

impl Node {
    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// Changes the clock, and verifies it now, or when the master answers again.
    pub(crate) fn set_clock(&self, change: ClockChange) -> Result<(), RigError> {
        let Some(clock) = self.clock() else {
            clocks_supported()?;
            let why = "the containers were started without ContainersBuilder::clocks".to_owned();
            return Err(RigError::NoClocks { why });
        };
        clock.change(change).map_err(|error| self.wrong_clock(format!("{change}: {error}")))?;
        if self.silent.load(Ordering::SeqCst) {
            return Ok(());
        }
        match self.verify_clock() {
            // It was killed or paused since, or ended by itself.
            Err(RigError::NoAnswer { .. }) if self.cannot_answer()? => Ok(()),
            verified => verified,
        }
    }

    /// Steps and cures the clock of a master that has executed no command yet. There is no other
    /// way to see whether the shim was loaded, and more can fail here than with a process.
    pub(super) fn try_clock(&self) -> Result<(), RigError> {
        if self.clock().is_none() {
            return Ok(());
        }
        self.set_clock(ClockChange::forward(TRIAL))?;
        self.set_clock(ClockChange::Cure)
    }

    /// Whether the server's `TIME` matches the setting of its clock. True without a clock.
    pub(super) fn verify_clock(&self) -> Result<(), RigError> {
        let Some(clock) = self.clock() else { return Ok(()) };
        verify(clock, || self.command(PATIENCE, &[b"TIME"]))?.map_err(|why| self.wrong_clock(why))
    }

    fn cannot_answer(&self) -> Result<bool, RigError> {
        let state = self.state()?;
        Ok(state.paused || !state.running)
    }

    fn wrong_clock(&self, why: String) -> RigError {
        RigError::Clock { node: self.number, why }
    }
}
