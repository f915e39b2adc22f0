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
    if a.len() == 3 { let ts: Vec<(usize, Tally)> = [1, 3, 4, 5].into_iter().map(|n| (n, Plan { threads: 2, ..Plan::new(n, 1) }.search(&|_, _| true))).collect();
    println!("{}", table(&ts.iter().map(|(n, t)| (*n, t)).collect::<Vec<_>>()));
    let t = &ts[3].1;
    for c in Class::ALL { for bare in [true, false] { if let Some(f) = t.smallest.get(&(c, bare)) {
      let hit = (1..50u64).find_map(|s| { let x = redquorum_harness::search::Found::of(&f.scenario, s, Lie::None)?; x.kinds().into_iter().find(|k| c.is_kind(k)).map(|_| s) });
      println!("{c} {bare} seed {hit:?} {}", f.scenario.faults.last().map(|f| toml::to_string(f).unwrap().replace('\n', " ")).unwrap());
      if hit.is_none() { let x = redquorum_harness::search::Found::of(&f.scenario, 1, Lie::None); println!("   {:?}", x.map(|x| x.kinds())); }
    } } } }
}
