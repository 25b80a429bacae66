//! Collectives of members on several nodes: inside a node by memory, between nodes by one member of
//! each node, its **head**. The head is the node's first member; in the node of a root it is the
//! root.
//!
//! | collective | inside a node | between nodes | network steps among H nodes |
//! |---|---|---|---|
//! | broadcast | members copy from their head | a binomial tree: the data cross to each node once | ceil(log2 H) |
//! | gather and reduce, small | members put their elements into their head's eager buffer | the same tree, upwards | ceil(log2 H) |
//! | all-gather; small: all-reduce, scans, too | as above, or into their head's destination; then members read there | dissemination: in round r, a head sends the elements of up to 2^r nodes to the head 2^r nodes further on | ceil(log2 H) |
//! | all-reduce, larger | the first members of a node, as many as the smallest node has, are *lanes*: each combines a part of the elements | a chain: each lane takes the combination of the nodes before from its counterpart there, adds its node's elements, and passes it on; the last returns the total to all | H |
//!
//! The others go as they do without nodes. In scatter and all-to-all, each byte is needed at one
//! member only, and so crosses once already. So it is with larger gathers. A larger reduction to
//! one member has no room at the other heads: only the root's destination may be written.
//!
//! **Bits.** A small reduction brings all elements to each node, and each member combines them in
//! the order of ranks. A chain combines in this order, too, as its nodes hold consecutive ranks: so
//! it is chosen only then. Both give the bits that one node would give. A sum of the nodes' sums
//! would not.
//!
//! **Measured**, without nodes and with them: four PEs on two nodes of two, `tcp` between these, on
//! two busy CPUs of one machine, medians of three runs in turn. All-reduce of 8 bytes, 512 bytes, 4
//! KiB and 64 KiB: 0.74, 2.0, 3.4 and 4.6 ms; 0.17, 0.32, 0.34 and 1.1 ms. Broadcast with a
//! barrier, 8 bytes, 1 KiB and 64 KiB: 0.66, 0.74 and 1.1 ms; 0.29, 0.23 and 0.77 ms. All-gather of
//! 8 bytes and 4 KiB: 0.81 and 1.4 ms; 0.16 and 0.46 ms.
//!
//! **Contract.** These collectives are made of [steps](crate::team::steps), and have their
//! properties. All members choose them alike, as they ask the job's record alone. Members know the
//! nodes, the heads and all partners from the record: nothing is negotiated.
//!
//! **Proof.**
//!
//! * N1: *A line has one sender in each step.* A member's lines are numbered by the sender's place
//!   in the node, and behind these by the messages that come from other nodes. Different senders
//!   use a line in different steps, which the proof of steps allows: it speaks of the memory alone.
//! * N2: *A step that is declared a meeting is one.* A head goes on to other nodes only when it has
//!   heard of all members of its node. By dissemination, each head then hears, at second hand, of
//!   each other; by the chain, the last node does, and tells the others. A member ends the step
//!   when its head has told it of that. So nobody ends it before all have begun it, having finished
//!   every earlier step. In the chain, members tell the lanes in the step before, which therefore
//!   belongs to the meeting.
//! * N3: *Memory is written and read in time.* Elements come to a head before the message that
//!   tells of them: near by the order of stores, far by a put with signal, with a fence between
//!   several puts. A destination is written once its owner is in the call, unless it is ready
//!   before: near members wait for their head, and a head or lane tells the one that puts into its
//!   memory that it may. A destination or source that near members read is kept until they have
//!   notified its owner.
//! * N4: *In place.* A lane puts its own elements aside before it lets the lane before write over
//!   them. No other member reads or writes this part of its memory before the lane tells of the
//!   total.
//! * N5: *Waits end.* What a member waits for may depend on any other, through heads that relay. A
//!   member that has died ends all waits of the step. One that has left in order ends them unless
//!   it had published that it had done its part of the step. A head that gives up does so because
//!   of one of these, which the members that depend on it see, too.
//! * N6: *No garbage travels.* A member that has read near memory asks, before it tells anybody,
//!   whether somebody has died: D1 of the [module's head](super). It sees the deaths that the
//!   memory's owner has seen, as both are on one node.

