//! The Lua scripts, and the names by which masters know them.

/// A script that masters run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Script {
    /// Its text. One byte changed is another script under another name.
    pub source: &'static str,
    /// The SHA-1 of the text in hexadecimal digits: its name in `EVALSHA`. A master says it
    /// again when the script is loaded, and one that says otherwise is not used.
    pub sha1: &'static str,
}

/// Compare-and-delete. Answers 1: deleted, 0: no such key, else what is left of the other
/// key's TTL (−1: it has none) and the start of its value. A key of another type is an error.
pub const DELETE: Script = Script {
    source: "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value == ARGV[1] then return redis.call('DEL', KEYS[1]) end
if not value then return 0 end
return {redis.call('PTTL', KEYS[1]), string.sub(value, 1, 64)}
",
    sha1: "6c5166a33d984f04708a7d318e13f895f26645af",
};

/// Compare-and-expire. Answers 1: still ours, and lives at least as long as asked (it is never
/// shortened); 2: it was missing, and is created anew; 0: it is missing; else as [`DELETE`].
pub const KEEP: Script = Script {
    source: "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 1
end
if value then return {redis.call('PTTL', KEYS[1]), string.sub(value, 1, 64)} end
if ARGV[3] == '0' then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 2
",
    sha1: "22e57db31508f7e746b47c2e16155642b5d9d404",
};
