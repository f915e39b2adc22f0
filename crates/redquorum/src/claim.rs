//! ClaimCell: one claim machine behind a lock, its effects carried out on the links.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use redquorum_protocol::{
    Answer, Ballot, Claim, Effect, Extension, Failure, Holder, Input, Key, LinkInput, NodeId,
    NodeSet, Patience, Step, Terms, Ticket, Time, Word, renewal_moment,
};
use tokio::sync::Notify;

use crate::alarm::Set;
use crate::fleet::Fleet;
use crate::report::Report;
use crate::rooms::{Next, Seat, Verdict};
use crate::stats::count;
use crate::tag::{Claimant, Ring, Tag};
use crate::trace;

/// How late a future is polled at least before it is taken not to act.
const LEEWAY: Duration = Duration::from_millis(500);

pub(crate) struct ClaimCell {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) key: Key,
    this: Weak<Self>,
    state: Mutex<State>,
    /// Told when the state changed in a way that a holder may wait for.
    changed: Notify,
    /// Its place among those of this process that wait for the same resource.
    seat: Option<Arc<Seat>>,
    /// What each master had said when the lease was granted.
    pub(crate) grant: OnceLock<Report>,
    /// When the lease was handed out.
    pub(crate) granted: OnceLock<Time>,
    /// One caller extends at a time, whichever handle it has.
    pub(crate) extending: tokio::sync::Mutex<()>,
}

struct State {
    claim: Claim,
    effects: Vec<Effect>,
    /// The future that acquires or releases, unless it was woken and has not been polled since.
    waiting: Option<Waker>,
    /// When it was woken, or made.
    woken: Time,
    /// When the alarm rings for this claim; it does so only for leases.
    alarm: Set,
    /// The lease's number among those that have had a watchdog.
    number: Option<u64>,
    /// What was counted and told of it already.
    seen: (u32, Extension),
    loss_seen: bool,
    /// Its latest extension failed.
    endangered: bool,
    /// What masters wake it by, if they are to.
    listens: Option<Ticket>,
    /// Its place is somebody else's.
    vacant: bool,
    /// The alarm was set for a held lease.
    holds: bool,
}

/// What is left to do when the effects of a claim are entered into the links.
struct Entered {
    /// These links are to be flushed.
    idle: NodeSet,
    /// Whoever waits for the claim is to be told.
    decided: bool,
    /// It is to be woken no longer.
    forget: Option<Ticket>,
}

impl ClaimCell {
    /// A claim that starts to acquire.
    pub(crate) fn start(
        fleet: Arc<Fleet>,
        key: Key,
        terms: Terms,
        patience: Patience,
        seat: Option<Arc<Seat>>,
    ) -> Arc<Self> {
        let (cell, now) = Self::new(fleet, key, terms, patience, seat);
        // Whoever gave it its turn sees whether it is done already.
        cell.carry_out(now, cell.lock(), None, |_| ());
        cell
    }

    /// The same without a place in a queue, and what it asks is only queued; on these links whoever calls this
    /// owes a [`Fleet::flush`].
    pub(crate) fn queue(
        fleet: Arc<Fleet>,
        key: Key,
        terms: Terms,
        patience: Patience,
    ) -> (Arc<Self>, NodeSet) {
        let (cell, now) = Self::new(fleet, key, terms, patience, None);
        // Nobody waits for it yet who would have to be told.
        let Entered { idle, forget, .. } = cell.enter(now, &mut cell.lock(), true);
        cell.forget(forget);
        (cell, idle)
    }

    /// Nothing is sent before the time that is returned was read (R1).
    fn new(
        fleet: Arc<Fleet>,
        key: Key,
        terms: Terms,
        patience: Patience,
        seat: Option<Arc<Seat>>,
    ) -> (Arc<Self>, Time) {
        let now = fleet.clock.now();
        let mut effects = Vec::with_capacity(terms.nodes());
        let claim = Claim::acquire(now, terms, patience, &mut fleet.dice(), &mut effects);
        let cell = Arc::new_cyclic(|this| {
            let state = State {
                claim,
                effects,
                waiting: None,
                woken: now,
                alarm: Set::default(),
                number: None,
                seen: (0, Extension::Extended),
                loss_seen: false,
                endangered: false,
                listens: None,
                vacant: false,
                holds: false,
            };
            Self {
                fleet,
                key,
                this: this.clone(),
                state: Mutex::new(state),
                changed: Notify::new(),
                seat,
                grant: OnceLock::new(),
                granted: OnceLock::new(),
                extending: tokio::sync::Mutex::new(()),
            }
        });
        (cell, now)
    }

