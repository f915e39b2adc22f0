//! Canonicalizes states: masters are interchangeable, and so are clients; and facts that can never
//! matter again are dropped.

use super::super::wide::Wide;
use super::{
    ATTEMPTS, CLIENTS, Client, Holder, MASTERS, NOBODY, Phase, Scheme, Scope, Slot, State,
    UNFENCED, holder,
};

/// A master, with all messages between it and the clients, in an order of the clients: one word for
/// the master and one for each client.
type ClientState = [u64; 1 + CLIENTS];

/// Identifies a state.
pub(super) fn key(scope: &Scope, scheme: Scheme, state: &State) -> u128 {
    if !scope.fold {
        return in_order(state, [0, 1, 2], false);
    }
    let state = &needed(scope, scheme, *state);
    let orders: &[[usize; CLIENTS]] = match scope.clients {
        2 => &[[0, 1, 2], [1, 0, 2]],
        _ => &[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
    };
    orders.iter().map(|order| in_order(state, *order, true)).min().unwrap_or_default()
}

fn in_order(state: &State, order: [usize; CLIENTS], sort: bool) -> u128 {
    let mut seats: [ClientState; MASTERS] = std::array::from_fn(|master| {
        let of = state.masters[master];
        let mut seat =
            [u64::from(renamed(of.key, order)) << 8 | u64::from(of.counter); 1 + CLIENTS];
        for (word, client) in seat[1..].iter_mut().zip(order) {
            *word =
                state.slots[client].iter().fold(0, |all, slots| all << 32 | packed(slots[master]));
        }
        seat
    });
    if sort {
        seats.sort_unstable();
    }
    let mut wide = Wide::new();
    seats.iter().flatten().for_each(|word| wide.word(*word));
    for client in order {
        let Client { phase, attempt, hints, floor, handed_over, extended } = state.clients[client];
        let phase = match phase {
            Phase::Idle => [0, 0, 0],
            Phase::Asking => [1, 0, 0],
            Phase::Certifying(token, round) => [2, token, round],
            Phase::Holding(token) => [3, token, 0],
        };
        let [a, b, c] = phase;
        let counts = handed_over << 4 | extended;
        wide.word(u64::from_le_bytes([a, b, c, attempt, hints[0], hints[1], floor, counts]));
    }
    wide.word(state.issued);
    wide.word(
        u64::from(state.copies) << 16 | u64::from(state.unfenced) << 8 | u64::from(state.forgotten),
    );
    wide.end()
}

fn packed(slot: Slot) -> u64 {
    let Slot { grant, repair, certify, number, answer } = slot;
    let numbers = [certify, number, answer].map(u64::from);
    let [certify, number, answer] = numbers;
    certify << 18 | number << 12 | answer << 6 | u64::from(grant) << 1 | u64::from(repair)
}

fn renamed(key: Holder, order: [usize; CLIENTS]) -> Holder {
    if key == NOBODY || key == UNFENCED {
        return key;
    }
    let (client, attempt) = (usize::from(key - 1) / ATTEMPTS, usize::from(key - 1) % ATTEMPTS);
    let place = order.iter().position(|of| *of == client).unwrap_or(client);
    holder(place, attempt + 1)
}

/// A state without facts that can never matter again.
fn needed(scope: &Scope, scheme: Scheme, mut state: State) -> State {
    for client in 0..scope.clients {
        for attempt in 0..scope.attempts {
            let current = state.is_current(client, attempt);
            for master in 0..MASTERS {
                let slot = &mut state.slots[client][attempt][master];
                let key = &mut state.masters[master].key;
                let ours = *key == holder(client, attempt + 1);
                // The request comes where the key is gone and cannot come back.
                if !ours && !slot.grant && !slot.repair && scheme != Scheme::AnyMajority {
                    slot.certify = 0;
                }
                // A key that its owner never mentions again may belong to any client.
                if ours && !current && slot.certify == 0 {
                    *key = UNFENCED;
                }
            }
            if state.slots[client][attempt].iter().all(|slot| !slot.grant) {
                state.clients[client].hints[attempt] = 0;
            }
        }
    }
    state
}
