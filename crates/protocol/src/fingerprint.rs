//! Fingerprint: a short name for the set of masters of a lock. Locks over different sets find each
//! other by it, in the boot markers of masters that they share (see [`guard`](crate::Guard)).
//!
//! While a lock moves from one set of masters to another, a marker names the clients that may use
//! its master: [`MastersId`] names those of one set, or those that move, and [`Admitted`] is what a
//! marker says. For each master a move has five steps. Clients that share a step exclude each
//! other; those of the old set and those of the new one do not, and share none:
//!
//! | step | admitted |
//! |---|---|
//! | 0 | old |
//! | 1 | old, moving |
//! | 2 | moving |
//! | 3 | moving, new |
//! | 4 | new |

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

/// A hash of a set of masters, or of the name that stands for it. It is no secret and no proof: it
/// finds mistakes, not attacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of the addresses of all masters, in any order. They must contain no
    /// credentials: a hash of few unknowns can be guessed.
    pub fn of_addresses<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Self {
        let mut addresses: Vec<A> = addresses.into_iter().collect();
        addresses.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
        Self::of(b"list", addresses.iter().map(AsRef::as_ref))
    }

    /// The fingerprint of several sets, the shards of one family of resources: by the name of each,
    /// and the addresses of its masters, in any order. That of one shard is that of its masters: a
    /// lock that gets a second shard moves from one set of masters to another.
    pub fn of_shards<'a, A: AsRef<str>>(
        shards: impl IntoIterator<Item = (&'a str, Vec<A>)>,
    ) -> Self {
        let mut shards: Vec<(&str, Self)> = shards
            .into_iter()
            .map(|(name, addresses)| (name, Self::of_addresses(addresses)))
            .collect();
        if let [(_, only)] = *shards {
            return only;
        }
        shards.sort_unstable_by_key(|(name, _)| *name);
        let texts: Vec<_> = shards.iter().map(|(name, set)| format!("{name}={set}")).collect();
        Self::of(b"shards", texts.iter().map(|it| &**it))
    }

    /// The fingerprint of a name for the set.
    pub fn of_name(name: &str) -> Self {
        Self::of(b"name", core::iter::once(name))
    }

    /// A hash of all parts. Each part ends with a byte that no text contains, so that parts do not
    /// run together.
    fn of<'a>(kind: &[u8], parts: impl Iterator<Item = &'a str>) -> Self {
        let end = |hash, part: &[u8]| fnv_1a(fnv_1a(hash, part), &[0xff]);
        Self(parts.fold(end(FNV_1A, kind), |hash, part| end(hash, part.as_bytes())))
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| plain).map(Self)
    }
}

/// The FNV-1a hash, 64 bits, of no bytes.
pub(crate) const FNV_1A: u64 = 0xcbf2_9ce4_8422_2325;

/// The FNV-1a hash of more bytes, behind those of this hash.
pub(crate) fn fnv_1a(hash: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(hash, step)
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The masters that a client uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MastersId {
    /// One set.
    Of(Fingerprint),
    /// Two sets: the client needs a quorum of each.
    Moving {
        /// The set that the lock leaves.
        from: Fingerprint,
        /// The set that the lock moves to.
        to: Fingerprint,
    },
}

impl MastersId {
    /// Reads what [`Display`](fmt::Display) writes.
    fn read(text: &str) -> Option<Self> {
        Some(match text.split_once('>') {
            Some((from, to)) => {
                Self::Moving { from: Fingerprint::read(from)?, to: Fingerprint::read(to)? }
            }
            None => Self::Of(Fingerprint::read(text)?),
        })
    }

    /// The sets: one, or the two of a move.
    fn sets(self) -> [Fingerprint; 2] {
        match self {
            Self::Of(set) => [set, set],
            Self::Moving { from, to } => [from, to],
        }
    }

    /// Whether clients of both belong to one move, or to one set: they share a set.
    pub fn is_related_to(self, other: Self) -> bool {
        let moves =
            self != other && matches!((self, other), (Self::Moving { .. }, Self::Moving { .. }));
        !moves && self.sets().iter().any(|set| other.sets().contains(set))
    }
}

impl fmt::Display for MastersId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(set) => set.fmt(f),
            Self::Moving { from, to } => write!(f, "{from}>{to}"),
        }
    }
}

/// The clients that may use a master, as its marker names them: one or two, as a step of a move
/// says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Admitted {
    first: MastersId,
    second: Option<MastersId>,
}

impl Admitted {
    /// Those of these masters alone.
    pub const fn only(masters_id: MastersId) -> Self {
        Self { first: masters_id, second: None }
    }

    /// Those of a step of a move, from 0 to 4.
    ///
    /// # Panics
    /// If there is no such step.
    pub fn at_step(step: usize, from: Fingerprint, to: Fingerprint) -> Self {
        let moving = MastersId::Moving { from, to };
        let (old, new) = (MastersId::Of(from), MastersId::Of(to));
        match step {
            0 => Self::only(old),
            1 => Self { first: old, second: Some(moving) },
            2 => Self::only(moving),
            3 => Self { first: moving, second: Some(new) },
            4 => Self::only(new),
            _ => panic!("a move has the steps 0 to 4"),
        }
    }