use super::operator::{Elements, Goal};
use super::steps::{Step, nothing};
use super::{BLOCK_BYTES, Broadcast, Destinations, EAGER_BYTES, Scratch, SymmetricRange};
use crate::base::error::Quick;
use crate::base::layout::MAX_LINED;
use crate::base::shm;
use crate::team::Team;
use std::ops::Range;

/// The most bytes of a lane's part that are combined at once.
const MOST_PART_BYTES: usize = 64 << 10;

/// A team's members by node, as all know them alike; in the order of ranks, and nodes in the order
/// of their first members.
pub(super) struct Nodes {
    members: Vec<Vec<usize>>,
    /// This member's node, and its place there.
    node: usize,
    place: usize,
}

/// Facts about a team's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) nodes: usize,
    /// Whether each node has consecutive ranks.
    pub(super) consecutive: bool,
}

impl Nodes {
    fn of(team: &Team) -> Self {
        let members = team.pe().record().by_node(team.members());
        let at = |ranks: &Vec<usize>| ranks.binary_search(&team.rank()).ok();
        let mut places = members.iter().map(at).enumerate();
        let (node, place) = places
            .find_map(|(node, place)| Some((node, place?)))
            .expect("each member is on a node");
        Nodes { members, node, place }
    }

    /// The shape, if going by nodes can save messages and a member has lines enough for it.
    fn shape(&self, team: &Team) -> Option<Shape> {
        let nodes = self.members.len();
        let most = self.members.iter().map(Vec::len).max().unwrap_or_default();
        let lines = most + (2 * rounds(nodes)).max(CHAIN_LINES);
        let serves = (2..team.len()).contains(&nodes) && lines <= MAX_LINED;
        let is_run = |ranks: &Vec<usize>| ranks[ranks.len() - 1] - ranks[0] + 1 == ranks.len();
        serves.then(|| Shape { nodes, consecutive: self.members.iter().all(is_run) })
    }

    /// The line of a member of a node for a message from another node.
    fn far_line(&self, node: usize, message: usize) -> usize {
        self.members[node].len() + message
    }

    /// Members of this PE's node.
    fn here(&self) -> &[usize] {
        &self.members[self.node]
    }

    /// The ranks of the members of `count` nodes up to and with `last`, in runs.
    fn runs(&self, last: usize, count: usize) -> Vec<Range<usize>> {
        let all = self.members.len();
        let nodes = (0..count).map(|back| &self.members[(last + all - back) % all]);
        let mut ranks: Vec<usize> = nodes.flatten().copied().collect();
        ranks.sort_unstable();
        let mut runs: Vec<Range<usize>> = Vec::new();
        for rank in ranks {
            match runs.last_mut() {
                Some(run) if run.end == rank => run.end += 1,
                _ => runs.push(rank..rank + 1),
            }
        }
        runs
    }
}

/// Rounds in which one of `nodes` hears of all.
fn rounds(nodes: usize) -> usize {
    nodes.next_power_of_two().trailing_zeros() as usize
}

/// A binomial tree of the nodes. Numbers count from the root's node on.
struct Tree<'a> {
    nodes: &'a Nodes,
    root: usize,
    root_node: usize,
    /// This node's number.
    number: usize,
}

impl<'a> Tree<'a> {
    fn new(nodes: &'a Nodes, root: usize) -> Self {
        let all = nodes.members.len();
        let holds = |ranks: &Vec<usize>| ranks.binary_search(&root).is_ok();
        let root_node = nodes.members.iter().position(holds).expect("a member is on a node");
        Tree { nodes, root, root_node, number: (nodes.node + all - root_node) % all }
    }

    fn node(&self, number: usize) -> usize {
        (number + self.root_node) % self.nodes.members.len()
    }

