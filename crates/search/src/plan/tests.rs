//! Tests of what is drawn. The tests of `scenario_file.rs` check that each scenario can run.

use std::collections::BTreeSet;

use super::{Space, all_see_amnesia};
use redquorum_scenario::{
    AccessKind, Class, Client, Clients, Fault, FaultKind, NetworkFault, NodeFault, Nodes,
    Persistence, Scenario, Step,
};
use redquorum_simulator::orchestrator::to_release;

#[test]
fn every_fault_is_drawn() {
    let drawn = (0..3_000).flat_map(|number| Space::OUTSIDE.draw(number).faults);
    let drawn: BTreeSet<&str> = drawn.map(|fault| fault.kind.name()).collect();
    assert_eq!(drawn, BTreeSet::from_iter(FaultKind::names()));
}

#[test]
fn defences_are_drawn_for_all_clients_and_for_some() {
    // Guarded, with an unguarded client, with two guards, with a client that takes no tokens.
    let count = |space: Space| {
        let mut seen = [0; 4];
        for number in 0..1_000 {
            let scenario = space.draw(number);
            let own = scenario.clients.iter().map(|client| client.options(&scenario.lock));
            let own: Vec<_> = own.collect();
            let guards: Vec<_> = own.iter().filter_map(|lock| lock.guard).collect();
            seen[0] += usize::from(!guards.is_empty());
            seen[1] += usize::from(!guards.is_empty() && guards.len() < own.len());
            seen[2] += usize::from(guards.iter().any(|guard| *guard != guards[0]));
            seen[3] += usize::from(own.iter().any(|lock| lock.fencing != own[0].fencing));
        }
        seen
    };
    let (inside, outside) = (count(Space::INSIDE), count(Space::OUTSIDE));
    for [guarded, parts, guards, tokens] in [inside, outside] {
        assert!((400..600).contains(&guarded), "{guarded}");
        assert!(parts > 20 && tokens > 20, "{parts}, {tokens}");
        assert!(guards <= parts, "{guards}");
    }
    assert_eq!(inside[2], 0);
    assert!(outside[2] > 5, "{outside:?}");
}

#[test]
fn crowds_are_drawn_together_and_apart_and_so_are_faults_of_wake_ups() {
    // With a crowd, of one process, with a client that gives up in it; and with wake-ups that a
    // fault hits.
    let mut seen = [0; 4];
    for number in 0..1_000 {
        let scenario = Space::INSIDE.draw(number);
        let crowd = scenario.clients.iter().filter(|client| client.id.starts_with('q'));
        let crowd: Vec<&Client> = crowd.collect();
        let shared = crowd.iter().filter(|client| client.process() == "crowd").count();
        let gives_up = |client: &&&Client| {
            client.script.iter().any(|step| matches!(step, Step::Acquire { cancel: Some(_), .. }))
        };
        seen[0] += usize::from(!crowd.is_empty());
        seen[1] += usize::from(shared > 4);
        seen[2] += usize::from(crowd.iter().any(|client| gives_up(&client)));
        let words = |fault: &Fault| match &fault.kind {
            FaultKind::Net(
                NetworkFault::Drop(which) | NetworkFault::Hold(which) | NetworkFault::Reset(which),
            ) => which.command == Class::WakeUp,
            _ => false,
        };
        seen[3] += usize::from(scenario.faults.iter().any(words));
    }
    assert!((250..420).contains(&seen[0]) && (180..320).contains(&seen[3]), "{seen:?}");
    assert!(seen[1] > 50 && seen[2] > 50, "{seen:?}");
}

#[test]
fn handles_and_several_resources_are_drawn() {
    // Clients that acquire again, for longer, or forget a handle. Clients that want several
    // resources, in two orders, and release them one by one.
    let mut seen = [0; 6];
    for number in 0..1_000 {
        let scenario = Space::INSIDE.draw(number);
        let scripts = || scenario.clients.iter().map(|client| &client.script);
        let steps = || scripts().flatten();
        let again = |step: &&Step| matches!(step, Step::Acquire { again: true, .. });
        let longer = |step: &&Step| step.ttl().is_some_and(|ttl| ttl > scenario.lock.ttl.0);
        let fewer = |script: &&Vec<Step>| {
            let asked = script.iter().flat_map(Step::acquires).count();
            script.iter().flat_map(Step::releases).count() < asked
        };
        let together = |step: &&Step| step.acquires().count() > 1;
        let named = |step: &Step| step.acquires().map(ToString::to_string).collect::<Vec<_>>();
        let sets: Vec<Vec<String>> = steps().filter(together).map(named).collect();
        let crossed = |one: &Vec<String>| {
            sets.iter().any(|other| {
                other
                    .iter()
                    .rev()
                    .is_sorted_by_key(|name| one.iter().position(|known| known == name))
            })
        };
        seen[0] += usize::from(steps().any(|step| again(&step)));
        seen[1] += usize::from(steps().filter(again).any(|step| longer(&step)));
        seen[2] += usize::from(scripts().any(|script| fewer(&script)));
        seen[3] += usize::from(!sets.is_empty());
        seen[4] += usize::from(sets.iter().any(crossed));
        let apart = |script: &Vec<Step>| {
            script.iter().any(|step| together(&step))
                && !script.iter().any(|step| step.releases().count() > 1)
        };
        seen[5] += usize::from(scripts().any(apart));
    }
    assert!((180..320).contains(&seen[0]) && (180..320).contains(&seen[3]), "{seen:?}");
    assert!(seen.iter().all(|seen| *seen > 50), "{seen:?}");
}

