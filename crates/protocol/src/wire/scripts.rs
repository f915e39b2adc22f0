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
pub const SCRIPTS: [Script; 4] = [KEEP, GRANT, CERTIFY, QUEUE];

/// The further script of a lock with a guard.
pub const GUARD_SCRIPTS: [Script; 1] = [WATCH];

/// What `KEYS[1]` holds: `value` is the text of an exclusive holder, `false` if there is no key, or
/// an error if the key has another type. `shared` is then the shared token that ends last, if it is
/// a sorted set of tokens.
///
/// The byte behind the 20 random ones of a shared token is an `s`, and then comes the end or a name
/// after `@`. A sorted set whose last member is no shared token belongs to another program: it is
/// never changed.
macro_rules! holder {
    () => {
        "\
local value, shared = redis.pcall('GET', KEYS[1]), nil
if type(value) == 'table' then
  local last = redis.pcall('ZREVRANGE', KEYS[1], 0, 0)[1]
  if last and #last < 63 and string.sub(last .. '@', 21, 22) == 's@' then shared = last end
end
"
    };
}

/// `other`: the reply about another holder, or none.
macro_rules! other {
    () => {
        "\
local function other()
  if not value then return 0 end
  return {redis.call('PTTL', KEYS[1]), shared or string.sub(value, 1, 64)}
end
"
    };
}

/// `share`: adds the shared token `ARGV[1]` for this TTL, unless it is there and lives for longer.
/// The key lives as long as the token that ends last. `only` adds no token that is not there.
/// Returns whether it was there. `now` is in milliseconds.
///
/// Tokens whose end has come are removed. A token lives for the whole of its last millisecond, as a
/// key does.
macro_rules! share {
    () => {
        "\
local function share(now, ttl, only)
  local ends, left = nil, -1
  if shared then
    local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now), 'LIMIT', 0, 1000)
    if #gone > 0 then redis.call('ZREM', KEYS[1], unpack(gone)) end
    ends, left = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or nil), redis.call('PTTL', KEYS[1])
  end
  if only and not ends then return false end
  if not ends or ends < now + ttl then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), ARGV[1])
  end
  if left < ttl then redis.call('PEXPIRE', KEYS[1], ttl) end
  return ends ~= nil
end
"
    };
}