    /// The head of a node, and its place there.
    fn head(&self, number: usize) -> (usize, usize) {
        let members = &self.nodes.members[self.node(number)];
        let place = if number == 0 { members.binary_search(&self.root).unwrap_or(0) } else { 0 };
        (members[place], place)
    }

    /// The round in which this node's parent sends to it.
    fn round(&self) -> usize {
        match self.number {
            0 => rounds(self.nodes.members.len()),
            number => number.trailing_zeros() as usize,
        }
    }

    fn parent(&self) -> usize {
        self.number & (self.number - 1)
    }

    /// Rounds and numbers of the children, the nearest first.
    fn children(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> {
        let children: Vec<_> =
            (0..self.round()).map(|round| (round, self.number + (1 << round))).collect();
        let all = self.nodes.members.len();
        children.into_iter().filter(move |&(_, number)| number < all)
    }

    /// A head's line for the messages between it and its child or parent of a round.
    fn line(&self, number: usize, round: usize) -> (usize, usize) {
        (self.head(number).0, self.nodes.far_line(self.node(number), round))
    }
}

impl Team {
    /// This team's nodes, if its collectives may go by them.
    pub(super) fn shape(&self) -> Option<Shape> {
        if !self.pe().record().is_mixed() || self.is_near() {
            return None;
        }
        self.layers().get(|| self.nodes().shape(self)).to_owned()
    }

    fn nodes(&self) -> &Nodes {
        self.layers().get(|| Nodes::of(self))
    }

    /// Notifies members by one of their lines.
    fn notify_line(&self, step: Step, ranks: &[usize], line: usize) -> Quick<()> {
        let no = nothing(0);
        let others = ranks.iter().filter(|&&rank| rank != self.rank());
        // SAFETY: there is nothing to read. By N1 the line is this member's.
        others.copied().try_for_each(|rank| unsafe {
            self.put_and_notify_line(step, (rank, line), no, self.here(no))
        })
    }

    /// Awaits the lines of all members of this node, but for this one.
    fn await_node(&self, step: Step, nodes: &Nodes) -> Quick<()> {
        self.await_lines(step, 0..nodes.place)?;
        self.await_lines(step, nodes.place + 1..nodes.here().len())
    }

    fn await_line(&self, step: Step, line: usize) -> Quick<()> {
        self.await_lines(step, line..line + 1)
    }

    /// N6.
    fn check_near(&self) -> Quick<()> {
        self.check_given(&|_| true)
    }

    /// Broadcasts. Short data go by the heads' eager buffers at once; longer ones into the heads'
    /// destinations, once these may be written.
    pub(super) fn broadcast_by_nodes(&self, what: Broadcast) -> Quick<()> {
        let Broadcast { root, to, from, .. } = what;
        let (nodes, me) = (self.nodes(), self.rank());
        let tree = Tree::new(nodes, root);
        let (head, place) = tree.head(tree.number);
        let eager = from.bytes <= EAGER_BYTES;
        let asks = !eager && what.asks();
        let step = self.step(false)?;
        let room = if eager { self.eager_buffer(step).part(0, from.bytes) } else { to };
        let source = if me == root && !eager { from } else { room };
        if me != head {
            self.await_line(step, place)?;
            self.take(head, if head == root && !eager { from } else { room }, to)?;
            if !eager {
                let given = self.check_given(&|pe| self.has_relayed(step, pe));
                self.notify_line(step, &[head], nodes.place)?;
                given?;
            }
            self.publish_relayed(step);
            return Ok(());
        }
        if me == root {
            self.take(root, from, source)?;
        } else {
            if asks {
                let (parent, line) = tree.line(tree.parent(), tree.round());
                self.notify_line(step, &[parent], line)?;
            }
            self.await_line(step, nodes.far_line(nodes.node, tree.round()))?;
        }
        self.notify_line(step, nodes.here(), place)?;
        for (round, child) in tree.children().rev() {
            if asks {
                self.await_line(step, nodes.far_line(nodes.node, round))?;
            }
            // SAFETY: the source lies in this PE's segment, and the room in another's.
            unsafe {
                self.put_and_notify_line(step, tree.line(child, round), room, self.here(source))
            }?;
        }
        // The head copies while the others copy.
        self.take(me, source, what.own_to(me))?;
        if !eager {
            self.await_node(step, nodes)?;
        }
        self.publish_relayed(step);
        Ok(())
    }

