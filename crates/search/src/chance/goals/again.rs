//! The goals of owners that acquire again a resource that they hold.

use std::collections::{BTreeMap, BTreeSet};

use super::Goal;
use redquorum_scenario::client_protocol::Request;
use redquorum_scenario::history::{Event, Record};

pub(super) fn reached(records: &[Record]) -> Vec<Goal> {
    let mut goals = Vec::new();
    // By number.
    let mut asked = BTreeMap::new();
    // The owners whose lease was lost, until they have another.
    let mut lost = BTreeSet::new();
    for record in records {
        match &record.event {
            Event::Requested(request) => {
                asked.insert(request.id, request);
            }
            Event::Replied { reply, .. } => {
                let Some(Request { client, op, .. }) = asked.get(&reply.id) else { continue };
                let others = reply.ok && reply.handles.is_some();
                // Without a round no time passes between the two.
                if op.is_acquire() && others {
                    goals.extend((reply.at_ns > reply.from_ns).then_some(Goal::Prolonged));
                } else if op.is_acquire() {
                    for resource in op.resources() {
                        let anew = op.is_again() && lost.contains(&(client, resource));
                        goals.extend(anew.then_some(Goal::Reacquired));
                        if reply.ok {
                            lost.remove(&(client, resource));
                        }
                    }
                } else if op.is_release() && others {
                    goals.push(Goal::HandleLeft);
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