    /// Whether its place is somebody else's.
    pub(crate) fn is_vacant(&self) -> bool {
        self.lock().vacant
    }

    /// Gives the lease back, by `input`, and the next one of this process its turn: what that asks is
    /// written behind it. Of several handles only the last does so.
    pub(crate) fn give_back<R>(&self, input: Input, look: impl FnOnce(&Claim) -> R) -> R {
        let mut state = self.lock();
        let others = matches!(&state.claim, Claim::Holding(hold) if hold.handles() > 1);
        let held = matches!(&state.claim, Claim::Holding(hold) if hold.lost().is_none()) && !others;
        let seat = if others || state.vacant { None } else { self.seat.as_ref() };
        state.vacant |= seat.is_some();
        let next = seat.and_then(|seat| seat.hand_on());
        let now = self.fleet.clock.now();
        let State { claim, effects, .. } = &mut *state;
        if next.as_ref().is_some_and(Next::is_heir) {
            claim.handle(now, Input::HandOn, &mut self.fleet.dice(), effects);
        }
        claim.handle(now, input, &mut self.fleet.dice(), effects);
        if let (Some(granted), true) = (self.granted.get(), held) {
            trace::given_back(&self.key, now.since(*granted));
        }
        let (seen, _) = self.carry_out(now, state, None, look);
        // Signals outlive the lease.
        self.changed.notify_waiters();
        if let Some(next) = next {
            next.start();
        }
        seen
    }

