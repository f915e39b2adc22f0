//! Converts the messages of client processes to inputs for the orchestrator. Stamps become times of
//! the run, and violations of the client protocol are reported.

use super::run::Run;
use crate::process::OutputEvent;
use redquorum_scenario::client_protocol::shown;
use redquorum_scenario::client_protocol::{ClientLine, ClientReply};
use redquorum_scenario::name::Name;
use redquorum_simulator::orchestrator::Input;

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
        if let ClientLine::Reply(ClientReply { id, .. }) = &line
            && self.asked.remove(id).as_ref() != Some(process)
        {
            return broken(format!(
                "it answered request {id}, which is not open: it was never asked, or is answered \
                 twice"
            ));
        }
        Input::of_client(line, |stamp| self.clock.stamp(stamp))
            .or_else(|| broken("it reported `ready` twice".to_owned()))
    }
}
