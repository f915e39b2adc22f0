//! The clock of one master: changed through its page, checked with `TIME`.

use std::{
    fmt, io,
    thread::sleep,
    time::{Duration, Instant},
};

use super::{Node, PATIENCE, Plan, State};
use crate::{
    Clock, ClockChange, ClockSetting, RespValue, RigError,
    clock::{clocks_supported, real_nanos},
};

/// How long a server may show the time before a change. Valkey 9 adds the elapsed monotonic time to
/// the wall clock that it read last, and reads it again every millisecond or so.
const CATCHES_UP: Duration = Duration::from_millis(500);

/// The time between two checks of a server that has not caught up.
const PAUSE: Duration = Duration::from_millis(1);

impl Node {
    /// Its clock, if the masters have any.
    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.clock.get()
    }

    /// Creates it when its directory exists, before the server is launched.
    pub(super) fn create_clock(&self, plan: &Plan) -> Result<(), RigError> {
        if plan.clocks && self.clock.get().is_none() {
            let clock = Clock::create(&self.dir)?;
            self.clock.get_or_init(|| clock);
        }
        Ok(())
    }

    /// Changes the clock, and verifies it now, or when the master answers again.
    pub(crate) fn set_clock(&self, plan: &Plan, change: ClockChange) -> Result<(), RigError> {
        let Some(clock) = self.clock() else {
            clocks_supported()?;
            let why = "the masters were started without Builder::clocks".to_owned();
            return Err(RigError::NoClocks { why });
        };
        clock.change(change).map_err(|error| self.wrong_clock(format!("{change}: {error}")))?;
        // Before the check, so that a thread that resumes it at this moment sees it.
        self.running().unverified = true;
        if !self.can_be_asked() {
            return Ok(());
        }
        match self.verify_clock(plan) {
            // It was killed or paused since.
            Err(RigError::NoAnswer { .. }) if !self.can_be_asked() || !self.runs()? => Ok(()),
            verified => verified,
        }
    }

    fn can_be_asked(&self) -> bool {
        let running = self.running();
        !running.paused && !matches!(running.state, State::Dead)
    }

    /// Whether the server's `TIME` matches the setting of its clock. True without a clock.
    pub(crate) fn verify_clock(&self, plan: &Plan) -> Result<(), RigError> {
        let Some(clock) = self.clock() else { return Ok(()) };
        verify(clock, || self.command(plan, PATIENCE, &[b"TIME"]))?
            .map_err(|why| self.wrong_clock(why))?;
        self.running().unverified = false;
        Ok(())
    }

    fn wrong_clock(&self, why: String) -> RigError {
        RigError::Clock { node: self.number, why }
    }
}

/// Asks for `TIME` until it matches the clock's setting. After [`CATCHES_UP`] it returns the
/// difference as an error.
pub(crate) fn verify(
    clock: &Clock,
    mut time: impl FnMut() -> Result<RespValue, RigError>,
) -> Result<Result<(), String>, RigError> {
    let start = Instant::now();
    loop {
        let setting = clock.setting();
        let from = real_nanos();
        let reply = time()?;
        let to = real_nanos();
        let verdict = judge(&setting, from, to, &reply);
        // Another thread may have changed it meanwhile.
        let is_stale = clock.setting() != setting;
        if !is_stale && (verdict.is_ok() || start.elapsed() >= CATCHES_UP) {
            return Ok(verdict);
        }
        if !is_stale {
            sleep(PAUSE);
        }
    }
}

/// Whether a clock with this setting can have shown this reply between these two real times.
fn judge(setting: &ClockSetting, from: u64, to: u64, reply: &RespValue) -> Result<(), String> {
    let micros = micros(reply).map_err(|error| error.to_string())?;
    if setting.could_show(from, to, micros) {
        return Ok(());
    }
    let [low, high] = [from, to].map(|real| Time(setting.shown(real) / 1000));
    Err(format!(
        "TIME says {}, and it should be between {low} and {high}; was the shim loaded?",
        Time(micros)
    ))
}

/// The reply to `TIME`: seconds and microseconds.
fn micros(reply: &RespValue) -> io::Result<u64> {
    let number = |reply: &RespValue| reply.text()?.parse::<u64>().ok();
    let time = match reply {
        RespValue::Array(parts) => match parts.as_slice() {
            [seconds, micros] => number(seconds).zip(number(micros)),
            _ => None,
        },
        _ => None,
    };
    time.and_then(|(seconds, micros)| seconds.checked_mul(1_000_000)?.checked_add(micros))
        .ok_or_else(|| io::Error::other(format!("TIME was answered with {reply:?}")))
}

/// Seconds, from microseconds.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: u64 = 1_700_000_000_000_000_000;

    fn time(seconds: &str, micros: &str) -> RespValue {
        RespValue::Array([seconds, micros].map(|text| RespValue::Bulk(text.into())).into())
    }

    #[test]
    fn a_server_that_shows_what_it_was_set_to_is_right_and_any_other_is_not() {
        let ahead =
            ClockSetting::REAL.changed(NOW, ClockChange::forward(Duration::from_secs(8))).unwrap();
        let judge = |reply| judge(&ahead, NOW, NOW + 2_000_000, &reply);
        assert_eq!(judge(time("1700000008", "1000")), Ok(()));
        let why = judge(time("1700000000", "1000")).unwrap_err();
        assert_eq!(
            why,
            "TIME says 1700000000.001000, and it should be between 1700000008.000000 and \
             1700000008.002000; was the shim loaded?"
        );
        assert!(judge(time("1700000008", "2001")).is_err(), "a microsecond late");
    }

    #[test]
    fn an_answer_that_is_no_time_is_shown() {
        for reply in
            [RespValue::Nil, RespValue::Error("NOPERM".into()), time("x", "1"), time("1", "")]
        {
            let why = judge(&ClockSetting::REAL, NOW, NOW, &reply).unwrap_err();
            assert!(why.starts_with("TIME was answered with "), "{why}");
        }
    }
}
