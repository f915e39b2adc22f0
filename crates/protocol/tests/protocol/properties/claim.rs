//! Claims under any inputs, in any order, at any time.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redquorum_protocol::{
    Cause, Claim, Effect, Extension, Holder, Input, LockConfig, NodeId, QueueEvent, Reply, RoundId,
    Time, Turn, VoteRequest, WaitPolicy, WaiterId, quorum,
};

use super::time::*;
use crate::support::Random;

pub(crate) fn any_reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        4 => Just(Reply::Created),
        4 => (1..4_u64).prop_map(|number| Reply::Granted { number }),
        4 => (1..4_u64).prop_map(|number| Reply::Certified { number }),
        4 => Just(Reply::Kept),
        1 => Just(Reply::Deleted),
        2 => Just(Reply::Absent),
        1 => Just(Reply::NoQueue),
        2 => (0..4_u64, 0..2_u64, any::<bool>()).prop_map(|(number, ahead, held)| {
            Reply::Place { number, ahead, holder: held.then_some(Holder::NoExpiry) }
        }),
        2 => Just(Reply::Taken(Holder::NotAsked)),
        1 => Just(Reply::Taken(Holder::NoExpiry)),
        1 => Just(Reply::Alive),
        2 => Just(Reply::Unknown(Cause::Disconnected)),
        1 => Just(Reply::Unknown(Cause::ShutDown)),
        1 => Just(Reply::Unknown(Cause::RuntimeEnded)),
    ]
}

pub(crate) fn any_step() -> impl Strategy<Value = RoundId> {
    let number = || prop_oneof![8 => 0..4_u32, 1 => any::<u32>()];
    prop_oneof![
        4 => number().prop_map(RoundId::Attempt),
        2 => number().prop_map(RoundId::Enqueue),
        4 => (number(), number()).prop_map(|(attempt, round)| RoundId::Certify { attempt, round }),
        1 => number().prop_map(RoundId::Cleanup),
        4 => number().prop_map(RoundId::Extend),
        1 => Just(RoundId::Release),
    ]
}

pub(crate) fn any_input() -> impl Strategy<Value = Input> {
    let replied = (0..5_usize, any_step(), any_reply());
    prop_oneof![
        20 => replied.prop_map(|(at, step, reply)| Input::Replied { node: NodeId::new(at), step, reply }),
        3 => Just(Input::Wake),
        3 => (0..5_usize, any_queue_event()).prop_map(|(at, event)| Input::QueueEvent { node: NodeId::new(at), event }),
        3 => Just(Input::Collect),
        3 => valid_config().prop_map(Input::extend),
        1 => any_duration().prop_map(Input::KeepAlive),
        1 => Just(Input::HandOn),
        1 => Just(Input::Yield),
        1 => Just(Input::Renew),
        2 => Just(Input::Reenter),
        1 => Just(Input::ClockRanBack),
        1 => valid_config().prop_map(Input::prolong),
        1 => any_duration().prop_map(|until| Input::KeepUntil(Time::ZERO.plus(until))),
        1 => Just(Input::Release),
        1 => Just(Input::Abandon),
    ]
}

fn any_queue_event() -> impl Strategy<Value = QueueEvent> {
    prop_oneof![
        Just(QueueEvent::Subscribed),
        Just(QueueEvent::NotSubscribed),
        Just(QueueEvent::Refused),
        (0..8_u64).prop_map(|waiter_id| QueueEvent::Free(WaiterId::new(waiter_id))),
        any::<u32>().prop_map(QueueEvent::Waiters),
    ]
}

fn any_wait_policy() -> impl Strategy<Value = WaitPolicy> {
    let turn = prop_oneof![Just(Turn::First), Just(Turn::HandedOff), Just(Turn::Yielded)];
    (any_duration(), any::<[bool; 3]>(), turn).prop_map(
        |(wait, [explain, wake_ups, fair], turn)| WaitPolicy {
            wait,
            explain,
            wake_ups,
            fair,
            turn,
        },
    )
}

