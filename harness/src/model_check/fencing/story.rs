//! Descriptions of states and events. Clients are A, B and C, masters are counted from 1.

use super::{ATTEMPTS, Event, Holder, NOBODY, Phase, Scope, State, UNFENCED};

/// An event and its effect.
pub(super) fn tell(state: &State, event: Event, after: Option<&State>) -> String {
    let counter = |master: u8, of: &State| of.masters[usize::from(master)].counter;
    let key = |master: u8| name(state.masters[usize::from(master)].key);
    match event {
        Event::VoteRequest(client, 0) => format!("{} asks all masters", letter(client)),
        Event::VoteRequest(client, hint) => {
            format!("{} asks all masters, with the hint {hint}", letter(client))
        }
        Event::Grant { client, attempt, master, again } => {
            let granted = after.is_some_and(|after| {
                state.masters[usize::from(master)].key == NOBODY
                    && after.masters[usize::from(master)].key != NOBODY
            });
            let late = late(state, client, attempt);
            let what = if granted {
                let number = after.map_or(0, |after| counter(master, after));
                format!("grants {} with {number}", letter(client))
            } else {
                format!("refuses {}: {} has the key", letter(client), key(master))
            };
            let again = if again { ", and will be asked again" } else { "" };
            format!("master {} {what}{late}{again}", master + 1)
        }
        Event::Certify(client, attempt, master) => {
            let asked =
                state.slots[usize::from(client)][usize::from(attempt)][usize::from(master)].certify;
            let late = late(state, client, attempt);
            let number = after.map_or(0, |after| counter(master, after));
            format!(
                "master {} is asked for {asked} by {}{late}, and has {number} ({} has the key)",
                master + 1,
                letter(client),
                key(master)
            )
        }
        Event::Repair(client, attempt, master) => {
            let late = late(state, client, attempt);
            let number = after.map_or(0, |after| counter(master, after));
            format!(
                "master {} extends {}'s key{late}, and has {number}",
                master + 1,
                letter(client)
            )
        }
        Event::Choose(client, heard) => {
            let heard = (0..u8::BITS).filter(|master| heard & 1 << master != 0);
            let heard: Vec<String> = heard.map(|master| (master + 1).to_string()).collect();
            let heard = heard.join(" and ");
            let token = after.map(|after| after.clients[usize::from(client)].phase);
            let token = match token {
                Some(Phase::Certifying(token, _)) => token.to_string(),
                _ => "a token".to_owned(),
            };
            format!("{} has heard from {heard}, and goes for {token}", letter(client))
        }
        Event::Take(client) => match after.map(|after| after.clients[usize::from(client)].phase) {
            Some(Phase::Holding(token)) => format!("{} has the token {token}", letter(client)),
            _ => format!("{} takes its token", letter(client)),
        },
        Event::Extend(client) => format!("{} extends its lease", letter(client)),
        Event::HandOver(client) => format!("{} hands its lease to another user", letter(client)),
        Event::GiveUp(client) => format!("{} gives up, or gives back", letter(client)),
        Event::Expire(master) => {
            format!("the key of {} on master {} goes", key(master), master + 1)
        }
        Event::Unfenced(master) => format!("a client without tokens gets master {}", master + 1),
        Event::Forget(master) => format!("master {} forgets its counter", master + 1),
    }
}

/// A state, with one line for each master and each client.
pub(super) fn show(scope: &Scope, state: &State) -> Vec<String> {
    let masters = (1..).zip(state.masters).map(|(number, of)| {
        format!("master {number}: counter {}, key of {}", of.counter, name(of.key))
    });
    let clients = (0..).zip(state.clients).take(scope.clients);
    let clients = clients.map(|(client, who)| format!("{}: {:?}", letter(client), who.phase));
    masters.chain(clients).collect()
}

/// A note on a message whose client has given it up.
fn late(state: &State, client: u8, attempt: u8) -> &'static str {
    let who = state.clients[usize::from(client)];
    if attempt + 1 == who.attempt && who.phase != Phase::Idle { "" } else { ", late" }
}

fn letter(client: u8) -> char {
    char::from(b'A' + client)
}

fn name(key: Holder) -> String {
    match key {
        NOBODY => "nobody".to_owned(),
        UNFENCED => "somebody else".to_owned(),
        key => {
            let client = (key - 1) / u8::try_from(ATTEMPTS).unwrap_or(1);
            letter(client).to_string()
        }
    }
}