    /// Brings the blocks of all members into the eager buffer of the root, in the order of ranks.
    /// Gives the room there, and nothing to others.
    pub(super) fn gather_by_nodes(
        &self,
        root: usize,
        from: SymmetricRange,
    ) -> Quick<Option<SymmetricRange>> {
        let (nodes, me, each) = (self.nodes(), self.rank(), from.bytes);
        let tree = Tree::new(nodes, root);
        let (head, _) = tree.head(tree.number);
        let step = self.step(false)?;
        let room = self.eager_buffer(step).part(0, self.len() * each);
        self.contribute(step, head, room.part(me * each, each), from)?;
        if me == head {
            self.await_node(step, nodes)?;
            for (round, _) in tree.children() {
                self.await_line(step, nodes.far_line(nodes.node, round))?;
            }
        }
        if me == head && me != root {
            // The numbers below this node's: nodes whose blocks have come here.
            let (all, round) = (nodes.members.len(), tree.round());
            let count = (1 << round).min(all - tree.number);
            let runs = nodes.runs(tree.node(tree.number + count - 1), count);
            self.put_runs(step, tree.line(tree.parent(), round), &runs, room)?;
        }
        self.publish_relayed(step);
        Ok((me == root).then_some(room))
    }

    /// Puts this member's block where it belongs in its head's room, and tells the head.
    fn contribute(
        &self,
        step: Step,
        head: usize,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        if self.rank() == head {
            // SAFETY: both places lie in this PE's segment, and apart: rooms of collectives are not
            // their sources.
            unsafe { shm::copy(self.here(to), self.here(from), from.bytes) };
            return Ok(());
        }
        // SAFETY: the source lies in this PE's segment, and the room in the head's.
        unsafe { self.put_and_notify_line(step, (head, self.nodes().place), to, self.here(from)) }
    }

    /// Puts the blocks of runs of ranks into the same room of another head, and tells it.
    fn put_runs(
        &self,
        step: Step,
        to: (usize, usize),
        runs: &[Range<usize>],
        room: SymmetricRange,
    ) -> Quick<()> {
        let each = room.bytes / self.len();
        let place = |run: &Range<usize>| room.part(run.start * each, run.len() * each);
        let (last, others) = runs.split_last().expect("a node has members");
        for run in others {
            // SAFETY: the blocks lie in this PE's segment, and the room in another's.
            unsafe { self.deliver(to.0, place(run), self.here(place(run))) }?;
        }
        if !others.is_empty() {
            self.pe().fence()?;
        }
        // SAFETY: as above.
        unsafe { self.put_and_notify_line(step, to, place(last), self.here(place(last))) }
    }

    /// Brings the blocks of all members into one room of each head, in the order of ranks: the
    /// eager buffers, or a place that is `writable` as said. Gives this node's head and the room. A
    /// meeting.
    pub(super) fn spread_by_nodes(
        &self,
        from: SymmetricRange,
        to: Option<(SymmetricRange, Destinations)>,
    ) -> Quick<(usize, SymmetricRange)> {
        let (nodes, me, each) = (self.nodes(), self.rank(), from.bytes);
        let asks = to.is_some_and(|(_, writable)| writable == Destinations::InTheCall);
        let head = nodes.here()[0];
        if asks && me == head {
            let step = self.step(false)?;
            self.notify_line(step, nodes.here(), 0)?;
            self.publish_relayed(step);
        } else if asks {
            let step = self.step(false)?;
            self.await_line(step, 0)?;
            self.publish_relayed(step);
        }
        let step = self.step(true)?;
        let room =
            to.map_or_else(|| self.eager_buffer(step).part(0, self.len() * each), |(to, _)| to);
        self.contribute(step, head, room.part(me * each, each), from)?;
        if me == head {
            self.disseminate(step, nodes, room, asks)?;
            self.notify_line(step, nodes.here(), 0)?;
        } else {
            self.await_line(step, 0)?;
        }
        self.count_meeting();
        self.publish_relayed(step);
        Ok((head, room))
    }