/// The queues of waiters for the resource `KEYS[1]`: sorted sets. One has the position of each
/// waiter for an exclusive lease, another of each waiter for a shared one; both count in one
/// sequence. The third has the millisecond of the master's clock at which the waiter is dropped
/// unless it has asked again. A waiter that would stay for longer than any waiter asks for dates
/// from before the clock was set back, and is dropped as well.
///
/// `wake` publishes to the first waiter whose connection is subscribed, and lets it keep its
/// position for three seconds more. If that one waits for a shared lease, it wakes those that
/// follow and wait for a shared lease, too. While shared holders have the resource (`held`), it
/// wakes no other ones. It drops a waiter before that one whose connection is gone. Two kinds of
/// waiters are not dropped, and also keep their positions for three seconds more. A waiter with the
/// inbox 0 never subscribes: it looks by itself, and `wake` wakes none behind it. A waiter that has
/// asked within the last second may be about to subscribe: `wake` goes on behind it.
///
/// Permissions may forbid these commands. The key of a lock must go all the same, so these
/// functions pass over errors of the queue. `denied` is then true if `PUBLISH` is forbidden: each
/// attempt at it adds to the server's log of denials. With `quiet` for `ARGV[2]`, `wake` does not
/// publish, and goes on as if the message had reached a waiter.
macro_rules! queue {
    () => {
        "\
local denied, quiet = false, ARGV[2] == 'quiet'
local function milliseconds(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local queue, readers, lapses = 'redquorum:queue:' .. KEYS[1], 'redquorum:readers:' .. KEYS[1], 'redquorum:lapse:' .. KEYS[1]
local function drop(waiters)
  redis.pcall('ZREM', queue, unpack(waiters))
  redis.pcall('ZREM', readers, unpack(waiters))
  redis.pcall('ZREM', lapses, unpack(waiters))
end
local function sweep(now)
  for _, range in ipairs({{'-inf', now}, {string.format('(%.0f', now + 15000), '+inf'}}) do
    local gone = redis.pcall('ZRANGEBYSCORE', lapses, range[1], range[2], 'LIMIT', 0, 1000)
    if #gone > 0 then drop(gone) end
  end
end
local function waiting(in_line, at)
  local found = redis.pcall('ZRANGE', in_line, at, at, 'WITHSCORES')
  return found[1], tonumber(found[2])
end
local function first_of(at, past)
  local first, position = waiting(queue, at)
  local reader, place = waiting(readers, past)
  if reader and (not first or place <= position) then return reader, true end
  return first, false
end
local function wake(now, asker, held)
  sweep(now)
  local at, past, woken = 0, 0, held
  for _ = 1, 100 do
    local first, reads = first_of(at, past)
    if not first or woken and not reads or first == asker and not reads then return end
    local inbox, id = string.sub(first, 1, 16), string.sub(first, 17)
    local looks = inbox == '0000000000000000' or first == asker
    local sent = looks or quiet or redis.pcall('PUBLISH', 'redquorum:wake:' .. inbox, id)
    local hears = looks or sent ~= 0
    denied = denied or type(sent) == 'table'
    if hears or (tonumber(redis.pcall('ZSCORE', lapses, first) or 0) or 0) > now + 14000 then
      if first ~= asker then redis.pcall('ZADD', lapses, 'XX', 'LT', now + 3000, first) end
      if hears and not reads then return end
      woken = woken or hears
      if reads then past = past + 1 else at = at + 1 end
    else
      drop({first})
    end
  end
end
"
    };
}

/// The number of queues of the resource that have a waiter; an error without the permission.
macro_rules! in_line {
    () => {
        "redis.pcall('EXISTS', 'redquorum:queue:' .. KEYS[1], 'redquorum:readers:' .. KEYS[1])"
    };
}

/// Compare-and-delete, and the queue of waiters: both wake waiters, so they are one script. The
/// first argument is a token or a waiter.
///
/// **With a token** it returns 1 if it deleted the key and 0 if there is no such key. For another
/// key it returns what is left of the TTL (−1: it has none) and the start of the value. A key of
/// another type is an error. A shared token is deleted from among the shared holders; if others are
/// left, the key lives as long as the one that ends last.
///
/// Unless `ARGV[2]` is `none`, the waiter `ARGV[3]`, if there is one, leaves the queue, and the
/// reply to a deletion is 1 plus the number of waiters. Before that, if the key is gone and
/// `ARGV[2]` is `first`, `quiet` or missing, the first waiter is woken. If a permission for the
/// queue is missing, the reply to a deletion is negative, so that the client asks for less from
/// then on: −1 without the queue, else −1 less the number of waiters.
///
/// **With a waiter** it gives the waiter a position in the queue, or keeps it:
///
/// * the position that it has, or the one behind all others if it has none, but not before
///   `ARGV[2]`;
/// * with `ARGV[3]`, exactly `ARGV[2]`.
///
/// It returns the position and how many waiters are before it. If the resource is held, it adds
/// what is left of the TTL and the start of the value; for a key of another type it adds the TTL
/// only. If the resource is free, it wakes the first waiter, unless that is this one or this one
/// need not be first (`ARGV[2]` is `=`, for the number 0).
///
/// A waiter for a shared lease counts only those before it that wait for an exclusive one. If none
/// does, a resource with shared holders is free for it; otherwise it is told of a holder.
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
        holder!(),
        other!(),
        "\
local releases, ours, forbidden = #ARGV[1] < 32 or string.find(ARGV[1], '@', 21, true), false, false
if releases then
  if type(value) == 'table' and not shared then return value end
  if shared then
    ours = redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= false
  else
    ours = value == ARGV[1]
  end
  if ours and not shared then
    redis.call('DEL', KEYS[1])
    value = false
  elseif ours then
    redis.call('ZREM', KEYS[1], ARGV[1])
    local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
    shared = last[1]
    local time = shared and redis.call('TIME')
    local left = time and last[2] - time[1] * 1000 - math.floor(time[2] / 1000) or -1
    if left < 0 then
      shared, value = nil, false
      redis.call('DEL', KEYS[1])
    else
      redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))
    end
  end
  local in_line = ARGV[2] == 'none' and 0 or ",
        in_line!(),
        "
  forbidden = type(in_line) == 'table'
  if forbidden or in_line == 0 then return ours and (forbidden and -1 or 1) or other() end
