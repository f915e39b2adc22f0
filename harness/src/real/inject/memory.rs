//! Faults by commands to masters: a bound that makes them full, a command that clears them,
//! eviction, counters that a fault sets, and the role of a replica. Only `inject.rs` calls this
//! module. If a master does not answer, the fault is reported as not carried out on it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use redquorum_protocol::wire::counter_of;
use redquorum_rig::{Masters, RespValue};

use redquorum_scenario::Ahead;
use redquorum_scenario::client_protocol::FENCING_COUNTER_TTL;

/// Timeout of an eviction, which takes milliseconds if there are few keys.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Poll interval during an eviction.
const POLL: Duration = Duration::from_millis(1);

/// One byte: less than any server needs for itself, so that it evicts every key that it may.
const NONE_LEFT: &[u8] = b"1";
/// No bound.
const NO_BOUND: &[u8] = b"0";

/// Lets the master refuse every write that needs more memory.
pub(super) fn fill(rig: &Masters, node: usize) -> Result<(), String> {
    set(rig, node, b"maxmemory", NONE_LEFT)
}

/// Removes the bound.
pub(super) fn free(rig: &Masters, node: usize) -> Result<(), String> {
    set(rig, node, b"maxmemory", NO_BOUND)
}

/// Lets the master follow a server that does not exist: nothing listens at port 1. So it keeps its
/// keys.
pub(super) fn demote(rig: &Masters, node: usize) -> Result<(), String> {
    ok(rig, node, &[b"REPLICAOF", b"127.0.0.1", b"1"])
}

/// Makes it a master again.
pub(super) fn promote(rig: &Masters, node: usize) -> Result<(), String> {
    ok(rig, node, &[b"REPLICAOF", b"NO", b"ONE"])
}

/// `FLUSHALL`.
pub(super) fn flush(rig: &Masters, node: usize) -> Result<(), String> {
    ok(rig, node, &[b"FLUSHALL"])
}

/// Sets the fencing counter of a resource, by the master's own clock. Bypasses the proxies, like an
/// operator's mistake in a terminal. The counter never goes back.
const COUNT: &[u8] = b"\
local time = redis.call('TIME')
local number = tonumber(ARGV[2]) or time[1] * 1000000 + time[2] + ARGV[1]
number = math.max(number, tonumber(redis.call('GET', KEYS[1]) or 0))
return redis.call('SET', KEYS[1], string.format('%.0f', number), 'PX', ARGV[3])
";

/// Sets a fencing counter.
pub(super) fn count(
    rig: &Masters,
    node: usize,
    resource: &str,
    ahead: Ahead,
) -> Result<(), String> {
    let by = match ahead {
        Ahead::By(by) => by.0.as_micros().to_string(),
        _ => "0".to_owned(),
    };
    let number = ahead.number().map_or_else(|| "none".to_owned(), |number| number.to_string());
    let key = counter_of(resource.as_bytes());
    let memory = FENCING_COUNTER_TTL.as_millis().to_string();
    let args = [&by, &number, &memory].map(String::as_bytes);
    ok(rig, node, &[b"EVAL", COUNT, b"1", &key, args[0], args[1], args[2]])
}

/// Lets a master evict every key that has a TTL, then restores its memory bound and policy. The
/// master's key counts show whether all are gone. No key is looked at, since a look lets keys
/// expire.
pub(super) fn evict(rig: &Masters, node: usize) -> Result<(), String> {
    let before = [b"maxmemory-policy".as_slice(), b"maxmemory"].map(|name| get(rig, node, name));
    let [policy, bound] = before;
    let (policy, bound) = (policy?, bound?);
    // Set the policy before the bound, so that the master evicts and refuses nothing.
    let evicted = set(rig, node, b"maxmemory-policy", b"volatile-ttl")
        .and_then(|()| set(rig, node, b"maxmemory", NONE_LEFT))
        .and_then(|()| gone(rig, node));
    set(rig, node, b"maxmemory", &bound)?;
    set(rig, node, b"maxmemory-policy", &policy)?;
    evicted
}

/// Waits until no key with a TTL is left.
fn gone(rig: &Masters, node: usize) -> Result<(), String> {
    let until = Instant::now() + TIMEOUT;
    loop {
        // On any command, Redis evicts the keys for which it has no memory.
        let info = rig.info(node, "keyspace").map_err(|error| error.to_string())?;
        let left = mortal(&info);
        if left == 0 {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(format!("master {node} keeps {left} keys that it should evict"));
        }
        sleep(POLL);
    }
}

/// How many keys have a TTL, by `INFO keyspace`: `db0:keys=1,expires=1,avg_ttl=0`.
fn mortal(info: &str) -> u64 {
    let databases = info.lines().filter(|line| line.starts_with("db"));
    let counts = databases.filter_map(|line| line.split_once("expires=")?.1.split(',').next());
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

fn get(rig: &Masters, node: usize, name: &[u8]) -> Result<Vec<u8>, String> {
    let words: [&[u8]; 3] = [b"CONFIG", b"GET", name];
    let reply = rig.command(node, &words).map_err(|error| error.to_string())?;
    if let RespValue::Array(pair) = &reply
        && let [_, RespValue::Bulk(value)] = pair.as_slice()
    {
        return Ok(value.clone());
    }
    Err(format!("master {node} replies {reply:?} to CONFIG GET"))
}

fn set(rig: &Masters, node: usize, name: &[u8], value: &[u8]) -> Result<(), String> {
    ok(rig, node, &[b"CONFIG", b"SET", name, value])
}

fn ok(rig: &Masters, node: usize, words: &[&[u8]]) -> Result<(), String> {
    match rig.command(node, words).map_err(|error| error.to_string())? {
        RespValue::Status(ok) if ok.starts_with("OK") => Ok(()),
        reply => {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            Err(format!("master {node} replies {reply:?} to {}", words.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mortal;

    #[test]
    fn keys_that_can_be_evicted_are_counted_in_all_databases() {
        assert_eq!(mortal("# Keyspace\r\n"), 0);
        assert_eq!(
            mortal("# Keyspace\r\ndb0:keys=3,expires=2,avg_ttl=5\r\ndb7:keys=1,expires=1"),
            3
        );
    }
}
