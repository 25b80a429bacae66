//! One order of deaths for all nodes of a job that has no launcher of memonet's. A state machine:
//! nothing here reads a clock, sends or receives.
//!
//! *Contract.* O1. If two agents each have a place for some death, and neither has lost the node of
//! the other, then they have the same deaths in the same places, as far as both orders go. So waits
//! on their nodes name the same death (`wait/terms.rs` of the core). O2. Once nothing more fails,
//! each agent knows of all deaths that it was told, and of all PEs of each node that it has lost,
//! their place, or that they have left in order.
//!
//! # How it works
//!
//! * S1. The agent of the lowest node *leads*. All agents tell all others what becomes of their PEs
//!   and which nodes they have lost. The leader puts deaths, and the losses of nodes, in its order,
//!   and tells all others. They take over what it says, and publish deaths in these places.
//! * S2. A node is *gone* for an agent when it has lost it or when it has finished. The least node
//!   that is not gone is the one that the agent *follows*. When that changes, it sends the new one
//!   its whole order ([`AmongAgents::Follow`]). It takes nothing from any other one. Nobody comes
//!   back, so the node that an agent follows only becomes a higher one.
//! * S3. An agent that follows itself begins to lead once each other node is gone for it or follows
//!   it. It takes the longest of their orders. Then it adds *one* entry that has all nodes that are
//!   lost for it, and all deaths that were told and not ordered. A follower whose order is no
//!   beginning of the longest one is lost with that entry. What an entry says of a lost node it
//!   says of each PE there: dead, or left in order.
//! * S4. Who takes such an entry over closes the stream to the node. So that node loses it, too.
//! * S5. An agent that loses a node closes its stream to it, beats no more for it, and tells all
//!   others. For the leader, the accused is lost then: two hosts that do not reach each other
//!   cannot both be in one job. Accusations by nodes that are gone count for nothing.
//! * S6. An agent may lose a node whose last words have reached the leader: it has finished. Its
//!   deaths are in the order then, and the leader tells who accuses it of those that have left.
//!
//! # Proof
//!
//! *O1.* Let the agents i and j last have taken entries from the leaders a and b. If a = b, both
//! orders are beginnings of that leader's. Otherwise let a < b. When b began to lead, (1) i was
//! lost for b. Then j, which has taken what b said first, has lost i: that is one message (S3), and
//! an order of b's own begins in the same way. Or (2) i followed b by then. Since then i has taken
//! nothing from a (S2), and nothing from b. So its order is what it has sent to b: a beginning of
//! b's, or b has lost it in its first entry, as in (1). Or (3) i had finished by then, and its PEs
//! had ended. *The limit* is here: what only nodes have seen that ended before their leader did is
//! not known to the next one.
//!
//! *O2.* A leader orders what it is told, at once; a new one has been told the same by all, and
//! orders the rest with its first entry. A loss is told to all, too, and is ordered unless the node
//! has finished (S6). So what is to be shown is that each agent that follows itself begins to lead.
//! It waits for a node j that is not gone for it and follows a lower one, x, which is gone for it.
//! If x has finished, j will hear that. If x is lost and runs, then x loses the waiting agent (S5).
//! If x leads, that comes into its order, and j loses the waiting agent, too (S4). If x is dead, j
//! loses it. If x waits in turn, then for a node that follows a lower one than x, and so on: the
//! last of them waits for nobody.
//!
//! *How long it takes.* While one agent leads, a death takes one message to it, and one back. An
//! agent publishes a death on its own node in the last place if it has waited for 250 ms
//! ([`memonet_control::deaths`]), until it gets its true one. A lost leader is noticed by all
//! others within 2.5 s, and its PEs are known to be dead two messages later. If another node is
//! lost meanwhile, that takes as long once more.

use memonet_control::messages::{AmongAgents, Entry};
use memonet_core::unstable::launch::State;
use memonet_core::{Cause, Lost};
use std::collections::VecDeque;

/// What an agent has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell another agent, or all others.
    Tell(Option<u32>, AmongAgents),
    /// Publish the death of a PE, which is the `nth` of all, counted from 1.
    Publish { pe: u32, cause: Cause, nth: u32 },
    /// Publish that a PE has left in order.
    Left(u32),
    /// A node is lost because another agent says so: close the stream to it.
    Close(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    Lost(State),
    Finished,
}

/// A node, as an agent knows it.
#[derive(Debug, Default)]
struct Node {
    gone: Option<Gone>,
    /// The order that it had when it began to follow this agent.
    follows: Option<Vec<Entry>>,
}

