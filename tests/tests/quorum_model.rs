//! A model of fencing over a quorum, searched through: with crashes, lost replies and requests that come late.
//!
//! A column is a node: its counter, whose its vote is, and how far each attempt has come with it. A request or a reply
//! that is lost is one that is never delivered, which the search tries like any other delay; a request may also arrive
//! long after its attempt has given up. Nodes are alike, so columns are kept sorted.
//!
//! What the model leaves out: a node that restarts without its counter. It has no vote for a ttl, and then the clock is
//! the floor under its counter; neither is in here.

use stateright::{Checker, HasDiscoveries, Model, Property};

/// So many steps are looked at, at most: some ten seconds.
const BOUND: usize = 6_000_000;

/// What has become of an attempt's requests to one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Cell {
    Unasked,
    /// The request for a vote is on its way.
    Asked,
    /// The node has voted with this token, and its reply is on its way.
    Voted(u8),
    Counted(u8),
    /// The request to raise the counter is on its way.
    Raise,
    /// The counter is raised, and the reply is on its way.
    Raised,
    Confirmed,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Node {
    counter: u8,
    vote: Option<usize>,
    crashed: bool,
    cells: Vec<Cell>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    Asking,
    Raising(u8),
    Held(u8),
    /// Released, or given up.
    Over(Option<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Attempt {
    phase: Phase,
    /// The largest token that anybody had been given when it began.
    floor: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    nodes: Vec<Node>,
    attempts: Vec<Attempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Begin(usize),
    /// A node gets what is on its way to it, or its reply arrives.
    Deliver(usize, usize),
    /// A node gets what is on its way to it, and its reply arrives at once.
    Exchange(usize, usize),
    /// A majority has voted.
    Decide(usize),
    /// The lock is released, or an attempt gives up.
    End(usize),
    /// A node learns of an end, by a release or because the ttl has passed.
    Free(usize),
    Crash(usize),
}

/// Whose counters are raised to the token before the lock is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Raise {
    Nobodys,
    /// Those of any majority.
    Anybodys,
    /// Those of a majority that has voted for us, and does so still.
    Voters,
}

struct Fencing {
    counters: Vec<u8>,
    attempts: usize,
    crashes: usize,
    /// Whether a reply may come late. Else it comes at once or never.
    late_replies: bool,
    raise: Raise,
}

impl Fencing {
    fn majority(&self) -> usize {
        self.counters.len() / 2 + 1
    }
}

impl Phase {
    fn token(self) -> Option<u8> {
        match self {
            Self::Held(token) | Self::Over(Some(token)) => Some(token),
            _ => None,
        }
    }
}

impl State {
    fn counted(&self, attempt: usize) -> impl Iterator<Item = u8> {
        self.nodes
            .iter()
            .filter_map(move |node| match node.cells[attempt] {
                Cell::Counted(token) => Some(token),
                _ => None,
            })
    }

    fn largest_given(&self) -> u8 {
        let tokens = self.attempts.iter().filter_map(|a| a.phase.token());
        tokens.max().unwrap_or(0)
    }
}

impl Model for Fencing {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let node = |counter: &u8| Node {
            counter: *counter,
            vote: None,
            crashed: false,
            cells: vec![Cell::Unasked; self.attempts],
        };
        let waiting = Attempt {
            phase: Phase::Waiting,
            floor: 0,
        };
        vec![State {
            nodes: self.counters.iter().map(node).collect(),
            attempts: vec![waiting; self.attempts],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        let first = state
            .attempts
            .iter()
            .position(|a| a.phase == Phase::Waiting);
        actions.extend(first.map(Act::Begin));
        for (n, attempt) in state.attempts.iter().enumerate() {
            match attempt.phase {
                Phase::Asking if state.counted(n).count() >= self.majority() => {
                    actions.push(Act::Decide(n));
                }
                Phase::Raising(_) | Phase::Held(_) | Phase::Asking => actions.push(Act::End(n)),
                Phase::Waiting | Phase::Over(_) => {}
            }
        }
        let crashed = state.nodes.iter().filter(|node| node.crashed).count();
        for (n, node) in state.nodes.iter().enumerate() {
            // The same node twice is the same step twice.
            if node.crashed || (n > 0 && state.nodes[n - 1] == *node) {
                continue;
            }
            for (a, cell) in node.cells.iter().enumerate() {
                let on_its_way = matches!(
                    cell,
                    Cell::Asked | Cell::Voted(_) | Cell::Raise | Cell::Raised
                );
                let request = matches!(cell, Cell::Asked | Cell::Raise);
                if on_its_way && (request || self.late_replies) {
                    actions.push(Act::Deliver(n, a));
                }
                if request && !self.late_replies {
                    actions.push(Act::Exchange(n, a));
                }
            }
            let over = |a: usize| matches!(state.attempts[a].phase, Phase::Over(_));
            if node.vote.is_some_and(over) {
                actions.push(Act::Free(n));
            }
            if crashed < self.crashes {
                actions.push(Act::Crash(n));
            }
        }
    }

    fn next_state(&self, last: &State, action: Act) -> Option<State> {
        let mut state = last.clone();
        match action {
            Act::Exchange(n, a) => {
                deliver(self, last, &mut state, (n, a))?;
                deliver(self, last, &mut state, (n, a))?;
            }
            Act::Deliver(n, a) => deliver(self, last, &mut state, (n, a))?,
            Act::Begin(a) => {
                state.attempts[a] = Attempt {
                    phase: Phase::Asking,
                    floor: last.largest_given(),
                };
                for node in &mut state.nodes {
                    node.cells[a] = Cell::Asked;
                }
            }
            Act::Decide(a) => {
                let token = last.counted(a).max()?;
                let agreed = last.counted(a).all(|minted| minted == token);
                state.attempts[a].phase = if agreed || self.raise == Raise::Nobodys {
                    Phase::Held(token)
                } else {
                    for node in &mut state.nodes {
                        node.cells[a] = Cell::Raise;
                    }
                    Phase::Raising(token)
                };
            }
            Act::End(a) => {
                state.attempts[a].phase = Phase::Over(last.attempts[a].phase.token());
            }
            Act::Free(n) => state.nodes[n].vote = None,
            Act::Crash(n) => {
                let node = &mut state.nodes[n];
                node.crashed = true;
                // All crashed nodes are alike.
                (node.counter, node.vote) = (0, None);
                node.cells.fill(Cell::Unasked);
            }
        }
        // Replies to an attempt that has its lock, or is over, change nothing.
        for (a, attempt) in state.attempts.iter().enumerate() {
            if matches!(attempt.phase, Phase::Held(_) | Phase::Over(_)) {
                for node in &mut state.nodes {
                    if !matches!(node.cells[a], Cell::Asked | Cell::Raise) {
                        node.cells[a] = Cell::Unasked;
                    }
                }
            }
        }
        state.nodes.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("tokens grow", |_, state: &State| {
                let attempts = state.attempts.iter();
                attempts.clone().all(|attempt| {
                    let token = attempt.phase.token();
                    token.is_none_or(|token| token > attempt.floor)
                })
            }),
            Property::always("tokens are unique", |_, state: &State| {
                let mut tokens: Vec<u8> = state
                    .attempts
                    .iter()
                    .filter_map(|attempt| attempt.phase.token())
                    .collect();
                tokens.sort_unstable();
                tokens.is_sorted_by(|a, b| a < b)
            }),
            Property::always("one holder", |_, state: &State| {
                let held = |attempt: &&Attempt| matches!(attempt.phase, Phase::Held(_));
                state.attempts.iter().filter(held).count() <= 1
            }),
            // The search would be worth nothing if the lock were never had twice.
            Property::sometimes("held one after the other", |_, state: &State| {
                let had = state.attempts.iter().filter(|a| a.phase.token().is_some());
                had.count() >= 2
            }),
        ]
    }
}

fn deliver(model: &Fencing, last: &State, state: &mut State, (n, a): (usize, usize)) -> Option<()> {
    let node = &mut state.nodes[n];
    node.cells[a] = match node.cells[a] {
        Cell::Asked if node.vote.is_none() => {
            node.vote = Some(a);
            node.counter += 1;
            Cell::Voted(node.counter)
        }
        // Refused, and counted.
        Cell::Asked => {
            node.counter += 1;
            Cell::Unasked
        }
        Cell::Voted(token) => Cell::Counted(token),
        // Refused.
        Cell::Raise if model.raise == Raise::Voters && node.vote != Some(a) => Cell::Unasked,
        Cell::Raise => {
            // Sent for the token that was decided, whatever has become of the attempt since.
            let token = match last.attempts[a].phase {
                Phase::Raising(token) | Phase::Held(token) => Some(token),
                Phase::Over(token) => token,
                _ => None,
            };
            node.counter = node.counter.max(token?);
            Cell::Raised
        }
        Cell::Raised => Cell::Confirmed,
        same => same,
    };
    let confirmed = |node: &&Node| node.cells[a] == Cell::Confirmed;
    if let Phase::Raising(token) = state.attempts[a].phase
        && state.nodes.iter().filter(confirmed).count() >= model.majority()
    {
        state.attempts[a].phase = Phase::Held(token);
    }
    Some(())
}

fn three(raise: Raise) -> Fencing {
    Fencing {
        counters: vec![0, 0, 2],
        attempts: 2,
        crashes: 1,
        late_replies: true,
        raise,
    }
}

fn three_with_a_crowd(raise: Raise) -> Fencing {
    Fencing {
        counters: vec![0, 0, 2],
        attempts: 3,
        crashes: 0,
        late_replies: false,
        raise,
    }
}

fn five(raise: Raise) -> Fencing {
    Fencing {
        counters: vec![0, 0, 0, 1, 2],
        attempts: 2,
        crashes: 0,
        late_replies: false,
        raise,
    }
}

fn holds(model: Fencing) {
    let checker = search(model, HasDiscoveries::AnyFailures);
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

fn is_violated(model: Fencing, promise: &'static str) {
    let wanted = HasDiscoveries::AnyOf([promise].into());
    let checker = search(model, wanted);
    println!("{} states", checker.unique_state_count());
    checker.assert_any_discovery(promise);
}

/// The shortest traces first, so many of them that whatever is broken below shows within a small part of it.
fn search(model: Fencing, until: HasDiscoveries) -> impl Checker<Fencing> {
    let checker = model.checker().finish_when(until);
    let checker = checker.threads(2).target_state_count(BOUND);
    checker.spawn_bfs().join()
}

#[test]
fn tokens_of_three_nodes_are_unique_and_grow() {
    holds(three(Raise::Voters));
}

#[test]
fn tokens_of_three_nodes_are_unique_and_grow_with_three_attempts_at_once() {
    holds(three_with_a_crowd(Raise::Voters));
}

#[test]
fn tokens_of_five_nodes_are_unique_and_grow() {
    holds(five(Raise::Voters));
}

#[test]
fn without_the_raise_a_token_of_three_nodes_goes_back() {
    is_violated(three(Raise::Nobodys), "tokens grow");
}

#[test]
fn without_the_raise_a_token_of_five_nodes_goes_back() {
    is_violated(five(Raise::Nobodys), "tokens grow");
}

/// A node whose vote is another's has told it a token already, and that is what it will count: its counter proves nothing.
#[test]
fn where_any_majority_raises_its_counters_a_token_is_given_twice() {
    let model = |raise| Fencing {
        counters: vec![0, 0, 1],
        ..three(raise)
    };
    is_violated(model(Raise::Anybodys), "tokens are unique");
    holds(model(Raise::Voters));
}