end
",
        queue!(),
        "\
if releases then
  if ARGV[3] then drop({ARGV[3]}) end
  local time = ARGV[2] ~= 'count' and (not value or shared) and redis.pcall('TIME')
  if time and time[1] then wake(milliseconds(time), nil, value) end
  local waiters = (tonumber(redis.pcall('ZCARD', queue)) or 0) + (tonumber(redis.pcall('ZCARD', readers)) or 0)
  if denied and waiters == 0 then waiters = 1 end
  return ours and (denied and -1 - waiters or 1 + waiters) or other()
end
local function pass(now)
  local first = first_of(0, 0)
  local turn = first and tonumber(redis.call('ZSCORE', lapses, first) or nil)
  if not turn or turn > now + 2500 then return end
  local last = math.max(turn, now + 1500)
  local from, to = string.format('(%.0f', last), string.format('%.0f', turn + 12000)
  for _, silent in ipairs(redis.pcall('ZRANGEBYSCORE', lapses, from, to, 'LIMIT', 0, 1000)) do
    redis.call('ZADD', lapses, 'XX', last, silent)
  end
end
local waiter, now = ARGV[1], milliseconds(redis.call('TIME'))
local reads = string.sub(waiter, 33) == 's'
local line = reads and readers or queue
local free = not value or reads and shared
if ARGV[2] == '-' then
  redis.call('ZREM', line, waiter)
  redis.call('ZREM', lapses, waiter)
  if ARGV[3] and (not value or shared) then wake(now, nil, value) end
  return 0
end
sweep(now)
local position, ours = tonumber(ARGV[2]) or 0, tonumber(redis.call('ZSCORE', line, waiter) or nil)
if not ARGV[3] then
  local last = ours
  for _, each in ipairs(last and {} or {queue, readers}) do
    last = math.max(last or 1, (redis.call('ZREVRANGE', each, 0, 0, 'WITHSCORES')[2] or 0) + 1)
  end
  position = math.max(position, last)
end
local left = redis.call('PTTL', KEYS[1])
local lapse = tonumber(redis.call('ZSCORE', lapses, waiter) or 0)
if position ~= ours or lapse < now + 10000 or free then
  redis.call('ZADD', line, position, waiter)
  redis.call('ZADD', lapses, now + 15000, waiter)
  redis.call('PEXPIRE', line, 15000)
  redis.call('PEXPIRE', lapses, 15000)
end
local function ahead()
  if reads then return redis.call('ZCOUNT', queue, '-inf', string.format('(%.0f', position)) end
  return redis.call('ZRANK', queue, waiter) + redis.call('ZCOUNT', readers, '-inf', position)
end
local before = ahead()
if free and before > 0 and ARGV[2] ~= '=' then
  wake(now, waiter, value)
  if not value then pass(now) end
  before = ahead()
end
if not value or free and before == 0 then return {position, before} end
if type(value) == 'table' and not shared then return {position, before, left} end
return {position, before, left, shared or string.sub(value, 1, 64)}
"
    ),
    sha1: "eb5f5dac0d05c26ac4ca2560311ce756160a82ec",
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

