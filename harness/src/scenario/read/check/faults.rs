//! Faults: that they can strike, that they hit somebody, and that they do something.

use super::Run;
use crate::scenario::near::guess;
use crate::scenario::read::tree::Place;
use crate::scenario::{
    ClientHarm, Clients, ClockHarm, Fault, Harm, Length, Moment, NetHarm, NodeHarm, Nodes, Step,
    Way, What, When, Which,
};

/// What of a step a moment is about.
type Fits = fn(&Step) -> Option<&str>;

impl Run<'_> {
    pub(super) fn faults(&mut self) {
        for (place, fault) in self.faults.clone() {
            self.when(&place, fault);
            let (kind, verb) = fault.harm.name().split_once('.').unwrap_or_default();
            let harm = place.key(kind).key(verb);
            if let Some(nodes) = fault.harm.nodes() {
                self.masters(&harm.key("nodes"), nodes);
            }
            if let Some(Clients::Some(names)) = fault.harm.clients() {
                for (index, name) in names.iter().enumerate() {
                    let clients = harm.key("clients");
                    let place = if names.len() == 1 { clients } else { clients.index(index) };
                    self.known(&place, name);
                }
            }
            self.harm(&harm, &fault.harm);
        }
    }

    fn when(&mut self, place: &Place, fault: &Fault) {
        match &fault.when {
            When::At(_) => {}
            When::After(moment) => self.moment(&place.key("after"), moment),
            When::Before(moment) => {
                let place = place.key("before");
                self.moment(&place, moment);
                let held = matches!(
                    moment.what,
                    What::Asks(_)
                        | What::Releases(_)
                        | What::Reads(_)
                        | What::Writes(_)
                        | What::Request(..)
                        | What::Reply(..)
                );
                if !held {
                    let mend = "only `asks`, `releases`, `reads`, `writes`, `request` and `reply` \
                                can: take one of them, or write `after`";
                    let message = format!("nobody can hold back `{moment}`");
                    self.wrong(&place, message, mend);
                }
                if !moment.plus.is_zero() {
                    let mend = "leave the time out, or write `after`";
                    self.wrong(&place, "`before` cannot be later than its moment", mend);
                }
            }
        }
        let Some(lasts) = fault.lasts else { return };
        let place = place.key("for");
        let at_once = match &fault.harm {
            harm if !harm.has_cure() => true,
            // With a window, those that come within it are reset.
            Harm::Net(NetHarm::Reset(which)) => !picks(which),
            _ => false,
        };
        if at_once {
            let name = fault.harm.name();
            let message = format!("`{name}` happens at once and is not cured");
            let mend = match &fault.harm {
                Harm::Node(_) => "leave `for` out, or write `node.kill`, which stays down so long",
                Harm::Client(_) => "leave `for` out, or write `client.pause`, which ends",
                _ => "leave `for` out, or write `net.cut`, which lasts",
            };
            self.wrong(&place.itself(), message, mend);
        } else if lasts.is_zero() {
            let mend =
                "write a time such as \"100ms\", or leave `for` out: until the end of the run";
            self.wrong(&place, "the fault is over as it begins", mend);
        }
    }

    fn moment(&mut self, place: &Place, moment: &Moment) {
        let Some(client) = self.known(&place.word(&moment.client), &moment.client) else { return };
        let script = self.script(client);
        let id = &moment.client;
        let (name, fits, what): (&str, Fits, &str) = match &moment.what {
            What::Asks(name) | What::Granted(name) | What::Refused(name) | What::Lost(name) => {
                (name, acquired, "acquires")
            }
            What::Extended(name) => (name, extended, "extends"),
            What::Releases(name) | What::Released(name) => (name, released, "releases"),
            What::Reads(name) => (name, read, "reads"),
            What::Writes(name) => (name, written, "writes"),
            _ => return,
        };
        let there: Vec<&str> = script.iter().filter_map(fits).collect();
        if !there.contains(&name) {
            let guess = guess(name, there.iter().copied());
            let mend = match there.first() {
                Some(first) if guess.is_empty() => {
                    format!("it {what} `{first}`: name that, or add the step")
                }
                _ => format!("{guess}name what its script does, or add the step"),
            };
            self.wrong(&place.word(name), format!("`{id}` never {what} `{name}`"), mend);
        }
    }

    fn masters(&mut self, place: &Place, nodes: &Nodes) {
        let all = self.cluster.1.nodes;
        match nodes {
            Nodes::All => {}
            Nodes::Some(numbers) => {
                for (index, number) in numbers.iter().enumerate().filter(|(_, one)| **one > all) {
                    let message = format!("there is no master {number}");
                    let mend = format!("there are {all}, counted from 1: write 1 to {all}");
                    self.wrong(&place.index(index), message, mend);
                }
            }
            Nodes::Role(role) => {
                self.known(&place.word(&role.client), &role.client);
                if let Some(first) = role.first.filter(|first| *first > all) {
                    let message = format!("`{role}` wants {first} masters");
                    self.wrong(place, message, format!("there are {all}: write 1 to {all}"));
                }
            }
        }
    }

    fn harm(&mut self, place: &Place, harm: &Harm) {
        match harm {
            Harm::Node(NodeHarm::Slow { by, .. }) | Harm::Net(NetHarm::Delay { by, .. }) => {
                self.moves(&place.key("by"), *by);
            }
            Harm::Clock(ClockHarm::Step { by, .. })
            | Harm::Client(ClientHarm::Clock { by, .. }) => {
                self.moves(&place.key("by"), by.by);
            }
            Harm::Clock(ClockHarm::Strobe { by, every, .. }) => {
                self.moves(&place.key("by"), *by);
                if every.0 < std::time::Duration::from_millis(1) {
                    let message = format!("a clock cannot jump every {every}");
                    self.wrong(&place.key("every"), message, "write at least \"1ms\"");
                }
            }
            Harm::Clock(ClockHarm::Rate { factor, .. }) => {
                if !(0.01..=100.0).contains(factor) {
                    let message = format!("a clock cannot run at {factor} seconds per second");
                    let mend = "write 0.01 to 100: 2.0 is twice as fast, 0.5 half as fast";
                    self.wrong(&place.key("factor"), message, mend);
                }
            }
            Harm::Net(NetHarm::Trickle { bytes: 0, .. }) => {
                let mend = "write 1 or more, or `net.hold`, which lets nothing pass";
                self.wrong(&place.key("bytes"), "no bytes at all pass", mend);
            }
            Harm::Net(NetHarm::Duplicate(which)) => {
                if which.what == crate::scenario::Side::Reply {
                    let mend = "write `what = \"request\"`, or leave `what` out";
                    self.wrong(&place.key("what"), "replies cannot arrive twice", mend);
                }
                self.which(place, which);
            }
            Harm::Net(
                NetHarm::Cut(which)
                | NetHarm::Drop(which)
                | NetHarm::Hold(which)
                | NetHarm::Reset(which),
            ) => self.which(place, which),
            _ => {}
        }
    }

    fn which(&mut self, place: &Place, which: &Which) {
        for (key, number) in [("index", which.index), ("count", which.count)] {
            if number == Some(0) {
                let message = match key {
                    "index" => "there is no message 0",
                    _ => "no message at all is struck",
                };
                self.wrong(&place.key(key), message, "count from 1");
            }
        }
    }

    fn moves(&mut self, place: &Place, by: Length) {
        if by.is_zero() {
            self.wrong(place, "the fault does nothing", "write a time such as \"100ms\"");
        }
    }
}

/// Whether a fault strikes certain messages only.
fn picks(which: &Which) -> bool {
    let all =
        Which { clients: which.clients.clone(), nodes: which.nodes.clone(), ..Which::default() };
    *which != all
}

fn acquired(step: &Step) -> Option<&str> {
    match step {
        Step::Acquire { resource, .. } => Some(resource),
        _ => None,
    }
}

fn extended(step: &Step) -> Option<&str> {
    match step {
        Step::Extend { resource, .. } | Step::Keep { resource, .. } => Some(resource),
        _ => None,
    }
}

fn released(step: &Step) -> Option<&str> {
    match step {
        Step::Release { resource } => Some(resource),
        _ => None,
    }
}

fn read(step: &Step) -> Option<&str> {
    match step {
        Step::Touch { register, way: Way::Read, .. } => Some(register),
        _ => None,
    }
}

fn written(step: &Step) -> Option<&str> {
    match step {
        Step::Touch { register, way: Way::Write, .. } => Some(register),
        _ => None,
    }
}
