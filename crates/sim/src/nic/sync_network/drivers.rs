//! Which groups have the chain, and what the drivers of the boards tell each other by the LAN.
//!
//! A wire does not say for which group it is driven. If a board waited for one group while another
//! board of that group arrives for a second one, the first would see a barrier complete that is
//! not. And boards that carry packets let no signals pass. So groups that disturb each other take
//! turns:
//!
//! * A group *holds* the chain, or it does not. Two groups for barriers disturb each other if they
//!   have a board in common, or if there are several microclusters, through which one *all
//!   complete* passes. A group for collectives disturbs a group for barriers that lacks one of its
//!   members: members of the second may wait for each other before they come to the collective.
//! * The barriers of a group that holds the chain go by the wires. Otherwise each driver tells the
//!   *arbiter*, the driver of node 0, of its program's arrival. The arbiter tells all members when
//!   all have arrived, and whether the next phase goes by the wires.
//! * The arbiter gives the chain to a group that is not disturbed when its phase is complete. One
//!   that is gets it at its second such phase, from the groups that disturb it. The drivers of
//!   those have their boards withdraw arrivals that are not complete, which then count as told.
//! * Collectives wait until they have the chain. They lose it only between two collectives.
//!
//! **No barrier is passed too early.** A1: All members of a group agree by which way a phase goes:
//! a phase is told to be by the wires before any member arrives at it, and when the chain is taken
//! from the group, all members go by messages. A2: A phase whose completion is decided on the wires
//! stays complete: nothing is withdrawn from it, and the chain stays with its group until the
//! boards have seen it. A3: Of two groups that disturb each other only one holds the chain, and
//! boards drive wires for the holder alone. A4: From the moment at which a group holds the chain,
//! the last board of each microcluster waits for the group's members there, and where there are
//! none for nobody.
//!
//! The messages cost what messages of the LAN cost, and a driver's time, apart from that of the
//! program. One thing costs nothing here: when the arbiter takes the chain from a group and gives
//! it to another one, their drivers hear of it at once, and write the group registers. Messages for
//! that would travel while the next phase of the group that gets the chain goes by messages, which
//! is why it gets the chain at the second one.

use super::boards::{Group, Later, Message, SyncNetwork};
use crate::host::Wanted;
use crate::mailbox::{self, DRIVERS};
use crate::nic::{Call, Cx, Nic, Pe};
use crate::op::Op;
use crate::packet::Node;

/// The node whose driver is the arbiter.
pub const ARBITER: Node = Node(0);

/// Bytes of a message: what it is, the group, and the sender.
const MESSAGE_BYTES: usize = 16;

impl SyncNetwork {
    /// A driver tells another one something.
    pub(super) fn tell(&mut self, cx: &mut Cx<'_>, from: Node, to: Node, message: Message) {
        if from == to {
            return self.listen(cx, to, message);
        }
        let number = self.messages.put(message);
        // Drivers call the NIC as agents do: nobody waits for the call, and no quiet for the
        // message.
        let op = Op { pe: Pe(from.0).agent(cx.pes()), number: 0 };
        let what = mailbox::message(to.0, DRIVERS, number, MESSAGE_BYTES);
        self.lan.begin(cx, Call { op, node: from, what });
    }

    /// A message has come in.
    pub(super) fn came(&mut self, cx: &mut Cx<'_>, node: Node, number: u32) {
        let message = self.messages.take(number);
        self.listen(cx, node, message);
    }

    /// The driver reads a message.
    fn listen(&mut self, cx: &mut Cx<'_>, node: Node, message: Message) {
        let busy = self.boards[node.index()].driver.take(cx.now(), self.is.handle);
        self.at(cx, busy.1, node, Later::Heard(message));
    }

    /// A driver has read a message.
    pub(super) fn heard(&mut self, cx: &mut Cx<'_>, node: Node, message: Message) {
        match message {
            Message::Arrived(group) => self.count_arrival(cx, group),
            // Where another member has wanted the chain before, the answer is on its way.
            Message::Want(group) if self.holders.contains(&group) => {}
            // Signals are under way: the arbiter looks again.
            Message::Want(group) if !self.hold(cx, group, true) => {
                self.listen(cx, ARBITER, message);
            }
            Message::Want(group) => {
                for &member in self.groups[group as usize - 1].members.clone().iter() {
                    self.tell(cx, ARBITER, Node(member), Message::Carry(group));
                }
            }
            Message::Complete(group, wired) => self.complete_by_message(cx, node, group, wired),
            Message::Carry(group) => self.may_carry(cx, node, group),
        }
    }

    /// A driver tells the arbiter that its program has arrived.
    pub(super) fn tell_arrival(&mut self, cx: &mut Cx<'_>, node: Node, group: u32) {
        self.tell(cx, node, ARBITER, Message::Arrived(group));
    }

