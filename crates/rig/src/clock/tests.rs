//! Tests of a clock's arithmetic, and of the detection of torn pages.

use std::time::Duration;

use super::{
    ClockChange, ClockSetting,
    setting::{SLOT_WORDS, SLOTS},
};

const S: u64 = 1_000_000_000;
/// Some real time.
const NOW: u64 = 1_700_000_000 * S + 123_456_789;

fn changed(setting: ClockSetting, real: u64, change: ClockChange) -> ClockSetting {
    setting.changed(real, change).unwrap()
}

fn strobe(by: u64, every: u64) -> ClockChange {
    ClockChange::Strobe { by: Duration::from_nanos(by), every: Duration::from_nanos(every) }
}

#[test]
fn steps_add_up_and_a_cure_takes_all_back() {
    let mut clock = ClockSetting::REAL;
    assert_eq!([0, NOW, u64::MAX].map(|real| clock.shown(real)), [0, NOW, u64::MAX]);
    for nanos in [8_000_000_000, -3_000_000_000, 1] {
        clock = changed(clock, NOW, ClockChange::Step { nanos });
    }
    assert_eq!(clock.shown(NOW + 7), NOW + 7 + 5 * S + 1);
    assert_eq!(changed(clock, NOW, ClockChange::Heal), ClockSetting::REAL);
}

#[test]
fn a_new_rate_does_not_jump_and_counts_from_the_shown_time() {
    let ahead = changed(ClockSetting::REAL, NOW, ClockChange::forward(Duration::from_secs(5)));
    let double = changed(ahead, NOW, ClockChange::Rate(2.0));
    assert_eq!(double.shown(NOW), NOW + 5 * S);
    assert_eq!(double.shown(NOW + 3 * S), NOW + 5 * S + 6 * S);
    let half = changed(double, NOW + 3 * S, ClockChange::Rate(0.5));
    assert_eq!(half.shown(NOW + 3 * S), double.shown(NOW + 3 * S));
    assert_eq!(half.shown(NOW + 5 * S), NOW + 11 * S + S);
    let still = changed(half, NOW + 5 * S, ClockChange::Rate(0.0));
    assert_eq!(still.shown(NOW + 500 * S), NOW + 12 * S);
    // A step on top of a rate is a step of the shown time, not of the real time.
    let stepped = changed(double, NOW + S, ClockChange::back(Duration::from_secs(4)));
    assert_eq!(stepped.shown(NOW + S), double.shown(NOW + S) - 4 * S);
}

#[test]
fn the_drift_of_a_bad_quartz_is_exact_to_a_nanosecond_in_a_second() {
    let fast = changed(ClockSetting::REAL, NOW, ClockChange::Rate(1.0001));
    assert!(fast.shown(NOW + S).abs_diff(NOW + S + 100_000) <= 1);
    let slow = changed(ClockSetting::REAL, NOW, ClockChange::Rate(0.999_999));
    assert!(slow.shown(NOW + S).abs_diff(NOW + S - 1000) <= 1);
}

#[test]
fn a_strobe_adds_in_every_second_period_and_starts_without() {
    let clock = changed(ClockSetting::REAL, NOW, strobe(500, 100));
    let added = |after: u64| clock.shown(NOW + after) - (NOW + after);
    assert_eq!([0, 99, 100, 199, 200, 299, 300].map(added), [0, 0, 500, 500, 0, 0, 500]);
    // Also where the real clock was set back since.
    assert_eq!(clock.shown(NOW - 1), NOW - 1 + 500);
}

#[test]
fn a_strobe_keeps_its_period_over_steps_and_rates() {
    let mut clock = changed(ClockSetting::REAL, NOW, strobe(500, 100));
    clock = changed(clock, NOW + 150, ClockChange::Rate(2.0));
    assert_eq!(clock.shown(NOW + 150), NOW + 150 + 500);
    assert_eq!(clock.shown(NOW + 199), NOW + 150 + 2 * 49 + 500);
    assert_eq!(clock.shown(NOW + 200), NOW + 150 + 2 * 50);
    clock = changed(clock, NOW + 320, strobe(0, 0));
    assert_eq!(clock.shown(NOW + 320), NOW + 150 + 2 * 170);
}