    /// The head's part of [`spread_by_nodes`](Self::spread_by_nodes): awaits the blocks of its
    /// node, and exchanges them with the other heads. `asks`: these must say first that they have
    /// come.
    fn disseminate(
        &self,
        step: Step,
        nodes: &Nodes,
        room: SymmetricRange,
        asks: bool,
    ) -> Quick<()> {
        let all = nodes.members.len();
        let partner = |further: usize| {
            let node = (nodes.node + further) % all;
            (node, nodes.members[node][0])
        };
        let (data, come) = (|round: usize| 2 * round, |round: usize| 2 * round + 1);
        for round in 0..if asks { rounds(all) } else { 0 } {
            let (node, head) = partner(all - (1 << round));
            self.notify_line(step, &[head], nodes.far_line(node, come(round)))?;
        }
        self.await_node(step, nodes)?;
        for round in 0..rounds(all) {
            let further = 1 << round;
            let (node, head) = partner(further);
            if asks {
                self.await_line(step, nodes.far_line(nodes.node, come(round)))?;
            }
            let runs = nodes.runs(nodes.node, further.min(all - further));
            self.put_runs(step, (head, nodes.far_line(node, data(round))), &runs, room)?;
            self.await_line(step, nodes.far_line(nodes.node, data(round)))?;
        }
        Ok(())
    }

    /// Gathers to all, in the members' destinations.
    pub(super) fn all_gather_by_nodes(
        &self,
        to: SymmetricRange,
        from: SymmetricRange,
        writable: Destinations,
    ) -> Quick<()> {
        if to.bytes <= EAGER_BYTES {
            let (head, room) = self.spread_by_nodes(from, None)?;
            return self.take(head, room, to);
        }
        let (head, room) = self.spread_by_nodes(from, Some((to, writable)))?;
        self.take(head, room, to)?;
        let given = self.check_near();
        let step = self.step(false)?;
        if self.rank() == head {
            self.await_node(step, self.nodes())?;
        } else {
            self.notify_line(step, &[head], self.nodes().place)?;
        }
        self.publish_relayed(step);
        given
    }

    /// Reduces to all by a chain of nodes, a part of the elements for each lane at a time.
    pub(super) fn all_reduce_by_chain(
        &self,
        elements: &Elements<'_>,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let nodes = self.nodes();
        let lanes = nodes.members.iter().map(Vec::len).min().unwrap_or(1);
        let chain = Chain { nodes, lanes, elements };
        let most = lanes * (MOST_PART_BYTES / elements.size).max(1) * elements.size;
        for at in (0..from.bytes).step_by(most) {
            let bytes = most.min(from.bytes - at);
            self.pass_on(&chain, to.part(at, bytes), from.part(at, bytes))?;
        }
        // Lanes keep their destinations until all near members have copied.
        let given = self.check_near();
        let step = self.step(false)?;
        self.notify_line(step, &nodes.here()[..lanes], nodes.place)?;
        if nodes.place < lanes {
            self.await_node(step, nodes)?;
        }
        self.publish_relayed(step);
        given
    }

    /// One pass of the chain.
    fn pass_on(&self, chain: &Chain<'_>, to: SymmetricRange, from: SymmetricRange) -> Quick<()> {
        let &Chain { nodes, lanes, .. } = chain;
        let (here, place, is_lane) = (nodes.here(), nodes.place, nodes.place < lanes);
        let part = |lane: usize| chain.part(lane, from.bytes);
        // N2: both steps together are a meeting.
        let step = self.step(false)?;
        self.notify_line(step, &here[..lanes], place)?;
        if is_lane {
            self.await_node(step, nodes)?;
        }
        self.publish_relayed(step);
        let step = self.step(true)?;
        if is_lane {
            let Range { start, end } = part(place);
            let cut = |whole: SymmetricRange| whole.part(start, end - start);
            self.lane(chain, step, cut(to), cut(from))?;
            self.notify_line(step, here, place)?;
        }
        for lane in (0..lanes).filter(|&lane| lane != place) {
            self.await_line(step, lane)?;
            let Range { start, end } = part(lane);
            let total = to.part(start, end - start);
            self.take(here[lane], total, total)?;
        }
        self.count_meeting();
        self.publish_relayed(step);
        Ok(())
    }

