//! Talk: what a saboteur answers, with a straight face. Its words are those of the honest client.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{Claim, Extension, Failure, Hold, Input, Key, Outcome, Patience, Time};

use super::claim::LyingClaim;
use super::shell::{Shell, SystemDice, clocks};
use crate::client::voice::Voice;
use crate::history::text_of;
use crate::name::Name;
use crate::stamp;
use crate::talk::{Answer, Notice, Op, Request, Why};

/// A request under way: its number, and the stamp of the call.
type Asked = (u64, i64);

/// A claim, and who waits for what of it.
pub(super) struct Lease {
    pub(super) claim: LyingClaim,
    pub(super) key: Key,
    whose: (Name, Name),
    acquiring: Option<Asked>,
    /// With the number of the round.
    extending: Option<(Asked, u32)>,
    releasing: Option<Asked>,
    /// It is not held any more, and that was told.
    over: bool,
    /// While it is kept alive: the deadline that was told last.
    seen: Option<Time>,
}

impl Shell {
    pub(super) fn request(&mut self, Request { id, client, op }: Request) {
        match op {
            Op::Acquire { resource, ttl_ms, wait_ms } => {
                let wait = Duration::from_millis(wait_ms);
                self.acquire(id, (client, resource), ttl_ms, wait);
            }
            Op::Extend { resource, ttl_ms } => self.extend(id, (client, resource), ttl_ms),
            Op::KeepAlive { resource, max_ms } => {
                let Some(number) = self.find(id, &(client, resource)) else { return };
                self.advance(number, Input::KeepAlive(Duration::from_millis(max_ms)));
                if let Some(lease) = self.leases.get_mut(&number)
                    && let Claim::Holding(hold) = lease.claim.claim()
                {
                    lease.seen = Some(hold.deadline());
                }
                done(id);
                self.attend(number);
            }
            Op::Release { resource } => {
                let whose = (client, resource);
                let Some(number) = self.find(id, &whose) else { return };
                self.held.remove(&whose);
                if let Some(lease) = self.leases.get_mut(&number) {
                    lease.releasing = Some((id, stamp::now()));
                    if let Some(((extension, _), _)) = lease.extending.take() {
                        Voice.refuse(extension, Why::Cancelled, "cancelled");
                    }
                }
                self.drive(number, Input::Release);
            }
            Op::Cancel { request } => {
                done(id);
                let asked = |asked: Option<Asked>| asked.is_some_and(|(id, _)| id == request);
                let found = self.leases.iter().find(|(_, lease)| asked(lease.acquiring));
                if let Some(number) = found.map(|(number, _)| *number) {
                    self.advance(number, Input::Abandon);
                    self.leases.remove(&number);
                    Voice.refuse(request, Why::Cancelled, "cancelled");
                }
            }
            Op::Step { check: None, .. } => done(id),
            Op::Step { check: Some(resource), .. } => {
                let Some(number) = self.find(id, &(client, resource)) else { return };
                let Some(lease) = self.leases.get(&number) else { return };
                match lease.claim.claim() {
                    Claim::Holding(hold)
                        if lease.claim.seems_held(clocks(), hold)
                            && (!lease.over || !lease.claim.tells_loss()) =>
                    {
                        done(id);
                    }
                    _ => Voice.refuse(id, Why::Lost, "the lease is lost"),
                }
            }
        }
    }

    /// The claim that holds, or held, this; without one the request is refused.
    fn find(&self, id: u64, whose: &(Name, Name)) -> Option<u64> {
        let number = self.held.get(whose).copied();
        if number.is_none() {
            Voice.refuse(id, Why::Lost, format!("{} has no lease of {}", whose.0, whose.1));
        }
        number
    }

    fn acquire(&mut self, id: u64, whose: (Name, Name), ttl_ms: u64, wait: Duration) {
        let terms = match self.terms(ttl_ms) {
            Ok(terms) => terms,
            Err(why) => return Voice.refuse(id, Why::Error, why),
        };
        let lie = (self.lie, self.root(&whose.0));
        let patience = Patience { wait, explain: true };
        let (from, mut effects) = (stamp::now(), Vec::new());
        let claim =
            LyingClaim::acquire(lie, clocks(), terms, patience, &mut SystemDice, &mut effects);
        let key: Key = Arc::from(whose.1.as_bytes());
        let lease = Lease {
            claim,
            key: key.clone(),
            whose,
            acquiring: Some((id, from)),
            extending: None,
            releasing: None,
            over: false,
            seen: None,
        };
        // Requests are numbered by the harness, so a claim can have the number of its own.
        self.leases.insert(id, lease);
        self.send(id, &key, effects);
    }