/// An agent's part in the order of deaths.
pub struct Order {
    /// The agent's own node.
    own: u32,
    node_of: Vec<u32>,
    nodes: Vec<Node>,
    order: Vec<Entry>,
    /// Deaths in the order.
    deaths: u32,
    /// PEs whose death is in the order.
    is_ordered: Vec<bool>,
    /// PEs that have left in order.
    is_done: Vec<bool>,
    /// Deaths that are not in the order.
    told: Vec<(u32, State)>,
    /// Accuser, accused, and the state of its PEs.
    accusations: VecDeque<(u32, u32, State)>,
    /// The node that this agent follows.
    leader: u32,
    leads: bool,
    effects: Vec<Effect>,
}

impl Order {
    /// The part of the agent of the node `own`.
    pub fn new(own: u32, node_of: Vec<u32>) -> Self {
        let count = node_of.iter().max().map_or(0, |&last| last + 1);
        Order {
            own,
            nodes: (0..count).map(|_| Node::default()).collect(),
            order: Vec::new(),
            deaths: 0,
            is_ordered: vec![false; node_of.len()],
            is_done: vec![false; node_of.len()],
            told: Vec::new(),
            accusations: VecDeque::new(),
            leader: 0,
            // All orders are empty: nobody needs to say that it follows.
            leads: own == 0,
            effects: Vec::new(),
            node_of,
        }
    }

    /// What is to be done, in this order.
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub fn is_lost(&self, node: u32) -> bool {
        matches!(self.nodes[node as usize].gone, Some(Gone::Lost(_)))
    }

    /// What has become of a PE, of this node or of another one whose agent says so.
    pub fn state(&mut self, pe: u32, state: State) {
        let at = pe as usize;
        match state {
            State::Done => self.is_done[at] = true,
            State::Dead(_) if !self.is_ordered[at] => {
                if self.leads {
                    let pes = vec![(pe, state.to_word())];
                    self.add(Entry { nodes: vec![], pes });
                } else if self.told.iter().all(|&(other, _)| other != pe) {
                    self.told.push((pe, state));
                }
            }
            _ => {}
        }
    }

    /// This agent has lost a node.
    pub fn lost(&mut self, node: u32, how: Lost) {
        if self.nodes[node as usize].gone.is_none() {
            let state = State::Dead(Cause::Host(how));
            self.tell(None, AmongAgents::Lost { node, state: state.to_word() });
            self.lose(node, state);
        }
    }

    /// What the agent of the node `from` has said.
    pub fn hear(&mut self, from: u32, message: AmongAgents) {
        match message {
            AmongAgents::State { pe, state } => self.state(pe, State::from_word(state)),
            AmongAgents::Lost { node, state } => self.accuse(from, node, State::from_word(state)),
            AmongAgents::Follow { order } => self.follow(from, order),
            AmongAgents::Order { entries } => self.go_on(from, entries),
            AmongAgents::Finished {} => self.finished(from),
            AmongAgents::Exit { .. } | AmongAgents::Unreached { .. } => {}
        }
    }

    /// A node has finished.
    fn finished(&mut self, node: u32) {
        self.nodes[node as usize].gone.get_or_insert(Gone::Finished);
        self.advance();
    }

    /// The agent of node `from` has lost a node.
    fn accuse(&mut self, from: u32, node: u32, state: State) {
        self.accusations.push_back((from, node, state));
        if self.leader == self.own {
            self.judge();
        }
    }

    /// The agent of node `from` follows this one, with this order so far.
    fn follow(&mut self, from: u32, order: Vec<Entry>) {
        self.nodes[from as usize].follows = Some(order);
        self.try_to_lead();
    }

    /// The agent of node `from` goes on with the order.
    fn go_on(&mut self, from: u32, entries: Vec<Entry>) {
        // S2.
        if from == self.leader {
            entries.into_iter().for_each(|entry| self.take_over(entry));
            self.advance();
        }
    }

    fn tell(&mut self, to: Option<u32>, message: AmongAgents) {
        self.effects.push(Effect::Tell(to, message));
    }

    fn is_gone(&self, node: u32) -> bool {
        self.nodes[node as usize].gone.is_some()
    }

    fn others(&self) -> Vec<u32> {
        let all = 0..self.nodes.len() as u32;
        all.filter(|&node| node != self.own && !self.is_gone(node)).collect()
    }

    /// Takes a node for lost, which was not gone.
    fn lose(&mut self, node: u32, state: State) {
        self.nodes[node as usize].gone = Some(Gone::Lost(state));
        if self.leads {
            let entry = self.missing();
            self.add(entry);
        }
        self.advance();
    }

