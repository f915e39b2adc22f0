//! The goals of owners that acquire again a resource that they hold.

use std::collections::{BTreeMap, BTreeSet};

use super::Goal;
use redquorum_scenario::history::{Event, Record};

pub(super) fn reached(records: &[Record]) -> Vec<Goal> {
    let mut goals = Vec::new();
    // By request number: the resource, the owner, and whether it is an acquire as the owner.
    let mut asked = BTreeMap::new();
    // The owners whose lease was lost, until they have another.
    let mut lost = BTreeSet::new();
    for record in records {
        match &record.event {
            Event::Requested { client, id, op, resource: Some(resource), again, .. } => {
                asked.insert(*id, (op.as_ref(), (client, resource), *again));
            }
            Event::Replied { id, ok, from, at, handles, .. } => {
                let Some((op, whose, again)) = asked.get(id) else { continue };
                let others = *ok && handles.is_some();
                match *op {
                    // Without a round no time passes between the two.
                    "acquire" if others => goals.extend((at > from).then_some(Goal::Prolonged)),
                    "acquire" => {
                        let anew = *again && lost.contains(whose);
                        goals.extend(anew.then_some(Goal::Reacquired));
                        if *ok {
                            lost.remove(whose);
                        }
                    }
                    "release" if others => goals.push(Goal::HandleLeft),
                    _ => {}
                }
            }
            Event::Lost { client, resource, .. } => {
                lost.insert((client, resource));
            }
            _ => {}
        }
    }
    goals
}
