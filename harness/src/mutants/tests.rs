//! Tests of each mutation: its effect, and that the honest machine does not have it.

use std::time::Duration;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{
    Cause, Claim, ClaimMachine, Drift, Effect, Extension, Failure, Holder, Input, LockConfig,
    NodeId, Reply, Rng, RoundId, Time, Token, VoteRequest, WaitPolicy, WakeUp,
};

use super::{Clocks, Mutant, MutantClaim};
use crate::client_machine::Conduct;

const TTL: Duration = Duration::from_secs(1);
/// TTL − 1 % − 2 ms.
const DEADLINE: u64 = 988;

const TAKEN: Reply = Reply::Taken(Holder::NotAsked);

/// A random source whose tokens count up.
struct Counter(u8);

impl Rng for Counter {
    fn token(&mut self) -> Token {
        self.0 += 1;
        Token::new([self.0; 20])
    }

    fn hint(&mut self) -> u64 {
        0
    }

    fn pause(&mut self, _: u32) -> Duration {
        Duration::from_millis(1)
    }

    fn random(&mut self) -> u64 {
        0
    }
}

/// A claim of one attempt, and its effects.
struct Run {
    claim: MutantClaim,
    rng: Counter,
    wall_ahead: u64,
    wanted: Vec<Effect>,
}

fn terms(mutant: Mutant, nodes: usize) -> LockConfig {
    let drift = mutant.drift(Drift::default());
    LockConfig::new(nodes, TTL, drift, Duration::from_millis(50)).unwrap()
}

impl Run {
    fn start(mutant: Mutant, nodes: usize) -> Self {
        Self::start_with(mutant, nodes, Duration::ZERO, Token::new([0xaa; 20]))
    }

    fn start_with(mutant: Mutant, nodes: usize, wait: Duration, root: Token) -> Self {
        let (mut rng, mut wanted) = (Counter(0), Vec::new());
        let clocks =
            Clocks { monotonic: Time::ZERO, awake: Time::ZERO, wall: Time::from_millis(1_000_000) };
        let policy = WaitPolicy { wait, explain: false, ..WaitPolicy::default() };
        let terms = terms(mutant, nodes);
        let claim =
            MutantClaim::acquire((mutant, root), clocks, terms, policy, &mut rng, &mut wanted);
        Self { claim, rng, wall_ahead: 1_000_000, wanted }
    }

    fn clocks(&self, ms: u64) -> Clocks {
        let wall = Time::from_millis(ms + self.wall_ahead);
        Clocks { monotonic: Time::from_millis(ms), awake: Time::from_millis(ms), wall }
    }

    fn give(&mut self, ms: u64, input: Input) {
        let clocks = self.clocks(ms);
        self.claim.handle(clocks, input, &mut self.rng, &mut self.wanted);
    }

    /// Gives these replies to a round, from the first master on.
    fn answers(&mut self, ms: u64, step: RoundId, answers: impl IntoIterator<Item = Reply>) {
        for (node, answer) in answers.into_iter().enumerate() {
            self.give(ms, Input::Answered { node: NodeId::new(node), step, answer });
        }
    }

    /// All masters grant, and the caller collects the lease.
    fn granted(mutant: Mutant, nodes: usize) -> Self {
        let mut run = Self::start(mutant, nodes);
        run.answers(1, RoundId::Attempt(1), (0..nodes).map(|_| Reply::Created));
        run.give(1, Input::Collect);
        assert!(matches!(run.claim.claim(), Claim::Holding(_)), "{mutant}");
        run
    }

    fn is_won(&self) -> bool {
        matches!(self.claim.claim(), Claim::Acquiring(acquire) if acquire.is_won())
    }

    fn failure(&self) -> Option<Failure> {
        match self.claim.claim() {
            Claim::Acquiring(acquire) => acquire.failure(),
            _ => None,
        }
    }

    fn deadline(&self, ms: u64) -> Time {
        let Claim::Holding(hold) = self.claim.claim() else { panic!("no lease") };
        self.claim.deadline(self.clocks(ms), hold)
    }

    fn seems_held(&self, ms: u64) -> bool {
        let Claim::Holding(hold) = self.claim.claim() else { panic!("no lease") };
        self.claim.seems_held(self.clocks(ms), hold)
    }

    fn settled(&self) -> Vec<usize> {
        let settled = self.wanted.iter().filter_map(|effect| match effect {
            Effect::CleanUp { node, .. } => Some(node.index()),
            _ => None,
        });
        settled.collect()
    }

    fn tokens_on_the_wire(&self, mutant: Mutant) -> Vec<Token> {
        let sets = self.wanted.iter().filter_map(|effect| match effect {
            Effect::Send { ask: VoteRequest::Set { token, .. }, .. } => {
                Some(mutant.on_the_wire(*token))
            }
            _ => None,
        });
        sets.collect()
    }
}

