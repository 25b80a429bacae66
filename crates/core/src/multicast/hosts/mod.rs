//! Between hosts: the log crosses to all other hosts as one stream of UDP multicast datagrams, and
//! on each host the readers read it in the ring of one of them.
//!
//! ```text
//!   host a                          host b                       host c
//!   writer's ring ══ datagrams ══►  ring of PE 4 (its head)  and ring of PE 8 (its head)
//!    │      ▲  ▲                     │    │  │                    │
//!   PE 1   PE 2└── get what is missing ───┘ PE 5                 PE 9
//! ```
//!
//! The first reader of each other host is its **head**. It writes the log into the ring of its
//! segment; the readers of its host, itself among them, read there. The readers of the writer's
//! host read the writer's ring. Each segment has a word, the **front**, up to which whole records
//! are in its ring. A reader takes no record beyond the front of the ring that it reads.
//!
//! **The datagrams promise nothing.** They only are the cheapest way to bring the log to many
//! hosts. All that must not be lost goes through the fabric: positions, as signals; and what a head
//! misses, which it gets out of the writer's ring ([`memonet_repair::Gaps`] says what that is). A
//! head that has heard nothing for a while gets the writer's front to learn whether it misses
//! anything. So whatever becomes of the datagrams in the midst of a job, for example when a switch
//! forgets the group, all blocks arrive. No answer of the writer's program is needed, as the fabric
//! serves gets while it computes. And silence is no sign of anything: the job says who is dead.
//!
//! # Proof
//!
//! * H1: *A reader takes a record only when all of it is there.* A writer stores a record, then its
//!   front. A head stores bytes, then, as its front, the end of the last record of which it has all
//!   bytes from the log's beginning on. Stores become visible in order.
//! * H2: *What lies below a head's front is the log.* The head stores a byte only where it misses
//!   one, from a datagram with the channel's tag ([`seal`]), which says its position, or from the
//!   writer's ring (H4).
//! * H3: *Nothing is overwritten that may still be read.* A reader reports a position to its head,
//!   or to the writer on the writer's host, when it is done with all below. A head reports the
//!   least of its readers' to the writer. The writer writes up to the least of all that is reported
//!   to it plus the ring's length. And a head stores nothing beyond what it has reported plus that
//!   length, so that no datagram makes it do so.
//! * H4: *A get reads the log.* A head asks for bytes from what it has received on, so not below
//!   what it has reported, and below a front of the writer that it has read before. By H1 and H3
//!   the writer has written these bytes and does not write there again before the head reports
//!   more.
//! * H5: *All records arrive at a head whose PE waits, in any wait ([`Relay`]).* A byte that it
//!   misses lies below its highest position, then it is got when its time has come; or beyond, then
//!   a datagram or the next look at the writer's front makes it know of it.
//! * H6: *A reported position never falls*, as in T2: progress is added. So a sum that is short of
//!   an addition that is still under way is an older position.
//! * H7: *No PE waits for ever for a report.* Readers report as M4 says. A head passes on what its
//!   readers have reported: at once when no datagram has come, else after an eighth of the ring.
//! * H8: *PEs leave when they are done.* The end of the log is a record like others. A head that
//!   has it needs nothing of the writer any more and says so, as one without readers does; a writer
//!   that finalises, or drops its end, stays until all heads have said so, or are gone. A head that
//!   finalises, or drops its end, stays until it has all, or none of its host's readers is there.
//!   Memory of a head that is gone stays mapped where it is read.
//! * H9: *Only the reader itself gives away a place in the ring that it reads*: each has a
//!   [`Node`](super::tree::Node) without children to say its position by, for which T5 holds.
//!
//! On a channel whose readers may be dropped or die, no reader may depend on another: there the log
//! goes by a flat tree.
//!
//! # When
//!
//! A tree sends to each reader apart, so some host's link carries several copies of the log: as
//! many as its PEs have children on other hosts. Datagrams cross each link once. But they cost the
//! CPU more: a tag for each, while a stream leaves as few large packets. So datagrams are tried
//! where the tree would need [`LEAST_COPIES`]. Measured between namespaces of a busy machine with
//! two CPUs, blocks of 64 KiB, megabytes in a second, tree and datagrams:
//!
//! | hosts, PEs on each | copies | links of 200 Mbit/s | links without a limit, where the CPU is it |
//! |---|---|---|---|
//! | 2, 1 | 1 | 24, 21 | 350, 93 |
//! | 3, 1 | 2 | 12, 21 | 130, 67 |
//! | 3, 2 | 3 | 8, 21 | 76, 56 |
//!
//! Whether datagrams pass is found out when a channel is made ([`meeting`]), by all PEs alike.

