//! One client's way through its script, and the register: the object that a lock protects, as the
//! harness models it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::faults::Faults;
use redquorum_scenario::client_protocol::{Capability, ClientReply, FailureReason, Op};
use redquorum_scenario::history::{Event, Ns};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use redquorum_scenario::{AccessKind, Client, EventKind, LeaseEffect, Lock, Rounds, Step};

/// How long the orchestrator waits at least before it asks a client again that cannot wait by
/// itself.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// How long a client may take for a reply by default, in addition to the wait of its request. Most
/// steps have no such wait.
const ANSWER: Duration = Duration::from_secs(5);

/// How long the orchestrator waits after a request that was refused: 20 to 83 ms, as the number of
/// the request has it. Clients that were refused together must not ask together again: they would
/// split the votes anew, and the harness would find a lock slow that it slows itself.
fn pause_after(id: u64) -> Ns {
    let spread = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    nanos(ASK_AGAIN + Duration::from_millis(spread))
}

/// A client, and its position in its script.
#[derive(Clone, Debug)]
pub(super) struct Player {
    client: Client,
    /// The index of the next step.
    at: usize,
    /// The number of finished rounds.
    rounds: u32,
    state: State,
    /// If the harness waits in place of the client: when the current acquire must be over, and the
    /// number of its first request. The history has them as one request, with that number.
    wait_until: Option<Ns>,
    first: Option<u64>,
    /// The request to cancel, and when.
    cancel: Option<(u64, Ns)>,
    /// How long the client may take for a reply.
    answer: Duration,
    /// Whether all faults are healed, and the client only gives back what it still holds.
    leaving: bool,
    /// When the reply to the current request is overdue.
    overdue: Ns,
    /// Whether the client's process stands still.
    paused: bool,
    /// Whether waiting may take any time, since the process's lease clock runs at another rate.
    slow: bool,
    /// The request that is on its way to a register.
    sent: Option<Sent>,
    /// The version that the client read of each register.
    read: BTreeMap<Name, u64>,
    /// The fencing token of the latest lease of each resource.
    fences: BTreeMap<Name, u64>,
    /// The slots of the permits that the client has, by their semaphores.
    slots: BTreeMap<Name, Name>,
    /// The TTL of a request that names none.
    ttl: Duration,
}

/// A request on its way to a register.
#[derive(Clone, Debug)]
struct Sent {
    at: Ns,
    arrives: Ns,
    touch: Touch,
}

/// An access to a register.
#[derive(Clone, Debug)]
struct Touch {
    register: Name,
    way: AccessKind,
    /// The fencing token that the client presents with it, and the resource of its lease.
    fence: Option<(Name, u64)>,
}

impl Touch {
    fn event(&self) -> EventKind {
        EventKind::of_access(self.way, self.register.clone())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client continues at this time.
    Resting(Ns),
    /// The client gets its next request as soon as this fault has struck.
    Parked(usize),
    /// The client has this request, and has not answered in time. It goes on when it answers.
    Late(u64),
    /// The client has this request, and has not answered.
    Asked(u64),
    /// The client waits for a register.
    Sending,
    /// The client is at the end of its script, or dead.
    Done,
}

impl Player {
    pub(super) fn new(client: &Client, lock: &Lock) -> Self {
        Self {
            client: client.clone(),
            at: 0,
            rounds: 0,
            state: State::Resting(nanos(client.start.0)),
            wait_until: None,
            first: None,
            cancel: None,
            answer: ANSWER,
            leaving: false,
            overdue: Ns::MAX,
            paused: false,
            slow: false,
            sent: None,
            read: BTreeMap::new(),
            fences: BTreeMap::new(),
            slots: BTreeMap::new(),
            ttl: lock.ttl.0,
        }
    }

    /// The longest time of a script: every step takes as long as it may, and every request to a
    /// register is delayed by `late`.
    pub(super) fn longest(client: &Client, lock: &Lock, late: Duration) -> Duration {
        let steps = client.script.iter().map(|step| {
            let late = step.touches().map_or(Duration::ZERO, |_| late);
            step.wait().saturating_add(step.work()).saturating_add(late)
        });
        let round: Duration = steps.chain([client.think.0]).sum();
        let round = round.saturating_add(lock.node_timeout.0 * 4);
        let all = match client.rounds {
            None => round,
            Some(Rounds::Times(times)) => round.saturating_mul(times),
            Some(Rounds::For(length)) => length.0.saturating_add(round),
        };
        all.saturating_add(client.start.0)
    }

    pub(super) fn name_of<'a>(&'a self, resource: &'a Name) -> &'a Name {
        self.client.name_of(resource)
    }

    pub(super) fn id(&self) -> &Name {
        &self.client.id
    }

