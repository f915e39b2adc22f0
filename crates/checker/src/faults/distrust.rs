//! Which masters a process with a guard may rightly distrust, and until when.

use super::{Faults, RECONNECT, Strike};
use crate::time::{self, MS};
use crate::world::World;
use redquorum_scenario::history::{Ns, Window};
use redquorum_scenario::{ClockFault, FaultKind, Loses, Persistence, Scenario};

/// How long it may take until a client looks at a distrusted master again.
const LOOK: Ns = 1_200 * MS;

pub(super) struct Guards<'a> {
    all: Vec<Guard<'a>>,
    /// Whether masters are distrusted when the run begins.
    new: bool,
    /// Whether a master loses nothing when its process ends, and reports that.
    durable: bool,
}

struct Guard<'a> {
    process: &'a str,
    /// How long the process distrusts a master that may have forgotten.
    quarantine: Ns,
    /// How far a clock may step before the process notices; none: the process does not look.
    unnoticed: Option<Ns>,
    /// Whether the masters have the markers of other clients with another longest TTL.
    at_odds: bool,
}

impl<'a> Guards<'a> {
    pub(super) fn of(scenario: &'a Scenario) -> Self {
        let locks = scenario.processes().into_iter().map(|name| (name, scenario.options_of(name)));
        let guarded: Vec<_> = locks.filter(|(_, lock)| lock.guard.is_some()).collect();
        // The process that first marks a master shuts the others out for good.
        let differ = guarded.windows(2).any(|two| two[0].1.guard != two[1].1.guard);
        let all = guarded.into_iter().map(|(process, lock)| Guard {
            process,
            quarantine: if differ { Ns::MAX } else { time::of(lock.quarantine()) },
            // A process that has not watched a master for long compares it with others, by half of
            // the bound.
            unnoticed: lock.clock_guard.map(|bound| time::of(bound.0) / 2),
            at_odds: lock.guard != scenario.lock.guard,
        });
        Self {
            all: all.collect(),
            new: !scenario.lock.initialized,
            durable: scenario.cluster.persistence == Persistence::AofAlways,
        }
    }
}

impl Faults<'_> {
    /// Whether a process may rightly distrust a master at some time in a span, so that its grants
    /// do not count. `asked` returns when the process first sent a request from an instant on: the
    /// process sees only then that a marker is gone from a master whose connection stays up.
    pub fn distrusted(
        &self,
        process: &str,
        node: usize,
        within: Window,
        asked: impl Fn(Ns) -> Option<Ns>,
    ) -> bool {
        let Some(guard) = self.guards.all.iter().find(|guard| guard.process == process) else {
            return false;
        };
        // A client begins to count when the master is back, and looks once a second. A probation
        // key that it finds may expire before the client has watched it for long enough. Then the
        // client watches another one.
        let long = guard.quarantine.saturating_mul(2).saturating_add(RECONNECT);
        let long = long.saturating_add(2 * LOOK);
        let forgot = self.of_node(node).filter(|strike| self.unmarks(strike));
        // By the process's own clock the masters' clocks run at other rates, and quarantines take
        // another time.
        let paced = self.hinders(process).filter(|strike| !strike.fault.kind.pauses_clients());
        let apart = guard.unnoticed.into_iter().flat_map(|by| self.clocks_apart(node, by));
        let since_new = self.guards.new.then_some(Window::new(Ns::MIN, 0));
        let noticed = forgot.map(|strike| {
            let Window { from, to } = strike.span();
            let silent = strike.row().loses == Loses::All;
            Window::new(from, if silent { asked(from).unwrap_or(Ns::MAX).max(to) } else { to })
        });
        let mut spans =
            noticed.chain(apart.map(Strike::span)).chain(paced.map(Strike::span)).chain(since_new);
        guard.at_odds
            || spans.any(|span| {
                let until = self.watched(process, node, span, long);
                Window::new(span.from, until).touches(within)
            })
    }

    /// Whether the masters have, or may have, the markers of processes with another guard than this
    /// one.
    pub fn is_at_odds(&self, process: &str) -> bool {
        let own = self.guards.all.iter().find(|guard| guard.process == process);
        own.is_some_and(|guard| guard.at_odds || guard.quarantine == Ns::MAX)
    }

    /// The faults by which a master's clock gets ahead of another's by more than this.
    fn clocks_apart(&self, node: usize, unnoticed: Ns) -> impl Iterator<Item = &Strike<'_>> {
        self.strikes.iter().filter(move |strike| match &strike.fault.kind {
            // If a clock is set back, all others are ahead of it.
            FaultKind::Clock(ClockFault::Step { by }) => {
                time::of(by.by.0) > unnoticed && (by.back || strike.hits_node(node))
            }
            FaultKind::Clock(ClockFault::Rate { .. } | ClockFault::Strobe { .. }) => true,
            _ => false,
        })
    }

    const fn unmarks(&self, strike: &Strike<'_>) -> bool {
        strike.fault.kind.removes_markers(self.guards.durable)
    }

    /// Whether a guard may rightly refuse every request of a process, because one of its masters
    /// also belongs to another set of masters.
    pub fn refuses(&self, world: &World<'_>, process: &str) -> bool {
        let lost = self.strikes.iter().any(|strike| self.unmarks(strike));
        world.is_of_two_sets(process, lost)
    }

    /// Until when a process may have to watch a master that it distrusts since a span. The watch
    /// begins anew after every fault that breaks the connection or removes the probation key.
    fn watched(&self, process: &str, node: usize, since: Window, long: Ns) -> Ns {
        let mut until = since.to.saturating_add(long);
        loop {
            let within = Window::new(since.from, until);
            let disturb = self.strikes.iter().filter(|strike| {
                let hits = match &strike.fault.kind {
                    FaultKind::Clock(_) => strike.hits_node(node),
                    FaultKind::Node(_) if strike.row().loses == Loses::All => {
                        strike.hits_node(node)
                    }
                    FaultKind::Client(_) => strike.hits_process(process),
                    FaultKind::Node(_) | FaultKind::Net(_) | FaultKind::Resource(_) => {
                        strike.on_link(process, node).is_some()
                    }
                };
                hits && strike.span().touches(within)
            });
            let anew = disturb.map(|strike| strike.span().to.saturating_add(long)).max();
            match anew.filter(|anew| *anew > until) {
                Some(anew) => until = anew,
                None => return until,
            }
        }
    }
}