    /// Has the lease lost if its deadline has passed: that counts, not whether the alarm has come
    /// around to it.
    pub(crate) fn notice_deadline(&self) {
        let now = self.fleet.clock.now();
        if self.view(|claim| matches!(claim, Claim::Holding(hold) if now >= hold.deadline())) {
            self.apply(Input::Wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The machine does not panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the machine one input and does what it says. The clock is read last, under the
    /// lock: whatever time was lost on the way here counts, and time never runs backwards for a
    /// claim.
    pub(crate) fn apply(&self, input: Input) {
        self.apply_and_view(input, |_| ());
    }

    /// The same, and looks at the claim before anybody else can.
    pub(crate) fn apply_and_view<R>(&self, input: Input, look: impl FnOnce(&Claim) -> R) -> R {
        self.handle(self.lock(), input, None, look)
    }

    fn handle<R>(
        &self,
        mut state: MutexGuard<'_, State>,
        input: Input,
        later: Option<&mut NodeSet>,
        look: impl FnOnce(&Claim) -> R,
    ) -> R {
        let now = self.fleet.clock.now();
        let State { claim, effects, .. } = &mut *state;
        claim.handle(now, input, &mut self.fleet.dice(), effects);
        let was_vacant = state.vacant;
        let (seen, vacant) = self.carry_out(now, state, later, look);
        if let (false, true, Some(seat)) = (was_vacant, vacant, &self.seat) {
            seat.vacate();
        }
        seen
    }

    /// The same, and looks before and after it.
    pub(crate) fn apply_and_compare<R>(&self, input: Input, look: impl Fn(&Claim) -> R) -> (R, R) {
        let state = self.lock();
        let before = look(&state.claim);
        (before, self.handle(state, input, None, look))
    }

    /// Carries the effects out, under the claim's lock: an attempt that fails while its last
    /// `SET` is not yet queued must not have its clean-up queued first. Links are flushed, unless the
    /// caller wants to do it `later`. Says whether it is done, too.
    fn carry_out<R>(
        &self,
        now: Time,
        mut state: MutexGuard<'_, State>,
        later: Option<&mut NodeSet>,
        look: impl FnOnce(&Claim) -> R,
    ) -> (R, bool) {
        let Entered { idle, decided, forget } = self.enter(now, &mut state, later.is_some());
        let vacant = state.vacant;
        let waiting = if decided { state.waiting.take() } else { None };
        if waiting.is_some() {
            state.woken = now;
        }
        let seen = look(&state.claim);
        drop(state);
        match later {
            Some(later) => *later = idle,
            None => self.fleet.flush(idle),
        }
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        if decided {
            self.changed.notify_waiters();
        }
        self.forget(forget);
        (seen, vacant)
    }

    /// Enters the effects into the links; with `more`, others of the same caller follow before it flushes them.
    fn enter(&self, now: Time, state: &mut State, more: bool) -> Entered {
        let mut idle = NodeSet::EMPTY;
        let mut decided = false;
        let mut next = 0;
        while let Some(effect) = state.effects.get(next).cloned() {
            next += 1;
            let (node, step, input) = match effect {
                Effect::Send { node, step, ask } => (
                    node,
                    step,
                    LinkInput::Send { key: self.key.clone(), ask, tag: self.tag(step) },
                ),
                Effect::Settle { node, step, token, call, leave } => {
                    let (key, tag) = (self.key.clone(), self.tag(step));
                    (node, step, LinkInput::Settle { key, token, call, leave, tag })
                }
                Effect::Stand { node, step, ticket, spot } => {
                    let (key, tag) = (self.key.clone(), self.tag(step));
                    (node, step, LinkInput::Stand { key, ticket, spot, tag })
                }
                Effect::StepOut { node, ticket, call } => {
                    // Answered by nobody.
                    let key = self.key.clone();
                    (node, Step::Release, LinkInput::StepOut { key, ticket, call })
                }
                Effect::Listen { ticket } => {
                    state.listens = Some(ticket);
                    self.fleet.rooms.listen(&self.key, self.this.clone());
                    idle = self.listen(now, state, ticket).or(idle);
                    continue;
                }
                Effect::Leave { node, token, until } => {
                    // Answered by nobody.
                    (node, Step::Release, LinkInput::Leave { token, until })
                }
                _ => {
                    decided = true;
                    continue;
                }
            };
            let entered = self.fleet.links[node.index()].enter(input, more);
            if entered.flush {
                idle.insert(node);
            }
            if let Some((_, answer)) = entered.told {
                let State { claim, effects, .. } = state;
                let input = Input::Answered { node, step, answer };
                claim.handle(now, input, &mut self.fleet.dice(), effects);
            }
        }
        state.effects.clear();
        self.observe(now, state);
        self.keep(now, state);
        let waits =
            matches!(&state.claim, Claim::Acquiring(acquire) if acquire.failure().is_none());
        let forget = if waits { None } else { state.listens.take() };
        state.vacant |= is_done(&state.claim);
        Entered { idle, decided, forget }
    }

    /// No link wakes it any longer.
    fn forget(&self, listened: Option<Ticket>) {
        if let Some(ticket) = listened {
            self.fleet.tell_links(|| LinkInput::Unlisten(ticket));
            self.fleet.rooms.forget(&self.key, &self.this);
        }
    }

    /// A link tells it something of its resource. A claim that is woken, and whose future is not polled, lets others
    /// go first: what it won would be collected by none.
    pub(crate) fn heard(&self, node: NodeId, word: Word) {
        let state = self.lock();
        let late = self.fleet.clock.now() >= state.woken.plus(self.leeway());
        if matches!(word, Word::Free(_)) && state.waiting.is_none() && late {
            self.pass_over(state);
        } else {
            self.handle(state, Input::Heard { node, word }, None, |_| ());
        }
    }

    /// Its future does not act: others of this process, and of others, go first. Whenever it is polled again, it goes
    /// on without a turn.
    fn pass_over(&self, mut state: MutexGuard<'_, State>) {
        let vacant = std::mem::replace(&mut state.vacant, true);
        self.handle(state, Input::Yield, None, |_| ());
        if !vacant {
            self.seat.iter().for_each(|seat| seat.vacate());
        }
    }

    /// How much later than it wants to a future may be polled, and is taken to act.
    fn leeway(&self) -> Duration {
        self.fleet.terms.node_timeout().saturating_mul(4).max(LEEWAY)
    }

    /// Why it has no lease to give, if it knows that by now, and what masters said.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.view(|claim| match claim {
            Claim::Acquiring(acquire) => {
                Some((acquire.latest_failure()?, self.report(acquire.ballot())))
            }
            Claim::Holding(hold) if hold.lost().is_none() => {
                let now = self.fleet.clock.now();
                let left = hold.deadline().since(now).as_millis();
                let left_ms = u64::try_from(left).unwrap_or(u64::MAX);
                let taken = Answer::Taken(Holder::Lease { token: hold.token(), left_ms });
                let mut ballot = Ballot::open(hold.terms().nodes(), now);
                let members = hold.members();
                let nodes = NodeId::all(hold.terms().nodes());
                nodes.filter(|node| members.contains(*node)).for_each(|node| {
                    ballot.record(now, node, taken.clone());
                });
                Some((Failure::Taken, self.report(&ballot)))
            }
            _ => None,
        })
    }

