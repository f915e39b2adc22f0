use redquorum_harness::sabotage::Lie;
use redquorum_harness::search::exhaustive::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let nodes: usize = a[1].parse().unwrap();
    let faults: usize = a[2].parse().unwrap();
    let only = a.get(3).cloned().unwrap_or_default();
    let lessons: Vec<_> = lessons(nodes).into_iter().filter(|l| only.is_empty() || only == "-" || l.scenario.name == only).collect();
    for l in &lessons { println!("{} {}", l.scenario.name, vocabulary(l, Symmetry::Folded).len()); }
    let lie: Lie = a.get(4).map_or(Lie::None, |l| l.parse().unwrap());
    let symmetry = if a.get(5).is_some() { Symmetry::Unfolded } else { Symmetry::Folded };
    let begin = std::time::Instant::now();
    let t = search(&Plan { lessons, faults, symmetry, lie, threads: 2 });
    println!("{:?} inside {} violated {} cut {} wrong {}", t.schedules, t.inside, t.violated, t.cut, t.wrongs);
    println!("{:#?}", t.kinds);
    for ((c, m), f) in &t.smallest { println!("{c} margin {m}: faults {} masters {} {}", f.faults, f.masters, f.scenario.name); }
    for w in t.wrong.iter().take(6) { println!("---\n{}\n{}", w.lines.join("\n"), toml::to_string(&w.scenario).unwrap()); }
    let n: u64 = t.schedules.iter().sum();
    println!("{n} in {:?}, {:?} each", begin.elapsed(), begin.elapsed() / n as u32);
}
