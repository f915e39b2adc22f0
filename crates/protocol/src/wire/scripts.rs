//! The Lua scripts, and the names by which masters know them.

/// A script that masters run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Script {
    /// The text. A change of one byte makes another script with another name.
    pub source: &'static str,
    /// The SHA-1 of the text in hexadecimal digits: the script's name in `EVALSHA`. A master
    /// returns it when it loads the script. A master that returns another one is not used.
    pub sha1: &'static str,
}

/// The scripts of every lock.
pub const SCRIPTS: [Script; 5] = [DELETE, KEEP, GRANT, CERTIFY, QUEUE];

/// The further scripts of a lock with a guard.
pub const GUARD_SCRIPTS: [Script; 2] = [GUARDED, WATCH];

/// The queue of waiters for the resource `KEYS[1]`: two sorted sets. One has each waiter's
/// position. The other has the millisecond of the master's clock at which the waiter is dropped
/// unless it has asked again. A waiter that would stay for longer than any waiter asks for dates
/// from before the clock was set back, and is dropped as well.
///
/// `wake` publishes to the first waiter whose connection is subscribed, and lets it keep its
/// position for three seconds more. It drops a waiter before that one whose connection is gone. Two
/// kinds of waiters are not dropped, and also keep their positions for three seconds more. A waiter
/// with the inbox 0 never subscribes: it looks by itself, and `wake` wakes none behind it. A waiter
/// that has asked within the last second may be about to subscribe: `wake` goes on behind it.
///
/// Permissions may forbid these commands. The key of a lock must go all the same, so these
/// functions pass over errors of the queue. `denied` is then true if `PUBLISH` is forbidden: each
/// attempt at it adds to the server's log of denials. With `quiet` for `ARGV[2]`, `wake` does not
/// publish, and goes on as if the message had reached a waiter.
macro_rules! queue {
    () => {
        "\
local denied, quiet = false, ARGV[2] == 'quiet'
local queue, lapses = 'redquorum:queue:' .. KEYS[1], 'redquorum:lapse:' .. KEYS[1]
local function drop(waiters)
  redis.pcall('ZREM', queue, unpack(waiters))
  redis.pcall('ZREM', lapses, unpack(waiters))
end
local function clock(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function sweep(now)
  for _, range in ipairs({{'-inf', now}, {string.format('(%.0f', now + 15000), '+inf'}}) do
    local gone = redis.pcall('ZRANGEBYSCORE', lapses, range[1], range[2], 'LIMIT', 0, 1000)
    if #gone > 0 then drop(gone) end
  end
end
local function wake(now, asker)
  sweep(now)
  local at = 0
  for _ = 1, 100 do
    local first = redis.pcall('ZRANGE', queue, at, at)[1]
    if not first or first == asker then return end
    local inbox, id = string.sub(first, 1, 16), string.sub(first, 17)
    local looks = inbox == '0000000000000000'
    local sent = looks or quiet or redis.pcall('PUBLISH', 'redquorum:wake:' .. inbox, id)
    local woken = not looks and sent ~= 0
    denied = denied or type(sent) == 'table'
    if woken or looks or (tonumber(redis.pcall('ZSCORE', lapses, first) or 0) or 0) > now + 14000 then
      redis.pcall('ZADD', lapses, 'XX', 'LT', now + 3000, first)
      if woken or looks then return end
      at = at + 1
    else
      drop({first})
    end
  end
end
"
    };
}

/// Compare-and-delete. Returns 1 if it deleted the key and 0 if there is no such key. For another
/// key it returns what is left of the TTL (−1: it has none) and the start of the value. A key of
/// another type is an error.
///
/// Unless `ARGV[2]` is `none`, the waiter `ARGV[3]`, if there is one, leaves the queue, and the
/// reply to a deletion is 1 plus the number of waiters. Before that, if the key is gone and
/// `ARGV[2]` is `first`, `quiet` or missing, the first waiter is woken. If a permission for the
/// queue is missing, the reply to a deletion is negative, so that the client asks for less from
/// then on: −1 without the queue, else −1 less the number of waiters.
pub const DELETE: Script = Script {
    source: concat!(
        "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then return value end
local ours = value == ARGV[1]
if ours then redis.call('DEL', KEYS[1]) end
local waiters, known = 0, ARGV[2] ~= 'none' and redis.pcall('EXISTS', 'redquorum:queue:' .. KEYS[1])
local forbidden = type(known) == 'table'
if known == 1 then
",
        queue!(),
        "\
if ARGV[3] then drop({ARGV[3]}) end
local time = ARGV[2] ~= 'count' and (ours or not value) and redis.pcall('TIME')
if time and time[1] then wake(clock(time)) end
waiters = tonumber(redis.pcall('ZCARD', queue)) or 0
forbidden = denied
if denied and waiters == 0 then waiters = 1 end
end
if ours then return forbidden and -1 - waiters or 1 + waiters end
if not value then return 0 end
return {redis.call('PTTL', KEYS[1]), string.sub(value, 1, 64)}
"
    ),
    sha1: "df2005c3efd358a97f4d47b5649c748a594bbe8e",
};

/// Gives the waiter `ARGV[1]` a position in the queue, or keeps it:
///
/// * the position that it has, or the one behind all others if it has none, but not before
///   `ARGV[2]`;
/// * with `ARGV[3]`, exactly `ARGV[2]`.
///
/// Returns the position and how many waiters are before it. If the resource is held, it adds what
/// is left of the TTL and the start of the value; for a key of another type it adds the TTL only.
/// If the resource is free, it wakes the first waiter, unless that is this one or this one need not
/// be first (`ARGV[2]` is `=`, for the number 0).
///
/// It writes nothing if the resource is held, and the waiter has its position and two thirds of its
/// time.
///
/// `pass` is for several silent waiters. If the first waiter has had half a second of its three,
/// and the resource is still free, it may be silent. All waiters that have not asked since it was
/// woken are then dropped together with it, or 1.5 seconds from now if that is later. A waiter that
/// sees the resource free asks within that time.
///
/// With `-` for `ARGV[2]` the waiter leaves. With `ARGV[3]` as well, the first waiter is woken if
/// the resource is free.
pub const QUEUE: Script = Script {
    source: concat!(
        queue!(),
        "\
local function pass(now)
  local first = redis.pcall('ZRANGE', queue, 0, 0)[1]
  local turn = first and tonumber(redis.call('ZSCORE', lapses, first) or nil)
  if not turn or turn > now + 2500 then return end
  local last = math.max(turn, now + 1500)
  local from, to = string.format('(%.0f', last), string.format('%.0f', turn + 12000)
  for _, silent in ipairs(redis.pcall('ZRANGEBYSCORE', lapses, from, to, 'LIMIT', 0, 1000)) do
    redis.call('ZADD', lapses, 'XX', last, silent)
  end
end
local waiter, now = ARGV[1], clock(redis.call('TIME'))
if ARGV[2] == '-' then
  redis.call('ZREM', queue, waiter)
  redis.call('ZREM', lapses, waiter)
  if ARGV[3] and redis.call('EXISTS', KEYS[1]) == 0 then wake(now) end
  return 0
end
sweep(now)
local position, ours = tonumber(ARGV[2]) or 0, tonumber(redis.call('ZSCORE', queue, waiter) or nil)
if not ARGV[3] then
  local last = ours or (redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2] or 0) + 1
  position = math.max(position, last)
end
local left, value = redis.call('PTTL', KEYS[1]), redis.pcall('GET', KEYS[1])
local lapse = tonumber(redis.call('ZSCORE', lapses, waiter) or 0)
if position ~= ours or lapse < now + 10000 or not value then
  redis.call('ZADD', queue, position, waiter)
  redis.call('ZADD', lapses, now + 15000, waiter)
  redis.call('PEXPIRE', queue, 15000)
  redis.call('PEXPIRE', lapses, 15000)
end
local before = redis.call('ZRANK', queue, waiter)
if value == false and before > 0 and ARGV[2] ~= '=' then
  wake(now, waiter)
  pass(now)
  before = redis.call('ZRANK', queue, waiter)
end
if type(value) == 'table' then return {position, before, left} end
if not value then return {position, before} end
return {position, before, left, string.sub(value, 1, 64)}
"
    ),
    sha1: "f1971411c386c8fb303616b1ba5bb9514eebdeb7",
};