    fn extend(&mut self, id: u64, whose: (Name, Name), ttl_ms: u64) {
        let Some(number) = self.find(id, &whose) else { return };
        let terms = match self.terms(ttl_ms) {
            Ok(terms) => terms,
            Err(why) => return Voice.refuse(id, Why::Error, why),
        };
        let from = stamp::now();
        if self.leases.get(&number).is_some_and(|lease| lease.extending.is_some()) {
            let text = "an extension is under way: await its answer";
            return Voice.refuse(id, Why::Error, text);
        }
        self.advance(number, Input::Extend(terms));
        if let Some(lease) = self.leases.get_mut(&number)
            && let Claim::Holding(hold) = lease.claim.claim()
        {
            lease.extending = Some(((id, from), hold.extension().0));
        }
        self.attend(number);
    }

    /// Tells what came of a claim, to whoever waits for it.
    pub(super) fn attend(&mut self, number: u64) {
        let Some(lease) = self.leases.get_mut(&number) else { return };
        match lease.claim.claim() {
            Claim::Acquiring(acquire) if acquire.is_won() => self.drive(number, Input::Collect),
            Claim::Acquiring(acquire) => {
                if let Some(why) = acquire.failure() {
                    lease.refuse(why);
                    self.leases.remove(&number);
                }
            }
            Claim::Holding(_) => {
                if lease.hold() {
                    let whose = lease.whose.clone();
                    self.replace(whose, number);
                }
            }
            Claim::Releasing(release) => {
                if let Some(outcome) = release.outcome() {
                    lease.released(outcome);
                    self.leases.remove(&number);
                }
            }
            Claim::Ended => drop(self.leases.remove(&number)),
        }
    }

    /// A lease that was lost and never released gives way to its client's next one.
    fn replace(&mut self, whose: (Name, Name), number: u64) {
        if let Some(old) = self.held.insert(whose, number) {
            self.advance(old, Input::Abandon);
            self.leases.remove(&old);
        }
    }
}

impl Lease {
    fn refuse(&mut self, failure: Failure) {
        let Some((id, from)) = self.acquiring.take() else { return };
        let why = match failure {
            Failure::Taken => Why::Taken,
            Failure::NoQuorum => Why::NoQuorum,
            Failure::TooLate => Why::Late,
            _ => Why::Error,
        };
        answer((id, from), Err(why), |_| ());
    }

    /// Tells what is new about a held lease, and whether it was granted just now.
    fn hold(&mut self) -> bool {
        let Claim::Holding(hold) = self.claim.claim() else { return false };
        let hold = hold.clone();
        let deadline = i64::try_from(self.claim.deadline(clocks(), &hold).as_nanos());
        let deadline_ns = deadline.unwrap_or(i64::MAX);
        let granted = self.acquiring.take();
        if let Some(asked) = granted {
            let value = self.claim.value();
            answer(asked, Ok(()), |answer| {
                answer.token = value.map(|token| text_of(token.as_bytes()));
                answer.deadline_ns = Some(deadline_ns);
            });
        }
        if let Some((asked, round)) = self.extending
            && let Some((result, _)) = hold.ended(round)
        {
            self.extending = None;
            self.extended(asked, result, deadline_ns);
        }
        if hold.lost().is_some() {
            self.lose();
        }
        self.look(&hold, deadline_ns);
        granted.is_some()
    }

    fn extended(&mut self, asked: Asked, result: Extension, deadline_ns: i64) {
        let result = match result {
            Extension::Extended => Ok(()),
            Extension::QuorumGone | Extension::Lost(_) if self.claim.tells_loss() => Err(Why::Lost),
            _ => Err(Why::NoQuorum),
        };
        answer(asked, result, |answer| {
            answer.deadline_ns = result.is_ok().then_some(deadline_ns);
        });
        if result == Err(Why::Lost) {
            self.lose();
        }
    }

    /// Tells that a watchdog has moved the deadline.
    fn look(&mut self, hold: &Hold, deadline_ns: i64) {
        if self.seen.is_some_and(|seen| hold.deadline() > seen) {
            self.seen = Some(hold.deadline());
            let (client, resource) = self.whose.clone();
            let at_ns = Some(stamp::now());
            Voice.tell(&Notice::Extended { client, resource, at_ns, deadline_ns });
        }
    }

    fn lose(&mut self) {
        if !std::mem::replace(&mut self.over, true) && self.claim.tells_loss() {
            let (client, resource) = self.whose.clone();
            Voice.tell(&Notice::Lost { client, resource, at_ns: stamp::now() });
        }
    }

    fn released(&mut self, outcome: Outcome) {
        let Some(asked) = self.releasing.take() else { return };
        let result = match outcome {
            Outcome::Released => Ok(()),
            Outcome::AlreadyGone => Err(Why::Lost),
            _ => Err(Why::NoQuorum),
        };
        answer(asked, result, |_| ());
    }
}

fn done(id: u64) {
    answer((id, stamp::now()), Ok(()), |_| ());
}

fn answer((id, from): Asked, result: Result<(), Why>, more: impl FnOnce(&mut Answer)) {
    let mut answer = Answer {
        id,
        ok: result.is_ok(),
        from_ns: Some(from),
        at_ns: Some(stamp::now()),
        why: result.err(),
        ..Answer::default()
    };
    more(&mut answer);
    Voice.answer(&answer);
}
