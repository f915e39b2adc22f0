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

/// Those of every lock.
pub const SCRIPTS: [Script; 5] = [DELETE, KEEP, GRANT, CERTIFY, LINE];

/// Those that a lock with a guard needs besides.
pub const GUARD_SCRIPTS: [Script; 2] = [GUARDED, WATCH];

/// A line, as it is now: its tickets with their numbers, those that have lapsed, and who comes first. A ticket
/// that was asked for after now was asked for before the clock was set back: whoever is alive asks again.
macro_rules! line {
    () => {
        "\
local function line(key, now)
  local said, places, gone, first = redis.pcall('HGETALL', key), {}, {}, ''
  for i = 1, #said, 2 do
    local ticket = said[i]
    local number, asked, till = string.match(said[i + 1], '^(%d+) (%d+) (%d+)$')
    if number and tonumber(ticket) and tonumber(asked) <= now and now < tonumber(till) then
      places[ticket] = tonumber(number)
      local other = places[first]
      if not other or places[ticket] < other or places[ticket] == other and tonumber(ticket) < tonumber(first) then
        first = ticket
      end
    else
      table.insert(gone, ticket)
    end
  end
  return places, gone, first
end
local function clock(time) return time[1] * 1000 + math.floor(time[2] / 1000) end
"
    };
}

/// Compare-and-delete. Answers 1: deleted, 0: no such key, else what is left of the other
/// key's TTL (−1: it has none) and the start of its value. A key of another type is an error.
///
/// With a channel `ARGV[2]` those who listen to it are told (`ARGV[3]` is 1) or only counted, and the answer
/// is 1 and their number. Where that is forbidden nobody listens. With a line `ARGV[4]` they are told who comes first
/// there. It is no key of the script's: where it is forbidden the key of the lock must go all the same.
pub const DELETE: Script = Script {
    source: concat!(
        line!(),
        "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if not ARGV[2] then return 1 end
  local time, first = ARGV[4] and redis.pcall('TIME'), nil
  if time and not time.err then first = select(3, line(ARGV[4], clock(time))) end
  local said = ARGV[3] == '1' and redis.pcall('PUBLISH', ARGV[2], first or '') or redis.pcall('PUBSUB', 'NUMSUB', ARGV[2])
  if type(said) == 'table' then said = said[2] or 0 end
  return 1 + said
end
if not value then return 0 end
return {redis.call('PTTL', KEYS[1]), string.sub(value, 1, 64)}
"
    ),
    sha1: "8f64484ac6e74f557a11a37e99139698364bf61a",
};

/// Gives the ticket `ARGV[1]` a place in the line `KEYS[2]` for `ARGV[3]` milliseconds: the one that it has, but not
/// before the number `ARGV[2]`, or, with `ARGV[4]`, at that; the one behind all others if it has none, and that is 0. Answers its number and how
/// many come first, and, if the resource `KEYS[1]` is held, what is left of its TTL and the start of its value;
/// without that of a key of another type.
///
/// With 0 milliseconds it takes the place away, and tells those who listen to the channel `ARGV[4]`, if it is
/// said and the resource is free, who is first now.
pub const LINE: Script = Script {
    source: concat!(
        line!(),
        "\
local mine, lapse = ARGV[1], tonumber(ARGV[3])
local now = clock(redis.call('TIME'))
local places, gone = line(KEYS[2], now)
for _, ticket in ipairs(gone) do redis.call('HDEL', KEYS[2], ticket) end
if lapse == 0 then
  redis.call('HDEL', KEYS[2], mine)
  if ARGV[4] and redis.call('EXISTS', KEYS[1]) == 0 then
    redis.pcall('PUBLISH', ARGV[4], select(3, line(KEYS[2], now)))
  end
  return 0
end
local number, ours, last, ahead = tonumber(ARGV[2]), places[mine], 0, 0
places[mine] = nil
for _, place in pairs(places) do last = math.max(last, place) end
if not ARGV[4] then number = math.max(number, ours or 0) end
if number == 0 then number = last + 1 end
for ticket, place in pairs(places) do
  if place < number or place == number and tonumber(ticket) < tonumber(mine) then ahead = ahead + 1 end
end
redis.call('HSET', KEYS[2], mine, string.format('%.0f %.0f %.0f', number, now, now + lapse))
redis.call('PEXPIRE', KEYS[2], ARGV[3])
local left, value = redis.call('PTTL', KEYS[1]), redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return {number, ahead, left} end
if not value then return {number, ahead} end
return {number, ahead, left, string.sub(value, 1, 64)}
"
    ),
    sha1: "e79b03e0496c237aee32b5fbcb4c30192e08fbb7",
};

/// Raises the counter `KEYS[2]` by `step`, and to `least`; `nil`, and nothing changed, if it holds
/// no number or would reach 2⁵³ − 1, from where on numbers in Lua are not exact. A number must not be
/// turned into text by `..` or `tostring`: that makes 1.795e+15 of it.
macro_rules! raise {
    () => {
        "\
local function raise(step, least, memory)
  local count = tonumber(redis.pcall('GET', KEYS[2]) or 0)
  if count then count = math.max(math.floor(count) + step, least, 1) end
  if not count or not (count < 9007199254740991) then return nil end
  local left = redis.call('PTTL', KEYS[2])
  redis.call('SET', KEYS[2], string.format('%.0f', count), 'PX', math.max(left, memory))
  return count
end
local spent = 'FENCE the counter of this resource holds no number, or one too large to go on'
"
    };
}