/// The times of the inputs: in any order, or one shortly after the other. Many begin with a grant.
pub(crate) fn any_inputs() -> impl Strategy<Value = Vec<(Time, Input)>> {
    let wild = vec((any_time(), any_input()), 0..60);
    let mild = (any::<bool>(), vec((0..40_u64, any_input()), 0..60)).prop_map(|(won, inputs)| {
        let mut now = 0;
        let mut at = |later: u64| {
            now += later;
            Time::from_millis(now)
        };
        let (step, reply) = (RoundId::Attempt(1), Reply::Granted { number: 1 });
        let grant = |node| Input::Replied { node, step, reply: reply.clone() };
        let grants = NodeId::all(3).map(grant).chain([Input::Collect]).filter(|_| won);
        let grants: Vec<_> = grants.map(|input| (Time::ZERO, input)).collect();
        let inputs = inputs.into_iter().map(|(later, input)| (at(later), input));
        grants.into_iter().chain(inputs).collect()
    });
    prop_oneof![1 => wild, 3 => mild]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_input_makes_a_claim_hand_out_a_dead_lease_or_leave_a_key_without_clean_up(
        config in valid_config(), start in any_time(), mild in any::<bool>(),
        policy in any_wait_policy(), inputs in any_inputs(),
    ) {
        let (mut rng, mut outcomes) = (Random(0), Vec::new());
        let mut now = if mild { Time::ZERO } else { start };
        let mut claim = Claim::acquire(now, config, policy, &mut rng, &mut outcomes);
        let mut opened = now;
        // The clock has run backwards since the attempt began.
        let mut t0_is_wrong = false;
        // The last state of a lost lease, which never changes again.
        let mut lost = None;
        let mut kept = None;
        for (time, input) in inputs {
            let extends = matches!(input, Input::Extend(_) | Input::Prolong(_));
            let asked = if let Input::Extend(config) = &input { Some(config.validity()) } else { None };
            let before = claim.clone();
            let so_far = outcomes.len();
            now = time;
            claim.handle(now, input.clone(), &mut rng, &mut outcomes);
            let opens = |outcomes: &Effect| match outcomes {
                Effect::Send { request, .. } => !matches!(request, VoteRequest::Certify { .. }),
                _ => false,
            };
            let over = match &claim {
                Claim::Acquiring(acquire) => acquire.failure().is_some(),
                Claim::Holding(hold) => hold.lost().is_some(),
                Claim::Releasing(_) | Claim::Ended => true,
            };
            prop_assert!(!over || positions(&outcomes) == 0, "it is over, and still in a queue");
            if input == Input::ClockRanBack {
                prop_assert!(claim.hold().is_none_or(|hold| hold.lost().is_some()));
                t0_is_wrong = true;
            }
            if outcomes[so_far..].iter().any(opens) {
                opened = now;
                t0_is_wrong = false;
            }
            if let Input::KeepUntil(until) = input
                && let Claim::Holding(is) = &claim
                && is.lost().is_none()
            {
                kept = kept.max(Some(until));
            }
            // Others are kept out for as long as the holder asked for.
            if kept.is_some_and(|until| now < until) && matches!(&before, Claim::Holding(_)) {
                let deletes = outcomes[so_far..].iter().any(|outcomes| matches!(outcomes, Effect::CleanUp { .. }));
                prop_assert!(!deletes, "{input:?}");
            }
            // A lease with a lock delay that expires or is dropped is not deleted.
            if let Claim::Holding(was) = &before
                && !was.config().lock_delay().is_zero()
                && (input == Input::Abandon || was.lost().is_some() || now >= was.deadline() || matches!(&claim, Claim::Holding(_)))
            {
                let deletes = outcomes[so_far..].iter().any(|outcomes| matches!(outcomes, Effect::CleanUp { .. }));
                prop_assert!(!deletes, "{input:?}");
            }
            match (&before, &claim) {
                (Claim::Acquiring(_), Claim::Holding(hold)) => {
                    prop_assert_eq!(&input, &Input::Collect);
                    prop_assert!(now < hold.deadline(), "a dead lease");
                    prop_assert!(!t0_is_wrong, "t0 was read before the clock ran backwards");
                    prop_assert!(hold.deadline() <= opened.plus(config.ttl()));
                    prop_assert!(hold.members().len() >= quorum(5));
                    prop_assert_eq!(hold.fencing_token().is_some(), config.is_fenced());
                }
                (Claim::Holding(was), Claim::Holding(is)) => {
                    let alive = is.lost().is_none() && now < was.deadline();
                    match input {
                        Input::Reenter => {
                            prop_assert_eq!(is.handles(), was.handles() + u32::from(alive));
                            let asks = |outcomes: &Effect| matches!(outcomes, Effect::Send { .. });
                            prop_assert!(!outcomes[so_far..].iter().any(asks), "no round trip");
                        }
                        Input::Release | Input::Abandon => {
                            prop_assert_eq!(is.handles() + 1, was.handles());
                        }
                        _ => prop_assert_eq!(is.handles(), was.handles()),
                    }
                    prop_assert!(is.handles() > 0);
                    if let Some(asked) = asked && is.extension().1 == Extension::Pending {
                        let nearer = was.deadline().min(now.plus(asked));
                        prop_assert_eq!(is.deadline(), nearer, "a shorter TTL binds at once");
                    }
                    if is.deadline() < was.deadline() {
                        prop_assert!(matches!(input, Input::Extend(_)), "brought nearer by no request");
                    }
                    if is.deadline() > was.deadline() {
                        prop_assert!(now < was.deadline() && now < is.deadline(), "it rose from the dead");
                        prop_assert!(is.deadline() <= is.votes().opened().plus(is.config().ttl()));
                        let yes = is.votes().which(|reply| *reply == Reply::Kept);
                        prop_assert!(yes.len() >= quorum(5));
                        prop_assert!(!extends, "before any answer");
                    }
                    prop_assert!(is.lost().is_some() || lost.is_none(), "lost is final");
                    prop_assert!(lost.is_none() || is.deadline() == was.deadline());
                    lost = is.lost();
                    if let Some(renewal) = is.renewal() {
                        prop_assert!(renewal.from <= renewal.due && is.lost().is_none());
                    }
                    prop_assert!(is.next_end() <= is.deadline() || is.lost().is_some());
                    let renews = is.renewal().map_or(Time::NEVER, |renewal| renewal.due);
                    prop_assert_eq!(claim.next_wake(), is.next_end().min(renews));
                }
                (Claim::Holding(was), _) => {
                    prop_assert!(matches!(input, Input::Release | Input::Abandon));
                    prop_assert_eq!(was.handles(), 1, "given back under another handle");
                }
                (_, Claim::Holding(_)) => prop_assert!(false, "{input:?} hands out a lease"),
                _ => {}
            }
            claim.next_wake();
        }
        while claim != Claim::Ended {
            claim.handle(now, Input::Abandon, &mut rng, &mut outcomes);
        }
        prop_assert_eq!(claim.next_wake(), Time::NEVER);
        check_effects(&outcomes)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_lock_delay_moves_no_deadline_and_delays_no_verdict(
        config in valid_config(), inputs in any_inputs(), lock_delay in 1..10_000_u64,
    ) {
        let bare = |config: LockConfig| config.with_lock_delay(Duration::ZERO).unwrap();
        let longer = |config: LockConfig| config.with_lock_delay(Duration::from_millis(lock_delay));
        prop_assume!(longer(config).is_ok());
        let (mut rngs, mut outcomes) = ([Random(0), Random(0)], Vec::new());
        let policy = WaitPolicy { wait: Duration::ZERO, explain: false, ..WaitPolicy::default() };
        let both = [bare(config), longer(config).unwrap()];
        let mut claims: Vec<Claim> = both.into_iter().zip(&mut rngs).map(|(config, rng)| {
            Claim::acquire(Time::ZERO, config, policy, rng, &mut outcomes)
        }).collect();
        for (now, input) in inputs {
            let inputs = match input {
                Input::Extend(config) | Input::Prolong(config) if longer(*config).is_err() => continue,
                Input::Extend(config) => [bare(*config), longer(*config).unwrap()].map(Input::extend),
                Input::Prolong(config) => [bare(*config), longer(*config).unwrap()].map(Input::prolong),
                other => [other.clone(), other],
            };
            for ((claim, rng), input) in claims.iter_mut().zip(&mut rngs).zip(inputs) {
                claim.handle(now, input, rng, &mut outcomes);
            }
            match &claims[..] {
                [Claim::Holding(one), Claim::Holding(two)] => {
                    prop_assert_eq!((one.deadline(), one.lost()), (two.deadline(), two.lost()));
                    prop_assert_eq!((one.extension(), one.members()), (two.extension(), two.members()));
                    prop_assert_eq!(claims[0].next_wake(), claims[1].next_wake());
                }
                // Releases may differ: a lost lease with a lock delay sends no command.
                [Claim::Releasing(_), Claim::Releasing(_)] => {}
                [one, two] => {
                    prop_assert_eq!(std::mem::discriminant(one), std::mem::discriminant(two));
                    prop_assert_eq!(one.next_wake(), two.next_wake());
                }
                _ => unreachable!(),
            }
        }
    }
}

/// The number of masters in whose queues this claim may be.
fn positions(outcomes: &[Effect]) -> usize {
    let mut places = BTreeSet::new();
    for effect in outcomes {
        match effect {
            Effect::Enqueue { node, .. } => _ = places.insert(*node),
            Effect::Dequeue { node, .. } | Effect::CleanUp { node, leave: Some(_), .. } => {
                places.remove(node);
            }
            _ => {}
        }
    }
    places.len()
}

/// For each master and token: no request follows the clean-up, and each request has a clean-up.
fn check_effects(outcomes: &[Effect]) -> Result<(), TestCaseError> {
    let (mut asked, mut settled, mut set) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for effect in outcomes {
        match effect {
            Effect::Send { node, request, .. } => {
                let token = request.token();
                prop_assert!(!settled.contains(&(*node, token)), "asked behind its clean-up");
                asked.insert((*node, token));
                if let VoteRequest::Set { .. } = request {
                    prop_assert!(set.insert((*node, token)), "a token of two attempts");
                }
            }
            Effect::CleanUp { node, token, step, .. } => {
                let of = (*node, *token);
                let cleans_up = matches!(step, RoundId::Cleanup(_));
                prop_assert!(!cleans_up || asked.contains(&of), "a clean-up of nothing");
                settled.insert(of);
            }
            Effect::Leave { node, token, .. } => _ = settled.insert((*node, *token)),
            _ => {}
        }
    }
    prop_assert!(asked.is_subset(&settled), "{:?} of {:?}", settled, asked);
    Ok(())
}