    /// A lane's part of a pass: the total is in its own destination, and in those of its
    /// counterparts.
    fn lane(
        &self,
        chain: &Chain<'_>,
        step: Step,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let &Chain { nodes, .. } = chain;
        let (node, last) = (nodes.node, nodes.members.len() - 1);
        let peer = |node: usize, message: usize| {
            (nodes.members[node][nodes.place], nodes.far_line(node, message))
        };
        let heard = |message: usize| self.await_line(step, nodes.far_line(node, message));
        // N4.
        let mut own = Scratch::new(from.bytes);
        // SAFETY: the memory is private and as long as the part, which lies in this PE's segment.
        unsafe { shm::copy(own.ptr(), self.here(from), from.bytes) };
        if node > 0 {
            let (rank, line) = peer(node - 1, FREE);
            self.notify_line(step, &[rank], line)?;
            heard(PREFIX)?;
        }
        self.add_node(chain, &mut own, to, from)?;
        self.check_near()?;
        if node < last {
            heard(FREE)?;
            // SAFETY: the part lies in this PE's segment, and its counterpart in another's.
            unsafe { self.put_and_notify_line(step, peer(node + 1, PREFIX), to, self.here(to)) }?;
            return heard(TOTAL);
        }
        for other in 0..last {
            // SAFETY: as above. The lane there has read its prefix, and has passed it on.
            unsafe { self.put_and_notify_line(step, peer(other, TOTAL), to, self.here(to)) }?;
        }
        Ok(())
    }

    /// Combines what lies in `to`, from the nodes before, with the elements of this node.
    fn add_node(
        &self,
        chain: &Chain<'_>,
        own: &mut Scratch,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let &Chain { nodes, elements, .. } = chain;
        let (here, own) = (nodes.here(), own.ptr());
        let block = (BLOCK_BYTES / elements.size).max(1) * elements.size;
        let mut scratch = [Scratch::new(block), Scratch::new(block)];
        // Number 0 is what the nodes before have.
        let numbers = usize::from(nodes.node == 0)..here.len() + 1;
        for at in (0..from.bytes).step_by(block) {
            let bytes = block.min(from.bytes - at);
            let (to, from) = (to.part(at, bytes), from.part(at, bytes));
            let load = |number: usize, into: *mut u8| {
                // SAFETY: the scratch blocks are as long as the places, which lie in this PE's
                // segment, or in those of near members. `own` has the whole part.
                unsafe {
                    match number.checked_sub(1) {
                        None => shm::copy(into, self.here(to), bytes),
                        Some(place) if place == nodes.place => shm::copy(into, own.add(at), bytes),
                        Some(place) => self.fetch(here[place], from, into)?,
                    }
                }
                Ok(())
            };
            let scratch = scratch.each_mut().map(Scratch::ptr);
            // SAFETY: the blocks are private, aligned and as long as the places.
            unsafe {
                let numbers = numbers.clone();
                let total =
                    elements
                        .combine_ranks(Goal::All, numbers, bytes, scratch, load, |_, _| Ok(()))?;
                shm::copy(self.here(to), total, bytes);
            }
        }
        Ok(())
    }
}

/// The messages between lanes.
const PREFIX: usize = 0;
const FREE: usize = 1;
const TOTAL: usize = 2;
const CHAIN_LINES: usize = 3;

/// How a chain of nodes reduces.
struct Chain<'a> {
    nodes: &'a Nodes,
    lanes: usize,
    elements: &'a Elements<'a>,
}

