//! A plan: what the processes of one run do, drawn from a seed.

use redquorum_protocol::splitmix64;

/// Random numbers: a seed draws the same plan on every machine.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        splitmix64(&mut self.0) % end
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())]
    }

    fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }
}

/// The most masters of a plan.
const MOST_MASTERS: usize = 5;

/// The space of plans of a search. Times are in milliseconds here and in plans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) names: &'static [usize],
    /// Sets of commands that the users of some processes lack.
    pub(crate) forbidden: &'static [&'static [&'static str]],
    /// What may be wrong between some processes and some of their masters.
    pub(crate) troubles: &'static [Trouble],
    /// Most processes beside the one with the canary.
    pub(crate) processes: u64,
    /// Most tasks that wait for one name together.
    pub(crate) crowd: u64,
    /// Whether futures are left unpolled, and then polled again or dropped.
    pub(crate) neglect: bool,
    /// Largest message that is published to a channel of the lock.
    pub(crate) message: u64,
    pub(crate) fair: bool,
    pub(crate) databases: u64,
    pub(crate) ttl: u64,
    pub(crate) wait: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) masters: usize,
    /// Each write to a master is delayed by up to this.
    pub(crate) latency: u64,
    pub(crate) ttl: u64,
    pub(crate) processes: Vec<Process>,
    pub(crate) names: Vec<usize>,
    pub(crate) steps: Vec<Step>,
}

/// A `Redlock` and the user that it logs in as.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    pub(crate) fair: bool,
    /// Commands that its user may not run.
    pub(crate) forbidden: &'static [&'static str],
    pub(crate) database: u32,
    /// What is wrong on the way to the first so many of its masters.
    pub(crate) trouble: (Trouble, usize),
    /// Whether it retries without a pause: for controls.
    pub(crate) spins: bool,
}

/// What is wrong on the way to a master, as proxies, balancers and name servers do it. Masters stay
/// healthy, so a lock must get along with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Trouble {
    #[default]
    None,
    /// Each connection ends at this command.
    HangsUp(&'static str),
    /// This command gets `-BUSY` up to this time.
    Busy(&'static str, u64),
    /// Each connection ends at this age.
    Recycles(u64),
    /// Up to this time the name of a master leads to the next one.
    Misleads(u64),
}

impl Process {
    /// Whether it can extend and delete its keys. If not, they expire.
    pub(crate) fn keeps(&self) -> bool {
        !self.forbidden.iter().any(|command| matches!(*command, "EVALSHA" | "GET"))
    }

    /// Whether a lease can lose the votes of masters that it does not reach again: a name led to
    /// another one.
    pub(crate) fn is_misled(&self) -> bool {
        matches!(self.trouble, (Trouble::Misleads(_), 1..))
    }

    pub(crate) fn is_troubled(&self) -> bool {
        self.trouble.0 != Trouble::None && self.trouble.1 > 0
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) at: u64,
    pub(crate) process: usize,
    pub(crate) name: usize,
    pub(crate) action: Action,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// This many tasks acquire the name separately, and hold it one after the other.
    Acquire { tasks: u64, wait: u64, hold: u64, end: End },
    /// Polls the future of an acquire for a while, and drops it or the lease that it got.
    Cancel { wait: u64, after: u64 },
    /// Polls the future for `polled`, leaves it unpolled for `idle`, and then polls it to its end
    /// or drops it.
    Neglect { wait: u64, polled: u64, idle: u64, drops: bool },
    /// A client outside of the run holds the name and dies; its key expires in database 0.
    Die,
    /// Publishes a message of this many bytes to each channel that a lock subscribes to.
    Publish { bytes: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Release,
    Drop,
    /// Kept alive while it is held, and then released.
    KeptAlive,
    Expire,
}

impl Plan {
    pub(crate) fn draw(seed: u64, mix: Mix) -> Self {
        let mut rng = Rng::new(seed);
        let process = |rng: &mut Rng, number: u64| Process {
            fair: mix.fair && rng.one_in(2),
            // The first process may do everything.
            forbidden: if number > 0 && rng.one_in(3) { rng.pick(mix.forbidden) } else { &[] },
            database: u32::try_from(rng.below(mix.databases)).unwrap(),
            trouble: match mix.troubles {
                [] => (Trouble::None, 0),
                troubles => (rng.pick(troubles), rng.index(MOST_MASTERS + 1)),
            },
            spins: false,
        };
        let processes: Vec<_> =
            (0..rng.between(1, mix.processes)).map(|number| process(&mut rng, number)).collect();
        let names: Vec<_> = (0..rng.between(1, 3)).map(|_| rng.pick(mix.names)).collect();
        let steps = (0..rng.between(1, 12)).map(|_| Step {
            at: rng.below(mix.wait / 2),
            // The first processes and names are used most, so that tasks meet.
            process: rng.index(processes.len()).min(rng.index(processes.len())),
            name: rng.index(names.len()).min(rng.index(names.len())),
            action: Action::draw(&mut rng, mix),
        });
        let steps = steps.collect();
        let (masters, latency) = (rng.pick(&[3, 3, MOST_MASTERS]), rng.below(4));
        Self { masters, latency, ttl: mix.ttl, processes, names, steps }
    }

    /// The bytes of a name. No two names are equal.
    pub(crate) fn name(&self, number: usize) -> Vec<u8> {
        let first = b'a' + u8::try_from(number).expect("few names");
        let mut name = vec![b'.'; self.names[number]];
        name[0] = first;
        name
    }
}

impl Action {
    fn draw(rng: &mut Rng, mix: Mix) -> Self {
        let wait = match rng.below(4) {
            0 => 0,
            1 => rng.between(1, 200),
            _ => rng.between(200, mix.wait),
        };
        match rng.below(8) {
            0 => Self::Cancel { wait, after: rng.below(wait + 10) },
            1..=3 if mix.neglect => {
                let (wait, polled) = (wait.max(mix.wait / 2), rng.below(100));
                let idle = rng.between(mix.wait / 4, mix.wait);
                Self::Neglect { wait, polled, idle, drops: rng.one_in(2) }
            }
            4 => Self::Die,
            5 if mix.message > 0 => Self::Publish { bytes: rng.below(mix.message) },
            _ => {
                let end = rng.pick(&[End::Release, End::Drop, End::KeptAlive, End::Expire]);
                let tasks = if rng.one_in(3) { rng.between(1, mix.crowd) } else { 1 };
                // A lease that is not kept alive is released before it expires.
                let hold = if end == End::KeptAlive { 2 * mix.ttl } else { mix.ttl / 3 };
                let hold = if tasks > 1 { 10 } else { hold };
                Self::Acquire { tasks, wait, hold: rng.below(hold), end }
            }
        }
    }
}
