//! The order among agents in a simulated network: streams that break in one direction or both,
//! agents that end at any moment, nodes that finish, messages that take their time.

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Said(AmongAgents),
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Life {
    Runs,
    Finished,
    Crashed,
}

/// PEs of each node.
const PES: usize = 2;

struct World {
    agents: Vec<Order>,
    lives: Vec<Life>,
    /// By sender and receiver.
    streams: Vec<Vec<VecDeque<Piece>>>,
    /// Nothing passes from the first to the second any more.
    is_broken: Vec<Vec<bool>>,
    /// The first holds its end of the stream to the second.
    is_open: Vec<Vec<bool>>,
    is_ended: Vec<bool>,
}

impl World {
    fn new(nodes: usize) -> World {
        let node_of: Vec<u32> = (0..nodes * PES).map(|pe| (pe % nodes) as u32).collect();
        let all = |of| vec![vec![of; nodes]; nodes];
        World {
            agents: (0..nodes).map(|node| Order::new(node as u32, node_of.clone())).collect(),
            lives: vec![Life::Runs; nodes],
            streams: vec![vec![VecDeque::new(); nodes]; nodes],
            is_broken: all(false),
            is_open: all(true),
            is_ended: vec![false; nodes * PES],
        }
    }

    fn count(&self) -> usize {
        self.agents.len()
    }

    fn send(&mut self, from: usize, to: usize, piece: Piece) {
        if from != to && !self.is_broken[from][to] {
            self.streams[from][to].push_back(piece);
        }
    }

    fn close(&mut self, at: usize, to: usize) {
        if std::mem::replace(&mut self.is_open[at][to], false) {
            self.send(at, to, Piece::Closed);
        }
    }

    fn act(&mut self, at: usize) {
        for effect in self.agents[at].take() {
            match effect {
                Effect::Tell(to, message) => {
                    for node in 0..self.count() {
                        if to.is_none_or(|to| to as usize == node) && self.is_open[at][node] {
                            self.send(at, node, Piece::Said(message.clone()));
                        }
                    }
                }
                Effect::Publish { .. } | Effect::Left(_) => {}
                Effect::Close(node) => self.close(at, node as usize),
            }
        }
    }

    fn lose(&mut self, at: usize, node: usize, how: Lost) {
        self.close(at, node);
        self.agents[at].lost(node as u32, how);
        self.act(at);
    }

    /// An agent hears the next piece of a stream.
    fn deliver(&mut self, from: usize, to: usize) {
        let Some(piece) = self.streams[from][to].pop_front() else { return };
        if !self.is_open[to][from] || self.lives[to] != Life::Runs {
            return;
        }
        let agent = &mut self.agents[to];
        match piece {
            Piece::Closed if agent.nodes[from].gone.is_some() => {}
            Piece::Closed => return self.lose(to, from, Lost::Closed),
            Piece::Said(message) => agent.hear(from as u32, message),
        }
        self.act(to);
    }

