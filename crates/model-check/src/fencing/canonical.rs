//! Canonicalizes states: masters are interchangeable, and so are clients; and facts that can never
//! matter again are dropped.

use super::super::wide::Wide;
use super::{CLIENTS, Client, Fencing, Holder, MASTERS, Phase, Slot, State};
use redquorum_scenario::Mutant;

/// A master, with all messages between it and the clients, in an order of the clients: one word for
/// the master and one for each client.
type MasterWords = [u64; 1 + CLIENTS];

impl Fencing {
    /// Identifies a state.
    pub(super) fn canonical(&self, state: &State) -> u128 {
        if !self.scope.canonicalize {
            return in_order(state, [0, 1, 2], false);
        }
        let state = &self.needed(*state);
        let orders: &[[usize; CLIENTS]] = match self.scope.clients {
            2 => &[[0, 1, 2], [1, 0, 2]],
            _ => &[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
        };
        orders.iter().map(|order| in_order(state, *order, true)).min().unwrap_or_default()
    }

    /// A state without facts that can never matter again.
    fn needed(&self, mut state: State) -> State {
        for client in 0..self.scope.clients {
            let current = state.is_current(client);
            for (master, slot) in state.masters.iter_mut().zip(&mut state.slots[client]) {
                let ours = master.key == Holder::of(client);
                // The request comes where the key is gone and cannot come back.
                let gone = !ours && !slot.grant && !slot.repair;
                if gone && self.mutant != Mutant::CertifiesAnywhere {
                    slot.certify = 0;
                }
                // A key that its owner never mentions again may belong to any client.
                if ours && !current && slot.certify == 0 {
                    master.key = Holder::Unfenced;
                }
            }
            if state.slots[client].iter().all(|slot| !slot.grant) {
                state.clients[client].hint = 0;
            }
        }
        state
    }
}

fn in_order(state: &State, order: [usize; CLIENTS], sort: bool) -> u128 {
    let mut rows: [MasterWords; MASTERS] = std::array::from_fn(|master| {
        let of = state.masters[master];
        let mut row = [key(of.key, order) << 8 | u64::from(of.counter); 1 + CLIENTS];
        for (word, client) in row[1..].iter_mut().zip(order) {
            *word = packed(state.slots[client][master]);
        }
        row
    });
    if sort {
        rows.sort_unstable();
    }
    let mut wide = Wide::new();
    rows.iter().flatten().for_each(|word| wide.word(*word));
    for client in order {
        let Client { phase, asked, hint, floor, handed_over, extended } = state.clients[client];
        let [a, b, c] = match phase {
            Phase::Idle => [0, 0, 0],
            Phase::Asking => [1, 0, 0],
            Phase::Certifying(token, round) => [2, token, round],
            Phase::Holding(token) => [3, token, 0],
        };
        let counts = handed_over << 4 | extended;
        wide.word(u64::from_le_bytes([a, b, c, asked.into(), hint, floor, counts, 0]));
    }
    wide.word(state.issued);
    let State { copies, unfenced, forgotten, .. } = *state;
    wide.word(u64::from_le_bytes([copies, unfenced, forgotten, 0, 0, 0, 0, 0]));
    wide.end()
}

fn packed(Slot { grant, repair, certify, number, reply }: Slot) -> u64 {
    let [certify, number, reply] = [certify, number, reply].map(u64::from);
    certify << 18 | number << 12 | reply << 6 | u64::from(grant) << 1 | u64::from(repair)
}

/// The owner of a key, with clients in another order.
fn key(key: Holder, order: [usize; CLIENTS]) -> u64 {
    match key {
        Holder::None => 0,
        Holder::Client(client) => {
            let place = order.iter().position(|of| *of == usize::from(client)).unwrap_or(CLIENTS);
            place as u64 + 1
        }
        Holder::Unfenced => u8::MAX.into(),
    }
}
