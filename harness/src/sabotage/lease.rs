//! A claim of a client process, and who waits for what of it. Called by `process.rs`.

use redquorum_protocol::{
    Answer as Vote, Cause, Claim, Extension, Failure, Hold, Key, NodeId, Outcome, Time,
};

use super::process::again::Wanted;
use super::process::{Around, Wish};
use super::{Clocks, LyingClaim};
use crate::history::text_of;
use crate::name::Name;
use crate::talk::{Each, Notice, Why};

/// A client and a resource.
pub(super) type Whose = (Name, Name);

/// A request under way: its number, and the stamp of the call.
pub(super) type Asked = (u64, i64);

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) claim: LyingClaim,
    pub(super) key: Key,
    pub(super) whose: Whose,
    acquiring: Option<Asked>,
    /// With the number of the round.
    extending: Option<(Asked, u32)>,
    /// That is for another handle.
    prolonging: Option<Wanted>,
    /// Such a handle that was not given out, and is yet to be given back.
    pub(super) not_prolonged: Option<(Asked, Wanted, Why)>,
    releasing: Option<Asked>,
    /// It is not held any more, and that was told.
    over: bool,
    /// Where it may move by itself: the deadline that was told last.
    seen: Option<Time>,
}

impl Lease {
    pub(super) fn new(claim: LyingClaim, key: Key, whose: Whose, acquiring: Option<Asked>) -> Self {
        let (extending, releasing) = (None, None);
        let (prolonging, not_prolonged) = (None, None);
        let (over, seen) = (false, None);
        Self {
            claim,
            key,
            whose,
            acquiring,
            extending,
            prolonging,
            not_prolonged,
            releasing,
            over,
            seen,
        }
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

    /// How many handles are out, as far as the machine knows.
    pub(super) fn handles(&self) -> u32 {
        match self.claim.claim() {
            Claim::Holding(hold) => hold.handles(),
            _ => 1,
        }
    }

    /// How many rounds of extending there were.
    pub(super) fn rounds(&self) -> u32 {
        match self.claim.claim() {
            Claim::Holding(hold) => hold.extension().0,
            _ => 0,
        }
    }

    /// Its owner has another handle of it.
    pub(super) fn reentered(&self, asked: Asked, around: &mut Around<'_>) {
        let Claim::Holding(hold) = self.claim.claim() else { return };
        let (value, fence) = (self.claim.value(), hold.fencing_token());
        let deadline = self.deadline(hold, around.clocks);
        // At least the one before and this one, whatever a liar counts.
        let handles = hold.handles().max(2);
        around.answer(asked, Ok(()), |answer| {
            answer.token = value.map(|token| text_of(token.as_bytes()));
            answer.deadline_ns = Some(deadline);
            answer.fence = fence;
            answer.handles = Some(handles.into());
        });
    }

    /// Another handle is given out once the round under way has succeeded.
    pub(super) fn prolong(&mut self, asked: Asked, wanted: Wanted) {
        self.extend(asked);
        self.prolonging = Some(wanted);
    }

    /// Whether this request was for another handle, and is given up. Its round goes on, and may move the
    /// deadline, which no answer tells then.
    pub(super) fn cancel_prolonging(&mut self, request: u64) -> bool {
        let is = |((id, _), _): &mut (Asked, u32)| *id == request;
        self.prolonging.is_some() && self.extending.take_if(is).is_some() && {
            self.prolonging = None;
            self.watch();
            true
        }
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

    /// From now on the deadline moves by itself, and each move is told.
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
        self.part(around);
    }

    pub(super) fn fail(&mut self, failure: Failure, around: &mut Around<'_>) {
        let Some(asked) = self.acquiring.take() else { return };
        let why = why(failure);
        let text = self.distrust();
        around.answer(asked, Err(why), |answer| answer.text = text);
    }

    /// Which masters were distrusted at the last attempt, if any was.
    pub(super) fn distrust(&self) -> Option<String> {
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

    /// What is told of it when it was granted together with others.
    pub(super) fn each(&self, clocks: Clocks) -> Option<Each> {
        let Claim::Holding(hold) = self.claim.claim() else { return None };
        let token = self.claim.value().map(|token| text_of(token.as_bytes()));
        let deadline_ns = Some(self.deadline(hold, clocks));
        Some(Each { token, deadline_ns, fence: hold.fencing_token() })
    }

    fn deadline(&self, hold: &Hold, clocks: Clocks) -> i64 {
        i64::try_from(self.claim.deadline(clocks, hold).as_nanos()).unwrap_or(i64::MAX)
    }

    fn extended(
        &mut self,
        asked: Asked,
        extension: Extension,
        deadline: i64,
        around: &mut Around<'_>,
    ) {
        let result = match extension {
            Extension::Extended => Ok(()),
            Extension::QuorumGone | Extension::Lost(_) if self.claim.tells_loss() => Err(Why::Lost),
            _ => Err(Why::NoQuorum),
        };
        if let Some(wanted) = self.prolonging.take() {
            match (result, extension) {
                (Ok(()), _) => self.reentered(asked, around),
                // A gap is for those to hear of who hold it; this one does not, yet.
                (Err(_), Extension::QuorumGone) => {
                    self.not_prolonged = Some((asked, wanted, Why::NoQuorum));
                }
                (Err(why), _) => self.not_prolonged = Some((asked, wanted, why)),
            }
            return;
        }
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

    /// It is given back together with others.
    pub(super) fn part(&mut self, around: &mut Around<'_>) {
        if let Some(((extension, _), _)) = self.extending.take() {
            around.refuse(extension, Why::Cancelled);
        }
    }

    pub(super) fn released(&mut self, outcome: Outcome, around: &mut Around<'_>) {
        let Some(asked) = self.releasing.take() else { return };
        around.answer(asked, ended(outcome), |_| ());
    }
}

/// Why there is no lease.
pub(super) const fn why(failure: Failure) -> Why {
    match failure {
        Failure::Taken => Why::Taken,
        Failure::NoQuorum => Why::NoQuorum,
        Failure::TooLate => Why::Late,
        _ => Why::Error,
    }
}

/// What became of a release.
pub(super) const fn ended(outcome: Outcome) -> Result<(), Why> {
    match outcome {
        Outcome::Released | Outcome::Left => Ok(()),
        Outcome::AlreadyGone => Err(Why::Lost),
        _ => Err(Why::NoQuorum),
    }
}
