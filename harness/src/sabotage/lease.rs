//! A claim of a client process, and who waits for what of it. Called by `process.rs`.

use redquorum_protocol::{
    Answer as Vote, Cause, Claim, Extension, Failure, Hold, Key, NodeId, Outcome, Time,
};

use super::process::{Around, Wish};
use super::{Clocks, LyingClaim};
use crate::history::text_of;
use crate::name::Name;
use crate::talk::{Notice, Why};

/// A client and a resource.
pub(super) type Whose = (Name, Name);

/// A request under way: its number, and the stamp of the call.
type Asked = (u64, i64);

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) claim: LyingClaim,
    pub(super) key: Key,
    pub(super) whose: Whose,
    acquiring: Option<Asked>,
    /// With the number of the round.
    extending: Option<(Asked, u32)>,
    releasing: Option<Asked>,
    /// It is not held any more, and that was told.
    over: bool,
    /// While it is kept alive: the deadline that was told last.
    seen: Option<Time>,
}

impl Lease {
    pub(super) fn new(claim: LyingClaim, key: Key, whose: Whose, asked: Asked) -> Self {
        let (acquiring, extending, releasing) = (Some(asked), None, None);
        Self { claim, key, whose, acquiring, extending, releasing, over: false, seen: None }
    }

    pub(super) fn is_acquiring(&self, request: u64) -> bool {
        self.acquiring.is_some_and(|(id, _)| id == request)
    }

    /// Whether it tries to get a lease.
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.claim.claim(), Claim::Acquiring(_))
    }

    pub(super) const fn is_extending(&self) -> bool {
        self.extending.is_some()
    }

    /// What its client finds when it looks.
    pub(super) fn is_held(&self, clocks: Clocks) -> bool {
        match self.claim.claim() {
            Claim::Holding(hold) => {
                self.claim.seems_held(clocks, hold) && (!self.over || !self.claim.tells_loss())
            }
            _ => false,
        }
    }

    /// From now on a watchdog moves the deadline, and each move is told.
    pub(super) fn watch(&mut self) {
        if let Claim::Holding(hold) = self.claim.claim() {
            self.seen = Some(hold.deadline());
        }
    }

    pub(super) fn extend(&mut self, asked: Asked) {
        if let Claim::Holding(hold) = self.claim.claim() {
            self.extending = Some((asked, hold.extension().0));
        }
    }

    pub(super) fn release(&mut self, id: u64, around: &mut Around<'_>) {
        self.releasing = Some((id, around.stamp()));
        if let Some(((extension, _), _)) = self.extending.take() {
            around.refuse(extension, Why::Cancelled);
        }
    }

    pub(super) fn fail(&mut self, failure: Failure, around: &mut Around<'_>) {
        let Some(asked) = self.acquiring.take() else { return };
        let why = match failure {
            Failure::Taken => Why::Taken,
            Failure::NoQuorum => Why::NoQuorum,
            Failure::TooLate => Why::Late,
            _ => Why::Error,
        };
        let text = self.distrust();
        around.answer(asked, Err(why), |answer| answer.text = text);
    }

    /// Which masters were distrusted at the last attempt, if any was.
    fn distrust(&self) -> Option<String> {
        let Claim::Acquiring(acquire) = self.claim.claim() else { return None };
        let votes = NodeId::all(acquire.ballot().votes().len()).zip(acquire.ballot().votes());
        let named = votes.filter_map(|(node, vote)| match &vote.answer {
            Some(Vote::Unknown(cause @ Cause::Distrusted { .. })) => {
                Some(format!("{node}: {cause}"))
            }
            _ => None,
        });
        let named: Vec<String> = named.collect();
        (!named.is_empty()).then(|| named.join("; "))
    }

    /// Tells what is new about a held lease, and whether it was granted just now.
    pub(super) fn hold(&mut self, around: &mut Around<'_>) -> bool {
        let Claim::Holding(hold) = self.claim.claim() else { return false };
        let deadline = self.deadline(hold, around.clocks);
        let (lost, moved) = (hold.lost().is_some(), hold.deadline());
        let ended = self
            .extending
            .and_then(|(asked, round)| hold.ended(round).map(|(result, _)| (asked, result)));
        let granted = self.acquiring.take();
        if let Some(asked) = granted {
            let value = self.claim.value();
            let fence = hold.fencing_token();
            around.answer(asked, Ok(()), |answer| {
                answer.token = value.map(|token| text_of(token.as_bytes()));
                answer.deadline_ns = Some(deadline);
                answer.fence = fence;
            });
        }
        if let Some((asked, result)) = ended {
            self.extending = None;
            self.extended(asked, result, deadline, around);
        }
        if lost {
            self.lose(around);
        }
        if self.seen.is_some_and(|seen| moved != seen) {
            self.seen = Some(moved);
            let (client, resource) = self.whose.clone();
            let at_ns = Some(around.stamp());
            around.out.push(Wish::Notice(Notice::Extended {
                client,
                resource,
                at_ns,
                deadline_ns: deadline,
            }));
        }
        granted.is_some()
    }

    fn deadline(&self, hold: &Hold, clocks: Clocks) -> i64 {
        i64::try_from(self.claim.deadline(clocks, hold).as_nanos()).unwrap_or(i64::MAX)
    }

    fn extended(
        &mut self,
        asked: Asked,
        result: Extension,
        deadline: i64,
        around: &mut Around<'_>,
    ) {
        let result = match result {
            Extension::Extended => Ok(()),
            Extension::QuorumGone | Extension::Lost(_) if self.claim.tells_loss() => Err(Why::Lost),
            _ => Err(Why::NoQuorum),
        };
        around.answer(asked, result, |answer| {
            answer.deadline_ns = result.is_ok().then_some(deadline);
        });
        if result == Err(Why::Lost) {
            self.lose(around);
        }
    }

    fn lose(&mut self, around: &mut Around<'_>) {
        if !std::mem::replace(&mut self.over, true) && self.claim.tells_loss() {
            let (client, resource) = self.whose.clone();
            let at_ns = around.stamp();
            around.out.push(Wish::Notice(Notice::Lost { client, resource, at_ns }));
        }
    }

    pub(super) fn released(&mut self, outcome: Outcome, around: &mut Around<'_>) {
        let Some(asked) = self.releasing.take() else { return };
        let result = match outcome {
            Outcome::Released => Ok(()),
            Outcome::AlreadyGone => Err(Why::Lost),
            _ => Err(Why::NoQuorum),
        };
        around.answer(asked, result, |_| ());
    }
}
