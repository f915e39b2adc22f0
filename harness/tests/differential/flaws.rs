//! Models that are wrong on purpose, in ways that one could get Redis wrong.

use std::collections::{BTreeMap, VecDeque};

use redquorum_harness::scenario::Persistence;
use redquorum_harness::sim::server::{Close, Connection, Event, Reply, Request, Server, Wall};
use redquorum_protocol::wire::Command;
use redquorum_protocol::{Answer, Call, Holder, Key, Spot};

use crate::model::{Master, right};
use crate::run::Record;

const MS: Wall = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    /// A key is gone in its last millisecond, not after it.
    ExpiryOffByOne,
    /// A restart without persistence keeps the keys.
    RestartRemembers,
    /// A refused `SET NX PX` gives the key its TTL.
    RepeatRenews,
    /// Active expiry goes by the time since the start, and sees no step of the wall clock.
    ExpiryIgnoresClock,
    /// What a client had sent to a paused master goes with the client.
    SetLostWithClient,
    /// What is left of a TTL is rounded up.
    TtlRoundedUp,
    /// A power loss takes nothing that a kill would not.
    PowerLossTakesNothing,
    /// `CLIENT KILL` only says that it did.
    KillSpares,
    /// Listeners are told also where they are only to be counted.
    CountingCalls,
    /// Nobody is told, listeners are only counted.
    CallsAreCounts,
    /// Who listens no more is told, and counted.
    ListensForEver,
    /// Who deletes is not told, though it listens.
    DeafToItself,
    /// Who deletes is told behind its answer.
    TellsBehindAnswer,
    /// Listeners are not told who is first in the line.
    NamesNobody,
    /// Who leaves a line tells nobody.
    LeavesInSilence,
    /// Who leaves a line keeps its place.
    KeepsPlaces,
    /// Nobody gets a number behind those of the others.
    AllAtOne,
}

const ALL: [Flaw; 17] = [
    Flaw::ExpiryOffByOne,
    Flaw::RestartRemembers,
    Flaw::RepeatRenews,
    Flaw::ExpiryIgnoresClock,
    Flaw::SetLostWithClient,
    Flaw::TtlRoundedUp,
    Flaw::PowerLossTakesNothing,
    Flaw::KillSpares,
    Flaw::CountingCalls,
    Flaw::CallsAreCounts,
    Flaw::ListensForEver,
    Flaw::DeafToItself,
    Flaw::TellsBehindAnswer,
    Flaw::NamesNobody,
    Flaw::LeavesInSilence,
    Flaw::KeepsPlaces,
    Flaw::AllAtOne,
];

struct Flawed {
    server: Server,
    flaw: Flaw,
    /// What each connection asked and was not answered.
    asked: BTreeMap<Connection, VecDeque<Request>>,
    /// [`Flaw::SetLostWithClient`]: not yet given to the server.
    held: BTreeMap<Connection, Vec<Request>>,
    /// [`Flaw::ExpiryIgnoresClock`]: the first instant, and how many looks there were since.
    looks: Option<(Wall, u64)>,
}

/// Every flaw makes a difference that is seen.
pub(crate) fn all_noticed(record: &Record) {
    let shows = |flaw: &Flaw| match flaw {
        Flaw::RestartRemembers => record.persistence == Persistence::None,
        Flaw::PowerLossTakesNothing => record.persistence == Persistence::AofEverysec,
        _ => true,
    };
    for flaw in ALL.into_iter().filter(shows) {
        let remembers = flaw == Flaw::RestartRemembers;
        let server = right(if remembers { Persistence::AofAlways } else { record.persistence });
        let (asked, held) = Default::default();
        match record.judge(Flawed { server, flaw, asked, held, looks: None }) {
            Ok(()) => panic!("{flaw:?} was not noticed within {} replies", record.replies()),
            Err(difference) => {
                println!("{flaw:?}: after {} replies", record.replies_until(difference.step));
            }
        }
    }
}

impl Flawed {
    fn misunderstood(&self, request: Request) -> Request {
        let Request::Lock(command) = request else { return request };
        Request::Lock(match (self.flaw, command) {
            (Flaw::KillSpares, Command::Kill { .. })
            | (Flaw::ListensForEver, Command::Unsubscribe { .. }) => Command::Ping,
            (Flaw::CountingCalls, Command::Delete { key, token, call: Call::Counted }) => {
                Command::Delete { key, token, call: Call::Everybody }
            }
            (
                Flaw::CallsAreCounts,
                Command::Delete { key, token, call: Call::Everybody | Call::Next },
            ) => Command::Delete { key, token, call: Call::Counted },
            (Flaw::LeavesInSilence, Command::StepOut { key, ticket, .. }) => {
                Command::StepOut { key, ticket, call: false }
            }
            (Flaw::KeepsPlaces, Command::StepOut { .. }) => Command::Ping,
            (Flaw::AllAtOne, Command::Stand { key, ticket, number: Spot::Last }) => {
                Command::Stand { key, ticket, number: Spot::At(1) }
            }
            (_, command) => command,
        })
    }