    /// Follows the least node that is not gone.
    fn advance(&mut self) {
        let all = 0..self.nodes.len() as u32;
        let least = all.into_iter().find(|&node| !self.is_gone(node)).unwrap_or(self.own);
        if std::mem::replace(&mut self.leader, least) != least && least != self.own {
            let order = self.order.clone();
            self.tell(Some(least), AmongAgents::Follow { order });
        }
        if least == self.own {
            self.judge();
            self.try_to_lead();
        }
    }

    /// Begins to lead, if it can (S3).
    fn try_to_lead(&mut self) {
        let follows = |node: &u32| self.nodes[*node as usize].follows.is_some();
        if self.leads || self.leader != self.own || !self.others().iter().all(follows) {
            return;
        }
        let mut longest = self.order.clone();
        for node in self.others() {
            let order = self.nodes[node as usize].follows.as_deref().unwrap_or_default();
            let is_lost = order.iter().any(|entry| entry.nodes.contains(&self.own));
            if order.starts_with(&longest) && !is_lost {
                longest = order.to_vec();
            } else if is_lost || !longest.starts_with(order) {
                self.close(node, State::Dead(Cause::Host(Lost::Closed)));
            }
        }
        let rest = longest.split_off(self.order.len());
        rest.into_iter().for_each(|entry| self.take_over(entry));
        let first = self.missing();
        if first != Entry::default() {
            self.take_over(first);
        }
        self.leads = true;
        for node in self.others() {
            let known = self.nodes[node as usize].follows.as_ref().map_or(0, Vec::len);
            let entries = self.order[known..].to_vec();
            if !entries.is_empty() {
                self.tell(Some(node), AmongAgents::Order { entries });
            }
        }
    }

    /// All that is to be in the order, and is not.
    fn missing(&self) -> Entry {
        let mut entry = Entry::default();
        entry.pes.extend(self.told.iter().map(|&(pe, state)| (pe, state.to_word())));
        for (node, Node { gone, .. }) in (0..).zip(&self.nodes) {
            let Some(Gone::Lost(state)) = gone else { continue };
            if self.order.iter().any(|entry| entry.nodes.contains(&node)) {
                continue;
            }
            entry.nodes.push(node);
            for (pe, _) in (0..).zip(&self.node_of).filter(|&(_, &of)| of == node) {
                let at = pe as usize;
                let is_told = self.told.iter().any(|&(other, _)| other == pe);
                if !self.is_ordered[at] && !is_told {
                    let state = if self.is_done[at] { State::Done } else { *state };
                    entry.pes.push((pe, state.to_word()));
                }
            }
        }
        entry
    }

    /// The leader continues the order.
    fn add(&mut self, entry: Entry) {
        self.take_over(entry.clone());
        for node in self.others() {
            self.tell(Some(node), AmongAgents::Order { entries: vec![entry.clone()] });
        }
    }

    fn take_over(&mut self, entry: Entry) {
        for &(pe, word) in &entry.pes {
            let State::Dead(cause) = State::from_word(word) else {
                self.is_done[pe as usize] = true;
                self.effects.push(Effect::Left(pe));
                continue;
            };
            self.deaths += 1;
            self.is_ordered[pe as usize] = true;
            self.told.retain(|&(other, _)| other != pe);
            self.effects.push(Effect::Publish { pe, cause, nth: self.deaths });
        }
        for &node in &entry.nodes {
            if !self.is_lost(node) {
                self.close(node, State::Dead(Cause::Host(Lost::Closed)));
            }
        }
        self.order.push(entry);
    }

    /// S4.
    fn close(&mut self, node: u32, state: State) {
        self.nodes[node as usize].gone = Some(Gone::Lost(state));
        self.effects.push(Effect::Close(node));
    }

    /// Takes the accused for lost (S5).
    fn judge(&mut self) {
        while let Some((accuser, accused, state)) = self.accusations.pop_front() {
            // Who has lost this agent says nothing to it any more.
            if self.is_gone(accuser) || accused == self.own {
                continue;
            }
            match self.nodes[accused as usize].gone {
                None => {
                    self.close(accused, state);
                    self.lose(accused, state);
                }
                Some(Gone::Finished) => self.vouch(accused, accuser),
                Some(Gone::Lost(_)) => {}
            }
        }
    }

    /// Tells another agent which PEs of a node have left in order (S6).
    fn vouch(&mut self, node: u32, to: u32) {
        for pe in 0..self.node_of.len() {
            if self.node_of[pe] == node && self.is_done[pe] {
                let (pe, state) = (pe as u32, State::Done.to_word());
                self.tell(Some(to), AmongAgents::State { pe, state });
            }
        }
    }
}

#[cfg(test)]
mod tests;