#[test]
fn names_are_read_back_and_one_that_is_wrong_is_told_the_others() {
    for mutant in Mutant::ALL {
        assert_eq!(mutant.name().parse(), Ok(mutant));
    }
    assert!("no-such".parse::<Mutant>().unwrap_err().contains("silent-loss"));
}

#[test]
fn no_deadline_check_hands_out_a_lease_that_is_over() {
    let late = |mutant| {
        let mut run = Run::start(mutant, 5);
        run.answers(DEADLINE, RoundId::Attempt(1), [const { Reply::Created }; 3]);
        run.give(DEADLINE + 1, Input::Collect);
        run
    };
    assert_eq!(late(Mutant::None).failure(), Some(Failure::TooLate));
    let run = late(Mutant::NoDeadlineCheck);
    assert_eq!(run.deadline(DEADLINE + 1), Time::from_millis(DEADLINE));
    // It also waits for the votes as long as it takes.
    let patient = |mutant| {
        let mut run = Run::start(mutant, 5);
        run.give(60, Input::Wake);
        (run.failure(), run.claim.sleeps(run.clocks(60)))
    };
    assert_eq!(patient(Mutant::None).0, Some(Failure::NoQuorum));
    assert_eq!(patient(Mutant::NoDeadlineCheck), (None, None));
}

#[test]
fn t0_after_first_reply_moves_the_deadline_by_that_reply() {
    let slow = |mutant| {
        let mut run = Run::start(mutant, 5);
        run.answers(30, RoundId::Attempt(1), [Reply::Unknown(Cause::Stalled)]);
        run.answers(40, RoundId::Attempt(1), [TAKEN, Reply::Created, Reply::Created]);
        let last = Input::Answered {
            node: NodeId::new(3),
            step: RoundId::Attempt(1),
            answer: Reply::Created,
        };
        run.give(45, last);
        run.give(45, Input::Collect);
        run
    };
    assert_eq!(slow(Mutant::None).deadline(45), Time::from_millis(DEADLINE));
    let mut run = slow(Mutant::T0AfterFirstReply);
    assert_eq!(run.deadline(45), Time::from_millis(DEADLINE + 40));
    // An extension does the same.
    run.give(100, Input::Extend(terms(Mutant::None, 5)));
    run.answers(110, RoundId::Extend(1), [const { Reply::Kept }; 4]);
    assert_eq!(run.deadline(110), Time::from_millis(DEADLINE + 110));
}

#[test]
fn the_wall_clock_takes_the_deadline_along_when_it_is_set() {
    for (mutant, held) in [(Mutant::None, false), (Mutant::WallClock, true)] {
        let mut run = Run::granted(mutant, 5);
        assert_eq!(run.deadline(1), Time::from_millis(DEADLINE));
        assert!(run.seems_held(DEADLINE - 1) && !run.seems_held(DEADLINE));
        run.wall_ahead -= 10_000;
        assert_eq!(run.seems_held(DEADLINE), held, "{mutant}");
        assert_eq!(run.deadline(DEADLINE) > Time::from_millis(DEADLINE), held, "{mutant}");
    }
}

#[test]
fn a_small_quorum_is_half_of_the_masters_whatever_the_others_say() {
    let votes = [TAKEN, TAKEN, Reply::Created, TAKEN, Reply::Created];
    let split = |mutant| {
        let mut run = Run::start(mutant, 5);
        run.answers(1, RoundId::Attempt(1), votes.clone());
        run
    };
    assert_eq!(split(Mutant::None).failure(), Some(Failure::Taken));
    assert!(split(Mutant::SmallQuorum).is_won());
    // Less than half of the masters is not enough.
    let mut run = Run::start(Mutant::SmallQuorum, 5);
    run.answers(1, RoundId::Attempt(1), [TAKEN, TAKEN, Reply::Created, TAKEN, TAKEN]);
    assert_eq!(run.failure(), Some(Failure::Taken));
    // Nor does it wait for ever for a silent master.
    let mut run = Run::start(Mutant::SmallQuorum, 5);
    run.answers(1, RoundId::Attempt(1), [TAKEN, TAKEN, Reply::Created, TAKEN]);
    run.give(50, Input::Wake);
    assert_eq!(run.failure(), Some(Failure::Taken));
}

#[test]
fn ignored_drift_brings_the_deadline_to_the_ttl() {
    assert_eq!(Run::granted(Mutant::DriftIgnored, 5).deadline(1), Time::from_millis(999));
}