    /// What one tells itself stands before its answer.
    fn tell_itself(&self, out: &mut Vec<Event>) {
        let mut from = 0;
        while let Some(index) = out[from..].iter().position(|it| matches!(it, Event::Freed(..))) {
            let index = from + index;
            let Event::Freed(told, ..) = out[index] else { unreachable!("it is one") };
            let answer = |it: &Event| matches!(it, Event::Reply(..));
            let next = out[index..].iter().position(answer).map(|next| index + next);
            from = index + 1;
            match next.filter(|next| matches!(out[*next], Event::Reply(of, _) if of == told)) {
                Some(_) if self.flaw == Flaw::DeafToItself => {
                    out.remove(index);
                    from = index;
                }
                Some(next) if self.flaw == Flaw::TellsBehindAnswer => {
                    out[index..=next].rotate_left(1);
                    from = next + 1;
                }
                _ => {}
            }
        }
    }

    /// As somebody who is not there would have it: the server does it between two turns.
    fn renew(&mut self, wall: Wall, key: &Key, ttl_ms: u64, ghost: Connection) {
        let holder = self.server.keys().find(|(it, ..)| *it == key).map(|(_, token, _)| token);
        let Some(token) = holder else { return };
        let keep = Command::Keep { key: key.clone(), token, ttl_ms, repair: false, fence: None };
        self.server.deliver(ghost, Request::Lock(keep));
        self.server.serve(wall, ghost, &mut Vec::new());
    }
}

impl Master for Flawed {
    fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    fn deliver(&mut self, connection: Connection, request: Request) {
        self.asked.entry(connection).or_default().push_back(request.clone());
        if self.flaw == Flaw::SetLostWithClient && self.server.is_paused() {
            return self.held.entry(connection).or_default().push(request);
        }
        let request = self.misunderstood(request);
        self.server.deliver(connection, request);
    }

    fn close(&mut self, connection: Connection, how: Close) {
        self.held.remove(&connection);
        self.server.close(connection, how);
    }

    fn resume(&mut self) {
        self.server.resume();
        for (connection, requests) in std::mem::take(&mut self.held) {
            for request in requests {
                self.server.deliver(connection, request);
            }
        }
    }

    fn turn(&mut self, wall: Wall, connections: &[Connection], out: &mut Vec<Event>) {
        if self.flaw == Flaw::ExpiryOffByOne {
            let last =
                |(key, _, until): (&Key, _, Wall)| (until / MS == wall / MS).then(|| key.clone());
            let early: Vec<Key> = self.server.keys().filter_map(last).collect();
            for key in early {
                self.server.evict(&key);
            }
        }
        let from = out.len();
        self.server.turn(wall, connections, out);
        self.tell_itself(out);
        if self.flaw == Flaw::NamesNobody {
            let names = out[from..].iter_mut().filter_map(|event| match event {
                Event::Freed(_, _, next) => Some(next),
                _ => None,
            });
            names.for_each(|next| *next = None);
        }
        let mut refused = Vec::new();
        for event in &mut out[from..] {
            let Event::Reply(of, reply) = event else { continue };
            let asked = self.asked.get_mut(of).and_then(VecDeque::pop_front);
            if let Some(Request::Lock(Command::Set { key, ttl_ms, .. })) = asked
                && *reply == Reply::Answer(Answer::Taken(Holder::NotAsked))
            {
                refused.push((key, ttl_ms));
            }
            if self.flaw == Flaw::TtlRoundedUp && !wall.is_multiple_of(MS) {
                match reply {
                    Reply::Pttl(left) if *left >= 0 => *left += 1,
                    Reply::Answer(Answer::Taken(Holder::Lease { left_ms, .. })) => *left_ms += 1,
                    _ => {}
                }
            }
        }
        if self.flaw == Flaw::RepeatRenews
            && let Some(ghost) = self.server.connect()
        {
            for (key, ttl_ms) in refused {
                self.renew(wall, &key, ttl_ms, ghost);
            }
            self.server.close(ghost, Close::Fin);
        }
    }

    fn power_loss(&mut self, out: &mut Vec<Event>) {
        if self.flaw == Flaw::PowerLossTakesNothing {
            self.server.kill(out);
        } else {
            self.server.power_loss(out);
        }
    }

    fn tick(&mut self, wall: Wall) {
        if self.flaw == Flaw::ExpiryIgnoresClock {
            let (first, looks) = self.looks.get_or_insert((wall, 0));
            *looks += 1;
            let own = *first + *looks * MS;
            self.server.tick(own);
        } else {
            self.server.tick(wall);
        }
    }
}
