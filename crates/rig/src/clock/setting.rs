//! The time that a wall clock shows, and its encoding in the page that a shim reads. It is compiled
//! twice: into this crate, and by `build.rs` into the shim, so it needs only `core`.
//!
//! A page is a file that a process maps. Its one writer uses plain writes to the file, and may be
//! at any point of a write while the process reads. So there are two slots, each with a sequence
//! number and a check over the whole. The writer overwrites the older slot; a reader takes the
//! newest slot whose check is right. A reader never takes a torn slot, in whatever order its bytes
//! arrive, and one slot is always complete: a half-written slot is the *older* one.

/// The time that a wall clock shows, as a function of the real time: an offset, a rate and a
/// strobe.
///
/// All arithmetic is exact, in nanoseconds since the Unix epoch. Derived from [`REAL`](Self::REAL)
/// by [`changed`](Self::changed).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClockSetting {
    /// The real time from which the rate counts.
    pub(crate) anchor: u64,
    /// The offset that is added to the real time at the anchor.
    pub(crate) offset: i64,
    /// Shown nanoseconds per real one, times 2³².
    pub(crate) rate: u64,
    /// The offset that is added in every second period of the strobe.
    pub(crate) strobe_by: u64,
    /// The length of a period; 0: no strobe.
    pub(crate) strobe_every: u64,
    /// The real time at which the first period begins. It is separate from the anchor; otherwise a
    /// change of the rate would restart the strobe, which would be a jump.
    pub(crate) strobe_from: u64,
}

/// The length of a page's file.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The first word of a page. A file without it is no page.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"rqclock1");

/// A sequence number, the six fields, a check.
pub(crate) const SLOT_WORDS: usize = 8;

/// The start of the two slots, in words. Each is a cache line of its own.
pub(crate) const SLOTS: [usize; 2] = [8, 16];

pub(crate) const RATE_ONE: u64 = 1 << 32;

impl ClockSetting {
    /// The clock shows the real time.
    pub const REAL: Self = Self {
        anchor: 0,
        offset: 0,
        rate: RATE_ONE,
        strobe_by: 0,
        strobe_every: 0,
        strobe_from: 0,
    };

    /// The shown time at a real time, both in nanoseconds since the Unix epoch. The clock shows no
    /// time before the epoch.
    pub fn shown(&self, real: u64) -> u64 {
        let strobe = if self.strobe_period(real) & 1 == 1 { self.strobe_by } else { 0 };
        since_epoch(self.steady(real) + i128::from(strobe))
    }

    /// The time that it would show without the strobe, possibly before the epoch.
    pub(crate) fn steady(&self, real: u64) -> i128 {
        let anchor = i128::from(self.anchor);
        // Negative if the real clock was set back since. The shift rounds down in that case too.
        let passed = ((i128::from(real) - anchor) * i128::from(self.rate)) >> 32;
        anchor + i128::from(self.offset) + passed
    }

    /// The number of the strobe's period. The amplitude is added in odd periods.
    pub(crate) fn strobe_period(&self, real: u64) -> i128 {
        if self.strobe_every == 0 {
            return 0;
        }
        (i128::from(real) - i128::from(self.strobe_from)).div_euclid(i128::from(self.strobe_every))
    }

    /// As the words of a slot.
    pub(crate) fn to_slot(self, sequence: u64) -> [u64; SLOT_WORDS] {
        let mut words = [
            sequence,
            self.anchor,
            self.offset.cast_unsigned(),
            self.rate,
            self.strobe_by,
            self.strobe_every,
            self.strobe_from,
            0,
        ];
        words[SLOT_WORDS - 1] = check(&words);
        words
    }

    /// From the words of a slot, unless they are torn.
    pub(crate) fn from_slot(words: &[u64; SLOT_WORDS]) -> Option<Self> {
        if words[SLOT_WORDS - 1] != check(words) {
            return None;
        }
        Some(Self {
            anchor: words[1],
            offset: words[2].cast_signed(),
            rate: words[3],
            strobe_by: words[4],
            strobe_every: words[5],
            strobe_from: words[6],
        })
    }
}

/// Clamped to the range from the epoch to the year 2554.
pub(crate) fn since_epoch(nanos: i128) -> u64 {
    if nanos < 0 { 0 } else { u64::try_from(nanos).unwrap_or(u64::MAX) }
}

/// The check covers all words but the last. Every bit of the input changes about half of the
/// output, so that no mix of two slots, of whatever pieces, passes for a whole one.
fn check(words: &[u64; SLOT_WORDS]) -> u64 {
    let (mut sum, mut place) = (MAGIC, 0_u64);
    for word in &words[..SLOT_WORDS - 1] {
        // The steps of splitmix64. No word waits for the one before it, which halves the cost of
        // reading the clock.
        place = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = word ^ place;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        sum = sum.wrapping_add(mixed ^ (mixed >> 31));
    }
    sum
}