/// Raises the counter `KEYS[2]` by `step`, and to at least `least`. Returns `nil` and changes
/// nothing if the counter holds no number or would reach 2⁵³ − 1, from where on numbers in Lua are
/// not exact. Do not turn a number into text by `..` or `tostring`: they make 1.795e+15 of it.
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

/// `micros`: the master's clock in microseconds. The scripts of a guard end each reply with it,
/// since a guard watches clocks.
macro_rules! micros {
    () => {
        "\
local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
"
    };
}

/// `clamp`: the hint, at most one second ahead of the master's own clock.
macro_rules! clamp {
    () => {
        "\
local function clamp(hint, now) return math.min(tonumber(hint), now + 1000000) end
"
    };
}

/// Compare-and-expire. Returns 1 if the key is still ours and lives at least as long as asked: its
/// TTL is never shortened. Returns 2 if the key was missing and is created again, and 0 if it is
/// missing. For another key it returns what [`DELETE`] does.
///
/// With a counter, a repair raises it first, as a grant does. Otherwise the master remembers the
/// counter for longer, or again if it was lost.
pub const KEEP: Script = Script {
    source: concat!(
        raise!(),
        micros!(),
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
if KEYS[2] and not raise(1, clamp(ARGV[4], micros()), tonumber(ARGV[5])) then return redis.error_reply(spent) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 2
"
    ),
    sha1: "a5ac9a14963dea2a21b1bea047fb3797e9a6c686",
};

