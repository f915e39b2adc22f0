//! The decision whether two clients held one resource at the same time. The checker makes it for
//! the leases of a recorded run, and the soak for the critical sections that its clients report.

use crate::history::Window;

/// The overlaps among the holds of one resource.
///
/// Takes the holds in the order of their starts, and compares each with the earlier one that lasts
/// longest: if any two holds overlap, such a pair does. Holds that only touch do not overlap, and a
/// hold that ends where it begins overlaps nothing. A lease may be handed over at the very
/// nanosecond at which it was released.
#[derive(Clone, Debug)]
pub struct Overlaps<H> {
    /// The hold that lasts longest so far.
    longest: Option<(H, Window)>,
}

impl<H> Default for Overlaps<H> {
    fn default() -> Self {
        Self { longest: None }
    }
}

impl<H: Copy> Overlaps<H> {
    /// Takes the next hold. Returns the earlier hold that it overlaps, and their common time.
    pub fn add(&mut self, hold: H, span: Window) -> Option<(H, Window)> {
        if span.is_empty() {
            return None;
        }
        let before = self.longest;
        if before.is_none_or(|(_, longest)| span.to > longest.to) {
            self.longest = Some((hold, span));
        }
        before.and_then(|(before, longest)| Some((before, longest.meet(span)?)))
    }
}