mod cast;
mod ends;
mod head;
mod meeting;
mod seal;
mod wire;

pub(super) use cast::Cast;
pub(super) use head::Head;
pub(super) use meeting::Side;

use crate::base::layout::ReaderLine;
#[cfg(doc)]
use crate::endpoint::progress::Relay;
use crate::endpoint::record::Record;
use crate::multicast::tree;

/// Lines of a segment that such a channel has behind those of its readers: the front, and the
/// invitation.
pub(super) const LINES: u64 = 2;

/// Copies of the log on one host's link from which on datagrams beat a tree, unless links are
/// faster than CPUs.
const LEAST_COPIES: usize = 3;

/// Which ring each reader reads, equal at all PEs. Readers are named by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Readers of the writer's host.
    pub(super) here: Vec<usize>,
    /// Readers of each other host. The first is the head.
    pub(super) hosts: Vec<Vec<usize>>,
}

impl Plan {
    pub(super) fn new(record: &Record, writer: usize, readers: &[usize]) -> Self {
        let ends: Vec<usize> = std::iter::once(writer).chain(readers.iter().copied()).collect();
        let mut hosts = record.by_node(&ends).into_iter();
        let numbers =
            |ends: Vec<usize>| ends.into_iter().filter(|&end| end > 0).map(|end| end - 1).collect();
        // The writer is the first end, so its host is the first one.
        let here = hosts.next().map(numbers).unwrap_or_default();
        Plan { here, hosts: hosts.map(numbers).collect() }
    }

    /// Whether datagrams are tried where nothing is forced: the PEs are on hosts, not on imitated
    /// nodes of one machine, and a tree would be slower.
    pub(super) fn wins(&self, record: &Record, writer: usize) -> bool {
        record.host(writer).is_some() && self.copies() >= LEAST_COPIES
    }

    /// Copies of the log that a tree sends over the busiest host's link.
    fn copies(&self) -> usize {
        // The writer's host is the first one.
        let readers = self.here.len() + self.hosts.iter().map(Vec::len).sum::<usize>();
        let mut host_of = vec![0; readers];
        for (host, numbers) in self.hosts.iter().enumerate() {
            numbers.iter().for_each(|&number| host_of[number] = host + 1);
        }
        let mut copies = vec![0; self.hosts.len() + 1];
        for node in 0..=readers {
            let host = if node == 0 { 0 } else { host_of[node - 1] };
            let children = tree::children(node, readers, tree::ARITY);
            copies[host] += children.filter(|&child| host_of[child] != host).count();
        }
        copies.into_iter().max().unwrap_or_default()
    }

    /// The host of a reader among the other hosts; none for one of the writer's host.
    pub(super) fn host_of(&self, number: usize) -> Option<&[usize]> {
        self.hosts.iter().map(Vec::as_slice).find(|host| host.contains(&number))
    }
}

/// Bytes of a line.
const LINE: u64 = size_of::<ReaderLine>() as u64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_reader_has_one_ring() {
        let record = Record::nodes(&[0, 0, 1, 1, 2], &[1, 1, 1]);
        let plan = Plan::new(&record, 1, &[4, 3, 0, 2]);
        assert_eq!(plan, Plan { here: vec![2], hosts: vec![vec![0], vec![1, 3]] });
        assert_eq!(plan.host_of(3), Some(&[1, 3][..]));
        assert_eq!(plan.host_of(2), None);
        let apart = Plan::new(&Record::all_far(), 0, &[1, 2]);
        assert_eq!(apart, Plan { here: vec![], hosts: vec![vec![0], vec![1]] });
        let near = Plan::new(&Record::one_node(3, 1), 0, &[1, 2]);
        assert_eq!(near, Plan { here: vec![0, 1], hosts: vec![] });
    }

    #[test]
    fn datagrams_win_where_a_tree_sends_many_copies() {
        for (hosts, pes, copies, wins) in
            [(2, 1, 1, false), (3, 1, 2, false), (9, 1, 2, false), (3, 2, 3, true), (2, 4, 4, true)]
        {
            let node_of: Vec<u32> = (0..hosts * pes).map(|pe| pe / pes).collect();
            let record = Record::nodes(&node_of, &vec![1; hosts as usize]);
            let readers: Vec<usize> = (1..node_of.len()).collect();
            let plan = Plan::new(&record, 0, &readers);
            assert_eq!(plan.copies(), copies, "{hosts} hosts with {pes} PEs");
            assert!(!plan.wins(&record, 0), "nodes of one machine");
            let names = (0..hosts).map(|host| std::sync::Arc::from(format!("h{host}")));
            assert_eq!(plan.wins(&record.with_hosts(names), 0), wins);
        }
    }
}
