//! The rules: in every state, at every step, and in every end.

use redquorum_protocol::{Claim, Extension, quorum};

use super::super::Broken;
use super::caller::{Caller, TICK};
use super::connection::{Connection, Entries};
use super::event::small;
use super::master::{Held, Key, MasterReply, Queue, Request};
use super::scope::Fault;
use super::{Machines, State};

/// Clean-ups complete: once no event is due any more, no clean-up is pending and no key is left.
pub(crate) const CLEAN_UPS_COMPLETE: &str = "clean-ups complete";
/// No key outlives its clean-up: each key that is on a master, or may still be created there, is in
/// the ledger.
pub(crate) const NO_KEY_OUTLIVES_ITS_CLEAN_UP: &str = "no key outlives its clean-up";
/// R4: a token is never `SET` on a master twice.
pub(crate) const A_TOKEN_IS_SET_ONCE: &str = "a token is set once";
/// R5: a clean-up comes behind the command that it cleans up, or behind the kill of that
/// connection.
pub(crate) const A_CLEAN_UP_COMES_BEHIND: &str = "a clean-up comes behind what it cleans up";
/// R7: after a loss the lease is never held again, and its deadline does not move.
pub(crate) const LOST_IS_FINAL: &str = "lost is final";
/// R6: a deadline moves only after a round that succeeded, and only forward.
pub(crate) const A_DEADLINE_MOVES_BY_SUCCESS: &str =
    "a deadline moves only by a round that succeeded";
/// R1: no lease is returned at or past its deadline.
pub(crate) const HANDED_OUT_IN_TIME: &str = "a lease is handed out before its deadline";
/// If a client believes in a lease, a quorum of masters has its key.
pub(crate) const A_BELIEVED_HOLD_IS_TRUE: &str = "a believed hold is a true one";
/// No waiter is forgotten. Once a quorum of masters was released, and no message is under way
/// between these and a waiter, it sleeps no longer than for a pause, or another client goes on. If
/// a wake-up was lost, that holds from its next look on.
pub(crate) const NO_WAITER_IS_FORGOTTEN: &str = "no waiter is forgotten";
/// An attempt that its votes refused wakes no waiter. Otherwise two waiters would wake each other
/// for ever.
pub(crate) const A_FAILURE_WAKES_NO_WAITER: &str = "an attempt that failed wakes no client";
/// At an end no queue has a position of a client that is done, unless a message was lost.
pub(crate) const NO_POSITION_STAYS: &str = "no position stays behind";
/// Two clients never believe in a lease at once, unless both share it.
pub(crate) const MUTUAL_EXCLUSION: &str = "believed holds do not overlap";

fn broken<T>(rule: &'static str, why: impl Into<String>) -> Result<T, Broken> {
    Err(Broken { rule, why: why.into() })
}

pub(super) fn handed_out_late() -> Broken {
    Broken { rule: HANDED_OUT_IN_TIME, why: "its deadline has come already".into() }
}

/// Checks the effect of one input on a lease.
pub(super) fn check_hold(before: &Claim, caller: &Caller) -> Option<Broken> {
    let (Claim::Holding(before), Claim::Holding(after)) = (before, &caller.claim) else {
        return None;
    };
    let moved = after.deadline() != before.deadline();
    let extended =
        after.extension() != before.extension() && after.extension().1 == Extension::Extended;
    if let Some((_, deadline)) = caller.lost {
        let finally = after.lost().is_some() && after.deadline() == deadline && !extended;
        return (!finally).then(|| Broken { rule: LOST_IS_FINAL, why: "it is held again".into() });
    }
    let rightly = !moved || extended && after.deadline() > before.deadline();
    (!rightly).then(|| {
        let why = format!("from {:?} to {:?}", before.deadline(), after.deadline());
        Broken { rule: A_DEADLINE_MOVES_BY_SUCCESS, why }
    })
}

impl Machines {
    /// Checks the rules of one client, independent of the masters.
    pub(super) fn check_local(
        &self,
        caller: &Caller,
        sides: &[&(Connection, Entries)],
        covered: &[u8],
    ) -> Result<(), Broken> {
        if let (Some(_), Claim::Holding(hold)) = (caller.lost, &caller.claim)
            && hold.lost().is_none()
        {
            return broken(LOST_IS_FINAL, "its loss is forgotten");
        }
        for (master, ((side, _), covered)) in (1..).zip(sides.iter().zip(covered)) {
            if let Some(token) = side.twice {
                let why = format!("SET is written twice with token {token} for master {master}");
                return broken(A_TOKEN_IS_SET_ONCE, why);
            }
            if let Some(token) = side.calls().find(|token| caller.refused & 1 << token != 0) {
                let why = format!("the clean-up of token {token} wakes one, on master {master}");
                return broken(A_FAILURE_WAKES_NO_WAITER, why);
            }
            side.check_order().or_else(|why| {
                broken(A_CLEAN_UP_COMES_BEHIND, format!("for master {master}: {why}"))
            })?;
            let mut coming = side.wires.iter().flat_map(|wire| &wire.requests);
            let orphan = coming
                .find_map(|request| request.creates().filter(|token| covered & 1 << token == 0));
            if let Some(token) = orphan.filter(|_| !caller.dead) {
                let why = format!(
                    "token {token} is on its way to master {master}, and its clean-up is not pending"
                );
                return broken(NO_KEY_OUTLIVES_ITS_CLEAN_UP, why);
            }
        }
        Ok(())
    }

