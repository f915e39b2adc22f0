//! Monitors what the library sends.

use redquorum_rig::trials::Talk;

use crate::support::Real;

/// All commands that one master executes, from all clients.
pub(crate) struct Monitor<'a> {
    masters: &'a Real,
    node: usize,
    lines: Talk,
    looks: u32,
}

impl<'a> Monitor<'a> {
    pub(crate) fn start(masters: &'a Real, node: usize) -> Self {
        let mut lines = Talk::connect(masters.port(node));
        assert_eq!(lines.ask("MONITOR"), "+OK");
        Self { masters, node, lines, looks: 0 }
    }

    /// The commands since the last call that contain this word.
    pub(crate) fn seen(&mut self, word: &str) -> Vec<String> {
        self.looks += 1;
        let end = format!("end-of-look-{}.", self.looks);
        self.masters.ask(self.node, &format!("ECHO {end}")).expect("an echo");
        let mut seen = Vec::new();
        loop {
            let line = self.lines.line();
            if line.contains(&end) {
                return seen;
            }
            if line.contains(word) {
                seen.push(line);
            }
        }
    }
}
