//! The command `redquorum-chaos`.

fn main() {}