    pub(super) fn process(&self) -> &Name {
        self.client.process()
    }

    /// Sets how long the client may take for a reply.
    pub(super) fn answers_within(&mut self, answer: Duration) {
        self.answer = answer;
    }

    /// Whether the run need not wait for the client: its script is over, or it does not answer.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done | State::Late(_)) && self.sent.is_none()
    }

    /// Whether the current step is an acquire.
    pub(super) fn is_acquiring(&self) -> bool {
        let step = self.client.script.get(self.at);
        step.is_some_and(|step| step.effect() == LeaseEffect::Acquires)
    }

    pub(super) fn awaits(&self, id: u64) -> bool {
        matches!(self.state, State::Asked(asked) | State::Late(asked) if asked == id)
    }

    /// The number that the history has for a request.
    pub(super) fn recorded(&self, id: u64) -> u64 {
        self.first.unwrap_or(id)
    }

    /// Whether the harness asks again after this reply, in place of a client that cannot wait.
    pub(super) fn asks_again(&self, now: Ns, reply: &ClientReply) -> bool {
        use FailureReason::{Cancelled, Unsupported};
        let is_over = reply.ok || matches!(reply.why, Some(Cancelled | Unsupported));
        let again = now.saturating_add(pause_after(reply.id));
        !is_over && self.is_acquiring() && self.wait_until.is_some_and(|until| again < until)
    }

    /// The client has not answered in time. It may hang at a master, so it is waited for until all
    /// faults are healed.
    pub(super) fn is_late(&mut self) {
        if let State::Asked(id) = self.state {
            self.state = State::Late(id);
        }
    }

    /// All faults are healed. Of the script of a client that is late, only the release is left of
    /// what it may hold.
    pub(super) fn leave(&mut self) {
        if !matches!(self.state, State::Late(_)) {
            return;
        }
        let rest = &self.client.script[self.at..];
        let is_release = |step: &&Step| step.effect() == LeaseEffect::Releases;
        let release = rest.iter().skip(1).find(is_release);
        self.client.script = rest.iter().take(1).chain(release).cloned().collect();
        (self.at, self.client.rounds, self.wait_until) = (0, None, None);
        self.leaving = true;
    }

