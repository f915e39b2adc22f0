//! Script mutants: scripts with a line left out or wrong. Each text derives from the shipped one,
//! so that nothing else differs.

use redquorum_protocol::slot_of;
use redquorum_protocol::wire::{CERTIFY, Command, Frame, GRANT, KEEP, QUEUE, Script, parse};

/// What a script leaves out, or does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScriptMutant {
    /// The script raises a counter whether or not the caller's token holds the key.
    Uncompared,
    /// The script does not bound a hint.
    Unclamped,
    /// A counter at its end stays there, as doubles do at 2⁵³, and the grant counts.
    Endless,
    /// A shared token is granted although a waiter for an exclusive lease is in the queue.
    PassesWaiters,
    /// A shared token is granted where another holder has the key, and takes its place.
    Evicts,
    /// A key with shared tokens ends with the newest of them.
    NewestEnd,
    /// The end of a key with shared tokens stays where it is when one is deleted.
    KeepsEnd,
    /// A master hands out each of two permits, whichever the client asks for.
    CountsPermits,
    /// A master creates a key again that it lacks, whatever its boot marker is.
    RepairsUnmarked,
    /// A master extends leases of clients that its boot marker does not admit.
    ExtendsUnadmitted,
}

impl ScriptMutant {
    /// All variants.
    pub const ALL: [Self; 10] = [
        Self::Uncompared,
        Self::Unclamped,
        Self::Endless,
        Self::PassesWaiters,
        Self::Evicts,
        Self::NewestEnd,
        Self::KeepsEnd,
        Self::CountsPermits,
        Self::RepairsUnmarked,
        Self::ExtendsUnadmitted,
    ];

    /// The script to change, the text to replace, and the replacement.
    const fn change(self) -> (Script, [&'static str; 2]) {
        match self {
            Self::Uncompared => (CERTIFY, ["if value == ARGV[1] then", "do"]),
            Self::Unclamped => {
                (GRANT, ["clamp(ARGV[#ARGV - 1], now)", "tonumber(ARGV[#ARGV - 1])"])
            }
            Self::Endless => (
                GRANT,
                [
                    "if not count or not (count < 9007199254740991) then return nil end",
                    "count = math.min(count, 9007199254740990)",
                ],
            ),
            Self::PassesWaiters => {
                (GRANT, ["if ARGV[3] == '1' and redis.pcall", "if false and redis.pcall"])
            }
            Self::Evicts => (
                GRANT,
                [
                    "if value and not shared then return reply(0) end",
                    "if value and not shared then redis.call('DEL', KEYS[1]) end",
                ],
            ),
            Self::NewestEnd => (GRANT, ["if left < ttl then redis", "do redis"]),
            Self::KeepsEnd => (
                QUEUE,
                ["redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))", "ours = true"],
            ),
            Self::CountsPermits => (
                GRANT,
                [
                    "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then",
                    "local function take(slot)
  local name = string.gsub(KEYS[1], '%d+$', slot)
  return redis.call('SET', name, ARGV[1], 'NX', 'PX', ARGV[2])
end
if not take(1) and not take(2) then",
                ],
            ),
            Self::RepairsUnmarked => {
                (KEEP, ["repairs = repairs and shows(marker, ARGV[3])", "repairs = repairs"])
            }
            Self::ExtendsUnadmitted => {
                (KEEP, ["if not admits(marker, ARGV[3]) then return strange end", ""])
            }
        }
    }

    /// The shipped script, and the text that replaces it.
    pub fn script(self) -> (Script, String) {
        let (honest, [from, to]) = self.change();
        (honest, honest.source.replace(from, to))
    }

    /// Whether the change affects a command.
    pub fn is_about(self, command: &Command) -> bool {
        match self {
            Self::Uncompared => matches!(command, Command::Certify { .. }),
            Self::Unclamped | Self::Endless => {
                matches!(command, Command::Set { fence: Some(_), .. })
            }
            Self::PassesWaiters | Self::Evicts | Self::NewestEnd => {
                matches!(command, Command::Set { token, .. } if token.is_shared())
            }
            Self::KeepsEnd => {
                matches!(command, Command::Delete { token, .. } if token.is_shared())
            }
            Self::CountsPermits => match command {
                Command::Set { key, token, fence: Some(_), .. } => {
                    !token.is_shared() && slots_of(key).is_some()
                }
                _ => false,
            },
            Self::RepairsUnmarked => {
                matches!(command, Command::Keep { repair: true, marker: Some(_), .. })
            }
            Self::ExtendsUnadmitted => {
                matches!(command, Command::Keep { repair: false, marker: Some(_), .. })
            }
        }
    }

    /// Encodes a command with this script instead of the shipped one. It carries the whole text,
    /// since no master has the script loaded.
    pub fn encode(self, command: &Command, out: &mut Vec<u8>) {
        let (_, text) = self.script();
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let Ok(Some((Frame::Array(mut words), _))) = parse(&bytes, usize::MAX) else {
            unreachable!("a command is an array of words")
        };
        words[..2].clone_from_slice(&[Frame::Bulk(b"EVAL"), Frame::Bulk(text.as_bytes())]);
        Frame::Array(words).encode(out);
    }
}

/// The names of the first two slots of the semaphore that a key is a slot of.
pub(crate) fn slots_of(key: &[u8]) -> Option<[Vec<u8>; 2]> {
    let digits = key.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let semaphore = key[..key.len() - digits].strip_suffix(b":permit:")?;
    Some([1, 2].map(|slot| slot_of(semaphore, slot)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redquorum_protocol::{Fence, Token, WakeUp};

    use super::*;

    #[test]
    fn each_changes_its_script_and_sends_it_whole() {
        let (key, token) = (Arc::from(&b"L:permit:1"[..]), Token::new([7; 20]));
        let fence = Fence { number: 17, memory_ms: 1000 };
        let certify = Command::Certify { key: Arc::clone(&key), token, fence };
        let grant = |token, fence| Command::Set {
            key: Arc::clone(&key),
            token,
            ttl_ms: 1000,
            fair: false,
            fence,
        };
        let shared = token.shared();
        let (wake_up, leave) = (WakeUp::None, None);
        let delete = Command::Delete { key: Arc::clone(&key), token: shared, wake_up, leave };
        let keep = |repair, marker: &str| Command::Keep {
            key: Arc::clone(&key),
            token,
            ttl_ms: 1000,
            repair,
            marker: Some(Arc::from(marker)),
            fence: None,
        };
        let keeps = [keep(true, "run 1000"), keep(false, "- masters=x")];
        let grants = [grant(token, Some(fence)), grant(shared, None)];
        let commands: Vec<Command> =
            [certify, delete].into_iter().chain(grants).chain(keeps).collect();
        for script_mutant in ScriptMutant::ALL {
            let (honest, text) = script_mutant.script();
            assert_ne!(honest.source, text, "{script_mutant:?}");
            let mut about = commands.iter().filter(|command| script_mutant.is_about(command));
            let command = about.next().expect("it is about one of them");
            let mut bytes = Vec::new();
            script_mutant.encode(command, &mut bytes);
            let bytes = String::from_utf8_lossy(&bytes);
            assert!(bytes.contains("EVAL\r\n") && bytes.contains(&text), "{bytes}");
            assert!(!bytes.contains("EVALSHA"), "{bytes}");
        }
    }
}
