use super::*;

const PROGRESS: Property = Property::Progress;
const HYGIENE: Property = Property::Hygiene;

impl Run {
    /// Asks for L and M, and returns the numbers of the two requests.
    fn ask_both(&mut self, ms: f64, client: &str, wait: u64) -> [u64; 2] {
        [("L", "M"), ("M", "L")].map(|(resource, other)| {
            let id = self.ask(ms, client, "acquire", Some(resource), wait);
            if let Some(Record { event: Event::Asked { with, .. }, .. }) = self.records.last_mut() {
                with.push(other.into());
            }
            id
        })
    }

    fn refuse_both(&mut self, ms: f64, client: &str, ids: [u64; 2]) {
        for id in ids {
            let why = Some(FailureReason::Taken);
            self.answer(
                ms,
                client,
                id,
                Answer { ok: false, at: Some(ms), why, ..Answer::default() },
            );
        }
    }
}

#[test]
fn what_is_in_the_way_of_one_is_in_the_way_of_all() {
    let mut run = Run::two();
    run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
    let ids = run.ask_both(100.0, "c2", 0);
    run.refuse_both(101.0, "c2", ids);
    assert_eq!(
        run.judge().seen(PROGRESS),
        Observed::Safe,
        "L is held, and so M is not granted either"
    );
    let mut run = Run::two();
    let ids = run.ask_both(100.0, "c2", 0);
    run.refuse_both(101.0, "c2", ids);
    assert_eq!(run.judge().seen(PROGRESS), Observed::Violated, "nothing is held");
}

#[test]
fn who_waits_for_several_must_get_them_soon_after_the_last_is_free() {
    // c1 releases at 1000, and has until 1150.4 to clean up; then c2 has 700.
    for (at, seen) in [(1850.0, Observed::Safe), (1852.0, Observed::Violated)] {
        let mut run = Run::two();
        run.grant("c1", "t1", 10.0, 1988.0, &[1, 2, 3]);
        run.release("c1", "t1", 1000.0, &[1, 2, 3]);
        let ids = run.ask_both(20.0, "c2", 5000);
        run.refuse_both(at, "c2", ids);
        assert_eq!(run.judge().seen(PROGRESS), seen, "{at}");
    }
}

/// Whether the check reports a key that was kept. The keys left at the end are not known in these
/// histories.
fn is_seen(verdict: &Verdict) -> bool {
    verdict.seen(HYGIENE) == Observed::Violated
}

/// c2 asks for both resources, sets L, and deletes it at `deleted`. It is refused at `refused`.
fn kept(deleted: f64, refused: f64, faults: impl FnOnce(&mut Run)) -> Verdict {
    let mut run = Run::two();
    let ids = run.ask_both(100.0, "c2", 5000);
    for node in [1, 2, 3] {
        run.set("c2", node, "t2", 100.2, Some(100.4));
        run.delete("c2", node, Some("t2"), deleted, Some(deleted + 0.2), Said::Done);
    }
    faults(&mut run);
    run.refuse_both(refused, "c2", ids);
    run.judge()
}

#[test]
fn who_keeps_some_of_several_while_it_waits_or_after_a_refusal_is_seen() {
    // The bound is three node timeouts and 100 ms more.
    for (deleted, refused, seen) in
        [(101.0, 102.0, false), (350.0, 351.0, false), (352.0, 4_000.0, true), (352.0, 102.0, true)]
    {
        assert_eq!(is_seen(&kept(deleted, refused, |_| ())), seen, "{deleted} {refused}");
    }
    let told = "c2 asked for L and M at 100 ms, and kept L on master 1";
    kept(1_000.0, 4_000.0, |_| ()).tells(HYGIENE, told);
}

#[test]
fn who_could_not_give_it_back_has_not_kept_it() {
    let paused = kept(1_000.0, 4_000.0, |run| {
        run.struck(200.0, 1, "client.pause = { client = \"c2\" }", &[], &["c2"]);
        run.cured(900.0, 1);
    });
    assert!(!is_seen(&paused));
    let dead = kept(1_000.0, 4_000.0, |run| {
        run.struck(200.0, 1, "client.kill = { client = \"c2\" }", &[], &["c2"]);
    });
    assert!(!is_seen(&dead));
}

#[test]
fn what_is_granted_is_not_kept_without_right() {
    let mut run = Run::two();
    let ids = run.ask_both(100.0, "c2", 0);
    for node in [1, 2, 3] {
        run.set("c2", node, "t2", 100.2, Some(100.4));
    }
    run.granted(101.0, "c2", ids[0], "t2", 2_050.0);
    assert!(!is_seen(&run.judge()));
    // Before the grant, the keys are not kept by right.
    let mut run = Run::two();
    let ids = run.ask_both(100.0, "c2", 5000);
    for node in [1, 2, 3] {
        run.set("c2", node, "t2", 100.2, Some(100.4));
    }
    run.granted(1_000.0, "c2", ids[0], "t2", 2_050.0);
    assert!(is_seen(&run.judge()));
}