/// The hint, clamped: no further ahead than a second of the master's own clock.
macro_rules! clamp {
    () => {
        "\
local function clamp(hint)
  local time = redis.call('TIME')
  return math.min(tonumber(hint), time[1] * 1000000 + time[2] + 1000000)
end
"
    };
}

/// The master's clock in microseconds, with which answers end that a guard of clocks looks at.
macro_rules! time {
    () => {
        "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"
    };
}

/// Compare-and-expire. Answers 1: still ours, and lives at least as long as asked (it is never
/// shortened); 2: it was missing, and is created anew; 0: it is missing; else as [`DELETE`].
///
/// With a counter a repair raises it first, as a grant does; else the counter is remembered anew.
pub const KEEP: Script = Script {
    source: concat!(
        raise!(),
        clamp!(),
        "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  if KEYS[2] then
    local left = redis.call('PTTL', KEYS[2])
    if left == -2 then
      redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
    elseif left >= 0 and left < tonumber(ARGV[5]) then
      redis.call('PEXPIRE', KEYS[2], ARGV[5])
    end
  end
  return 1
end
if value then return {redis.call('PTTL', KEYS[1]), string.sub(value, 1, 64)} end
if ARGV[3] == '0' then return 0 end
if KEYS[2] and not raise(1, clamp(ARGV[4]), tonumber(ARGV[5])) then return redis.error_reply(spent) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 2
"
    ),
    sha1: "9bbc58c6f2abcfea933e7798f8e367412078c784",
};

/// `SET NX PX`, and raises the counter. Answers the number of the grant, or 0: there is a key.
pub const GRANT: Script = Script {
    source: concat!(
        raise!(),
        clamp!(),
        "\
local hint = clamp(ARGV[3])
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local count = raise(1, hint, tonumber(ARGV[4]))
if count then return count end
redis.call('DEL', KEYS[1])
return redis.error_reply(spent)
"
    ),
    sha1: "1d4f93a2a021d8d27933eb32e547534188e849c8",
};

/// If the key is still ours, raises the counter to at least a number. Answers the number at which it
/// stands; else as [`DELETE`].
pub const CERTIFY: Script = Script {
    source: concat!(
        raise!(),
        "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
if value == ARGV[1] then
  return raise(0, tonumber(ARGV[2]), tonumber(ARGV[3])) or redis.error_reply(spent)
end
if not value then return 0 end
return {redis.call('PTTL', KEYS[1]), string.sub(value, 1, 64)}
"
    ),
    sha1: "0cc1751fce06d3266bdd0d709c1b0669a32b6f04",
};

/// `SET NX PX`, and raises the counter if there is one, but only if the last key, the marker, is what it
/// is said to be. Answers the number of the grant, or 1 without a counter; 0: there is a key; the
/// marker: it is another one, and nothing was set. With each, the master's clock in microseconds.
pub const GUARDED: Script = Script {
    source: concat!(
        raise!(),
        clamp!(),
        time!(),
        "\
local marker = redis.pcall('GET', KEYS[#KEYS])
if type(marker) == 'table' then return marker end
if marker ~= ARGV[3] then return {string.sub(marker or '', 1, 257), now} end
local hint = #KEYS == 3 and clamp(ARGV[4])
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {0, now} end
if not hint then return {1, now} end
local count = raise(1, hint, tonumber(ARGV[5]))
if count then return {count, now} end
redis.call('DEL', KEYS[1])
return redis.error_reply(spent)
"
    ),
    sha1: "115626aa05f05d0653e8894dbe324c8a5ce0f002",
};

/// Says the marker `KEYS[1]` and the vigil `KEYS[2]`, each empty if there is none. Unless the
/// marker is of the process `ARGV[1]`: writes the marker `ARGV[2]` in place of the vigil `ARGV[5]`, if
/// that is there; and begins the vigil `ARGV[3]`, if there is none. Behind them it says the master's
/// clock in microseconds.
pub const WATCH: Script = Script {
    source: concat!(
        time!(),
        "\
local boot = redis.pcall('GET', KEYS[1])
if type(boot) == 'table' then return boot end
local vigil = redis.pcall('GET', KEYS[2])
if type(vigil) == 'table' then return vigil end
boot, vigil = boot or '', vigil or ''
if ARGV[1] == '' or string.sub(boot, 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' then
  if vigil ~= '' and vigil == ARGV[5] then
    redis.call('SET', KEYS[1], ARGV[2])
    redis.call('DEL', KEYS[2])
    boot, vigil = ARGV[2], ''
  elseif vigil == '' and ARGV[3] ~= '' then
    redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
    vigil = ARGV[3]
  end
end
return {string.sub(boot, 1, 257), string.sub(vigil, 1, 257), now}
"
    ),
    sha1: "c96d6c1b27438b814030de76d76a7276afe6087d",
};
