use super::*;

#[test]
fn probe() {
    let n = |name: &str, or: u8| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let scope = Scope {
        masters: n("M", 3).into(),
        clients: n("C", 2).into(),
        claims: n("CLAIMS", 1),
        attempts: n("ATTEMPTS", 1),
        waits: n("WAITS", 0) > 0,
        rounds: n("ROUNDS", 0),
        watchdog: n("WATCH", 0) > 0,
        cuts: n("CUTS", 0),
        stalls: n("STALLS", 0),
        errors: n("ERRORS", 0),
        deaths: n("DEATHS", 0),
        clocks: n("CLOCKS", 0) > 0,
        fold: n("FOLD", 1) > 0,
        ..Scope::CALM
    };
    let start = std::time::Instant::now();
    let blunder = match n("BLUNDER", 0) {
        0 => Blunder::None,
        k => Blunder::ALL[usize::from(k) - 1],
    };
    let proof = prove(scope, blunder, 1_000_000 * usize::from(n("MOST", 10)));
    println!("{blunder:?} {:?} {:?}", start.elapsed(), proof.explored);
    println!("{:?}", proof.withheld);
    if let Some(c) = proof.explored.broken {
        println!("{}: {}", c.broken.rule, c.broken.why);
        c.story.iter().enumerate().for_each(|(i, l)| println!("{:3} {l}", i + 1));
        c.last.iter().for_each(|l| println!("    {l}"));
    }
}
