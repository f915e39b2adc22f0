//! The future of a request for several resources. It carries out the actions of the protocol
//! machine, on one claim for each resource.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use redquorum_protocol::{
    AcquireRequest, Client, Failure, MemberAction, MemberEvent, MultiLock, Time,
};

use super::leases::Leases;
use super::{Member, Request};
use crate::acquire::not_acquired;
use crate::clock::{Clock, NAP, Naps};
use crate::error::AcquireError;
use crate::lease::Lease;
use crate::report::Report;
use crate::shared::{After, ClaimCell, Found, LockState};
use crate::trace::Span;

/// The future of an [`AcquireAll`](super::AcquireAll).
///
/// # Cancel safety
/// Dropping it gives the attempt up. The keys that it may have set, of any resource, are deleted in
/// the background. If it is polled once and then not again, they are deleted all the same,
/// [soon](https://github.com/redquorum/redquorum/blob/main/docs/waiting.md#one-waiter) after the
/// end of its round, and it goes on when it is polled again.
#[must_use = "futures do nothing unless polled"]
pub struct AcquiringAll {
    stage: Stage,
    naps: Naps,
    span: Span,
}

enum Stage {
    Ready(Request),
    Trying(Box<Attempt>),
    Done,
}

/// The protocol machine, and the claims that its actions apply to.
struct Attempt {
    multi_lock: MultiLock,
    members: Vec<Member>,
    actions: Vec<MemberAction>,
    clock: Clock,
    asked: Time,
    /// The lock of the resource that was named first: it decides how to pause.
    first: Arc<LockState>,
    refused: Report,
    /// Wake this task when the lock of a member is shut down: in a pause, no claim does.
    shutdowns: Vec<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl AcquiringAll {
    pub(super) fn new(request: Request) -> Self {
        Self { stage: Stage::Ready(request), naps: Naps::default(), span: Span::NONE }
    }
}

impl Future for AcquiringAll {
    type Output = Result<Leases, AcquireError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Stage::Ready(request) = &this.stage {
            this.span = Span::acquire_all(request.parts.len());
        }
        let span = this.span.clone();
        let result = span.within(|| this.advance(cx));
        if let Poll::Ready(result) = &result {
            span.acquired(result);
            this.span = Span::NONE;
            if let Ok(leases) = result {
                leases.iter().for_each(Lease::open_span);
            }
        }
        result
    }
}

impl AcquiringAll {
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Leases, AcquireError>> {
        let here = std::process::id();
        let is_forked = |lock_state: &LockState| lock_state.shared.is_not_of(here);
        let is_forked = match &self.stage {
            Stage::Ready(request) => request.parts.iter().any(|it| is_forked(&it.lock_state)),
            Stage::Trying(attempt) => attempt.members.iter().any(|it| is_forked(&it.lock_state)),
            Stage::Done => false,
        };
        if is_forked {
            self.stage = Stage::Done;
            return Poll::Ready(Err(AcquireError::Forked));
        }
        if let Stage::Ready(request) = &mut self.stage {
            let (wait, parts) = (request.wait, std::mem::take(&mut request.parts));
            let request = Request { parts, ..*request };
            match request.check() {
                Ok(members) => self.stage = Stage::Trying(Box::new(Attempt::start(members, wait))),
                Err(error) => {
                    self.stage = Stage::Done;
                    return Poll::Ready(Err(error));
                }
            }
        }
        loop {
            let Stage::Trying(attempt) = &mut self.stage else {
                panic!("polled after it was ready")
            };
            let result = if attempt.is_shut_down() {
                Err(AcquireError::ShutDown)
            } else {
                let next = attempt.look(cx.waker());
                if attempt.multi_lock.is_held() {
                    Ok(attempt.hand_out())
                } else if let Some((member, why)) = attempt.multi_lock.failure() {
                    Err(attempt.failed(member, why))
                } else {
                    if let Some(next) = next
                        && attempt.shutdown(cx).is_pending()
                    {
                        ready!(self.naps.sleep(attempt.clock, next, NAP, cx));
                    }
                    continue;
                }
            };
            // Dropping the attempt undoes the rest of it.
            self.stage = Stage::Done;
            return Poll::Ready(result);
        }
    }
}

impl Attempt {
    fn start(members: Vec<Member>, wait: Duration) -> Self {
        let first = members.iter().min_by_key(|member| member.named);
        let first = first.expect("there is at least one").lock_state.clone();
        let clock = first.clock;
        let asked = clock.now();
        let mut actions = Vec::new();
        let multi_lock = MultiLock::start(asked, members.len(), wait, &mut actions);
        let refused = Report::default();
        let shutdowns = Vec::new();
        let mut attempt =
            Self { multi_lock, members, actions, clock, asked, first, refused, shutdowns };
        attempt.carry_out();
        attempt
    }

    fn is_shut_down(&self) -> bool {
        self.members.iter().any(|member| member.lock_state.is_shut_down())
    }