    pub(super) fn check_rules(&self, state: &State) -> Result<(), Broken> {
        for client in 0..self.scope.clients {
            if let Some(broken) = &self.known(state, client).broken {
                return Err(Broken { why: format!("c{}: {}", client + 1, broken.why), ..*broken });
            }
        }
        let on = |(master, held): (usize, &Held)| held.keys().map(move |key| (master, key));
        for (master, Key { client, token, .. }) in (1..).zip(&state.held).flat_map(on) {
            if self.known(state, client.into()).covered[master - 1] & 1 << token == 0 {
                let c = client + 1;
                let why = format!(
                    "token {token} of c{c} is on master {master}, and its clean-up is not pending"
                );
                return broken(NO_KEY_OUTLIVES_ITS_CLEAN_UP, why);
            }
        }
        self.check_sleep(state)?;
        self.check_holds(state)
    }

    fn check_sleep(&self, state: &State) -> Result<(), Broken> {
        for client in 0..self.scope.clients {
            let known = self.known(state, client);
            let Some(sleeps) = known.sleeps.filter(|sleeps| *sleeps > TICK) else { continue };
            let quiet = known.quiet & state.given_back;
            let is_lossy = state.lossy >> client & 1 == 1;
            let is_lost = is_lossy && quiet & state.looked[client] == 0;
            let mut others = (0..self.scope.clients).filter(|other| *other != client);
            let goes_on = others.any(|other| self.known(state, other).goes_on());
            let received = quiet.count_ones() as usize;
            if received >= quorum(self.scope.masters) && !is_lost && !goes_on {
                let c = client + 1;
                let why =
                    format!("c{c} sleeps for {sleeps:?}, and {received} masters were given back");
                return broken(NO_WAITER_IS_FORGOTTEN, why);
            }
        }
        Ok(())
    }

    fn check_holds(&self, state: &State) -> Result<(), Broken> {
        let clients = 0..self.scope.clients;
        let believes = |client: usize| Some((client, self.known(state, client).believed?));
        let alone = clients.clone().any(|client| !self.scope.reads(client));
        if alone && clients.clone().filter_map(believes).count() > 1 {
            return broken(MUTUAL_EXCLUSION, "both believe in a lease, and one of them alone");
        }
        for (client, token) in clients.filter_map(believes) {
            let ours = |held: &&Held| held.has(small(client), token);
            let held = state.held.iter().filter(ours).count();
            if held < quorum(self.scope.masters) {
                let c = client + 1;
                let why = format!("c{c} believes in token {token}, which {held} masters have");
                return broken(A_BELIEVED_HOLD_IS_TRUE, why);
            }
        }
        Ok(())
    }

    /// Checks a state in which no event is due any more.
    pub(super) fn check_settled(&self, state: &State) -> Result<(), Broken> {
        for client in 0..self.scope.clients {
            let (c, known) = (client + 1, self.known(state, client));
            if known.dead {
                continue;
            }
            if !known.over {
                return broken(CLEAN_UPS_COMPLETE, format!("the claim of c{c} never ends"));
            }
            let faults = [Fault::Cut, Fault::Stall, Fault::Error];
            let stays = |queue: &Queue| queue.iter().any(|it| usize::from(it.client) == client);
            if let Some(master) = state.queues.iter().position(stays)
                && faults.iter().all(|fault| state.spent.of(*fault) == 0)
            {
                let why = format!("c{c} is done, and is in the queue of master {}", master + 1);
                return broken(NO_POSITION_STAYS, why);
            }
            let ours = |key: Key| usize::from(key.client) == client;
            if !known.has_nothing_pending || state.held.iter().any(|held| held.keys().any(ours)) {
                return broken(
                    CLEAN_UPS_COMPLETE,
                    format!("c{c} is done, and leaves something for ever"),
                );
            }
        }
        Ok(())
    }
}

impl Connection {
    /// Checks that every command that may create a key comes before the clean-up that is under way
    /// for it.
    fn check_order(&self) -> Result<(), String> {
        for (at, wire) in self.wires.iter().enumerate() {
            // Replies behind a kill that failed do not count.
            let kill_failed = wire.replies.contains(&MasterReply::NotKilled);
            for (place, request) in wire.requests.iter().enumerate() {
                let Request::Delete(token, ..) = request else { continue };
                let ahead = wire.requests.iter().take(place);
                if wire.requests.iter().skip(place).any(|other| other.creates() == Some(*token)) {
                    return Err(format!("token {token} is set behind its clean-up"));
                }
                for old in &self.wires[..at] {
                    let creates = old.requests.iter().any(|other| other.creates() == Some(*token));
                    let killed = ahead.clone().any(|other| *other == Request::Kill(old.epoch));
                    if wire.open && creates && !killed && !kill_failed {
                        return Err(format!(
                            "token {token} may be set by an old connection behind its clean-up"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}