    /// The step of a client that leaves and has not done so yet.
    pub(super) fn leaves_with(&self) -> Option<&Step> {
        let is_left = self.leaving && self.state != State::Done;
        self.client.script.get(self.at).filter(|_| is_left)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    pub(super) fn answer(&self) -> Duration {
        self.answer
    }

    /// The client will never answer again. A request that it has sent to a register still arrives.
    pub(super) fn lose(&mut self) {
        self.state = State::Done;
        self.cancel = None;
    }

    pub(super) fn next_wake(&self) -> Option<Ns> {
        let rest = match self.state {
            State::Resting(until) => Some(until),
            State::Asked(_) => Some(self.overdue),
            _ => None,
        };
        let cancel = self.cancel.filter(|_| matches!(self.state, State::Asked(_)));
        let sent = self.sent.as_ref().map(|sent| sent.arrives);
        rest.into_iter().chain(cancel.map(|(_, at)| at)).chain(sent).min()
    }

    /// The next request to the client, if it is due now, and the operation as the history has it.
    /// None: it repeats a request that the history has already.
    pub(super) fn next(
        &mut self,
        now: Ns,
        faults: &mut Faults,
        can: &BTreeMap<Name, Vec<Capability>>,
    ) -> Option<(Op, Option<Op>)> {
        if let (Some((request, at)), State::Asked(_)) = (self.cancel, self.state)
            && now >= at
        {
            self.cancel = None;
            let recorded = Op::Cancel { request: self.recorded(request) };
            return Some((Op::Cancel { request }, Some(recorded)));
        }
        loop {
            match self.state {
                State::Resting(until) if now >= until => {}
                State::Parked(fault) if faults.has_struck(fault) => {}
                _ => return None,
            }
            let Some(step) = self.client.script.get(self.at) else {
                self.end_of_round(now);
                continue;
            };
            let waits =
                can.get(self.client.process()).is_some_and(|can| can.contains(&Capability::Wait));
            let repeats = self.first.is_some();
            let op = |waits| Op::of_step(step, self.ttl, waits, &self.slots);
            let Some(asked) = op(waits && !repeats) else {
                self.state = State::Resting(now.saturating_add(nanos(step.work())));
                self.at += 1;
                continue;
            };
            if repeats {
                return Some((asked, None));
            }
            // If a fault must strike before this step, the step is held back.
            let moment = step.before().chain(step.access()).next();
            if let Some(moment) = moment
                && let Some(fault) = faults.before(now, &self.client.id, &moment)
            {
                self.state = State::Parked(fault);
                return None;
            }
            for what in step.before() {
                faults.happened(now, &self.client.id, &what);
            }
            if step.effect() == LeaseEffect::Acquires && !waits {
                self.wait_until = Some(now.saturating_add(nanos(step.wait())));
            }
            return Some((asked, op(true)));
        }
    }

    /// The request from [`next`](Self::next) was sent under this number. A cancel does not change
    /// the state: its reply is not awaited.
    pub(super) fn asked(&mut self, now: Ns, id: u64) {
        if matches!(self.state, State::Asked(_)) {
            return;
        }
        self.state = State::Asked(id);
        if let Some((request, _)) = &mut self.cancel {
            *request = id;
        } else if let Some(after) = self.client.script.get(self.at).and_then(Step::cancel) {
            self.cancel = Some((id, now.saturating_add(nanos(after))));
        }
        if self.wait_until.is_some() {
            self.first.get_or_insert(id);
        }
        self.give_time(now);
    }

    /// The client's process stops, or its lease clock `is_slow`. When the delay ends, the reply
    /// gets its full time again.
    pub(super) fn is_delayed(&mut self, now: Ns, is_slow: bool, delayed: bool) {
        *(if is_slow { &mut self.slow } else { &mut self.paused }) = delayed;
        self.give_time(now);
    }

    fn give_time(&mut self, now: Ns) {
        let wait = self.client.script.get(self.at).map_or(Duration::ZERO, Step::wait);
        self.overdue = if self.paused || self.slow {
            Ns::MAX
        } else {
            now.saturating_add(nanos(wait.saturating_add(self.answer)))
        };
    }

    /// The step whose reply is overdue, if any.
    pub(super) fn is_overdue(&self, now: Ns) -> Option<&Step> {
        match self.state {
            State::Asked(_) if now >= self.overdue => self.client.script.get(self.at),
            _ => None,
        }
    }

    /// The client answered. If it accessed a register without a delay, this returns the event.
    pub(super) fn replied(
        &mut self,
        now: Ns,
        reply: &ClientReply,
        faults: &mut Faults,
        registers: &mut BTreeMap<Name, Register>,
    ) -> Option<Event> {
        if self.asks_again(now, reply) {
            self.state = State::Resting(now.saturating_add(pause_after(reply.id)));
            return None;
        }
        (self.cancel, self.first, self.wait_until) = (None, None, None);
        self.state = State::Resting(now);
        let step = self.client.script.get(self.at)?.clone();
        for what in step.after(reply.ok) {
            faults.happened(now, &self.client.id, &what);
        }
        let mut touched = None;
        if let Step::Touch { register, way, under, .. } = step {
            if reply.ok {
                // A lease without a fencing token presents 0, which is smaller than any token.
                let token = |lease: Name| {
                    let token = self.fences.get(&lease).copied().unwrap_or_default();
                    (lease, token)
                };
                let touch = Touch { register, way, fence: under.map(token) };
                let delay = faults.delay(&self.client.id, way);
                if delay > 0 {
                    let arrives = now.saturating_add(delay);
                    self.sent = Some(Sent { at: now, arrives, touch });
                    self.state = State::Sending;
                    return None;
                }
                faults.happened(now, &self.client.id, &touch.event());
                touched = Some(self.touch(touch, None, true, registers));
            }
        } else if reply.ok {
            for (place, resource) in step.acquires().enumerate() {
                match reply.of(place).fence {
                    Some(token) => drop(self.fences.insert(resource.clone(), token)),
                    None => drop(self.fences.remove(resource)),
                }
                match &reply.resource {
                    Some(slot) => drop(self.slots.insert(resource.clone(), slot.clone())),
                    None => drop(self.slots.remove(resource)),
                }
            }
        } else if let Some(resource) = step.acquires().next() {
            // Skip to the release and past it: these steps need the lock, and there is nothing to
            // release.
            let rest = &self.client.script[self.at..];
            self.at += to_release(rest, resource).min(rest.len() - 1);
        }
        self.at += 1;
        touched
    }

    /// If the client's request to a register has arrived by now, this returns what the request did
    /// there.
    pub(super) fn arrived(
        &mut self,
        now: Ns,
        by: Ns,
        faults: &mut Faults,
        registers: &mut BTreeMap<Name, Register>,
    ) -> Option<Event> {
        let Sent { at, touch, .. } = self.sent.take_if(|sent| sent.arrives <= by)?;
        faults.happened(now, &self.client.id, &touch.event());
        let waits = self.state == State::Sending;
        let event = self.touch(touch, Some(at), waits, registers);
        if waits {
            self.state = State::Resting(now);
            self.at += 1;
        }
        Some(event)
    }

    /// A request reaches a register. If the register refuses and the client `waits` for the result,
    /// the client skips the other steps that need the lock.
    fn touch(
        &mut self,
        Touch { register, way, fence }: Touch,
        sent: Option<Ns>,
        waits: bool,
        registers: &mut BTreeMap<Name, Register>,
    ) -> Event {
        let there = registers.entry(register.clone()).or_default();
        let token = fence.as_ref().map(|(_, token)| *token);
        let refused = there.touch(way, token).is_none();
        let version = there.version();
        let seen = match way {
            AccessKind::Write => self.read.get(&register).copied().unwrap_or_default(),
            AccessKind::Present | AccessKind::Read => version,
        };
        match fence {
            // Go to the step before the release: the caller adds one for the current step.
            Some((lease, _)) if refused && waits => {
                self.at += to_release(&self.client.script[self.at..], &lease) - 1;
            }
            _ if way == AccessKind::Read => drop(self.read.insert(register.clone(), version)),
            _ => {}
        }
        let client = self.client.id.clone();
        Event::Touched { client, register, way, seen, version, sent, fence: token, refused }
    }

    fn end_of_round(&mut self, now: Ns) {
        self.rounds += 1;
        let more = match self.client.rounds {
            None => false,
            Some(Rounds::Times(times)) => self.rounds < times,
            Some(Rounds::For(length)) => {
                let until = nanos(self.client.start.0).saturating_add(nanos(length.0));
                now.saturating_add(nanos(self.client.think.0)) < until
            }
        };
        self.at = 0;
        self.state = if more {
            State::Resting(now.saturating_add(nanos(self.client.think.0)))
        } else {
            State::Done
        };
    }
}

/// The number of steps from the first one to the release of the handle that the client has of this
/// resource, or was not granted; or to the end of the script. Handles that the client acquires
/// again after the first step have releases of their own before that.
pub fn to_release(script: &[Step], resource: &str) -> usize {
    let mut others: usize = 0;
    for (steps, step) in script.iter().enumerate() {
        match step {
            step if steps > 0 && step.is_again() && step.acquires().any(|it| **it == *resource) => {
                others += 1;
            }
            step if step.releases().any(|released| *released == *resource) => {
                match others.checked_sub(1) {
                    Some(left) => others = left,
                    None => return steps,
                }
            }
            _ => {}
        }
    }
    script.len()
}

/// A register, and the largest fencing token that a client has presented to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Register {
    version: u64,
    largest: u64,
}