    /// Has all links wake it. Returns those that are idle, and are to be flushed.
    fn listen(&self, now: Time, state: &mut State, ticket: Ticket) -> NodeSet {
        let mut idle = NodeSet::EMPTY;
        for link in &self.fleet.links {
            let entered = link.enter(LinkInput::Listen { key: self.key.clone(), ticket }, false);
            if entered.flush {
                idle.insert(link.node);
            }
            if let Some(word) = entered.word {
                let State { claim, effects, .. } = &mut *state;
                let input = Input::Heard { node: link.node, word };
                claim.handle(now, input, &mut self.fleet.dice(), effects);
            }
        }
        idle
    }

    fn tag(&self, step: Step) -> Tag {
        Tag::Claim(self.this.clone(), step)
    }

    /// Counts and logs what became of a held lease.
    fn observe(&self, now: Time, state: &mut State) {
        let Claim::Holding(hold) = &state.claim else { return };
        let (counters, throttle) = (&self.fleet.counters, &self.fleet.throttle);
        if hold.extension() != state.seen {
            state.seen = hold.extension();
            match state.seen.1 {
                Extension::Pending => {}
                Extension::Extended => {
                    count(&counters.extended);
                    if std::mem::take(&mut state.endangered) {
                        trace::recovered(throttle, now, &self.key);
                    }
                }
                Extension::Lost(_) => count(&counters.not_extended),
                Extension::NoQuorum | Extension::QuorumGone => {
                    count(&counters.not_extended);
                    let left = hold.deadline().since(now);
                    if std::mem::replace(&mut state.endangered, true) {
                        trace::still_endangered(&self.key, left);
                    } else {
                        let report = || Report::new(hold.ballot(), &self.fleet.names);
                        trace::endangered(throttle, now, &self.key, left, report);
                    }
                }
            }
        }
        if let (Some(loss), false) = (hold.lost(), state.loss_seen) {
            state.loss_seen = true;
            count(&counters.lost);
            trace::lost(throttle, now, &self.key, &loss.to_string());
        }
    }

    /// Sets the alarm for this claim in time, if it is a held lease, or one that nobody has come for.
    fn keep(&self, now: Time, state: &mut State) {
        let State { claim, alarm: set, number, holds, .. } = state;
        let mut wanted = Set::default();
        match claim {
            Claim::Holding(hold) if hold.lost().is_none() => {
                // If it is woken earlier, it looks again.
                let end = hold.next_end();
                let set = set.end.filter(|_| std::mem::replace(holds, true));
                wanted.end = Some(set.map_or(end, |set| set.min(end)));
                wanted.renewal = hold.renewal().map(|renewal| {
                    renewal_moment(
                        renewal,
                        *number.get_or_insert_with(|| self.fleet.alarm.number()),
                    )
                });
            }
            // Its own future may not be polled for long, and others wait behind it.
            Claim::Acquiring(acquire) if acquire.is_won() => wanted.end = Some(acquire.next_wake()),
            Claim::Acquiring(acquire) if acquire.is_waiting() && self.seat.is_some() => {
                wanted.end = Some(acquire.next_wake().max(now).plus(self.leeway()));
            }
            _ => {}
        }
        if *set != wanted {
            let this: Weak<dyn Claimant> = self.this.clone();
            self.fleet.alarm.replace(*set, wanted, &this);
            *set = wanted;
        }
    }