    /// The step of this move at which a master with this marker is; `None` if it is another move's,
    /// or of other masters.
    pub fn step(self, from: Fingerprint, to: Fingerprint) -> Option<usize> {
        (0..=4).find(|step| Self::at_step(*step, from, to) == self)
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn read(text: &str) -> Option<Self> {
        let (first, second) = match text.split_once(',') {
            Some((first, second)) => (first, Some(MastersId::read(second)?)),
            None => (text, None),
        };
        Some(Self { first: MastersId::read(first)?, second })
    }

    /// Each of them.
    pub fn each(self) -> impl Iterator<Item = MastersId> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// Whether clients of these masters may use it.
    pub fn admits(self, masters_id: MastersId) -> bool {
        self.each().any(|each| each == masters_id)
    }
}

impl fmt::Display for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        self.second.map_or(Ok(()), |second| write!(f, ",{second}"))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn list(addresses: &[&str]) -> Fingerprint {
        Fingerprint::of_addresses(addresses)
    }

    #[test]
    fn the_order_of_a_list_does_not_count_and_all_else_does() {
        let own = list(&["a:1/0", "b:1/0", "c:1/0"]);
        assert_eq!(own, list(&["c:1/0", "a:1/0", "b:1/0"]));
        for other in [
            list(&["a:1/0", "b:1/0"]),
            list(&["a:1/0", "b:1/0", "c:1/1"]),
            list(&["a:1/0", "b:1/0", "c:1/0", "d:1/0"]),
            list(&["a:1/0b:1/0", "c:1/0"]),
            list(&[]),
        ] {
            assert_ne!(own, other);
        }
        assert_ne!(list(&["a"]), Fingerprint::of_name("a"));
        assert_ne!(Fingerprint::of_name("a"), Fingerprint::of_name("b"));
    }

    #[test]
    fn shards_differ_by_name_and_masters_and_one_is_its_list() {
        let of = |shards: &[(&'static str, &[&str])]| {
            Fingerprint::of_shards(shards.iter().map(|(name, list)| (*name, list.to_vec())))
        };
        assert_eq!(of(&[("x", &["a", "b"])]), list(&["b", "a"]));
        let own = of(&[("x", &["a", "b"]), ("y", &["c"])]);
        assert_eq!(own, of(&[("y", &["c"]), ("x", &["b", "a"])]));
        for other in [
            of(&[("y", &["a", "b"]), ("x", &["c"])]),
            of(&[("x", &["a"]), ("y", &["c", "b"])]),
            of(&[("x", &["a", "b"]), ("y", &["c"]), ("z", &["d"])]),
            list(&["a", "b", "c"]),
        ] {
            assert_ne!(own, other);
        }
        // The same in every version.
        assert_eq!(own.to_string(), "81fd6d8d7fd18a60");
    }

    #[test]
    fn each_step_of_a_move_is_read_back_and_no_step_admits_the_old_and_the_new() {
        let [from, to, third] = ["a", "b", "c"].map(Fingerprint::of_name);
        let moving = MastersId::Moving { from, to };
        let (old, new) = (MastersId::Of(from), MastersId::Of(to));
        for step in 0..=4 {
            let admitted = Admitted::at_step(step, from, to);
            assert_eq!(Admitted::read(&admitted.to_string()), Some(admitted));
            assert_eq!(admitted.step(from, to), Some(step));
            assert_eq!(admitted.step(from, third), (step == 0).then_some(0));
            assert!(!(admitted.admits(old) && admitted.admits(new)), "step {step}");
            assert_eq!(admitted.admits(moving), (1..=3).contains(&step));
        }
        assert!(moving.is_related_to(old) && new.is_related_to(moving) && old.is_related_to(old));
        assert!(!old.is_related_to(new) && moving.is_related_to(moving));
        assert!(!moving.is_related_to(MastersId::Moving { from: to, to: third }));
        for wrong in ["", ",", ">", "0>1", "000000000000002a,", "000000000000002a>"] {
            assert_eq!(Admitted::read(wrong), None, "{wrong}");
        }
    }

    /// Clients of different versions must agree on the fingerprint.
    #[test]
    fn it_is_the_same_in_every_version_and_is_read_back() {
        let own = list(&["db1:6379/0", "db2:6379/0", "db3:6379/0"]);
        assert_eq!(own.to_string(), "7ce9ddaef8f9da15");
        assert_eq!(Fingerprint::read(&own.to_string()), Some(own));
        assert_eq!(
            Fingerprint::read("000000000000002a").map(|f| f.to_string()).as_deref(),
            Some("000000000000002a")
        );
        for wrong in ["", "2a", "+00000000000002a", "00000000000000002a", "000000000000002g"] {
            assert_eq!(Fingerprint::read(wrong), None, "{wrong}");
        }
    }
}