/// Whether a fair acquire has to enqueue: a waiter is in the queue. Where permissions forbid queues
/// there is no order.
macro_rules! queued {
    () => {
        "\
local queued = ARGV[3] == '1' and redis.pcall('EXISTS', 'redquorum:queue:' .. KEYS[1]) == 1
"
    };
}

/// Sets the key and raises the counter, if there is a hint. Returns the first of three values if it
/// sets nothing, the second without a counter, and the third for the number of the grant, `count`.
macro_rules! grant {
    ($refused:literal, $plain:literal, $counted:literal) => {
        concat!(
            "\
if queued or not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return ",
            $refused,
            " end
if not hint then return ",
            $plain,
            " end
local count = raise(1, hint, tonumber(ARGV[#ARGV]))
if count then return ",
            $counted,
            " end
redis.call('DEL', KEYS[1])
return redis.error_reply(spent)
"
        )
    };
}

/// `SET NX PX`, and raises the counter if there is one. Returns the number of the grant, or 1
/// without a counter; 0 if there is a key, or if `ARGV[3]` is 1 and a waiter is in the queue.
pub const GRANT: Script = Script {
    source: concat!(
        raise!(),
        micros!(),
        clamp!(),
        queued!(),
        "\
local hint = KEYS[2] and clamp(ARGV[4], micros())
",
        grant!("0", "1", "count")
    ),
    sha1: "f63ea3d5dc7f66b91a6c239ce741f858ba4a0e52",
};

/// Raises the counter to at least a number, if the key is still ours, and returns the number at
/// which it stands. Otherwise returns what [`DELETE`] does.
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

/// Does what [`GRANT`] does, but only if the boot marker has the expected value, `ARGV[4]`. The
/// marker is the last key. Returns the marker if it is another one, and then sets nothing. Each
/// reply ends with the master's clock in microseconds.
pub const GUARDED: Script = Script {
    source: concat!(
        raise!(),
        micros!(),
        clamp!(),
        "\
local now = micros()
local marker = redis.pcall('GET', KEYS[#KEYS])
if type(marker) == 'table' then return marker end
if marker ~= ARGV[4] then return {string.sub(marker or '', 1, 257), now} end
",
        queued!(),
        "\
local hint = #KEYS == 3 and clamp(ARGV[5], now)
",
        grant!("{0, now}", "{1, now}", "{count, now}")
    ),
    sha1: "17d2ab9be6215a86fe6d4eac33b3782de7f15084",
};

/// Returns the boot marker `KEYS[1]` and the probation key `KEYS[2]`, each empty if there is none,
/// and the master's clock in microseconds.
///
/// Unless the marker belongs to the process `ARGV[1]`, it first writes the marker `ARGV[2]` in
/// place of the probation key, if that has the value `ARGV[5]`; or it sets the probation key to
/// `ARGV[3]`, if there is none.
pub const WATCH: Script = Script {
    source: concat!(
        micros!(),
        "\
local now = micros()
local boot = redis.pcall('GET', KEYS[1])
if type(boot) == 'table' then return boot end
local probation = redis.pcall('GET', KEYS[2])
if type(probation) == 'table' then return probation end
boot, probation = boot or '', probation or ''
if ARGV[1] == '' or string.sub(boot, 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' then
  if probation ~= '' and probation == ARGV[5] then
    redis.call('SET', KEYS[1], ARGV[2])
    redis.call('DEL', KEYS[2])
    boot, probation = ARGV[2], ''
  elseif probation == '' and ARGV[3] ~= '' then
    redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
    probation = ARGV[3]
  end
end
return {string.sub(boot, 1, 257), string.sub(probation, 1, 257), now}
"
    ),
    sha1: "86ca83b410e0f474050e1260dce4f0af03f25e01",
};
