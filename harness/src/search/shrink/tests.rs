//! Planted finds: what matters is known, and must be what is left.

use std::ops::ControlFlow;

use super::{EFFORT, shrink};
use crate::sabotage::Lie;
use crate::scenario::{Layer, Scenario};
use crate::search::{Found, story};

/// Two faults that matter, as the lesson has them, among six that do not.
const PLANTED: &str = r#"
name = "planted"
about = "A test."
[[client]]
id = "c1"
script = ["acquire L wait 300ms", "read R", "work 613ms", "write R", "release L"]
[[client]]
id = "c2"
start = "307ms"
script = ["acquire L wait 200ms", "read R", "work 100ms", "write R", "release L"]
[[client]]
id = "c3"
script = ["acquire M", "work 10ms", "release M"]
loop = 3
think = "7ms"
[[fault]]
at = "17ms"
for = "40ms"
node.slow = { nodes = [2], by = "3ms" }
[[fault]]
at = "0s"
for = "401ms"
net.drop = { client = "c1", nodes = [4, 5], what = "request" }
[[fault]]
at = "33ms"
client.clock = { client = "c2", by = "-1h" }
[[fault]]
at = "35ms"
clock.step = { node = 2, by = "3s 17ms" }
[[fault]]
at = "900ms"
net.reset = { client = "c3" }
[[fault]]
after = "c3 granted M"
net.duplicate = { client = "c3", what = "request" }
[[fault]]
at = "1s"
for = "50ms"
node.pause = { nodes = [4] }
[[fault]]
at = "1s"
for = "51ms"
client.pause = { client = "c3" }
"#;

fn planted() -> Found {
    let scenario: Scenario = toml::from_str(PLANTED).unwrap();
    let found = Found::of(&scenario, 7, Lie::None).unwrap();
    assert_eq!(found.kind().layer, Some(Layer::MutualExclusion));
    found
}

fn small(found: &Found) -> Found {
    shrink(found, EFFORT, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn only_what_matters_is_left() {
    let found = planted();
    let small = small(&found);
    println!("{}", story::file(&small));
    panic!();
}
