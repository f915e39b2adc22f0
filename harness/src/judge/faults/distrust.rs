//! Which masters a process with a guard may rightly distrust, and until when.

use super::{Faults, RECONNECT, Strike};
use crate::history::Ns;
use crate::judge::time::{self, MS, Span};
use crate::judge::world::World;
use crate::scenario::{ClockHarm, Harm, NodeHarm, Persistence, Scenario};

/// How long a distrusted master may be left alone before it is looked at again.
const LOOK: Ns = 1_200 * MS;

/// The guards of the processes of a run.
pub(super) struct Guards<'a> {
    all: Vec<Guard<'a>>,
    /// Whether masters are distrusted as the run begins.
    new: bool,
    /// Whether a master loses nothing by an end, and says so.
    durable: bool,
}

struct Guard<'a> {
    process: &'a str,
    /// For how long it distrusts a master that may have forgotten.
    quarantine: Ns,
    /// By how much a clock may step unnoticed by it; none: it does not look.
    unnoticed: Option<Ns>,
    /// Whether the masters are marked as those of other clients, with another longest TTL.
    at_odds: bool,
}

impl<'a> Guards<'a> {
    pub(super) fn of(scenario: &'a Scenario) -> Self {
        let locks = scenario.processes().into_iter().map(|name| (name, scenario.options_of(name)));
        let guarded: Vec<_> = locks.filter(|(_, lock)| lock.guard.is_some()).collect();
        // Whoever marks a master first shuts the others out for good.
        let differ = guarded.windows(2).any(|two| two[0].1.guard != two[1].1.guard);
        let all = guarded.into_iter().map(|(process, lock)| Guard {
            process,
            quarantine: if differ { Ns::MAX } else { time::of(lock.quarantine()) },
            // Who has not watched a master for long compares it with others, by half of the bound.
            unnoticed: lock.clock_guard.map(|bound| time::of(bound.0) / 2),
            at_odds: lock.guard != scenario.lock.guard,
        });
        Self {
            all: all.collect(),
            new: !scenario.lock.blessed,
            durable: scenario.cluster.persistence == Persistence::AofAlways,
        }
    }
}

impl Faults<'_> {
    /// Whether a process may rightly distrust a master some time in a span, so that its grants do not
    /// count. `asked`: when it first asked for something from an instant on. That a marker is gone from a
    /// connection that goes on is seen only then.
    pub(in crate::judge) fn distrusted(
        &self,
        process: &str,
        node: usize,
        within: Span,
        asked: impl Fn(Ns) -> Option<Ns>,
    ) -> bool {
        let Some(guard) = self.guards.all.iter().find(|guard| guard.process == process) else {
            return false;
        };
        // A client begins to count when it is there again, and looks once a second. A vigil that it finds
        // may expire before it was watched for long enough: then another one is watched.
        let long = guard.quarantine.saturating_mul(2).saturating_add(RECONNECT);
        let long = long.saturating_add(2 * LOOK);
        let forgot = self.strikes.iter();
        let forgot = forgot.filter(|strike| self.unmarks(strike) && strike.hits_node(node));
        // By its own clock the masters' clocks run at other rates, and quarantines take another time.
        let paced = self.hinders(process).filter(|strike| !strike.harm.pauses_clients());
        let apart = guard.unnoticed.into_iter().flat_map(|by| self.clocks_apart(node, by));
        let since_new = self.guards.new.then_some(Span::new(Ns::MIN, 0));
        let noticed = forgot.map(|strike| {
            let Span { from, to } = strike.span();
            let silent = matches!(strike.harm, Harm::Node(NodeHarm::Flush { .. }));
            Span::new(from, if silent { asked(from).unwrap_or(Ns::MAX).max(to) } else { to })
        });
        let mut spans =
            noticed.chain(apart.map(Strike::span)).chain(paced.map(Strike::span)).chain(since_new);
        guard.at_odds
            || spans.any(|span| {
                let until = self.watched(process, node, span, long);
                Span::new(span.from, until).touches(within)
            })
    }

    /// Whether a process has another guard than those for whom the masters were marked, or may have been.
    pub(in crate::judge) fn is_at_odds(&self, process: &str) -> bool {
        let own = self.guards.all.iter().find(|guard| guard.process == process);
        own.is_some_and(|guard| guard.at_odds || guard.quarantine == Ns::MAX)
    }

    /// The faults by which a master's clock comes to be ahead of another's by more than this.
    fn clocks_apart(&self, node: usize, unnoticed: Ns) -> impl Iterator<Item = &Strike<'_>> {
        self.strikes.iter().filter(move |strike| match strike.harm {
            // All others are ahead of one that was set back.
            Harm::Clock(ClockHarm::Step { by, .. }) => {
                time::of(by.by.0) > unnoticed && (by.back || strike.hits_node(node))
            }
            Harm::Clock(ClockHarm::Rate { .. } | ClockHarm::Strobe { .. }) => true,
            _ => false,
        })
    }

    /// Whether a fault costs the masters that it hits their markers, or makes them other processes.
    const fn unmarks(&self, strike: &Strike<'_>) -> bool {
        match strike.harm {
            Harm::Node(NodeHarm::Flush { .. } | NodeHarm::Failover { .. }) => true,
            Harm::Node(
                NodeHarm::Kill { .. }
                | NodeHarm::Stop { .. }
                | NodeHarm::Restart { .. }
                | NodeHarm::PowerLoss { .. },
            ) => !self.guards.durable,
            _ => false,
        }
    }

    /// Whether a guard may rightly refuse a process all that it asks, since one of its masters is in
    /// another set of masters, too.
    pub(in crate::judge) fn refuses(&self, world: &World<'_>, process: &str) -> bool {
        let lost = self.strikes.iter().any(|strike| self.unmarks(strike));
        world.is_of_two_fleets(process, lost)
    }

    /// Until when a process may have to watch a master that it distrusts since a span: whatever breaks
    /// the connection, or takes the vigil, makes it begin anew.
    fn watched(&self, process: &str, node: usize, since: Span, long: Ns) -> Ns {
        let mut until = since.to.saturating_add(long);
        loop {
            let within = Span::new(since.from, until);
            let disturb = self.strikes.iter().filter(|strike| {
                let hits = match strike.harm {
                    Harm::Node(NodeHarm::Flush { .. }) | Harm::Clock(_) => strike.hits_node(node),
                    Harm::Client(_) => strike.hits_process(process),
                    _ => strike.hits_link(process, node),
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
