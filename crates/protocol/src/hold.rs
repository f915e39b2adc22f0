//! Hold: a granted lease, from its grant to its release or loss.
//!
//! It knows which masters have held the key without a gap (`members`). Its rounds of extending
//! count only those masters (R6). Its watchdog renews the lease while that is wanted. The lease is
//! lost at its deadline, whether or not any reply came (R7).

mod gap;
mod handles;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use self::gap::Spans;
use crate::acquire::Acquire;
use crate::effect::{Effect, RoundId, VoteRequest, WakeUp};
use crate::lock_config::LockConfig;
use crate::quorum::{NodeId, NodeSet};
use crate::reading::Reading;
use crate::time::Time;
use crate::token::Token;
use crate::vote::{Reply, Votes};
use crate::waiter::WaiterId;

mod watchdog;

pub use watchdog::Renewal;
use watchdog::Watchdog;

/// Why a lease is lost. A loss is final.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// Its deadline passed.
    Expired,
    /// Its deadline passed after the watchdog had kept it alive for as long as allowed.
    MaxHold,
    /// The replies show that a quorum of masters lacked the key at one time.
    QuorumGone,
    /// The clock that measures its deadline was seen to run backwards: for how long the lease still
    /// lasts is unknown.
    ClockRanBack,
    /// The process is a fork of the one that holds the lease. Only its copies of the objects report
    /// this: the lease itself may live on in the other process.
    Forked,
    /// It was given back. Its holder has no lease to ask then; only objects that outlive the lease
    /// report this.
    GivenBack,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its deadline passed",
            Self::MaxHold => "it was kept alive for as long as was allowed",
            Self::QuorumGone => "the key is gone from a quorum of masters",
            Self::ClockRanBack => "the clock that measures its deadline ran backwards",
            Self::Forked => "this process is a fork of the one that holds it",
            Self::GivenBack => "it was given back",
        })
    }
}

/// How one round of extending ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extension {
    /// The round waits for the masters' replies.
    Pending,
    /// Extended: the lease has a new deadline.
    Extended,
    /// Not extended: the old deadline stands, and nothing was taken away (R6).
    NoQuorum,
    /// Not extended: the replies of this round and of those before it show that a quorum of masters
    /// lacked the key at one time, so a rival may have held the resource. The old deadline stands,
    /// but the holder should stop now. No later round extends the lease.
    QuorumGone,
    /// The lease was lost before the round could end.
    Lost(Loss),
}

/// The machine of one lease.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    config: LockConfig,
    token: Token,
    fencing_token: Option<u64>,
    certifications: u32,
    /// The attempt that won it: a late reply to an earlier attempt says nothing about this lease.
    attempt: u32,
    deadline: Time,
    /// Masters known to have held the key without a gap: only they vote on an extension.
    members: NodeSet,
    /// What is known about the times between the rounds.
    spans: Spans,
    round: Round,
    /// The last round before `round` that the holder asked for. The watchdog may renew the lease
    /// several times before the holder collects the result.
    previous: Option<Box<Round>>,
    watchdog: Option<Watchdog>,
    /// How many handles are out. Never 0: the hold ends with the last one.
    handles: u32,
    /// Until when the keys stay after the lease is given back: the lock delay of a dropped handle,
    /// or the time that the holder asked for.
    left: Option<Time>,
    /// The rounds have shown a gap: a later repair must not hide it.
    gone: bool,
    lost: Option<Loss>,
    /// Which waiter is woken when the lease is given back.
    wake_up: WakeUp,
    /// The waiter that the claim was, and still is, in the masters' queues.
    waiter: Option<WaiterId>,
}

/// What a round of extending is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Asker {
    /// The holder, which may come for the result later.
    Holder,
    /// Another handle of the owner. The client acts on the result at once.
    Reentry,
    Watchdog,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Round {
    number: u32,
    votes: Votes,
    config: LockConfig,
    /// The masters that may vote: the members when the round began.
    voters: NodeSet,
    asker: Asker,
    state: Extension,
}

