//! Progress: during the run, an acquire succeeds, and soon, where a majority of the masters can be
//! reached and nothing is in the way.
//!
//! In the way is what a lock must respect, or cannot help: somebody else's lease, somebody else's
//! request (two that ask at once may split the votes), and keys whose owner is dead, stopped or cut
//! off. A key that a healthy client left behind is not: that is a leak.

use std::collections::{BTreeMap, HashMap};

use crate::history::{Ns, Phase};
use crate::scenario::{Cause, Layer};
use crate::talk::Why;

use super::keys::Presence;
use super::requests::Request;
use super::time::{self, MS, Ms, Span};
use super::{Case, Finding, Seen};

/// How long a client may need to clean up, besides one timeout of a master.
const CLEANS_UP: Ns = 100 * MS;
/// How long after it went on a stopped client may need to clean up.
const WAKES_UP: Ns = 500 * MS;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let slack = CLEANS_UP.saturating_add(case.world.node_timeout);
    let occupied = occupied(case, slack);
    let mut blocks = None;
    let asked = case.requests.iter().enumerate();
    asked
        .filter(|(_, request)| request.is_acquire() && request.phase == Phase::Run)
        .filter_map(|(index, request)| {
            let ended = end(case, request)?;
            let within = Span::new(request.asked, ended);
            let resource = request.resource?;
            // Cheap first: most requests are granted in time.
            let bound = bound(case, request, within);
            if request.granted() && within.length() <= bound {
                return None;
            }
            let busy = occupied.get(resource).and_then(|busy| busy.until(within, index));
            if busy.is_some_and(|until| until >= ended || request.wait_ms == 0) {
                return None;
            }
            let blocks = blocks.get_or_insert_with(|| Blocks::of(case));
            let blocked = blocks.until(case, request, resource, within)?;
            let free = busy.unwrap_or(request.asked).max(blocked);
            let soon = ended.saturating_sub(free) <= bound;
            let excused = match request.wait_ms {
                0 => free > request.asked,
                _ => soon && (request.granted() || free > request.asked),
            };
            (!excused).then(|| told(request, ended, free, bound))
        })
        .collect()
}

/// When a request ended that is to be judged.
fn end(case: &Case<'_>, request: &Request<'_>) -> Option<Ns> {
    let process = request.process;
    let ended = match request.answer {
        Some(answer) if matches!(answer.why, Some(Why::Unsupported | Why::Cancelled)) => {
            return None;
        }
        Some(answer) => answer.ns,
        None => case.world.began(Phase::Heal).unwrap_or(case.world.end),
    };
    let span = Span::new(request.asked, ended);
    let dead = case.death(process).is_some_and(|at| at.from <= ended);
    let paused = case.faults.pauses(process).any(|pause| {
        let span_of = pause.span();
        Span::new(span_of.from, span_of.to.saturating_add(CLEANS_UP)).touches(span)
    });
    if dead || paused {
        return None;
    }
    // One that was never answered failed only if there was time enough.
    let enough = bound(case, request, span).saturating_add(time::of_ms(request.wait_ms));
    (request.answer.is_some() || span.length() > enough).then_some(ended)
}

/// How long an acquire may take once nothing is in the way.
fn bound(case: &Case<'_>, request: &Request<'_>, within: Span) -> Ns {
    let timeout = case.world.node_timeout;
    let bound = match request.wait_ms {
        0 => timeout.saturating_mul(2).saturating_add(150 * MS),
        _ => timeout.saturating_mul(4).saturating_add(500 * MS),
    };
    // There and back, for the round that grants and one that certifies.
    let delays = case.faults.delays(request.process, within);
    bound.saturating_add(delays.saturating_mul(4))
}

fn told(request: &Request<'_>, ended: Ns, free: Ns, bound: Ns) -> Finding {
    let Request { client, asked, .. } = *request;
    let resource = request.resource.unwrap_or("?");
    let what = match request.answer {
        Some(answer) if answer.ok => {
            format!("got it only at {}: at most {} would do", Ms(ended), Ms(bound))
        }
        Some(answer) => {
            let why = answer.why.map_or("no reason".to_owned(), |why| {
                serde_json::to_string(&why).unwrap_or_default().replace('"', "")
            });
            format!("was refused at {} ({why})", Ms(ended))
        }
        None => format!("had no answer by {}", Ms(ended)),
    };
    let story = vec![
        format!("{client} asked for {resource} at {}, and {what}", Ms(asked)),
        format!("a majority was reachable, and nothing was in the way since {}", Ms(free)),
    ];
    let (layer, seen) = (Layer::Progress, Seen::Violated);
    Finding { layer, seen, story, causes: vec![Cause::Bug], from: asked, to: ended }
}

/// When a resource was asked for, held or being released, and by which request.
struct Occupied {
    /// Sorted by their starts.
    spans: Vec<(Span, usize)>,
    /// Of all spans up to one, the two that last longest, of different requests.
    longest: Vec<[(Ns, usize); 2]>,
}