/// `shows`: whether a marker admits the masters that the wanted marker names, and is otherwise the
/// same. `admits`: whether it admits them, or names none. During a move a marker admits two.
macro_rules! shows {
    () => {
        "\
local function admits(marker, wanted)
  local ours, theirs = string.match(wanted, ' masters=(%S+)'), string.match(marker or '', ' masters=(%S+)')
  return not ours or not theirs or string.find(',' .. theirs .. ',', ',' .. ours .. ',', 1, true), ours
end
local function shows(marker, wanted)
  if marker == wanted then return true end
  local admitted, ours = admits(marker, wanted)
  return marker and admitted and ours and string.gsub(marker, ' masters=%S+', ' masters=' .. ours) == wanted
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
/// missing. For another key it returns what [`QUEUE`] does. A shared token is looked for among the
/// shared holders, and added to them again.
///
/// With a counter, a repair raises it first, as a grant does. Otherwise the master remembers the
/// counter for longer, or again if it was lost.
///
/// `ARGV[3]` is 1 to create a missing key, and 0 not to. For a repair under a guard, the boot
/// marker is the last key, and `ARGV[3]` the value that it must have: a master that forgot must not
/// create the key, since it may have forgotten a rival's. If the marker is another one and the key
/// is missing, the script returns the marker. This reply, 1 and 2 then end with the master's clock
/// in microseconds. For an extension under a guard, `ARGV[3]` is `-` and the masters that the
/// marker must admit. If it does not admit them, the script returns the marker whether or not the
/// key is there: the lock has moved to other masters.
pub const KEEP: Script = Script {
    source: concat!(
        raise!(),
        micros!(),
        shows!(),
        clamp!(),
        holder!(),
        other!(),
        "\
if type(value) == 'table' and not shared then return value end
local extends = string.sub(ARGV[3], 1, 1) == '-'
local guarded, repairs, strange = #ARGV[3] > 1 and not extends, not extends and ARGV[3] ~= '0', nil
local now = (guarded or extends) and micros()
local function reply(number) return guarded and {number, now} or number end
if now then
  local marker = redis.pcall('GET', KEYS[#KEYS])
  if type(marker) == 'table' then return marker end
  strange = {string.sub(marker or '', 1, 257), now}
  if not admits(marker, ARGV[3]) then return strange end
  repairs = repairs and shows(marker, ARGV[3])
  if repairs or extends then strange = nil end
end
if string.sub(ARGV[1], 21, 21) == 's' and (shared or not value) then
",
        share!(),
        "\
local kept = share(math.floor(micros() / 1000), tonumber(ARGV[2]), not repairs)
return kept and reply(1) or repairs and reply(2) or strange or 0
end
if value == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  if ARGV[5] then
    local left = redis.call('PTTL', KEYS[2])
    if left == -2 then
      redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
    elseif left >= 0 and left < tonumber(ARGV[5]) then
      redis.call('PEXPIRE', KEYS[2], ARGV[5])
    end
  end
  return reply(1)
end
if value or not repairs then return not value and strange or other() end
if ARGV[5] and not raise(1, clamp(ARGV[4], micros()), tonumber(ARGV[5])) then return redis.error_reply(spent) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return reply(2)
"
    ),
    sha1: "203fab869e8ee1f31f3d01405591d6d4d9170990",
};

/// `SET NX PX`, and raises the counter if there is one. Returns the number of the grant, or 1
/// without a counter; 0 if there is a key; and −1 if `ARGV[3]` is 1 and a waiter is in the queue.
/// Where permissions forbid queues there is no order.
///
/// A shared token is granted beside other shared ones, and gets no number. With 1 for `ARGV[3]`, it
/// is not granted while a waiter for an exclusive lease is in the queue.
///
/// Under a guard the boot marker is the last key, and `ARGV[4]` the value that it must have: the
/// number of arguments is even. If the marker is another one, the script returns that and grants
/// nothing. Each reply then ends with the master's clock in microseconds.
pub const GRANT: Script = Script {
    source: concat!(
        raise!(),
        micros!(),
        shows!(),
        clamp!(),
        "\
local now, guarded = micros(), #ARGV % 2 == 0
local function reply(number) return guarded and {number, now} or number end
if guarded then
  local marker = redis.pcall('GET', KEYS[#KEYS])
  if type(marker) == 'table' then return marker end
  if not shows(marker, ARGV[4]) then return {string.sub(marker or '', 1, 257), now} end
end
if string.sub(ARGV[1], 21, 21) == 's' then
",
        holder!(),
        "\
  if value and not shared then return reply(0) end
  if ARGV[3] == '1' and redis.pcall('EXISTS', 'redquorum:queue:' .. KEYS[1]) == 1 then return reply(-1) end
",
        share!(),
        "\
  share(math.floor(now / 1000), tonumber(ARGV[2]))
  return reply(1)
end
local in_line = ARGV[3] == '1' and ",
        in_line!(),
        "
if tonumber(in_line) and in_line > 0 then return reply(-1) end
local hint = #ARGV > 4 and clamp(ARGV[#ARGV - 1], now)
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return reply(0) end
if not hint then return reply(1) end
local count = raise(1, hint, tonumber(ARGV[#ARGV]))
if count then return reply(count) end
redis.call('DEL', KEYS[1])
return redis.error_reply(spent)
"
    ),
    sha1: "2fec449c7ff700fcca5ba93ef80f7b158daecac1",
};

/// Raises the counter to at least a number, if the key is still ours, and returns the number at
/// which it stands. Otherwise returns what [`QUEUE`] does.
pub const CERTIFY: Script = Script {
    source: concat!(
        raise!(),
        holder!(),
        other!(),
        "\
if type(value) == 'table' and not shared then return value end
if value == ARGV[1] then
  return raise(0, tonumber(ARGV[2]), tonumber(ARGV[3])) or redis.error_reply(spent)
end
return other()
"
    ),
    sha1: "0197dd053e433b9a5e17b5f00f4422527c2e50d2",
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