impl Hold {
    pub(crate) fn new(won: &Acquire) -> Self {
        let config = won.config();
        Self {
            config,
            token: won.token(),
            fencing_token: won.fencing_token(),
            certifications: won.certifications(),
            attempt: won.attempt(),
            deadline: won.deadline(),
            members: won.grants().which(Reply::creates).or(won.certified()).without(won.lost()),
            spans: Spans::default(),
            round: Round {
                number: 0,
                votes: won.grants().clone(),
                config,
                voters: NodeSet::EMPTY,
                asker: Asker::Watchdog,
                state: Extension::Extended,
            },
            previous: None,
            watchdog: None,
            handles: 1,
            left: None,
            gone: false,
            lost: None,
            wake_up: WakeUp::First,
            waiter: won.waiter(),
        }
    }

    /// The next claim of this process has its turn as soon as this one gives the lease back: no
    /// other waiter is woken.
    pub(crate) const fn hand_on(&mut self) {
        self.wake_up = WakeUp::Count;
    }

    /// Starts a round of extending for the holder. It replaces a round that is under way.
    pub(crate) fn extend(&mut self, now: Time, config: LockConfig, out: &mut Vec<Effect>) {
        self.start_round(now, config, Asker::Holder, out);
    }

    fn start_round(&mut self, now: Time, config: LockConfig, asker: Asker, out: &mut Vec<Effect>) {
        // Whatever the extension asks for: a repair of a fenced lease must raise the counter, and
        // one of a shared lease must leave room for others.
        let config = config.of_the_kind_of(self.config);
        self.wake_deadline(now, out);
        if self.is_extending() {
            // The replaced round ends here, so that its caller does not wait for ever.
            self.round.state = Extension::NoQuorum;
            out.push(Effect::Decided);
        }
        if self.round.asker == Asker::Holder {
            self.previous = Some(Box::new(self.round.clone()));
        }
        let expires = self.round.votes.opened().plus(self.round.config.validity());
        self.members = self.members.without(self.spans.begin_round(now, self.members, expires));
        self.look_for_gap(now, out);
        self.round.asker = asker;
        self.round.number = self.round.number.wrapping_add(1);
        self.round.config = config;
        if let Some(loss) = self.lost {
            self.round.state = Extension::Lost(loss);
            out.push(Effect::Decided);
            return;
        }
        if self.gone {
            self.round.state = Extension::QuorumGone;
            out.push(Effect::Decided);
            return;
        }
        // A shorter TTL binds the holder before the first byte is sent, whatever the result of the
        // round (R6).
        let nearer = now.plus(config.validity());
        if nearer < self.deadline {
            self.deadline = nearer;
            out.push(Effect::Decided);
        }
        self.round.votes = Votes::open(config.nodes(), now);
        self.round.voters = self.members;
        self.round.state = Extension::Pending;
        let (token, step) = (self.token, RoundId::Extend(self.round.number));
        let fence = self.fencing_token.and_then(|number| config.fence(number));
        out.extend(NodeId::all(config.nodes()).map(|node| {
            // A repair is asked only of masters that cannot vote in this round. A member that lost
            // the key must report that, and not hide the gap with a new key.
            let repair = !self.members.contains(node);
            let request = VoteRequest::Keep { token, ttl_ms: config.key_ttl_ms(), repair, fence };
            Effect::Send { node, step, request }
        }));
    }

    pub(crate) fn replied(
        &mut self,
        now: Time,
        step: RoundId,
        (node, reading): (NodeId, Option<Reading>),
        reply: Reply,
        out: &mut Vec<Effect>,
    ) {
        // The reply may come before the timer fires (R7).
        self.wake_deadline(now, out);
        let current = match step {
            // A late reply to the `SET` that won this lease. It counts only until a round of
            // extending asks this master.
            RoundId::Attempt(attempt) if attempt == self.attempt && self.round.number == 0 => true,
            RoundId::Extend(number) => number == self.round.number,
            // A late reply to a round of certifying. It counts only until then, too.
            RoundId::Certify { attempt, .. } if attempt == self.attempt => self.round.number == 0,
            _ => return,
        };
        match reply {
            Reply::Created | Reply::Granted { .. } | Reply::Certified { .. } | Reply::Kept
                if current =>
            {
                // A clock that this client has not watched for long may have dropped another
                // client's key, which the repair replaced.
                let watched = reading.is_none_or(|reading| reading.unwatched().is_zero());
                if self.members.contains(node) {
                    self.spans.confirm(node);
                } else if watched || !matches!(step, RoundId::Extend(_)) {
                    self.members.insert(node);
                }
            }
            // A late confirmation from an older round proves nothing about now. A late denial does:
            // a key that was missing once has a gap.
            Reply::Absent | Reply::Taken(_) => {
                self.members.remove(node);
                self.spans.deny(now, node);
            }
            _ => {}
        }
        let counts = current && self.round.votes.record(now, node, reply);
        self.look_for_gap(now, out);
        if counts {
            self.decide(now, out);
        }
    }

