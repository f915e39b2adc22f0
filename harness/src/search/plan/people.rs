//! Who locks what, and what they do with it.

use super::dice::Dice;
use super::ttl;
use crate::name::Name;
use crate::scenario::{Client, Lock, Rounds, Step, Way};
use crate::search::lengths::{millis, of_millis};

/// What most do after a while is to be done.
const WORKS: u64 = 600;

pub(super) fn draw(dice: &mut Dice, lock: &Lock) -> Vec<Client> {
    let count = dice.pick(&[1, 2, 2, 2, 3, 3, 3, 4]);
    // Few processes have several clients.
    let shared = dice.chance(1, 3);
    (1..=count).map(|number| client(dice, lock, number, shared)).collect()
}

fn client(dice: &mut Dice, lock: &Lock, number: usize, shared: bool) -> Client {
    let mut script = section(dice, lock);
    if dice.chance(1, 3) {
        script.extend(section(dice, lock));
    }
    let rounds = dice.maybe(1, 3, |dice| match dice.chance(1, 2) {
        true => Rounds::Times(u32::try_from(dice.within(2, 4)).unwrap_or(2)),
        false => Rounds::For(of_millis(dice.within(100, 1_500))),
    });
    // A pause between two rounds, or a refused client asks thousands of times.
    let think = if rounds.is_some() { dice.within(5, 300) } else { 0 };
    Client {
        id: format!("c{number}").into(),
        process: dice.maybe(u64::from(shared), 2, |_| "shared".into()),
        nodes: None,
        guard: None,
        fencing: None,
        fair: None,
        start: of_millis(match dice.below(6) {
            0 | 1 => 0,
            2 => dice.below(4_000),
            _ => dice.below(600),
        }),
        script,
        count: 1,
        rounds,
        think: of_millis(think),
    }
}

/// From an acquire to its release.
fn section(dice: &mut Dice, lock: &Lock) -> Vec<Step> {
    let (resource, register) = if dice.chance(1, 6) { ("M", "S") } else { ("L", "R") };
    let (resource, register) = (Name::from(resource), Name::from(register));
    let mut script = vec![acquire(dice, lock, &resource)];
    let (mut has_read, mut keeps) = (false, false);
    let touch = |way| {
        let held = (way == Way::Write).then(|| resource.clone());
        Step::Touch { register: register.clone(), way, under: None, held }
    };
    for _ in 0..dice.below(6) {
        match dice.below(10) {
            0..3 => {
                // An update is built on what was read under this very lease.
                let way = dice.pick(&[Way::Read, Way::Write]);
                if way == Way::Write && !has_read {
                    script.push(touch(Way::Read));
                }
                has_read = true;
                script.push(touch(way));
            }
            3..6 => script.push(Step::Work(of_millis(dice.within(1, WORKS)))),
            // Until the lease is over by itself, and a little longer.
            6 => {
                let longer = dice.within(1, 100);
                script.push(Step::Work(of_millis(millis(lock.ttl) + longer)));
                if has_read {
                    script.push(touch(Way::Write));
                }
            }
            7..9 if !keeps => {
                let ttl = dice.maybe(1, 3, |dice| ttl(dice, lock));
                script.push(Step::Extend { resource: resource.clone(), ttl });
            }
            // An extension beside a watchdog may fail though a quorum says yes: a master whose grant
            // is still under way when the first round is sent does not vote in it.
            7..9 => {}
            _ => {
                keeps = true;
                let most = of_millis(dice.within(1, 2_000));
                script.push(Step::Keep { resource: resource.clone(), most });
            }
        }
    }
    script.push(Step::Release { resource, also: Vec::new() });
    script
}

fn acquire(dice: &mut Dice, lock: &Lock, resource: &Name) -> Step {
    let wait = if dice.chance(1, 4) { 0 } else { dice.within(1, 2_500) };
    // Given up while the answers are under way, or while it waits.
    let cancel = dice.maybe(1, 7, |dice| match dice.chance(1, 2) {
        true => dice.within(1, millis(lock.node_timeout)),
        false => dice.within(1, 300),
    });
    Step::Acquire {
        resource: resource.clone(),
        also: Vec::new(),
        wait: of_millis(wait),
        ttl: dice.maybe(1, 6, |dice| ttl(dice, lock)),
        cancel: cancel.map(of_millis),
        again: false,
    }
}