#[test]
fn no_clock_shows_less_than_the_epoch() {
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let clock = changed(ClockSetting::REAL, NOW, ClockChange::back(century));
    assert_eq!(clock.shown(NOW), 0);
    // It is still as far back as it was set.
    assert_eq!(changed(clock, NOW, ClockChange::forward(century)).shown(NOW), NOW);
}

#[test]
fn the_error_of_an_impossible_change_has_the_reason() {
    let why = |change| ClockSetting::REAL.changed(NOW, change).unwrap_err();
    for rate in [-1.0, f64::NAN, f64::INFINITY, 1e7] {
        assert!(why(ClockChange::Rate(rate)).contains(&format!("at a rate of {rate}")));
    }
    assert!(why(strobe(1, 0)).contains("some time between"));
    let far = changed(ClockSetting::REAL, NOW, ClockChange::forward(Duration::MAX));
    assert!(far.changed(NOW, ClockChange::Step { nanos: 1 }).unwrap_err().contains("that far"));
}

#[test]
fn only_times_that_a_clock_can_show_are_accepted() {
    let clock = changed(ClockSetting::REAL, NOW, strobe(10 * S, S));
    let micros = |nanos: u64| nanos / 1000;
    // Within one period only its own value, across a jump both.
    let could = |from, to, nanos| clock.could_show(NOW + from, NOW + to, micros(NOW + nanos));
    assert!(could(10, 2000, 1000) && !could(10, 2000, 9000) && !could(10, 2000, 10 * S + 1000));
    assert!(could(S, S + 2000, 11 * S + 1000) && !could(S, S + 2000, S + 1000));
    assert!(could(S - 5000, S + 5000, S) && could(S - 5000, S + 5000, 11 * S));
    // A microsecond that began before the first of them.
    assert!(ClockSetting::REAL.could_show(NOW, NOW, micros(NOW)));
    assert!(!ClockSetting::REAL.could_show(NOW, NOW, micros(NOW) + 1));
}

#[test]
fn every_mix_of_two_slots_is_detected() {
    let odd = ClockSetting { strobe_by: 7, ..changed(ClockSetting::REAL, NOW, strobe(1, 1)) };
    let back = changed(odd, NOW, ClockChange::Step { nanos: -5 });
    let [old, new] = [odd.to_slot(6), back.to_slot(8)];
    assert_eq!(ClockSetting::from_slot(&old), Some(odd));
    assert_eq!(ClockSetting::from_slot(&new), Some(back));
    // All mixes of words, and of bytes that arrive in order.
    for pattern in 1..(1_u32 << SLOT_WORDS) - 1 {
        let mixed = std::array::from_fn(|i| if pattern >> i & 1 == 1 { new[i] } else { old[i] });
        let is_whole = mixed == old || mixed == new;
        assert_eq!(ClockSetting::from_slot(&mixed).is_some(), is_whole, "{pattern:b}");
    }
    assert_eq!(ClockSetting::from_slot(&[0; SLOT_WORDS]), None);
    assert!(SLOTS[0] + SLOT_WORDS <= SLOTS[1]);
}

#[test]
fn a_change_is_shown_in_words() {
    let shown = [
        ClockChange::forward(Duration::from_millis(1500)),
        ClockChange::back(Duration::from_secs(3)),
        ClockChange::Rate(2.0),
        strobe(500_000_000, S),
        ClockChange::Heal,
    ]
    .map(|change| change.to_string());
    assert_eq!(shown, ["step +1.5s", "step -3s", "rate 2", "strobe 500ms every 1s", "heal"]);
}
