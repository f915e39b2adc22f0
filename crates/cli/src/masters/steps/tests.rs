//! All orders in which commands read, write, wait and are killed, on a few masters: see
//! [`explore`].

use std::collections::HashSet;

use redquorum_protocol::NodeId;

use super::*;

/// The most masters of a test.
const MOST: usize = 6;

/// A window, in ticks. A command may begin to wait within one.
const WINDOW: u8 = 2;

/// What a master without a marker is in [`State::steps`].
const UNMARKED: u8 = 5;

/// The goal that a command takes from the steps, as `back` does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Order {
    Fixed(Goal),
    Back,
}

const ORDERS: [Order; 4] = [
    Order::Fixed(Goal::Begin),
    Order::Fixed(Goal::Switch),
    Order::Fixed(Goal::Finish),
    Order::Back,
];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Tool {
    Idle,
    /// It reads next. These masters have shown the same for a window.
    Ready(Goal, NodeSet),
    /// It writes on these, one after the other, where the master still shows what was read.
    Writing(Goal, NodeSet, Option<usize>, [u8; MOST]),
    /// For so many ticks these have shown the same.
    Waiting(Goal, u8, NodeSet),
}

impl Tool {
    const fn goal(self) -> Option<Goal> {
        match self {
            Self::Idle => None,
            Self::Ready(goal, _) | Self::Writing(goal, ..) | Self::Waiting(goal, ..) => Some(goal),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    steps: [u8; MOST],
    /// Which command has claimed each master.
    claims: [u8; MOST],
    /// Ticks since a quorum of the old masters admitted their clients, and of the new ones.
    since: [u8; 2],
    tools: [Tool; 2],
    /// How often a client may still mark a master that was restarted, for its own masters alone.
    restarts: u8,
}

/// A move, and what is wrong with the rules in it.
#[derive(Clone, Debug)]
struct Setup {
    sides: [Side; 2],
    /// Other masters are dead to the commands, but not to clients.
    alive: NodeSet,
    tools: usize,
    restarts: u8,
    waits: bool,
    /// Whether a master that could not be read may admit anybody.
    counts_unreached: bool,
    claims: bool,
}

fn nodes(numbers: impl IntoIterator<Item = usize>) -> NodeSet {
    numbers.into_iter().map(NodeId::new).collect()
}

impl Setup {
    fn new(from: NodeSet, to: NodeSet) -> Self {
        Self::of_shards(&[from], &[to])
    }

    fn of_shards(from: &[NodeSet], to: &[NodeSet]) -> Self {
        let sides = [from, to]
            .map(|shards| Side::new(shards.iter().map(|set| Quorum::among(*set)).collect()));
        Self {
            alive: sides[0].masters().or(sides[1].masters()),
            sides,
            tools: 1,
            restarts: 0,
            waits: true,
            counts_unreached: true,
            claims: true,
        }
    }

    fn sets(&self) -> [NodeSet; 2] {
        self.sides.each_ref().map(Side::masters)
    }

    fn all(&self) -> NodeSet {
        self.sides[0].masters().or(self.sides[1].masters())
    }

    fn start(&self) -> State {
        let mut steps = [UNMARKED; MOST];
        self.sets()[0].iter().for_each(|node| steps[node.index()] = 0);
        State {
            steps,
            claims: [0; MOST],
            since: [0, WINDOW],
            tools: [Tool::Idle; 2],
            restarts: self.restarts,
        }
    }

    /// The masters that admit clients of the old set, of both, and of the new one.
    fn admitting(&self, state: &State) -> [NodeSet; 3] {
        [0..=1, 1..=3, 3..=4].map(|steps| {
            self.all().iter().filter(|it| steps.contains(&state.steps[it.index()])).collect()
        })
    }

    /// Whether clients of each kind can have all leases among these masters.
    fn have_quorums(&self, state: &State, among: NodeSet) -> [bool; 3] {
        let [old, new] = &self.sides;
        let [for_old, for_moving, for_new] = self.admitting(state).map(|set| set.and(among));
        let moving = old.every_is_in(for_moving) && new.every_is_in(for_moving);
        [old.every_is_in(for_old), moving, new.every_is_in(for_new)]
    }

    fn set(&self, state: &mut State, node: NodeId, step: u8) {
        state.steps[node.index()] = step;
        self.count(state);
    }

    fn count(&self, state: &mut State) {
        let [old, new] = &self.sides;
        let [for_old, _, for_new] = self.admitting(state);
        let any = [old.any_is_in(for_old), new.any_is_in(for_new)];
        for (since, admitted) in state.since.iter_mut().zip(any) {
            *since = if admitted { 0 } else { *since };
        }
    }

    fn check(&self, state: &State) -> Result<(), String> {
        if state.since.iter().all(|since| *since < WINDOW) {
            return Err(format!("clients of both sets are admitted within a window: {state:?}"));
        }
        let have = self.have_quorums(state, self.alive);
        // Clients that mark masters which were restarted leave out others for a while.
        if state.restarts == self.restarts && !have.contains(&true) {
            return Err(format!("no clients have a quorum: {state:?}"));
        }
        Ok(())
    }

    fn view(&self, state: &State, reached: NodeSet) -> Vec<MasterStep> {
        let step = |node: NodeId| match state.steps[node.index()] {
            _ if !reached.contains(node) => MasterStep::Unreached,
            UNMARKED => MasterStep::Unmarked,
            step => MasterStep::At(step.into()),
        };
        NodeId::all(self.all().len()).map(step).collect()
    }

    /// What the command does after it has read these masters.
    fn decide(&self, goal: Goal, mut steps: Vec<MasterStep>, steady: NodeSet) -> Next {
        let moved = match goal {
            Goal::BackToFirst | Goal::Switch => 2,
            _ => return self.ask(goal, &steps, steady),
        };
        if !self.counts_unreached {
            let unreached = steps.iter_mut().filter(|it| **it == MasterStep::Unreached);
            unreached.for_each(|it| *it = MasterStep::At(moved));
        }
        self.ask(goal, &steps, steady)
    }

    fn ask(&self, goal: Goal, steps: &[MasterStep], steady: NodeSet) -> Next {
        let steady = if self.waits && self.counts_unreached { steady } else { self.all() };
        next(goal, &View { sides: &self.sides, steps, steady, connected: [false; 3] })
    }

    /// The states after the command `tool` has read all that it reaches. What it reads first, it
    /// claims; later it goes on only if no other command has claimed a master since.
    fn read(
        &self,
        state: &State,
        tool: usize,
        order: Order,
        steady: Option<NodeSet>,
        into: &mut Vec<State>,
    ) {
        for reached in subsets(self.alive) {
            let mut state = *state;
            let ours = u8::try_from(tool).unwrap() + 1;
            let is_taken = |node: NodeId| ![0, ours].contains(&state.claims[node.index()]);
            if self.claims && steady.is_some() && reached.iter().any(is_taken) {
                state.tools[tool] = Tool::Idle;
                into.push(state);
                continue;
            }
            let steady = steady.unwrap_or_default();
            let steps = self.view(&state, reached);
            let goal = match order {
                Order::Fixed(goal) => goal,
                Order::Back => Goal::back(&self.sides, &steps),
            };
            reached.iter().for_each(|node| state.claims[node.index()] = ours);
            state.tools[tool] = match self.decide(goal, steps, steady.and(reached)) {
                Next::Write(nodes, to) => Tool::Writing(goal, nodes.and(reached), to, state.steps),
                Next::Wait => Tool::Waiting(goal, 0, reached),
                Next::Done | Next::Refuse(_) => Tool::Idle,
            };
            if self.tools == 1 || !self.claims {
                state.claims = [0; MOST];
            }
            into.push(state);
        }
    }

    /// The same state, with the masters of each kind in order: they can change places.
    fn canonical(&self, state: &State) -> State {
        let key = |node: &NodeId| {
            let shards = self.sides.iter().flat_map(|side| &side.0);
            let of: Vec<bool> = shards.map(|shard| shard.all().contains(*node)).collect();
            let kind = (of, self.alive.contains(*node));
            let at = node.index();
            let of_tool = state.tools.map(|tool| match tool {
                Tool::Idle => (false, 0),
                Tool::Writing(_, set, _, seen) => (set.contains(*node), seen[at]),
                Tool::Ready(_, set) | Tool::Waiting(_, _, set) => (set.contains(*node), 0),
            });
            (kind, state.steps[at], state.claims[at], of_tool)
        };
        let known: Vec<NodeId> = self.all().iter().collect();
        let mut sorted = known.clone();
        // Of a kind: a master takes the place of one of the same kind.
        sorted.sort_by_key(key);
        let mut by_kind = known;
        by_kind.sort_by_key(|node| key(node).0);
        let mut same = *state;
        let moved = |set: NodeSet| {
            let pairs = by_kind.iter().zip(&sorted);
            pairs.filter(|(_, from)| set.contains(**from)).map(|(to, _)| *to).collect::<NodeSet>()
        };
        for (to, from) in by_kind.iter().zip(&sorted) {
            same.steps[to.index()] = state.steps[from.index()];
            same.claims[to.index()] = state.claims[from.index()];
        }
        for tool in &mut same.tools {
            *tool = match *tool {
                Tool::Idle => Tool::Idle,
                Tool::Ready(goal, set) => Tool::Ready(goal, moved(set)),
                Tool::Waiting(goal, ticks, set) => Tool::Waiting(goal, ticks, moved(set)),
                Tool::Writing(goal, set, to, before) => {
                    let mut seen = before;
                    for (to, from) in by_kind.iter().zip(&sorted) {
                        seen[to.index()] = before[from.index()];
                    }
                    Tool::Writing(goal, moved(set), to, seen)
                }
            };
        }
        same
    }

    /// The states that may follow.
    fn follow(&self, state: &State, into: &mut Vec<State>) {
        let mut later = *state;
        for since in &mut later.since {
            *since = (*since + 1).min(WINDOW);
        }
        self.count(&mut later);
        for tool in &mut later.tools {
            if let Tool::Waiting(_, ticks, _) = tool {
                *ticks = (*ticks + 1).min(WINDOW);
            }
        }
        into.push(later);
        for tool in 0..self.tools {
            let mut with = |what| {
                let mut state = *state;
                state.tools[tool] = what;
                into.push(state);
            };
            match state.tools[tool] {
                Tool::Idle => {
                    let mut start = |order| self.read(state, tool, order, None, &mut *into);
                    ORDERS.into_iter().for_each(&mut start);
                    continue;
                }
                Tool::Ready(goal, steady) => {
                    with(Tool::Idle);
                    self.read(state, tool, Order::Fixed(goal), Some(steady), into);
                }
                Tool::Waiting(goal, ticks, known) => {
                    with(Tool::Idle);
                    if ticks == WINDOW {
                        self.read(state, tool, Order::Fixed(goal), Some(known), into);
                    }
                }
                Tool::Writing(goal, pending, to, seen) => {
                    with(Tool::Idle);
                    with(Tool::Ready(goal, NodeSet::EMPTY));
                    for node in pending.iter() {
                        let at = node.index();
                        let mut state = *state;
                        let is_ours = self.tools == 1
                            || !self.claims
                            || usize::from(state.claims[at]) == tool + 1;
                        let mut rest = pending;
                        rest.remove(node);
                        state.tools[tool] = Tool::Writing(goal, rest, to, seen);
                        if !is_ours {
                            // Another command has taken over.
                            state.tools[tool] = Tool::Idle;
                        } else if state.steps[at] == seen[at] {
                            let to = to.map_or(UNMARKED, |to| u8::try_from(to).unwrap());
                            self.set(&mut state, node, to);
                        }
                        into.push(state);
                    }
                }
            }
        }
        if state.restarts > 0 {
            for node in self.all().iter() {
                self.restart(state, node, into);
            }
        }
    }

    /// A master was restarted: with its marker, and a client that it admits has watched it for a
    /// quarantine and marks it for itself alone; or without, and a client whose masters show its
    /// marker on a quorum marks it.
    fn restart(&self, state: &State, node: NodeId, into: &mut Vec<State>) {
        let step = state.steps[node.index()];
        let have = self.have_quorums(state, self.all());
        let marks: &[u8] = match step {
            0 => &[UNMARKED],
            1 => &[0, 2, UNMARKED],
            2 => &[UNMARKED],
            3 => &[2, 4, UNMARKED],
            4 => &[UNMARKED],
            _ => &[0, 2, 4],
        };
        for mark in marks {
            let is_used = match mark {
                0 => self.sets()[0].contains(node) && (step < UNMARKED || have[0]),
                2 => step < UNMARKED || have[1],
                4 => self.sets()[1].contains(node) && (step < UNMARKED || have[2]),
                _ => true,
            };
            if !is_used {
                continue;
            }
            let mut state = *state;
            state.restarts -= 1;
            self.set(&mut state, node, *mark);
            for tool in &mut state.tools {
                if let Tool::Waiting(_, _, known) = tool {
                    known.remove(node);
                }
            }
            into.push(state);
        }
    }

    /// Runs a command from here to its end, if it is not killed and reaches all that are alive.
    fn run(&self, state: &State, order: Order) -> Result<State, Refusal> {
        let (mut state, mut steady) = (*state, NodeSet::EMPTY);
        let goal = match order {
            Order::Fixed(goal) => goal,
            Order::Back => Goal::back(&self.sides, &self.view(&state, self.alive)),
        };
        for _ in 0..9 {
            match self.decide(goal, self.view(&state, self.alive), steady) {
                Next::Write(nodes, to) => {
                    let to = to.map_or(UNMARKED, |to| u8::try_from(to).unwrap());
                    nodes.and(self.alive).iter().for_each(|node| self.set(&mut state, node, to));
                    steady = NodeSet::EMPTY;
                }
                Next::Wait => {
                    state.since = [WINDOW; 2];
                    self.count(&mut state);
                    steady = self.alive;
                }
                Next::Done => return Ok(state),
                Next::Refuse(why) => return Err(why),
            }
            assert!(self.check(&state).is_ok(), "{goal:?}: {state:?}");
        }
        panic!("{goal:?} comes to no end from {state:?}");
    }

    /// Whether a command that has ended has left the masters at its goal.
    fn is_at(&self, goal: Goal, state: &State) -> bool {
        let [old, new] = self.sets();
        let marked = |set: NodeSet| {
            set.and(self.alive)
                .iter()
                .map(|it| state.steps[it.index()])
                .filter(|step| *step != UNMARKED)
        };
        match goal {
            Goal::Begin => marked(old.or(new)).all(|step| (1..=2).contains(&step)),
            Goal::Switch => marked(old.or(new)).all(|step| (3..=4).contains(&step)),
            Goal::Finish => marked(old.or(new)).all(|step| step == 4),
            Goal::BackToFirst => marked(old.or(new)).all(|step| step <= 1),
            Goal::BackToStart => {
                marked(old).all(|step| step == 0) && marked(new.without(old)).next().is_none()
            }
        }
    }
}

fn subsets(of: NodeSet) -> impl Iterator<Item = NodeSet> {
    let members: Vec<NodeId> = of.iter().collect();
    (0..1_usize << members.len()).map(move |mask| {
        let is_in = |(bit, _): &(usize, &NodeId)| mask >> bit & 1 == 1;
        members.iter().enumerate().filter(is_in).map(|(_, node)| *node).collect()
    })
}

/// Visits every state that any commands can lead to, in any order, with any reads and writes that
/// fail, any kills and any pauses. Returns the number of states, or what is wrong with one.
fn explore(setup: &Setup) -> Result<usize, String> {
    let start = setup.canonical(&setup.start());
    let (mut known, mut open, mut following) = (HashSet::from([start]), vec![start], Vec::new());
    while let Some(state) = open.pop() {
        setup.check(&state)?;
        // A command that was killed here is run again, and ends where it should.
        let killed = state.tools.iter().find_map(|tool| tool.goal());
        let is_right = setup.waits && setup.counts_unreached;
        if let Some(goal) = killed.filter(|_| setup.tools == 1 && is_right) {
            let order = match goal {
                Goal::BackToFirst | Goal::BackToStart => Order::Back,
                goal => Order::Fixed(goal),
            };
            match setup.run(&state, order) {
                Ok(ended) => {
                    let reached = match order {
                        Order::Back => Goal::back(&setup.sides, &setup.view(&state, setup.alive)),
                        Order::Fixed(goal) => goal,
                    };
                    if !setup.is_at(reached, &ended) {
                        return Err(format!("{goal:?} from {state:?} ends at {ended:?}"));
                    }
                }
                // A master was away while the others went back, and returns: it goes back first.
                Err(Refusal::WrongStep)
                    if goal == Goal::Begin && state.restarts == setup.restarts =>
                {
                    let back = setup.run(&state, Order::Back);
                    back.and_then(|state| setup.run(&state, order))
                        .map_err(|why| format!("{goal:?} is refused again: {why:?}, {state:?}"))?;
                }
                Err(_) if state.restarts < setup.restarts => {}
                Err(why) => return Err(format!("{goal:?} is refused again: {why:?}, {state:?}")),
            }
        }
        setup.follow(&state, &mut following);
        let following = following.drain(..).map(|state| setup.canonical(&state));
        open.extend(following.filter(|state| known.insert(*state)));
    }
    Ok(known.len())
}

/// Moves of three masters to three, that share from none to two.
fn moves() -> impl Iterator<Item = Setup> {
    (0..=2).map(|shared| Setup::new(nodes(0..3), nodes(3 - shared..6 - shared)))
}

/// A shard more, one less, one replaced, one that gets other masters, and one that gets a master
/// more.
fn changes_of_shards() -> impl Iterator<Item = Setup> {
    let [a, b, c] = [0, 1, 2].map(|at| nodes([at]));
    let (three, four) = (nodes(1..4), nodes(1..5));
    let changes: [(&[NodeSet], &[NodeSet]); 6] = [
        (&[a, b], &[a, b, c]),
        (&[a, b, c], &[a, b]),
        (&[a, b], &[b, c]),
        (&[a, three], &[a, four]),
        (&[three], &[three, a]),
        (&[a, nodes(1..3)], &[a, nodes(3..6)]),
    ];
    changes.map(|(from, to)| Setup::of_shards(from, to)).into_iter()
}

fn holds(setup: &Setup) -> usize {
    explore(setup).unwrap_or_else(|why| panic!("{setup:?}: {why}"))
}

#[test]
fn no_order_of_kills_and_failures_admits_clients_of_both_sets_or_none() {
    for setup in moves().chain([Setup::new(nodes(0..3), nodes(0..5))]) {
        assert!(holds(&setup) > 1_000, "{setup:?}");
    }
}

#[test]
fn all_shards_take_each_step_together() {
    for setup in changes_of_shards() {
        assert!(holds(&setup) > 100, "{setup:?}");
        let no_wait = explore(&Setup { waits: false, ..setup.clone() });
        assert!(no_wait.is_err_and(|why| why.contains("of both sets")), "{setup:?}");
    }
}

#[test]
fn a_master_may_be_dead_all_the_time() {
    for setup in moves() {
        let [old, new] = setup.sets();
        // One that is only old, as one that is replaced; one that is only new; one of both.
        for dead in [old.without(new), new.without(old), old.and(new)] {
            if let Some(dead) = dead.iter().next() {
                let alive = setup.alive.without([dead].into_iter().collect());
                holds(&Setup { alive, ..setup.clone() });
            }
        }
    }
}

#[test]
fn clients_may_mark_a_master_that_was_restarted() {
    for setup in moves().skip(1) {
        holds(&Setup { restarts: 1, ..setup });
    }
}

/// The first admits clients of both sets; the second one those, or none.
#[test]
fn rules_that_are_wrong_are_found() {
    for setup in moves() {
        let no_wait = explore(&Setup { waits: false, ..setup.clone() });
        assert!(no_wait.is_err_and(|why| why.contains("of both sets")), "{setup:?}");
        // A minority that can be read is enough to go on.
        let minority = explore(&Setup { counts_unreached: false, ..setup.clone() });
        assert!(minority.is_err(), "{setup:?}");
    }
}

#[test]
fn two_commands_at_once_are_safe_since_each_claims_the_masters() {
    for (from, to) in [(0..1, 1..2), (0..1, 0..2), (0..2, 1..3)] {
        let setup = Setup { tools: 2, ..Setup::new(nodes(from), nodes(to)) };
        holds(&setup);
        let unclaimed = explore(&Setup { claims: false, ..setup.clone() });
        assert!(unclaimed.is_err_and(|why| why.contains("of both sets")), "{setup:?}");
    }
}