    /// Is ready once a lock is shut down. Outside of a pause, the claims report that.
    fn shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.multi_lock.next_wake() == Time::NEVER {
            return Poll::Pending;
        }
        if self.shutdowns.is_empty() {
            self.shutdowns.extend(self.members.iter().map(|member| {
                let lock_state = member.lock_state.clone();
                let ended =
                    async move { lock_state.shared.until(|| lock_state.is_shut_down()).await };
                Box::pin(ended) as Pin<Box<_>>
            }));
        }
        let mut ended = self.shutdowns.iter_mut().map(|shutdown| shutdown.as_mut().poll(cx));
        if ended.any(|ended| ended.is_ready()) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn input(&mut self, event: MemberEvent) {
        // The clock is read last: all time spent before counts (R1).
        let now = self.clock.now();
        let Self { multi_lock, actions, first, .. } = self;
        first.shared.with_rng(|rng| multi_lock.handle(now, event, rng, actions));
        self.carry_out();
    }

    fn carry_out(&mut self) {
        // All commands are queued before the first byte is written, and leave together.
        let mut queued: Vec<(Arc<LockState>, After)> = Vec::new();
        for action in std::mem::take(&mut self.actions) {
            match action {
                MemberAction::Try { member, wait, explain } => {
                    let (lock_state, after) = self.members[member].start(wait, explain);
                    match queued.last_mut() {
                        Some((last, all)) if Arc::ptr_eq(&lock_state, last) => all.merge(after),
                        _ => queued.push((lock_state, after)),
                    }
                }
                MemberAction::Collect { member } => self.collect(member),
                MemberAction::Undo { member } => self.members[member].undo(),
                _ => {}
            }
        }
        for (lock_state, after) in queued {
            lock_state.shared.finish(after);
        }
    }

    /// Passes new results of the claims to the machine. Returns when to look again if nothing wakes
    /// this task before, or `None` to look again at once.
    fn look(&mut self, waker: &Waker) -> Option<Time> {
        let due = self.multi_lock.next_wake();
        if self.clock.now() >= due {
            self.input(MemberEvent::Wake);
        }
        let mut next = self.multi_lock.next_wake();
        let mut news = false;
        for at in 0..self.members.len() {
            let claim = self.members[at].claim.clone().filter(|_| self.multi_lock.awaits(at));
            let Some(claim) = claim else { continue };
            // Each lock may have its own origin of time. In this order of the reads, the result is
            // never late.
            let clock = self.clock;
            let ours = |time: Time| clock.now().plus(time.since(claim.lock_state.clock.now()));
            match claim.poll(waker, false) {
                Found::Won(deadline) => {
                    let deadline = ours(deadline);
                    self.input(MemberEvent::Won { member: at, deadline });
                    news = true;
                }
                Found::Failed(why, report, _) => {
                    self.refused = report;
                    self.input(MemberEvent::Failed { member: at, why });
                    news = true;
                }
                Found::Pending { until, .. } => next = next.min(ours(until)),
                _ => unreachable!("it has no owner, and is collected only with all others"),
            }
        }
        (!news).then_some(next)
    }

    /// Collects a lease. The machine gets a later time of the clock (R1).
    fn collect(&mut self, member: usize) {
        let Some(claim) = &self.members[member].claim else { return };
        let (event, refused) = claim.collect(|progress| {
            let refused = progress.refused_by().map(|votes| claim.report(votes));
            (MemberEvent::of_collect(member, progress), refused)
        });
        if let Some(refused) = refused {
            self.refused = refused;
        }
        self.input(event);
    }

    fn hand_out(&mut self) -> Leases {
        let (now, asked) = (self.clock.now(), self.asked);
        let mut leases: Vec<(usize, Lease)> = Vec::with_capacity(self.members.len());
        for member in &mut self.members {
            if let Some(claim) = member.claim.take() {
                // From here on the lease ends the claim.
                leases.push((member.named, Lease::new(claim, now, asked)));
            }
        }
        leases.sort_by_key(|(named, _)| *named);
        Leases::new(leases.into_iter().map(|(_, lease)| lease).collect())
    }

    fn failed(&mut self, member: usize, why: Failure) -> AcquireError {
        let (attempts, report) = (self.multi_lock.rounds(), std::mem::take(&mut self.refused));
        let Member { lock_state, key, .. } = &self.members[member];
        let waited = self.clock.now().since(self.asked);
        not_acquired(lock_state, key, why, report, attempts, waited)
    }
}

impl Member {
    fn start(&mut self, wait: Duration, explain: bool) -> (Arc<LockState>, After) {
        let Self { lock_state, key, config, .. } = self;
        let request = AcquireRequest::for_member(*config, wait, explain, ());
        let (claim, after) = ClaimCell::queue(lock_state, key.clone(), request);
        self.claim = Some(claim);
        (lock_state.clone(), after)
    }

    fn undo(&mut self) {
        if let Some(claim) = self.claim.take().filter(|claim| !claim.is_forked()) {
            claim.end(Client::undo);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Undoes everything, whatever the state of the machine: even if an observer panicked.
        self.members.iter_mut().for_each(Member::undo);
    }
}
