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
    let t = Plan { lessons, faults, symmetry, lie, threads: 2 }.search(&|_, _| true);
    println!("{:?} inside {} violated {} broken {} unexplained {}", t.schedules, t.inside, t.violated, t.broken, t.unexplained);
    println!("{:#?}", t.kinds);
    for ((c, m), f) in &t.smallest { println!("{c} margin {m}: faults {} masters {} {}", f.faults, f.masters, f.scenario.name); if std::env::var("SHOW").is_ok() { for x in &f.scenario.faults { println!("      {}", toml::to_string(x).unwrap().replace('\n', " ")); } } }
    for w in t.wrong.iter().take(5000) { println!("---{}\n{}\n{}", w.inside, w.lines.join("\n"), w.scenario.faults.iter().map(|f| toml::to_string(&f).unwrap()).collect::<Vec<_>>().join("\n").lines().collect::<Vec<_>>().join(" ")); }
    let n: u64 = t.schedules.iter().sum();
    println!("{n} in {:?}, {:?} each", begin.elapsed(), begin.elapsed() / n as u32);
}
