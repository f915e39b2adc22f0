//! Reads the keys of a master directly, past the proxies that inject faults. Call this only when no
//! property is checked yet, or any more: a read lets a master notice that a key has expired.

use redquorum_protocol::wire::{RESERVED, is_queue};
use redquorum_rig::{Masters, RespValue};

/// A key on a master.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: Vec<u8>,
    /// `None`: the value is not a string.
    pub(crate) value: Option<Vec<u8>>,
    /// `None`: the key never expires.
    pub(crate) ttl_ms: Option<u64>,
}

/// All keys of a master, or why the master could not be asked. Leaves out the lock's own keys that
/// stay by design, but not the queues in which its clients wait.
pub(crate) fn of(cluster: &Masters, node: usize) -> Result<Vec<Key>, String> {
    let ask = |words: &[&[u8]]| cluster.command(node, words).map_err(|error| error.to_string());
    let names = match ask(&[b"KEYS", b"*"])? {
        RespValue::Array(names) => names,
        other => return Err(format!("master {node} answers {other:?} to KEYS")),
    };
    let mut keys = Vec::new();
    for name in names {
        let RespValue::Bulk(name) = name else { continue };
        if name.starts_with(RESERVED) && !is_queue(&name) {
            continue;
        }
        let ttl_ms = match ask(&[b"PTTL", &name])? {
            // The key expired after `KEYS`. It may also expire before `GET`.
            RespValue::Integer(-2) => continue,
            RespValue::Integer(ms) => u64::try_from(ms).ok(),
            _ => None,
        };
        let value = match ask(&[b"GET", &name])? {
            RespValue::Bulk(value) => Some(value),
            RespValue::Nil => continue,
            _ => None,
        };
        keys.push(Key { name, value, ttl_ms });
    }
    Ok(keys)
}