    /// Looks at the claim.
    pub(crate) fn view<R>(&self, look: impl FnOnce(&Claim) -> R) -> R {
        look(&self.lock().claim)
    }

    /// Looks at the claim, and has `waker` woken at the next decision.
    pub(crate) fn view_and_wait<R>(&self, waker: &Waker, look: impl FnOnce(&Claim) -> R) -> R {
        let mut state = self.lock();
        if !state.waiting.as_ref().is_some_and(|waiting| waiting.will_wake(waker)) {
            state.waiting = Some(waker.clone());
        }
        look(&state.claim)
    }

    /// Waits until `look` finds something, and wakes the machine when it is due.
    ///
    /// The alarm does that for all leases of the lock, but it ends, or sleeps, with the runtime
    /// in which the lock was built. This timer runs where somebody waits (R7). Renewals are the
    /// alarm's alone: it knows how many others there are.
    pub(crate) async fn until<R>(&self, look: impl Fn(&Claim) -> Option<R>) -> R {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Enlisted before the look: nothing that changes after it is missed.
            changed.as_mut().enable();
            let due = match self.view(|claim| look(claim).ok_or_else(|| next_end(claim))) {
                Ok(found) => return found,
                Err(due) => self.fleet.clock.timer(due),
            };
            if tokio::time::timeout_at(due, changed).await.is_err() {
                self.apply(Input::Wake);
            }
        }
    }

    pub(crate) fn report(&self, ballot: &Ballot) -> Report {
        Report::new(ballot, &self.fleet.names)
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.fleet.is_shut_down()
    }
}

/// Whether it neither holds a lease nor tries to get one.
fn is_done(claim: &Claim) -> bool {
    match claim {
        Claim::Acquiring(acquire) => acquire.failure().is_some(),
        Claim::Holding(hold) => hold.lost().is_some(),
        _ => true,
    }
}

impl Claimant for ClaimCell {
    fn answered(&self, node: NodeId, step: Step, answer: Answer) {
        self.apply(Input::Answered { node, step, answer });
    }

    fn ring(&self, what: Ring) -> NodeSet {
        let (mut state, mut written) = (self.lock(), NodeSet::EMPTY);
        let acts_by = match &state.claim {
            Claim::Acquiring(acquire) if !acquire.is_won() => Some(acquire.next_wake()),
            _ => None,
        };
        if let Some(acts_by) = acts_by {
            state.alarm.end = None;
            let now = self.fleet.clock.now();
            let late = now >= acts_by.plus(self.leeway());
            if late && !state.vacant && self.seat.as_ref().is_some_and(|seat| seat.has_others()) {
                self.pass_over(state);
            } else {
                self.keep(now, &mut state);
            }
            return written;
        }
        let input = match what {
            Ring::End => {
                state.alarm.end = None;
                Input::Wake
            }
            Ring::Renewal => {
                state.alarm.renewal = None;
                Input::Renew
            }
        };
        let uncollected = matches!(&state.claim, Claim::Acquiring(acquire) if acquire.is_won());
        self.handle(state, input, Some(&mut written), |_| ());
        if uncollected && !std::mem::replace(&mut self.lock().vacant, true) {
            // Whenever it is polled again, it goes on without a turn.
            self.seat.iter().for_each(|seat| seat.vacate());
        }
        written
    }
}

/// When something ends for a claim that must not end late.
fn next_end(claim: &Claim) -> Time {
    if let Claim::Holding(hold) = claim { hold.next_end() } else { claim.next_wake() }
}