fn occupied<'a>(case: &Case<'a>, slack: Ns) -> HashMap<&'a str, Occupied> {
    let mut spans: BTreeMap<&'a str, Vec<(Span, usize)>> = BTreeMap::new();
    for (index, request) in case.requests.iter().enumerate() {
        let Some(resource) = request.resource else { continue };
        if matches!(request.op, "acquire" | "release") {
            let died = case.death(request.process).map_or(Ns::MAX, |at| at.to);
            let to = request.answered().min(died.max(request.asked)).saturating_add(slack);
            spans.entry(resource).or_default().push((Span::new(request.asked, to), index));
        }
    }
    for lease in &case.leases {
        let all = spans.entry(lease.resource).or_default();
        for hold in lease.holds.iter().filter(|hold| !hold.outer.is_empty()) {
            let to = hold.outer.to.saturating_add(slack);
            all.push((Span::new(hold.outer.from, to), lease.request));
        }
    }
    let sorted = spans.into_iter().map(|(resource, mut spans)| {
        spans.sort_by_key(|(span, _)| span.from);
        let mut two = [(Ns::MIN, usize::MAX), (Ns::MIN, usize::MAX)];
        let longest = spans.iter().map(|(span, index)| {
            let one = (span.to, *index);
            if one.1 == two[0].1 {
                two[0].0 = two[0].0.max(one.0);
            } else if one.0 > two[0].0 {
                two = [one, two[0]];
            } else if one.0 > two[1].0 {
                two[1] = one;
            }
            two
        });
        let longest = longest.collect();
        (resource, Occupied { spans, longest })
    });
    sorted.collect()
}

impl Occupied {
    /// Until when others are in the way within a span; none: nobody is.
    fn until(&self, within: Span, request: usize) -> Option<Ns> {
        let begun = self.spans.partition_point(|(span, _)| span.from <= within.to);
        let two = self.longest[begun.checked_sub(1)?];
        let other = if two[0].1 == request { two[1] } else { two[0] };
        (other.0 >= within.from).then_some(other.0)
    }
}

/// The keys that may be in the way, by master.
struct Blocks {
    /// Places in [`super::keys::Keys::all`], sorted by when they may have been there first.
    of_node: HashMap<usize, Vec<usize>>,
    longest: Ns,
}

impl Blocks {
    fn of(case: &Case<'_>) -> Self {
        let mut of_node: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, key) in case.keys.all.iter().enumerate() {
            of_node.entry(key.node).or_default().push(index);
        }
        for of_one in of_node.values_mut() {
            of_one.sort_by_key(|index| case.keys.all[*index].possible.from);
        }
        let longest = case.keys.all.iter().map(|key| key.possible.length()).max().unwrap_or(0);
        Self { of_node, longest }
    }

    /// From when on a quorum of masters could have granted a request; none: not before it ended.
    fn until(
        &self,
        case: &Case<'_>,
        request: &Request<'_>,
        resource: &str,
        within: Span,
    ) -> Option<Ns> {
        let mut free: Vec<Ns> = (1..=case.world.n)
            .filter(|node| case.faults.reachable(request.process, *node, within))
            .map(|node| self.of_master(case, node, request, resource, within))
            .collect();
        free.sort_unstable();
        free.get(case.world.q - 1).copied()
    }

    /// From when on a master has no key that is rightly in the way.
    fn of_master(
        &self,
        case: &Case<'_>,
        node: usize,
        request: &Request<'_>,
        resource: &str,
        within: Span,
    ) -> Ns {
        let all = self.of_node.get(&node).map_or(&[][..], Vec::as_slice);
        let of = |index: &usize| &case.keys.all[*index];
        let end = all.partition_point(|index| of(index).possible.from <= within.to);
        let oldest = within.from.saturating_sub(self.longest);
        let begin = all.partition_point(|index| of(index).possible.from < oldest);
        let rightly = all.get(begin..end).unwrap_or_default().iter().map(of).filter(|key| {
            let own = key.process == request.process && key.made.from >= request.asked;
            !own && key.possible.to >= within.from
                && key.resource.is_none_or(|name| name == resource)
                && excused(case, key, within)
        });
        rightly.map(|key| key.possible.to).max().unwrap_or(within.from).max(within.from)
    }
}

/// Whether the owner of a key could not have deleted it: it is dead, or stopped, or cut off since.
fn excused(case: &Case<'_>, key: &Presence<'_>, within: Span) -> bool {
    let lived = Span::new(key.made.from, within.to);
    case.death(key.process).is_some_and(|at| at.from <= within.to)
        || case.faults.link_hit(key.process, key.node, lived)
        || case.faults.pauses(key.process).any(|pause| {
            let span = pause.span();
            Span::new(span.from, span.to.saturating_add(WAKES_UP)).touches(within)
        })
}
