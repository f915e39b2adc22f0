//! The scenarios that come with the program, in the binary itself.

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The scenarios that come with the program: the name and the text of each, sorted by name.
pub fn embedded() -> impl Iterator<Item = (&'static str, &'static str)> {
    EMBEDDED.iter().copied()
}