    fn tell_state(&mut self, pe: usize, state: State) {
        let node = pe % self.count();
        self.agents[node].state(pe as u32, state);
        let message = AmongAgents::State { pe: pe as u32, state: state.to_word() };
        (0..self.count())
            .filter(|&other| self.is_open[node][other])
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|other| self.send(node, other, Piece::Said(message.clone())));
        self.is_ended[pe] = true;
        self.act(node);
    }

    fn end_pe(&mut self, pe: usize, random: &mut Random) {
        let died = State::Dead(Cause::Signal(1 + random.below(60) as i32));
        let state = if random.below(4) == 0 { State::Done } else { died };
        if !self.is_ended[pe] && self.lives[pe % self.count()] == Life::Runs {
            self.tell_state(pe, state);
        }
    }

    fn end_node(&mut self, node: usize, random: &mut Random) {
        if random.below(2) == 0 {
            // Its last words may get lost.
            for other in 0..self.count() {
                self.break_stream(node, other, random);
                self.break_stream(other, node, random);
            }
            self.lives[node] = Life::Crashed;
            return;
        }
        (0..self.is_ended.len())
            .filter(|pe| pe % self.count() == node)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|pe| self.end_pe(pe, random));
        for other in 0..self.count() {
            if self.is_open[node][other] {
                self.send(node, other, Piece::Said(AmongAgents::Finished {}));
                self.close(node, other);
            }
        }
        self.lives[node] = Life::Finished;
    }

    fn break_stream(&mut self, from: usize, to: usize, random: &mut Random) {
        let waiting = &mut self.streams[from][to];
        let arrives = random.below(waiting.len() + 1);
        waiting.truncate(arrives);
        self.is_broken[from][to] = true;
    }

    /// The receiver of a broken stream notices the silence.
    fn notice(&mut self, from: usize, at: usize) -> bool {
        let knows = self.agents[at].nodes[from].gone.is_some();
        let notices = self.is_broken[from][at]
            && self.streams[from][at].is_empty()
            && self.lives[at] == Life::Runs
            && self.is_open[at][from]
            && !knows
            && from != at;
        if notices {
            self.lose(at, from, Lost::Silent);
        }
        notices
    }

    fn step(&mut self, random: &mut Random, failures: bool) {
        let [a, b] = [(); 2].map(|()| random.below(self.count()));
        match random.below(if failures { 40 } else { 20 }) {
            0..16 => self.deliver(a, b),
            16..20 => drop(self.notice(a, b)),
            20..30 => self.end_pe(random.below(self.is_ended.len()), random),
            30..32 => self.break_stream(a, b, random),
            32 => {
                self.break_stream(a, b, random);
                self.break_stream(b, a, random);
            }
            33 if self.lives[a] == Life::Runs => self.end_node(a, random),
            _ => {}
        }
    }

    fn is_quiet(&self) -> bool {
        let pairs = (0..self.count()).flat_map(|a| (0..self.count()).map(move |b| (a, b)));
        pairs.into_iter().all(|(a, b)| {
            let unheard = !self.streams[a][b].is_empty();
            let unnoticed = self.is_broken[a][b]
                && self.lives[b] == Life::Runs
                && self.is_open[b][a]
                && self.agents[b].nodes[a].gone.is_none()
                && a != b;
            !unheard && !unnoticed
        })
    }

    fn lost(&self, at: usize) -> Vec<usize> {
        let all = self.agents[at].order.iter().flat_map(|entry| &entry.nodes);
        all.map(|&node| node as usize).collect()
    }

    /// O1.
    fn orders_agree(&self) {
        for (a, b) in (0..self.count()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let is_apart = self.lost(a).contains(&b) || self.lost(b).contains(&a);
            let has_finished = [a, b].iter().any(|&node| self.lives[node] == Life::Finished);
            let [one, other] = [a, b].map(|node| &self.agents[node].order);
            assert!(
                is_apart || has_finished || one.starts_with(other) || other.starts_with(one),
                "{a}: {one:?}, {b}: {other:?}"
            );
        }
    }

    /// O2.
    fn all_is_known(&self) {
        for (at, agent) in self.agents.iter().enumerate() {
            if self.lives[at] != Life::Runs {
                continue;
            }
            assert_eq!((&*agent.told, agent.effects.len()), (&[][..], 0), "{at}");
            for other in (0..self.count()).filter(|&other| other != at) {
                let is_lost = agent.is_lost(other as u32);
                // The last words of one that has finished may have reached the leader alone.
                let has_finished = self.lives[other] == Life::Finished;
                let is_ordered = self.lost(at).contains(&other);
                assert!(is_lost == is_ordered || has_finished, "{at} of {other}");
                assert!(is_lost || self.lives[other] != Life::Crashed, "{at} of {other}");
                if self.lives[other] == Life::Runs {
                    assert_eq!(is_lost, self.lost(other).contains(&at), "{at}, {other}");
                }
                let pes = (other..self.is_ended.len()).step_by(self.count());
                for pe in pes.filter(|_| is_lost) {
                    assert!(agent.is_ordered[pe] || agent.is_done[pe], "{at} of PE {pe}");
                }
            }
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    random.below(2);
    let mut world = World::new(2 + random.below(4));
    for _ in 0..random.below(300) {
        world.step(&mut random, true);
        world.orders_agree();
    }
    let mut steps = 0;
    while !world.is_quiet() {
        world.step(&mut random, false);
        world.orders_agree();
        steps += 1;
        assert!(steps < 100_000, "it does not come to rest");
    }
    world.all_is_known();
}

#[test]
fn orders_agree_whatever_fails() {
    let seeds = std::env::var("MEMONET_TEST_SEEDS").map_or(1_000, |text| text.parse().unwrap());
    for seed in 0..seeds {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// What is lost with the leader is found by the next one.
#[test]
fn a_death_that_the_leader_has_told_one_agent_keeps_its_place() {
    let mut world = World::new(4);
    world.tell_state(3, State::Dead(Cause::Signal(3)));
    world.deliver(3, 0);
    world.tell_state(2, State::Dead(Cause::Signal(2)));
    world.deliver(0, 2);
    // The leader ends before anybody else has heard of it. Agents 1 and 2 have heard of PE 2 first.
    world.crash(0);
    (1..4).for_each(|other| world.lose(other, 0, Lost::Closed));
    while !world.is_quiet() {
        (0..16).for_each(|pair| world.deliver(pair / 4, pair % 4));
    }
    for agent in &world.agents[1..] {
        let pes = agent.order.iter().flat_map(|entry| &entry.pes).map(|&(pe, _)| pe);
        assert_eq!(pes.collect::<Vec<_>>(), [3, 2, 0, 4]);
    }
}

impl World {
    /// One agent hears all that another one has said.
    fn deliver_all(&mut self, from: usize, to: usize) {
        while !self.streams[from][to].is_empty() {
            self.deliver(from, to);
        }
    }

    /// An agent ends, and what it has said and nobody has heard is lost.
    fn crash(&mut self, node: usize) {
        self.lives[node] = Life::Crashed;
        for other in 0..self.count() {
            self.streams[node][other].clear();
            (self.is_broken[node][other], self.is_broken[other][node]) = (true, true);
        }
    }
}

/// Two agents follow a third one with orders that contradict each other: they are not in one job.
#[test]
fn who_contradicts_the_order_is_lost() {
    let mut world = World::new(5);
    // Only agent 3 hears from the first leader that agent 1 is lost.
    world.lose(0, 1, Lost::Silent);
    world.deliver_all(0, 3);
    world.crash(0);
    world.deliver_all(3, 1);
    (1..5).for_each(|agent| world.lose(agent, 0, Lost::Closed));
    // Only agent 4 hears from the second one that agents 0 and 3 are.
    [2, 4].into_iter().for_each(|agent| world.deliver_all(agent, 1));
    world.deliver_all(1, 4);
    assert_eq!([3, 4].map(|agent| world.lost(agent)), [vec![1], vec![0, 3]]);
    world.crash(1);
    [2, 4].into_iter().for_each(|agent| world.lose(agent, 1, Lost::Closed));
    [3, 4].into_iter().for_each(|agent| world.deliver_all(agent, 2));
    while !world.is_quiet() {
        (0..25).for_each(|pair| world.deliver(pair / 5, pair % 5));
        world.orders_agree();
    }
    world.all_is_known();
    assert_eq!(world.lost(2), world.lost(3));
    assert!(world.lost(2).contains(&4), "{:?}", world.lost(2));
}

/// Whom the leader takes for lost is so for all, and learns that it is.
#[test]
fn a_host_that_reaches_all_but_the_leader_is_lost() {
    let mut world = World::new(3);
    world.is_broken[0][1] = true;
    world.is_broken[1][0] = true;
    world.lose(1, 0, Lost::Silent);
    while !world.is_quiet() {
        (0..9).for_each(|pair| world.deliver(pair / 3, pair % 3));
        world.notice(1, 0);
    }
    world.all_is_known();
    assert_eq!([0, 1, 2].map(|node| world.lost(node)), [vec![1], vec![0, 2], vec![1]]);
}