#[test]
fn plain_del_and_blind_extend_do_not_look_whose_the_key_is() {
    let (key, token) = (b"r"[..].into(), Token::new([b'x'; 20]));
    let delete = Command::Delete { key, token, call: WakeUp::None, leave: None };
    let keep =
        Command::Keep { key: b"r"[..].into(), token, ttl_ms: 1000, repair: true, fence: None };
    let bytes = |mutant: Mutant, command: &Command| {
        let mut out = Vec::new();
        mutant.encode(command, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(bytes(Mutant::PlainDel, &delete), "*2\r\n$3\r\nDEL\r\n$1\r\nr\r\n");
    let expire = "*3\r\n$7\r\nPEXPIRE\r\n$1\r\nr\r\n$4\r\n1000\r\n";
    assert_eq!(bytes(Mutant::ExtendWithoutTokenCheck, &keep), expire);
    for mutant in Mutant::ALL {
        assert_eq!(
            bytes(mutant, &delete).contains("xxxxxxxxxx"),
            mutant != Mutant::PlainDel,
            "{mutant}"
        );
    }
}

#[test]
fn release_of_the_acknowledged_leaves_the_others() {
    let released = |mutant| {
        let mut run = Run::start(mutant, 5);
        run.answers(1, RoundId::Attempt(1), [const { Reply::Created }; 3]);
        run.give(1, Input::Collect);
        run.give(2, Input::Release);
        run.settled()
    };
    assert_eq!(released(Mutant::None), [0, 1, 2, 3, 4]);
    assert_eq!(released(Mutant::ReleaseAcknowledgedOnly), [0, 1, 2]);
}

#[test]
fn a_minority_is_enough_to_extend() {
    let extended = |mutant| {
        let mut run = Run::granted(mutant, 5);
        run.give(100, Input::Extend(terms(mutant, 5)));
        let gone = [Reply::Absent, TAKEN, Reply::Absent, TAKEN, Reply::Kept];
        run.answers(101, RoundId::Extend(1), gone);
        let Claim::Holding(hold) = run.claim.claim() else { panic!("no lease") };
        hold.extension().1
    };
    assert_eq!(extended(Mutant::None), Extension::QuorumGone);
    assert_eq!(extended(Mutant::ExtendCountsMinority), Extension::Extended);
}

#[test]
fn one_token_serves_all_attempts_of_a_client_and_of_it_alone() {
    let tokens = |mutant, root| {
        let mut run = Run::start_with(mutant, 3, TTL, Token::new([root; 20]));
        run.answers(1, RoundId::Attempt(1), [TAKEN; 3]);
        run.give(10, Input::Wake);
        let tokens = run.tokens_on_the_wire(mutant);
        assert_eq!(tokens.len(), 6, "two attempts");
        (tokens[0], tokens[3])
    };
    let (first, second) = tokens(Mutant::None, 7);
    assert_ne!(first, second);
    let (first, second) = tokens(Mutant::OneToken, 7);
    assert_eq!(first, second);
    assert_ne!(first, tokens(Mutant::OneToken, 8).0);
}

#[test]
fn one_server_makes_two_votes() {
    let alone = |mutant| {
        let mut run = Run::start(mutant, 3);
        run.answers(1, RoundId::Attempt(1), [Reply::Created]);
        run
    };
    assert!(!alone(Mutant::None).is_won());
    let run = alone(Mutant::ServerTwice);
    assert!(run.is_won());
    let second = |effect: &Effect| matches!(effect, Effect::Send { node, .. } if node.index() == 1);
    assert!(!run.wanted.iter().any(second), "the second master is not asked");
}

#[test]
fn a_handle_that_is_not_counted_frees_the_lease_with_the_first_release() {
    for (mutant, settled) in [(Mutant::None, 0), (Mutant::FirstReleaseFrees, 5)] {
        let mut run = Run::granted(mutant, 5);
        run.give(2, Input::Reenter);
        assert!(run.claim.reentered(1), "{mutant}");
        run.give(3, Input::Release);
        assert_eq!(run.settled().len(), settled, "{mutant}");
    }
}

#[test]
fn who_does_not_look_at_the_clock_lets_its_owner_into_a_lease_that_is_over() {
    for (mutant, reentered) in [(Mutant::None, false), (Mutant::ReentersDead, true)] {
        let mut run = Run::granted(mutant, 5);
        run.give(DEADLINE, Input::Reenter);
        assert_eq!(run.claim.reentered(1), reentered, "{mutant}");
    }
}

#[test]
fn a_silent_loss_is_no_loss() {
    for (mutant, silent) in [(Mutant::None, false), (Mutant::SilentLoss, true)] {
        let mut run = Run::granted(mutant, 5);
        run.give(DEADLINE, Input::Wake);
        assert_eq!(run.seems_held(DEADLINE + 1), silent, "{mutant}");
        assert_eq!(mutant.reports_loss(), !silent, "{mutant}");
    }
}
