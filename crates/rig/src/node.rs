//! One server of a set: when it is up, its clock, and its methods. The same for processes and
//! containers. `builder.rs` calls it for the start, and `masters.rs` for everything after that.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    Builder, Clock, ClockChange, ClockSetting, RespValue, RigError,
    clock::{clocks_supported, real_nanos},
    host::{Host, Signal},
    resp,
};

/// The time between two checks of a server that starts or stops.
const POLL: Duration = Duration::from_millis(2);

/// How long a command may take. A running master answers within microseconds, unless the machine
/// stalls.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A server that is up answers within microseconds. A server that is silent for this long is not
/// ours, or not up.
const TIMEOUT_WITH_STRANGERS: Duration = Duration::from_millis(200);

/// How long a server may show the time before a change. Valkey 9 adds the elapsed monotonic time to
/// the wall clock that it read last, and reads it again every millisecond or so.
const CATCHES_UP: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Node {
    /// Counted from 1. A replica has the number of its master.
    pub(crate) number: usize,
    pub(crate) dir: PathBuf,
    pub(crate) host: Box<dyn Host>,
    pub(crate) clock: Option<Clock>,
    pub(crate) plan: Arc<Builder>,
    /// Whether it was paused or killed, so that a command would get no reply.
    silent: AtomicBool,
    /// Whether its clock was changed since it was compared with `TIME`.
    unverified: AtomicBool,
}

impl Node {
    /// A server that was not launched yet, with a directory.
    pub(crate) fn new(
        plan: &Arc<Builder>,
        number: usize,
        dir: PathBuf,
        host: impl Host + 'static,
    ) -> Result<Self, RigError> {
        let clock = if plan.clocks { Some(Clock::create(&dir)?) } else { None };
        let [silent, unverified] = [(); 2].map(|()| AtomicBool::new(false));
        let (plan, host) = (Arc::clone(plan), Box::new(host));
        Ok(Self { number, dir, host, clock, plan, silent, unverified })
    }

    /// Waits until the server answers, with the time of its clock. False: it ended, because another
    /// program has its port.
    pub(crate) fn wait_until_up(&self, until: Instant) -> Result<bool, RigError> {
        while let Err(why) = self.answers() {
            let runs = self.host.signal(Signal::Look)?;
            let in_time = Instant::now() < until;
            if runs && in_time {
                sleep(POLL);
                continue;
            }
            let log = self.host.log();
            let taken = !runs && log.contains("Address already in use");
            if taken && in_time {
                return Ok(false);
            }
            let why = if runs || taken {
                format!("not within {:?}: {why}", self.plan.within)
            } else {
                "the server ended".to_owned()
            };
            let port = self.host.address().port();
            return Err(RigError::NotUp { node: self.number, port, why, log });
        }
        self.silent.store(false, SeqCst);
        self.verify_clock()?;
        Ok(true)
    }