    /// The arbiter has heard of an arrival. If it is the last one, tells the members.
    fn count_arrival(&mut self, cx: &mut Cx<'_>, number: u32) {
        let group = &mut self.groups[number as usize - 1];
        group.told += 1;
        if group.told < group.members.len() {
            return;
        }
        group.told = 0;
        let (members, asked) = (group.members.clone(), group.asked);
        let wired = self.hold(cx, number, asked);
        self.groups[number as usize - 1].asked = !wired;
        for &member in members.iter() {
            self.tell(cx, ARBITER, Node(member), Message::Complete(number, wired));
        }
    }

    /// A member hears that its group's phase is complete.
    fn complete_by_message(&mut self, cx: &mut Cx<'_>, node: Node, group: u32, wired: bool) {
        // The chain may have been taken from the group while the message was on its way.
        let wired = wired && self.holders.contains(&group);
        let board = &mut self.boards[node.index()];
        let barrier = board.barriers.get_mut(&group).expect("a member with a phase under way");
        (barrier.complete, barrier.wired) = (barrier.complete + 1, wired);
        self.show(cx, node);
    }

    /// A member hears that its board may carry packets, and begins the collective that waits.
    fn may_carry(&mut self, cx: &mut Cx<'_>, node: Node, group: u32) {
        let holds = self.holders.contains(&group);
        let board = &mut self.boards[node.index()];
        let began = std::mem::replace(&mut board.may_carry, holds);
        if let Some(part) = board.part.as_ref().filter(|_| holds && !began) {
            let op = part.op;
            self.write_part(cx, node, op);
        }
    }

    /// Gives the chain to a group, if no other group is disturbed, or if it `takes` the chain from
    /// those. Returns whether the group holds the chain.
    pub(super) fn hold(&mut self, cx: &mut Cx<'_>, number: u32, takes: bool) -> bool {
        let disturbed: Vec<u32> = self
            .holders
            .iter()
            .copied()
            .filter(|&holder| holder != number && self.disturb(holder, number))
            .collect();
        if disturbed.iter().all(|&holder| takes && !self.is_under_way(holder)) {
            // First, because an arrival that is withdrawn may complete a phase, whose group then
            // looks for the chain.
            self.holders.insert(number);
            disturbed.into_iter().for_each(|holder| self.take_from(cx, holder));
            if self.holders.contains(&number) {
                self.name_groups(number);
            }
        }
        self.holders.contains(&number)
    }

    /// Whether two groups disturb each other.
    fn disturb(&self, one: u32, other: u32) -> bool {
        let [one, other] = [one, other].map(|number| &self.groups[number as usize - 1]);
        let mut named = vec![false; self.boards.len()];
        one.members.iter().for_each(|&member| named[member as usize] = true);
        let common = other.members.iter().filter(|&&member| named[member as usize]).count();
        match (one.wanted, other.wanted) {
            (Wanted::Barrier, Wanted::Barrier) => self.wires.is_divided() || common > 0,
            (Wanted::Collectives, Wanted::Barrier) => common < one.members.len(),
            (Wanted::Barrier, Wanted::Collectives) => common < other.members.len(),
            _ => false,
        }
    }

    /// Whether the signals of a complete barrier of a group, or its collective, are under way, at
    /// any member.
    fn is_under_way(&self, number: u32) -> bool {
        let group = &self.groups[number as usize - 1];
        let boards = || group.members.iter().map(|&member| (member, &self.boards[member as usize]));
        if group.wanted == Wanted::Barrier {
            return boards().any(|(at, _)| self.wires.is_completing(at as usize));
        }
        let mut begun = boards().map(|(_, board)| board.begun);
        let first = begun.next();
        begun.any(|begun| Some(begun) != first)
            || boards().any(|(at, board)| board.part.is_some() || !self.chain.is_empty(at))
    }

    /// Takes the chain from a group.
    fn take_from(&mut self, cx: &mut Cx<'_>, number: u32) {
        self.holders.remove(&number);
        let Group { members, wanted, .. } = &self.groups[number as usize - 1];
        let (members, wanted) = (members.clone(), *wanted);
        for &member in members.iter() {
            let node = Node(member);
            if wanted == Wanted::Collectives {
                self.boards[node.index()].may_carry = false;
                if self.wires.carries_packets(node.index()) {
                    self.switch_to_wires(cx, node);
                }
            } else {
                self.wires.set_group(node.index(), 0);
                self.withdraw(cx, node, number);
            }
        }
    }

    /// A driver makes its program's barriers go by messages, with the arrival that is not complete.
    fn withdraw(&mut self, cx: &mut Cx<'_>, node: Node, number: u32) {
        let board = &mut self.boards[node.index()];
        let Some(barrier) = board.barriers.get_mut(&number) else { return };
        barrier.wired = false;
        if board.flag_of == Some(number) && self.wires.withdraw(node.index()) {
            (board.flag_of, board.arrived) = (None, None);
            self.count_arrival(cx, number);
        }
    }
}