impl Register {
    /// A client accesses the register, with a fencing token or without. Returns the current
    /// version, or `None` if the register refuses.
    ///
    /// A read or a write with a token is refused unless this token is the largest one presented so
    /// far. A check that only refuses smaller tokens would let two holders lose an update between
    /// them. The register refuses no request without a token.
    pub(super) const fn touch(&mut self, way: AccessKind, token: Option<u64>) -> Option<u64> {
        match (token, way) {
            (Some(0), _) => return None,
            (Some(token), AccessKind::Present) if token >= self.largest => self.largest = token,
            (Some(token), AccessKind::Read | AccessKind::Write) if token == self.largest => {}
            (Some(_), _) => return None,
            (None, _) => {}
        }
        if matches!(way, AccessKind::Write) {
            self.version += 1;
        }
        Some(self.version)
    }

    /// The current version.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn clients_that_are_refused_together_do_not_ask_together_again() {
        let pauses = (1..=20).map(pause_after).collect::<BTreeSet<Ns>>();
        assert!(pauses.len() >= 18, "{pauses:?}");
        assert!(pauses.iter().all(|pause| (20_000_000..=83_000_000).contains(pause)), "{pauses:?}");
    }

    #[test]
    fn a_register_obeys_the_largest_token_that_was_presented_to_it() {
        let mut register = Register::default();
        assert_eq!(register.touch(AccessKind::Read, Some(7)), None, "it was not presented");
        assert_eq!(register.touch(AccessKind::Present, Some(0)), None, "no token");
        assert_eq!(register.touch(AccessKind::Present, Some(7)), Some(0));
        assert_eq!(register.touch(AccessKind::Read, Some(7)), Some(0));
        assert_eq!(register.touch(AccessKind::Write, Some(7)), Some(1));
        assert_eq!(register.touch(AccessKind::Present, Some(7)), Some(1), "again");
        assert_eq!(register.touch(AccessKind::Present, Some(8)), Some(1));
        for way in [AccessKind::Present, AccessKind::Read, AccessKind::Write] {
            assert_eq!(register.touch(way, Some(7)), None);
        }
        assert_eq!(register.touch(AccessKind::Write, Some(9)), None, "larger, and not presented");
        assert_eq!(register.version(), 1);
        assert_eq!(
            register.touch(AccessKind::Write, None),
            Some(2),
            "a request without a token is not refused"
        );
    }
}
