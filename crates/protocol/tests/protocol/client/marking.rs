//! Which master a client marks after a quarantine, depending on what all masters show.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Bounds, Cause, Claim, Client, ClientConfig, ClientEffect, Context, Distrust, Drift,
    Fingerprint, Guard, MastersId, NodeId, Quorum, Reply, RunId, Time, quorum,
};

use crate::support::{MS, Random};

const S: Duration = Duration::from_secs(1);

/// What a master shows to a client.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Shown {
    /// The marker of these locks, of the present process.
    Own,
    /// The marker of these locks, of the process before.
    Restarted,
    Missing,
    OtherMasters,
    OtherGuard,
    OtherClock,
    Down,
}
use Shown::{Down, Missing, OtherClock, OtherGuard, OtherMasters, Own, Restarted};

fn guard(max_ttl: Duration, masters: &str) -> Guard {
    Guard::new(max_ttl, Drift::default(), 7)
        .unwrap()
        .over(MastersId::Of(Fingerprint::of_name(masters)))
}

fn ours() -> Guard {
    guard(3 * S, "ours")
}

impl Shown {
    fn marker(self, run_id: &RunId) -> Option<Arc<str>> {
        let before = RunId(Arc::from("before"));
        Some(match self {
            Own => ours().marker(run_id, false),
            Restarted => ours().marker(&before, false),
            // Locks over other masters may have another guard as well.
            OtherMasters => guard(4 * S, "theirs").marker(run_id, false),
            OtherGuard => guard(4 * S, "ours").marker(run_id, false),
            OtherClock => ours().with_clock_bound(S).unwrap().marker(run_id, false),
            Missing | Down => return None,
        })
    }
}

/// A client to which its masters show this.
struct Marking {
    client: Client,
    now: Time,
    out: Vec<ClientEffect>,
}

impl Marking {
    fn new(shown: &[Shown]) -> Self {
        let client_config = ClientConfig {
            quorum: Quorum::of(shown.len()),
            node_timeout: 50 * MS,
            bounds: Bounds::for_node_timeout(50 * MS),
            wake_ups: false,
            fair: false,
            guard: Some(ours()),
            inbox: 0,
        };
        let mut out = Vec::new();
        let client = Client::start(client_config, &mut out);
        let mut test = Self { client, now: Time::from_millis(1_000), out };
        for (at, shown) in shown.iter().enumerate() {
            if *shown != Down {
                test.connect(at, *shown);
            }
        }
        test
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Client, &mut Context<'_, Claim>) -> R) -> R {
        let mut random = Random(1);
        let mut cx = Context { clocks: self.now, rng: &mut random, out: &mut self.out };
        act(&mut self.client, &mut cx)
    }

    /// Connects a master, and answers the first look at it.
    fn connect(&mut self, at: usize, shown: Shown) {
        let run_id = RunId(Arc::from(format!("run{at}")));
        let boot = shown.marker(&run_id);
        let greeting = Greeting { run_id: Some(run_id), boot: boot.clone(), ..Greeting::default() };
        let node = NodeId::new(at);
        self.act(|client, cx| client.connected(node, 1, greeting, cx)).unwrap();
        if shown != Own {
            let reply = Reply::Marked { boot, probation: Some(Arc::from("once")) };
            self.act(|client, cx| client.replied(node, 1, reply, cx));
        }
        self.out.clear();
    }

    /// Whether the client marks this master after a quarantine.
    fn marks(&mut self, at: usize) -> bool {
        self.now = self.now.plus(ours().quarantine());
        self.act(|client, cx| client.wake_link(NodeId::new(at), cx));
        let marks = self.out.iter().any(|effect| match effect {
            ClientEffect::Write { command: Command::Watch { ended, .. }, node, .. } => {
                assert_eq!(node.index(), at);
                ended.as_deref() == Some("once")
            }
            _ => false,
        });
        self.out.clear();
        marks
    }
}

fn marks(shown: &[Shown]) -> bool {
    Marking::new(shown).marks(0)
}

#[test]
fn masters_that_show_no_other_locks_are_marked_where_a_quorum_is_connected() {
    for (shown, wanted) in [
        // A single master; new masters; masters that were all restarted.
        (&[Missing][..], true),
        (&[Missing; 5], true),
        (&[Restarted; 5], true),
        (&[Missing, Restarted, Own, Down, Down], true),
        (&[Missing, Own, Own, Own, Own], true),
        (&[Restarted, Own, Own, Own, Own], true),
        // A client that is cut off from most masters does not know whose they are.
        (&[Missing, Missing, Down, Down, Down], false),
        (&[Restarted, Own, Down, Down, Down], false),
        (&[Missing, Down], false),
    ] {
        assert_eq!(marks(shown), wanted, "{shown:?}");
    }
}

#[test]
fn one_marker_of_locks_over_other_masters_is_enough_to_mark_none() {
    for shown in [
        &[Missing, Missing, Missing, Missing, OtherMasters][..],
        &[Missing, Own, Own, Own, OtherMasters],
        &[Restarted, Own, Own, Own, OtherMasters],
        &[Missing, OtherMasters, OtherMasters, OtherMasters],
        &[OtherMasters],
    ] {
        assert!(!marks(shown), "{shown:?}");
    }
}