    /// Whether the server is ready. Another server behind the same port does not count.
    fn answers(&self) -> io::Result<()> {
        let commands: [&[&[u8]]; 2] = [&[b"INFO", b"server"], &[b"PING"]];
        let replies = self.exchange(TIMEOUT_WITH_STRANGERS, &commands)?;
        let info = replies[0].text().unwrap_or_default();
        let ours = self.host.pid().map(|pid| format!("process_id:{pid}"));
        if !info.is_empty() && ours.is_some_and(|ours| !info.lines().any(|line| line == ours)) {
            return Err(io::Error::other("another server answers on this port"));
        }
        // An error is a reply too, but not one of a server that is ready (LOADING, NOAUTH).
        match replies.iter().find(|reply| reply.text().is_none()) {
            Some(reply) => Err(io::Error::other(format!("it answers, but with {reply:?}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn restart(&self) -> Result<(), RigError> {
        let until = Instant::now() + self.plan.within;
        self.host.launch()?;
        // Another program may have the port for the moment. It must stay the same, so wait for it.
        while !self.wait_until_up(until)? {
            sleep(POLL);
            self.host.launch()?;
        }
        Ok(())
    }

    pub(crate) fn kill(&self) -> Result<(), RigError> {
        self.silent.store(true, SeqCst);
        self.host.signal(Signal::Kill).map(drop)
    }

    /// Sends a signal to a server that runs, after which it replies or not.
    pub(crate) fn signal(&self, signal: Signal, silent: bool) -> Result<(), RigError> {
        let there = self.host.signal(signal)?;
        there.then_some(()).ok_or(RigError::NotRunning { node: self.number })?;
        self.silent.store(silent, SeqCst);
        if silent || !self.unverified.load(SeqCst) { Ok(()) } else { self.verify_clock() }
    }

    /// Ends it with SIGTERM.
    pub(crate) fn stop(&self) -> Result<(), RigError> {
        let within = self.plan.within;
        let until = Instant::now() + within;
        self.signal(Signal::Stop, true)?;
        while self.host.signal(Signal::Look)? {
            if Instant::now() >= until {
                return Err(RigError::NotStopped { node: self.number, within });
            }
            sleep(POLL);
        }
        Ok(())
    }

    pub(crate) fn command(&self, command: &[&[u8]]) -> Result<RespValue, RigError> {
        let failed = |source| RigError::NoReply { node: self.number, source };
        Ok(self.exchange(TIMEOUT, &[command]).map_err(failed)?.remove(0))
    }

    /// A section of `INFO`: empty if the server refuses.
    pub(crate) fn info(&self, section: &str) -> Result<String, RigError> {
        let reply = self.command(&[b"INFO", section.as_bytes()])?;
        Ok(reply.text().unwrap_or_default().into_owned())
    }

    fn exchange(&self, timeout: Duration, commands: &[&[&[u8]]]) -> io::Result<Vec<RespValue>> {
        resp::exchange(self.host.address(), self.plan.password.as_deref(), timeout, commands)
    }

    /// Changes the clock, and verifies it now, or when the master answers again.
    pub(crate) fn set_clock(&self, change: ClockChange) -> Result<(), RigError> {
        let Some(clock) = &self.clock else {
            clocks_supported()?;
            let why = "the masters were started without Builder::clocks".to_owned();
            return Err(RigError::NoClocks { why });
        };
        clock.change(change).map_err(|error| self.wrong_clock(format!("{change}: {error}")))?;
        // Before the check, so that a thread that resumes it at this moment sees it.
        self.unverified.store(true, SeqCst);
        if self.silent.load(SeqCst) {
            return Ok(());
        }
        match self.verify_clock() {
            // It was killed or paused since, or ended by itself.
            Err(RigError::NoReply { .. })
                if self.silent.load(SeqCst) || !self.host.signal(Signal::Look)? =>
            {
                Ok(())
            }
            verified => verified,
        }
    }

    /// Asks for `TIME` until it matches the clock's setting, for at most [`CATCHES_UP`].
    pub(crate) fn verify_clock(&self) -> Result<(), RigError> {
        let Some(clock) = &self.clock else { return Ok(()) };
        let start = Instant::now();
        loop {
            let setting = clock.setting();
            let from = real_nanos();
            let reply = self.command(&[b"TIME"])?;
            let matches = compare(&setting, from, real_nanos(), &reply);
            // Another thread may have changed it meanwhile.
            if clock.setting() != setting {
                continue;
            }
            match matches {
                Ok(()) => break,
                Err(why) if start.elapsed() >= CATCHES_UP => return Err(self.wrong_clock(why)),
                Err(_) => sleep(POLL),
            }
        }
        self.unverified.store(false, SeqCst);
        Ok(())
    }

    fn wrong_clock(&self, why: String) -> RigError {
        RigError::Clock { node: self.number, why }
    }
}

/// Whether a clock with this setting can have shown this reply between these two real times.
fn compare(setting: &ClockSetting, from: u64, to: u64, reply: &RespValue) -> Result<(), String> {
    let micros = micros(reply).ok_or_else(|| format!("TIME was answered with {reply:?}"))?;
    if setting.could_show(from, to, micros) {
        return Ok(());
    }
    let [low, high] = [from, to].map(|real| setting.shown(real) / 1000);
    let [shown, low, high] = [micros, low, high].map(Duration::from_micros);
    Err(format!(
        "TIME says {shown:?}, and it should be between {low:?} and {high:?}; was the shim loaded?"
    ))
}

/// The reply to `TIME`: seconds and microseconds.
fn micros(reply: &RespValue) -> Option<u64> {
    let RespValue::Array(parts) = reply else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let number = |reply: &RespValue| reply.text()?.parse::<u64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_time_is_compared_with_the_setting() {
        const NOW: u64 = 1_700_000_000_000_000_000;
        let ahead =
            ClockSetting::REAL.changed(NOW, ClockChange::forward(Duration::from_secs(8))).unwrap();
        let time = |parts: [&str; 2]| {
            let reply = RespValue::Array(parts.map(|part| RespValue::Bulk(part.into())).into());
            compare(&ahead, NOW, NOW + 2_000_000, &reply)
        };
        assert_eq!(time(["1700000008", "1000"]), Ok(()));
        assert_eq!(
            time(["1700000000", "1000"]).unwrap_err(),
            "TIME says 1700000000.001s, and it should be between 1700000008s and 1700000008.002s; \
             was the shim loaded?"
        );
        assert!(time(["1700000008", "2001"]).is_err(), "a microsecond late");
        for no_time in [time(["x", "1"]), time(["1", ""]), compare(&ahead, 0, 0, &RespValue::Nil)] {
            assert!(no_time.unwrap_err().starts_with("TIME was answered with "));
        }
    }
}
