//! Converts the messages of client processes to inputs for the orchestrator. Stamps become times of
//! the run, and violations of the client protocol are reported.

use super::run::Run;
use crate::client_protocol::{ClientLine, Notice};
use crate::name::Name;
use crate::orchestrator::Input;
use crate::process::{OutputEvent, shown};

impl Run {
    /// Converts a message of a client process to an input for the orchestrator.
    pub(super) fn received(&mut self, process: &Name, event: &OutputEvent) -> Option<Input> {
        let broken = |why: String| Some(Input::Broken { process: process.clone(), why });
        let line = match event.line() {
            Ok(line) => line,
            Err(_)
                if matches!(event, OutputEvent::Closed(_))
                    && self.expected_to_die.contains(process) =>
            {
                return None;
            }
            Err(why) => return broken(why),
        };
        let line = match ClientLine::read(line) {
            Ok(line) => line,
            Err(why) => return broken(format!("it wrote `{}`: {why}", shown(line))),
        };
        match line {
            ClientLine::Reply(mut reply) => {
                match self.asked.remove(&reply.id) {
                    Some(asked) if asked == *process => {}
                    _ => {
                        let id = reply.id;
                        return broken(format!(
                            "it answered request {id}, which is not open: it was never asked, or \
                             is answered twice"
                        ));
                    }
                }
                for stamp in reply.stamps() {
                    *stamp = stamp.map(|stamp| self.clock.stamp(stamp));
                }
                Some(Input::Replied(reply))
            }
            ClientLine::Notice(Notice::Lost { client, resource, at_ns }) => {
                Some(Input::Lost { client, resource, at: self.clock.stamp(at_ns) })
            }
            ClientLine::Notice(Notice::Extended { client, resource, deadline_ns, .. }) => {
                let deadline = self.clock.stamp(deadline_ns);
                Some(Input::Extended { client, resource, deadline })
            }
            ClientLine::Notice(Notice::Ready { .. }) => {
                broken("it reported `ready` twice".to_owned())
            }
        }
    }
}
