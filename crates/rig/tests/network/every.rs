//! Every fault, on requests and on replies, and every end of the sender behind the struck message.

use std::time::Duration;

use redquorum_rig::network::{
    End,
    MessageFault::{self, *},
    Side::{self, *},
};

use crate::support::{PING, PONG, Wire, about, ping, pong, request};

#[test]
fn a_fault_strikes_a_message_and_what_is_behind_it() {
    for side in [Request, Reply] {
        for fault in [Hold, Trickle(0), Delay(Duration::MAX), Drop] {
            // The sender stays, closes, or resets.
            for end in [None, Some(false), Some(true)] {
                waits_or_is_lost(side, fault, end);
            }
        }
        cuts(side, Reset, [true, true]);
        cuts(side, HalfOpen(End::Client), [true, false]);
        cuts(side, HalfOpen(End::Master), [false, true]);
    }
}

/// The rule strikes the second message of the side. Returns the bytes of this message and of the
/// one behind it, and their names in reports.
fn second_message(
    side: Side,
    wire: &Wire,
    [client, master]: [&mut crate::support::Half; 2],
) -> (Vec<u8>, [&'static str; 2]) {
    let requests = [&request("GET k")[..], PING].concat();
    ping(client, master);
    client.send(&requests);
    let (messages, names) = if side == Reply {
        let replies = [&b"$1\r\nv\r\n"[..], PONG].concat();
        master.gets(&requests);
        pong(client, master);
        master.send(&replies);
        (replies, ["reply 2 GET k", "reply 3 PING"])
    } else {
        (requests, ["request 2 GET k", "request 3 PING"])
    };
    wire.seen.wait_for(&format!("struck {}", names[0]), 1);
    (messages, names)
}

fn waits_or_is_lost(side: Side, fault: MessageFault, end: Option<bool>) {
    println!("{fault:?} on {side:?}, and then the end {end:?}");
    let (wire, mut client, mut master, rule) = Wire::struck(about("GET", side, fault));
    let (messages, names) = second_message(side, &wire, [&mut client, &mut master]);
    if side == Reply {
        wire.seen.wait_for("replied 3 PING", 1);
    }
    let the_other_way = if side == Request { pong } else { ping };
    the_other_way(&mut client, &mut master);
    let (sender, mut receiver) = if side == Request { (client, master) } else { (master, client) };
    let sender = match end {
        Some(reset) => {
            sender.end(reset);
            None
        }
        None => Some(sender),
    };
    receiver.gets_nothing();
    wire.network.heal(rule);
    if fault == Drop {
        for name in names {
            wire.seen.wait_for(&format!("lost {name}"), 1);
        }
        assert!(!wire.seen.lines().contains(&"forwarded 2 GET k".to_owned()) || side == Reply);
        receiver.is_reset();
        sender.into_iter().for_each(|mut sender| sender.is_reset());
        wire.seen.wait_for("closed", 1);
    } else {
        receiver.gets(&messages);
        end.into_iter().for_each(|reset| receiver.has_ended(reset));
        if let Some(mut sender) = sender {
            sender.send(&messages);
            receiver.gets(&messages);
        }
    }
}

/// The message is lost, and these ends are reset at once: the client's, the master's. Healing
/// resets the other.
fn cuts(side: Side, fault: MessageFault, ends: [bool; 2]) {
    println!("{fault:?} on {side:?}");
    let (wire, mut client, mut master, rule) = Wire::struck(about("GET", side, fault));
    let (_, [name, _]) = second_message(side, &wire, [&mut client, &mut master]);
    let mut halves: Vec<_> = [client, master].into_iter().zip(ends).collect();
    halves.iter_mut().filter(|(_, cut)| *cut).for_each(|(half, _)| half.is_reset());
    for (half, _) in halves.iter_mut().filter(|(_, cut)| !cut) {
        half.gets_nothing();
        wire.network.heal(rule);
        half.is_reset();
    }
    wire.seen.wait_for(&format!("lost {name}"), 1);
    wire.seen.wait_for("closed", 1);
    assert!(!wire.seen.lines().contains(&"forwarded 2 GET k".to_owned()) || side == Reply);
}
