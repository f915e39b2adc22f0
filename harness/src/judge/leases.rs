//! The believed holds: from when to when did each client count on its lease? What the client
//! stamped is exact; where it stamped nothing there is an inner span, for which it certainly
//! counted on it, and an outer one, for which it may have.

use crate::history::{Ns, Phase, Window};
use crate::talk::Why;

use super::faults::Faults;
use super::keys::{Keys, Presence};
use super::maps::{Map, count};
use super::requests::{Answer, Request};
use super::time::Span;
use super::world::World;

mod gather;

use gather::gather;

/// A stretch of time in which a client counted on a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// Whose: the place among the leases.
    pub(super) lease: usize,
    pub(super) inner: Span,
    pub(super) outer: Span,
}

/// What ended a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Deadline,
    Release,
    Lost,
    Death,
    /// Its owner was granted the same again, and has only that one since.
    Replaced,
}

/// What a granted acquire gave.
pub(super) struct Lease<'a> {
    /// The acquire: its place among the requests.
    pub(super) request: usize,
    pub(super) client: &'a str,
    pub(super) process: &'a str,
    pub(super) resource: &'a str,
    pub(super) token: Option<&'a str>,
    pub(super) phase: Phase,
    pub(super) asked: Ns,
    pub(super) answer: Answer<'a>,
    /// When it was handed out.
    pub(super) start: Window,
    /// The last deadline.
    pub(super) deadline: Window,
    pub(super) extensions: Vec<Extension>,
    /// How many handles of it are out, beside the first one.
    pub(super) others: u64,
    /// What was answered with each of those that there were.
    pub(super) again: Vec<Answer<'a>>,
    /// The first request to release it, with its last handle: its place among the requests.
    pub(super) release: Option<usize>,
    /// When its owner was told that it is lost.
    pub(super) lost: Option<Ns>,
    /// What ended it.
    pub(super) ending: Ending,
    /// One, unless it was extended after its end.
    pub(super) holds: Vec<Hold>,
}

/// What moved a deadline.
#[derive(Clone, Copy)]
pub(super) struct Extension {
    /// When the client said that it was told, if it said so.
    pub(super) at: Option<Ns>,
    pub(super) deadline: Window,
    /// The request for it: its place among the requests. None: its watchdog did it.
    pub(super) request: Option<usize>,
    /// The deadline before.
    pub(super) before: Window,
}

impl<'a> Lease<'a> {
    /// All of its time, gaps included.
    pub(super) fn span(&self) -> Span {
        let to = self.holds.iter().map(|hold| hold.outer.to).max();
        Span::new(self.start.from, to.unwrap_or(self.start.from))
    }

    fn extend(&mut self, at: Option<Ns>, deadline: Window, request: Option<usize>) {
        let before = self.extensions.last().map_or(self.deadline, |last| last.deadline);
        self.extensions.push(Extension { at, deadline, request, before });
    }

    /// Where its token was, or may have been, while it was asked for or lived.
    pub(super) fn keys<'k>(
        &self,
        keys: &'k Keys<'a>,
    ) -> impl Iterator<Item = &'k Presence<'a>> + use<'k, 'a> {
        let within = Span::new(self.asked, self.span().to.max(self.answer.ns));
        let found = self.token.map(|token| keys.of_token(token, self.resource, within));
        found.into_iter().flatten()
    }

    /// The keys that were set for it; some locks do that with the script that prolongs them, too.
    pub(super) fn votes<'k>(
        &self,
        keys: &'k Keys<'a>,
    ) -> impl Iterator<Item = &'k Presence<'a>> + use<'k, 'a> {
        let answered = self.answer.ns;
        self.keys(keys).filter(move |key| key.granted || key.made.from <= answered)
    }

    /// How many masters granted it: for certain, or with those that never answered.
    pub(super) fn grants(&self, keys: &Keys<'a>, sure: bool) -> usize {
        let granted = self.votes(keys).filter(|key| key.sure || !sure);
        count(granted.map(|key| key.node))
    }
}

/// All leases, in the order in which they were answered.
pub(super) fn of<'a>(
    world: &World<'a>,
    faults: &Faults<'a>,
    requests: &[Request<'a>],
    keys: &Keys<'a>,
) -> Vec<Lease<'a>> {
    let mut leases = gather(world, requests, keys);
    let replaced = replaced(&leases);
    for (index, lease) in leases.iter_mut().enumerate() {
        settle(index, lease, replaced[index], world, faults, requests, keys);
    }
    leases
}

/// When each lease gave way to the next of the same client on the same resource: as soon as that was
/// told, so that the two still overlap if they should not.
fn replaced(leases: &[Lease<'_>]) -> Vec<Option<Ns>> {
    let mut next: Map<(&str, &str), Ns> = Map::default();
    let mut replaced: Vec<Option<Ns>> = leases
        .iter()
        .rev()
        .map(|lease| next.insert((lease.client, lease.resource), lease.answer.ns))
        .collect();
    replaced.reverse();
    replaced
}

/// Where its holds end.
fn settle<'a>(
    index: usize,
    lease: &mut Lease<'a>,
    replaced: Option<Ns>,
    world: &World<'a>,
    faults: &Faults<'a>,
    requests: &[Request<'a>],
    keys: &Keys<'a>,
) {
    let mut holds = Vec::new();
    let mut start = lease.start;
    for extension in &lease.extensions {
        if let Some(at) = extension.at
            && at > lease.deadline.to
        {
            // It had ended, and was counted on again: there is a gap.
            holds.push((start, lease.deadline));
            start = Window { from: at, to: at };
        }
        lease.deadline = extension.deadline;
    }
    holds.push((start, lease.deadline));

    let mut cut = Window { from: Ns::MAX, to: Ns::MAX };
    let mut ends = |when: Window, what: Ending| {
        if when.from < cut.from && when.from < lease.deadline.from {
            lease.ending = what;
        }
        cut = Window { from: cut.from.min(when.from), to: cut.to.min(when.to) };
    };
    if let Some(release) = lease.release {
        ends(released(&requests[release], lease.token, keys), Ending::Release);
    }
    if let Some(at) = lease.lost {
        ends(Window { from: at, to: at }, Ending::Lost);
    }
    if let Some(at) = faults.death(lease.process) {
        ends(at, Ending::Death);
    }
    if let Some(at) = replaced {
        ends(Window { from: at, to: at }, Ending::Replaced);
    }
    if let Some((from, to)) = world.breakdown(lease.process) {
        ends(Window { from, to }, Ending::Death);
    }
    lease.holds = holds
        .into_iter()
        .map(|(start, end)| Hold {
            lease: index,
            inner: Span::new(start.to, end.from.min(cut.from)),
            outer: Span::new(start.from, end.to.min(cut.to)),
        })
        .collect();
}

/// When a client gave its lease up.
fn released(release: &Request<'_>, token: Option<&str>, keys: &Keys<'_>) -> Window {
    let answer = release.answer;
    // A client that cannot release goes on with its lease.
    if answer.is_some_and(|answer| answer.why == Some(Why::Unsupported)) {
        return Window { from: Ns::MAX, to: Ns::MAX };
    }
    if let Some(from) = answer.and_then(|answer| answer.from) {
        return Window { from, to: from };
    }
    let deleted = token.and_then(|token| keys.first_delete(release.process, token, release.asked));
    let to = release.answered().min(deleted.unwrap_or(Ns::MAX));
    Window { from: release.asked, to: to.max(release.asked) }
}