    /// Checks whether a rival can have had a quorum. The check runs after the verdict, too, which
    /// does not wait for all replies (R3).
    fn look_for_gap(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.spans.has_gap(self.config.quorum()) {
            self.gone = true;
            self.report_gap(now, out);
        }
    }

    /// The watchdog has no caller to report a gap to, so for it a gap is a loss.
    fn report_gap(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.gone && self.watchdog.is_some() && self.lost.is_none() {
            self.lose(now, Loss::QuorumGone, out);
        }
    }

    pub(crate) fn wake(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.wake_deadline(now, out);
        if self.lost.is_some() {
            return;
        }
        if self.is_extending() && now >= self.round_ends() {
            self.round.votes.close(now);
            self.decide(now, out);
        }
        if self.renewal().is_some_and(|renewal| now >= renewal.due) {
            self.renew(now, out);
        }
    }

    pub(crate) fn next_wake(&self) -> Time {
        let renewal = self.renewal().map_or(Time::NEVER, |renewal| renewal.due);
        self.next_end().min(renewal)
    }

    /// The next end that must not be missed: of the lease, or of a round of extending.
    pub fn next_end(&self) -> Time {
        if self.lost.is_some() {
            Time::NEVER
        } else if self.is_extending() {
            self.deadline.min(self.round_ends())
        } else {
            self.deadline
        }
    }

    /// The lease ends without a release: what the holder has under way gets the lock delay.
    pub(crate) fn leave(&self, now: Time, out: &mut Vec<Effect>) {
        match self.config.left_until(now).max(self.left_until(now)) {
            Some(until) => self.leave_until(until, out),
            None => self.clean_up(out),
        }
    }

    /// The keys stay until `until`. After that, the links delete the ones that have not expired.
    pub(crate) fn leave_until(&self, until: Time, out: &mut Vec<Effect>) {
        let nodes = self.config.nodes();
        let token = self.token;
        out.extend(NodeId::all(nodes).map(|node| Effect::Leave { node, token, until }));
        let leave = |waiter_id| move |node| Effect::Dequeue { node, waiter_id, wake: false };
        out.extend(self.waiter.into_iter().flat_map(|it| NodeId::all(nodes).map(leave(it))));
    }

    /// The holder is done: enqueues the clean-up on all masters.
    pub(crate) fn clean_up(&self, out: &mut Vec<Effect>) {
        let (step, token, wake_up, leave) =
            (RoundId::Release, self.token, self.wake_up, self.waiter);
        let clean_up = |node| Effect::CleanUp { node, step, token, wake_up, leave };
        out.extend(NodeId::all(self.config.nodes()).map(clean_up));
    }

    fn decide(&mut self, now: Time, out: &mut Vec<Effect>) {
        if !self.is_extending() {
            return;
        }
        let voters = self.round.voters;
        let kept = self.round.votes.which(|reply| *reply == Reply::Kept).and(voters);
        let awaited = self.round.votes.awaited().and(voters);
        let config = self.round.config;
        let Some(won) = config.quorum().verdict(kept, awaited).or(self.gone.then_some(false))
        else {
            return;
        };
        // A caller that reads "no quorum" tries again; one that reads "gone" stops. The round ends
        // when no reply can turn the first into the second. The watchdog acts on a gap after its
        // round, too, and must not try again later than it can.
        let by_caller = self.round.asker != Asker::Watchdog;
        let quorum = self.config.quorum();
        if !won && !self.gone && by_caller && self.spans.may_have_gap(now, awaited, quorum) {
            return;
        }
        let deadline = self.round.votes.opened().plus(config.validity());
        // Both deadlines must lie ahead: the old one, because a loss is final; the new one, because
        // of R1.
        if won && !self.gone && now < self.deadline && now < deadline {
            debug_assert!(self.lost.is_none(), "R7: a lost lease is extended");
            debug_assert!(deadline <= now.plus(config.ttl()), "R1: it outlives its keys");
            self.deadline = deadline;
            if self.round.asker != Asker::Watchdog {
                // Not for a round of the watchdog, which may cut its last TTL short.
                self.config = config;
            }
            self.round.state = Extension::Extended;
            self.schedule(now);
        } else if self.gone {
            self.round.state = Extension::QuorumGone;
        } else {
            self.round.state = Extension::NoQuorum;
            self.schedule(now);
        }
        out.push(Effect::Decided);
    }