/// An update builds on a read under the same lease, even if a re-entry before it fails.
#[test]
fn a_failed_reentry_skips_no_read_that_a_later_write_needs() {
    let touches = |step: &Step, kind| match step {
        Step::Touch { register, way, .. } if *way == kind => Some(register.clone()),
        _ => None,
    };
    let mut seen = 0;
    for number in 0..3_000 {
        for client in Space::INSIDE.draw(number).clients {
            let script = &client.script;
            let granted = |step: &Step| matches!(step, Step::Acquire { again: false, .. });
            for (at, step) in script.iter().enumerate() {
                let Step::Acquire { resource, again: true, .. } = step else { continue };
                let section = script[..at].iter().rposition(granted).unwrap();
                let goes_on = at + to_release(&script[at..], resource) + 1;
                let rest = script.get(goes_on..).unwrap_or_default();
                let rest = rest.iter().take_while(|step| !granted(step)).enumerate();
                for (index, register) in rest.filter_map(|(index, step)| {
                    touches(step, AccessKind::Write).map(|register| (index, register))
                }) {
                    // Any re-entry before may have been granted another lease.
                    let kept = script[section..at].iter().chain(&script[goes_on..][..index]);
                    let is_read =
                        |step: &&Step| touches(step, AccessKind::Read).as_ref() == Some(&register);
                    let mut back = kept.rev().take_while(|step| step.acquires().count() == 0);
                    assert!(back.any(|step| is_read(&step)), "{number}: step {at} of {script:#?}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 1_000, "{seen}");
}

#[test]
fn inside_the_assumptions_masters_forget_only_where_all_clients_see_it() {
    let mut seen = 0;
    for number in 0..2_000 {
        let scenario = Space::INSIDE.draw(number);
        let forgets = scenario.cluster.persistence == Persistence::None;
        let careless = |fault: &Fault| match &fault.kind {
            FaultKind::Node(NodeFault::Flush | NodeFault::PowerLoss | NodeFault::Failover) => true,
            kind if kind.starts_again() && forgets => {
                fault.lasts.is_none_or(|lasts| lasts.0 <= scenario.longest_ttl())
            }
            _ => false,
        };
        if scenario.faults.iter().any(careless) {
            seen += 1;
            assert!(all_see_amnesia(&scenario), "{number}: {scenario:#?}");
        }
    }
    assert!(seen > 100, "{seen}");
}

/// A search has this only outside the assumptions: clients that know different masters, and clients
/// that know one master by two addresses.
#[test]
fn lists_of_masters_differ_only_outside_the_assumptions() {
    let count = |space: &Space, has: fn(&Scenario) -> bool| {
        (0..1_000).filter(|number| has(&space.draw(*number))).count()
    };
    let parted = |scenario: &Scenario| {
        let lists = scenario.clients.iter().map(|client| scenario.list(client));
        let lists: Vec<_> = lists.collect();
        // The markers of a move keep such clients apart.
        lists.iter().all(|list| list.moves().is_none())
            && lists.iter().any(|one| lists.iter().any(|other| one.can_part_from(other)))
    };
    let twice = |scenario: &Scenario| {
        let mut lists = scenario.clients.iter().map(|client| scenario.list(client));
        lists.any(|list| list.masters().len() < list.addresses().len())
    };
    for has in [parted as fn(&Scenario) -> bool, twice] {
        assert_eq!(count(&Space::INSIDE, has), 0);
        assert!(count(&Space::OUTSIDE, has) > 20);
    }
}

#[test]
fn silent_waiters_recycled_connections_and_demoted_masters_are_drawn() {
    // Fair locks, with a client that is not fair; waiters that are paused, or cut off; masters that
    // reset their connections three times; masters that are demoted.
    let mut seen = [0; 6];
    for number in 0..1_000 {
        let scenario = Space::INSIDE.draw(number);
        let lock = &scenario.lock;
        let has = |is: &dyn Fn(&Fault) -> bool| scenario.faults.iter().any(is);
        let waiters = |fault: &Fault| match &fault.clients {
            Some(Clients::Some(names)) => names.iter().all(|name| name.starts_with('v')),
            _ => false,
        };
        let resets = |fault: &&Fault| {
            matches!(&fault.kind, FaultKind::Net(NetworkFault::Reset(which))
                if fault.nodes == Some(Nodes::Some(vec![1])) && which.index.is_none())
        };
        seen[0] += usize::from(lock.fair);
        seen[1] += usize::from(lock.fair && scenario.clients.iter().any(|it| it.fair.is_some()));
        seen[2] += usize::from(has(&|fault| fault.kind.pauses_clients() && waiters(fault)));
        let cut = |fault: &Fault| matches!(fault.kind, FaultKind::Net(NetworkFault::Cut(_)));
        seen[3] += usize::from(has(&|fault| cut(fault) && waiters(fault)));
        seen[4] += usize::from(scenario.faults.iter().filter(resets).count() > 2);
        let demotes = |fault: &Fault| matches!(fault.kind, FaultKind::Node(NodeFault::Demote));
        seen[5] += usize::from(has(&demotes));
    }
    assert!((200..300).contains(&seen[0]) && seen.iter().all(|seen| *seen > 25), "{seen:?}");
}
