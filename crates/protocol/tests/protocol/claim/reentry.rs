//! Re-entry: handles are counted, only the last one releases the lease, and no caller enters a
//! lease that is over. `properties/claim.rs` counts the handles under any inputs.

use redquorum_protocol::{Claim, Extension, Input, Loss, Outcome, Time};

use super::play::*;

const MASTERS: usize = 3;

fn reentered() -> Play {
    let mut play = Play::hold(&[Grants; MASTERS]);
    play.handle(Input::Reenter);
    assert_eq!((play.held().handles(), &play.effects[..]), (2, &[][..]), "no master is asked");
    play
}

#[test]
fn only_the_last_handle_gives_the_lease_back_whichever_way_they_go() {
    for ways in 0..8_u32 {
        let mut play = reentered();
        play.handle(Input::Reenter);
        for handle in 0..3 {
            let handles = play.held().handles();
            assert_eq!((handles, play.cleaned_up(MASTERS, 1)), (3 - handle, vec![0; MASTERS]));
            let dropped = ways & (1 << handle) == 0;
            play.handle(if dropped { Input::Abandon } else { Input::Release });
        }
        assert_eq!(play.cleaned_up(MASTERS, 1), [1; MASTERS], "{ways}");
        // No caller enters after the last handle.
        play.handle(Input::Reenter);
        assert!(!matches!(play.claim, Claim::Holding(_)), "{:?}", play.claim);
    }
}

#[test]
fn no_caller_enters_a_lease_at_its_deadline_even_before_the_timer_has_fired() {
    let mut play = reentered();
    play.now = Time::from_nanos(play.deadline().as_nanos() - 1);
    play.handle(Input::Reenter);
    assert_eq!((play.held().handles(), play.lost()), (3, None), "a moment before");
    play.handle(Input::Release);
    play.now = play.deadline();
    play.handle(Input::Reenter);
    assert_eq!((play.held().handles(), play.lost()), (2, Some(Loss::Expired)));
    // The loss is final, for all handles.
    play.handle(Input::Release);
    play.handle(Input::Reenter);
    assert_eq!((play.held().handles(), play.lost()), (1, Some(Loss::Expired)));
    assert_eq!(play.cleaned_up(MASTERS, 1), [1; MASTERS], "with the loss, not with the handle");
    play.handle(Input::Release);
    play.reply_all(Release, 0..MASTERS, Deleted);
    assert_eq!(play.outcome(), Some(Outcome::AlreadyGone));
}

#[test]
fn a_gap_that_a_round_has_shown_is_a_loss_once_the_owner_comes_again() {
    let mut play = Play::hold(&[Grants; MASTERS]);
    play.handle(Input::extend(config(MASTERS)));
    play.reply_all(Extend(1), 0..2, Absent);
    // The caller that extends gets the error, and its lease keeps its deadline (R6).
    assert_eq!((play.extension(), play.lost()), (Extension::QuorumGone, None));
    play.handle(Input::Reenter);
    assert_eq!((play.held().handles(), play.lost()), (1, Some(Loss::QuorumGone)));
}

#[test]
fn a_longer_ttl_extends_and_a_shorter_one_changes_nothing() {
    let mut play = reentered();
    let deadline = play.deadline();
    for ttl in [100, 999, 1_000] {
        play.handle(Input::prolong(config(MASTERS).with_ttl(ttl * MS).unwrap()));
        assert_eq!((play.asked().len(), play.deadline()), (0, deadline), "{ttl}");
    }
    let longer = config(MASTERS).with_ttl(2_000 * MS).unwrap();
    play.handle(Input::prolong(longer));
    assert_eq!((play.asked().len(), play.deadline()), (MASTERS, deadline), "not before a quorum");
    let mut failed = play.fork();
    play.reply_all(Extend(1), 0..MASTERS, Kept);
    assert_eq!(play.deadline(), START.plus(longer.validity()));
    failed.reply_all(Extend(1), 0..2, unknown(0));
    assert_eq!(failed.extension(), Extension::NoQuorum);
    assert_eq!((failed.deadline(), failed.held().handles()), (deadline, 2));
    assert_eq!(failed.lost(), None);
}

#[test]
fn the_watchdog_of_one_handle_renews_for_all_until_the_last_is_gone() {
    let mut play = reentered();
    play.handle(Input::KeepAlive(60_000 * MS));
    play.handle(Input::Release);
    play.wake();
    assert_eq!(play.asked().len(), MASTERS);
    play.reply_all(Extend(1), 0..MASTERS, Kept);
    assert_eq!(play.deadline(), play.now.plus(config(MASTERS).validity()));
    play.handle(Input::Abandon);
    assert_eq!(play.claim.next_wake(), Time::NEVER);
}

#[test]
fn a_fencing_token_stays_the_same() {
    let mut play = Play::acquire_fenced(MASTERS);
    play.reply_all(Attempt(1), 0..MASTERS, Granted { number: 7 });
    play.handle(Input::Collect);
    play.handle(Input::Reenter);
    assert_eq!((play.held().handles(), play.held().fencing_token()), (2, Some(7)));
}