#[test]
fn a_quorum_of_own_markers_outvotes_those_of_another_guard() {
    for other in [OtherGuard, OtherClock] {
        for (shown, wanted) in [
            (&[Missing, Missing, Missing, Missing, other][..], false),
            (&[Missing, Own, Own, Missing, other], false),
            (&[Missing, Own, Own, Own, other], true),
            (&[Missing, other, other, other, other], false),
            (&[other, Own, Own, Own, Own], false),
        ] {
            assert_eq!(marks(shown), wanted, "{shown:?}");
        }
    }
}

#[test]
fn a_watch_goes_on_while_nothing_may_be_marked_and_its_cause_says_that_it_does_not_end() {
    let mut test = Marking::new(&[Missing, Own, OtherMasters]);
    let node = NodeId::new(0);
    let left = |test: &Marking| match test.client.link(node).distrust(test.now) {
        Some(Cause::Distrusted { why: Distrust::Unmarked, left }) => left,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(&test), Some(ours().quarantine()));
    assert!(!test.marks(0));
    assert_eq!(left(&test), None);
    test.act(|client, cx| client.initialize(node, 9, cx));
    match &test.out[..] {
        [ClientEffect::Replied { request: 9, reply: Reply::Unknown(Cause::Error(text)), .. }] => {
            assert!(text.contains("master 3 has the marker of other locks"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    // The marker of the other locks was deleted.
    let gone = |probation: Option<Arc<str>>| Reply::Marked { boot: None, probation };
    let other = NodeId::new(2);
    test.act(|client, cx| client.replied(node, 1, gone(Some(Arc::from("once"))), cx));
    test.act(|client, cx| client.wake_link(other, cx));
    test.act(|client, cx| client.replied(other, 1, gone(None), cx));
    test.out.clear();
    assert!(test.marks(0), "the same probation key was there all the time");
}

/// A client with a wrong list does not find a quorum of its own masters without the markers of a
/// set that works. Two clients of one list and different guards do not both mark.
#[test]
fn random_lists_beside_a_set_that_works() {
    let random = &mut Random(1);
    let mut tried = [0; 2];
    for _ in 0..20_000 {
        let masters = 1 + random.below(9);
        let (right, wrong) = (random.below(1 << masters), random.below(1 << masters));
        let lists = [right, wrong]
            .map(|bits| -> Vec<u64> { (0..masters).filter(|at| bits >> at & 1 == 1).collect() });
        let [right, wrong] = lists;
        // The masters of the right list that show its marker.
        let marked: Vec<u64> = right.iter().copied().filter(|_| random.below(4) > 0).collect();
        let outside = wrong.iter().filter(|at| !right.contains(at)).count();
        let unmarked = wrong.iter().filter(|at| right.contains(at) && !marked.contains(at)).count();
        if wrong.is_empty() || right == wrong || outside + unmarked >= quorum(wrong.len()) {
            continue;
        }
        // The wrong client cannot reach some of its masters.
        let shown: Vec<Shown> = wrong
            .iter()
            .map(|at| match random.below(3) {
                0 => Down,
                _ if marked.contains(at) => OtherMasters,
                1 => Own,
                _ => Missing,
            })
            .collect();
        for at in 0..shown.len() {
            if matches!(shown[at], Missing) {
                tried[0] += 1;
                assert!(!Marking::new(&shown).marks(at), "{right:?} {wrong:?} {shown:?}");
            }
        }
    }
    for _ in 0..5_000 {
        let mut shows = || match random.below(4) {
            0 => Own,
            1 => OtherGuard,
            2 => Missing,
            _ => Down,
        };
        let shown: Vec<Shown> = [(); 6].map(|()| shows()).into_iter().chain([Missing]).collect();
        // What the same masters show to the other client.
        let swap = |shown: &Shown| match shown {
            Own => OtherGuard,
            OtherGuard => Own,
            shown => *shown,
        };
        let other: Vec<Shown> = shown.iter().map(swap).collect();
        if shown.contains(&Own) && shown.contains(&OtherGuard) {
            tried[1] += 1;
            let both = [shown.clone(), other].map(|shown| Marking::new(&shown).marks(6));
            assert_ne!(both, [true; 2], "{shown:?}");
        }
    }
    assert!(tried.iter().all(|count| *count > 1_000), "{tried:?}");
}

#[test]
fn masters_that_cannot_be_watched_or_do_not_answer_are_none_of_the_quorum() {
    let node = NodeId::new(1);
    let watched = Reply::Marked { boot: None, probation: Some(Arc::from("once")) };
    let forbidden = Reply::Unknown(Cause::Error(Arc::from("NOPERM no permissions")));
    for (reply, marks) in [(Some(watched), true), (Some(forbidden), false), (None, false)] {
        let mut test = Marking::new(&[Missing, Down, Down]);
        let greeting = Greeting { run_id: Some(RunId(Arc::from("run1"))), ..Greeting::default() };
        test.act(|client, cx| client.connected(node, 1, greeting, cx)).unwrap();
        match reply.clone() {
            Some(reply) => test.act(|client, cx| client.replied(node, 1, reply, cx)),
            None => {
                test.now = test.now.plus(100 * MS);
                test.act(|client, cx| client.wake_link(node, cx));
            }
        }
        test.out.clear();
        assert_eq!(test.marks(0), marks, "{reply:?}");
    }
}