impl Chain<'_> {
    /// A lane's part of so many bytes.
    fn part(&self, lane: usize, bytes: usize) -> Range<usize> {
        let (size, lanes) = (self.elements.size, self.lanes);
        let cut = |lane: usize| bytes / size * lane / lanes * size;
        cut(lane)..cut(lane + 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::error::Result;
    use crate::far::{Sent, Spec};
    use crate::job::Job;
    use crate::lifecycle::start::JobOptions;
    use crate::{Sum, Window};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    /// Words of 64 KiB.
    const WORDS: usize = 8 << 10;

    /// Bytes and signals between nodes that one collective costs, on nodes of so many PEs.
    fn costs(
        npes: usize,
        of_node: usize,
        call: impl Fn(&Team, &Window<u64>, &Window<u64>) -> Quick<()> + Send + Sync,
    ) -> [u64; 2] {
        let sent = |calls: usize| {
            let sent = Arc::new(Sent::default());
            let spec = Spec::parse(&format!("nodes={of_node}")).unwrap();
            let counted = sent.clone();
            let options =
                JobOptions::new().fabric(move |seat| spec.connect_counted(seat, &counted));
            let run = |job: Job| -> Result<()> {
                let (to, from): (Window<u64>, Window<u64>) =
                    (job.window(WORDS)?, job.window(WORDS)?);
                job.barrier()?;
                (0..calls).try_for_each(|_| call(job.world(), &to, &from))?;
                job.barrier()
            };
            Job::threads_with(&options, npes, run).unwrap().into_iter().for_each(Result::unwrap);
            [&sent.bytes, &sent.signals].map(|count| count.load(Ordering::Relaxed))
        };
        let (one, none) = (sent(1), sent(0));
        std::array::from_fn(|i| one[i] - none[i])
    }

    #[test]
    fn a_broadcast_crosses_to_each_node_once() {
        for (npes, of_node) in [(4usize, 2), (8, 2), (7, 3), (9, 3)] {
            for root in [0, npes - 1] {
                let others = npes.div_ceil(of_node) as u64 - 1;
                let [bytes, signals] = costs(npes, of_node, |team, to, from| {
                    Ok(team.broadcast_into(root, to.span(0..WORDS)?, from.span(0..WORDS)?)?)
                });
                // That a head has come, and that its data have.
                assert_eq!([bytes, signals], [others * (64 << 10), 2 * others], "{npes}");
            }
        }
    }

    #[test]
    fn a_small_all_reduce_takes_logarithmically_many_messages() {
        for (npes, of_node) in [(4usize, 2), (6, 2), (8, 2), (10, 2), (4, 3), (16, 2)] {
            let nodes = npes.div_ceil(of_node);
            let [_, signals] = costs(npes, of_node, |team, to, from| {
                Ok(team.all_reduce_into(Sum, to.span(0..1)?, from.span(0..1)?)?)
            });
            assert_eq!(signals, (nodes * rounds(nodes)) as u64, "{npes}");
        }
    }

    #[test]
    fn a_chain_crosses_forth_and_back() {
        for (npes, of_node, nodes) in [(4, 2, 2), (4, 3, 2), (6, 2, 3)] {
            let [bytes, _] = costs(npes, of_node, |team, to, from| {
                Ok(team.all_reduce_into(Sum, to.span(0..WORDS)?, from.span(0..WORDS)?)?)
            });
            assert_eq!(bytes, 2 * (nodes - 1) * (64 << 10), "{npes}");
        }
    }

    #[test]
    fn an_all_gather_brings_each_block_to_each_node_once() {
        for (npes, of_node, nodes) in [(4, 2, 2), (4, 3, 2), (6, 2, 3), (8, 2, 4)] {
            let each = (8 << 10) / npes;
            let [bytes, _] = costs(npes, of_node, |team, to, from| {
                Ok(team.all_gather_into(to.span(0..npes * each)?, from.span(0..each)?)?)
            });
            assert_eq!(bytes, (nodes - 1) * (8 * npes * each) as u64, "{npes}");
        }
    }
}