    /// No deadline that this clock has measured can be relied on.
    pub(crate) fn clock_ran_back(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.lost.is_none() {
            self.lose(now, Loss::ClockRanBack, out);
        }
    }

    fn wake_deadline(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.lost.is_none() && now >= self.deadline {
            let bounded = self.watchdog.is_some_and(|watchdog| watchdog.next == Time::NEVER);
            self.lose(now, if bounded { Loss::MaxHold } else { Loss::Expired }, out);
        }
    }

    fn lose(&mut self, now: Time, loss: Loss, out: &mut Vec<Effect>) {
        debug_assert!(self.lost.is_none(), "R7: a loss is final, and reported once");
        debug_assert!(loss != Loss::QuorumGone || self.gone, "R6: no round has shown a gap");
        self.lost = Some(loss);
        if self.is_extending() {
            self.round.state = Extension::Lost(loss);
        }
        self.leave(now, out);
        out.push(Effect::Decided);
    }

    /// Whether a round that the holder or another handle asked for waits for replies. It ends in
    /// time, whether or not its caller looks at it.
    pub fn is_extended_by_a_caller(&self) -> bool {
        self.is_extending() && self.round.asker != Asker::Watchdog
    }

    fn is_extending(&self) -> bool {
        self.round.state == Extension::Pending
    }

    fn round_ends(&self) -> Time {
        self.round.votes.opened().plus(self.round.config.node_timeout())
    }

    /// The instant from which the lease counts as lost.
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// Why the lease is lost, if it is.
    pub const fn lost(&self) -> Option<Loss> {
        self.lost
    }

    /// Whether the replies so far show that a quorum of masters lacked the key at one time. Then a
    /// rival may have held the resource, although the deadline lies ahead.
    pub const fn had_gap(&self) -> bool {
        self.gone
    }

    /// The latest round of extending: its number, counted from 1 (0 is the grant itself), and its
    /// state.
    pub const fn extension(&self) -> (u32, Extension) {
        (self.round.number, self.round.state)
    }

    /// How round `number` ended, and its votes, if it has ended. Only the latest round, and the
    /// latest one that the holder asked for, are known.
    pub fn ended(&self, number: u32) -> Option<(Extension, &Votes)> {
        let rounds = [Some(&self.round), self.previous.as_deref()];
        let round = rounds.into_iter().flatten().find(|round| round.number == number)?;
        (round.state != Extension::Pending).then_some((round.state, &round.votes))
    }

    /// The votes of the latest round.
    pub const fn votes(&self) -> &Votes {
        &self.round.votes
    }

    /// Masters that hold the key without a gap since their grant, as far as is known, and while
    /// their keys live.
    pub const fn members(&self) -> NodeSet {
        self.members
    }

    /// How many masters must forget the key, or end it too early, before a second client can win.
    /// With m [members](Self::members), a quorum of q, and N masters: m + q − N.
    pub fn margin(&self) -> usize {
        self.config.quorum().margin(self.members)
    }

    /// Whether no more masters than a quorum hold the key.
    pub fn is_bare(&self) -> bool {
        self.config.quorum().is_bare(self.members)
    }

    /// The token of the lease.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Whether other leases may share the resource.
    pub const fn is_shared(&self) -> bool {
        self.token.is_shared()
    }

    /// The fencing token, if the lease was acquired with one.
    pub const fn fencing_token(&self) -> Option<u64> {
        self.fencing_token
    }

    /// How many rounds it took to certify the fencing token, besides the grant.
    pub const fn certifications(&self) -> u32 {
        self.certifications
    }

    /// The lock config of the grant, or of the latest successful extension that the holder asked
    /// for.
    pub const fn config(&self) -> LockConfig {
        self.config
    }
}
