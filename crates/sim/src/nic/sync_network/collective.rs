//! What a board does with packets of collective transactions, one packet of 56 bytes at a time.
//! This is pure state of one board.
//!
//! ```text
//! broadcast   root ─► both ends: every member takes a copy of what passes
//! reduce      both ends ─► root: every member combines its part with what passes; the root combines both sides and its own part
//! all-reduce  reduce to the middle member, then broadcast from there
//! scan        first ─► last: every member combines its part with what passes, and takes the result
//! ```
//!
//! Sums of floating-point numbers depend on the order of additions, which is that of ranks. So
//! their parts all meet at the last member, as in a scan: of an all-reduce it sends the total to
//! all, of a reduce to the root.
//!
//! A packet that comes before the board's own part waits in its buffer.

use super::chain::{Direction, PAYLOAD_BYTES, Packet};
use crate::host::Op;
pub use memonet_core::unstable::fabric::{
    NetworkCollective as Collective, WordOperator as Operator,
};
use std::sync::Arc;

fn operator_of(what: Collective) -> Operator {
    match what {
        Collective::Broadcast { .. } => Operator::Add,
        Collective::Reduce { operator, .. }
        | Collective::AllReduce(operator)
        | Collective::Scan(operator) => operator,
    }
}

/// The kinds of transaction, as codes of packets.
pub const SEND: u8 = 1;
const REDUCE: u8 = 2;
const BROADCAST: u8 = 3;
const SCAN: u8 = 4;

/// Combines the words of two packets, of which `a` is that of lower ranks.
fn combine(
    operator: Operator,
    a: &[u8; PAYLOAD_BYTES],
    b: &[u8; PAYLOAD_BYTES],
) -> [u8; PAYLOAD_BYTES] {
    let single = |word: u64| f32::from_bits(word as u32);
    let mut result = [0; PAYLOAD_BYTES];
    for ((result, a), b) in result.chunks_exact_mut(8).zip(a.chunks_exact(8)).zip(b.chunks_exact(8))
    {
        let [a, b] = [a, b].map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let word = match operator {
            Operator::Add => a.wrapping_add(b),
            Operator::AddDouble => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
            Operator::AddSingle => (single(a) + single(b)).to_bits().into(),
            Operator::Min => a.min(b),
            Operator::Max => a.max(b),
            Operator::And => a & b,
            Operator::Or => a | b,
        };
        result.copy_from_slice(&word.to_le_bytes());
    }
    result
}

/// A transaction that a board takes part in.
#[derive(Debug, Clone)]
pub struct Part {
    pub op: Op,
    what: Collective,
    number: u16,
    rank: u32,
    /// Boards of the group's members by rank.
    members: Arc<[u32]>,
    len: u8,
    value: [u8; PAYLOAD_BYTES],
    /// Whether the host has written its part.
    written: bool,
    /// Number of sides from which a root still waits for a packet.
    missing: u8,
    /// Where the host finds the result, when the transaction is over for this board.
    pub over: Option<Found>,
    /// The call that takes the result.
    pub taken_by: Option<Op>,
}

/// The place of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// In the board, or there is none.
    Here,
    /// In the packet that has come in this direction. It stays in its buffer until the host reads
    /// it.
    In(Direction),
}

/// What a board does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Sends a packet of its own.
    Send(Direction, Packet),
    /// The transaction is over for the host, which gets the value.
    Done,
}

/// What a board does with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub passes: Option<Packet>,
    pub for_host: bool,
    pub steps: Vec<Step>,
}

impl Part {
    pub fn new(
        op: Op,
        what: Collective,
        number: u16,
        board: u32,
        members: &Arc<[u32]>,
        value: &[u8],
    ) -> Part {
        let mut padded = [0; PAYLOAD_BYTES];
        padded[..value.len()].copy_from_slice(value);
        Part {
            op,
            what,
            number,
            rank: members.binary_search(&board).expect("a member, of a sorted list") as u32,
            members: members.clone(),
            len: value.len() as u8,
            value: padded,
            written: false,
            missing: 0,
            over: None,
            taken_by: None,
        }
    }

    /// The member from which a broadcast comes, or at which the parts of a reduction meet.
    fn root(&self) -> u32 {
        match self.what {
            Collective::Reduce { .. } | Collective::AllReduce(_) if self.adds_floats() => {
                self.last()
            }
            Collective::Broadcast { root } | Collective::Reduce { root, .. } => root,
            Collective::AllReduce(_) => self.members.len() as u32 / 2,
            Collective::Scan(_) => 0,
        }
    }

    fn last(&self) -> u32 {
        self.members.len() as u32 - 1
    }

    fn packet(&self, code: u8, to: u32) -> Packet {
        Packet {
            code,
            len: self.len,
            from: self.members[self.rank as usize] as u16,
            to: self.members[to as usize] as u16,
            number: self.number,
            payload: self.value,
            op: self.op,
        }
    }

    fn adds_floats(&self) -> bool {
        matches!(operator_of(self.what), Operator::AddDouble | Operator::AddSingle)
    }

    /// Whether the board adds floating-point numbers of its own to those of this packet.
    pub fn adds_floats_to(&self, packet: &Packet) -> bool {
        let adds = self.adds_floats() && matches!(packet.code, REDUCE | SCAN);
        adds && self.written && packet.number == self.number
    }

    /// Sends the value to all others.
    fn spread(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.rank < self.last() {
            steps.push(Step::Send(Direction::Up, self.packet(BROADCAST, self.last())));
        }
        if self.rank > 0 {
            steps.push(Step::Send(Direction::Down, self.packet(BROADCAST, 0)));
        }
        steps
    }

    /// A root has all parts.
    fn gathered(&self) -> Vec<Step> {
        let mut steps = match self.what {
            Collective::AllReduce(_) => self.spread(),
            Collective::Reduce { root, .. } if root != self.rank => {
                vec![Step::Send(Direction::Down, self.packet(BROADCAST, root))]
            }
            _ => Vec::new(),
        };
        steps.push(Step::Done);
        steps
    }

    /// The host has written its part.
    pub fn begin(&mut self) -> Vec<Step> {
        self.written = true;
        let (rank, root, last) = (self.rank, self.root(), self.last());
        match self.what {
            Collective::Broadcast { .. } if rank == root => {
                self.spread().into_iter().chain([Step::Done]).collect()
            }
            Collective::Broadcast { .. } => Vec::new(),
            Collective::Scan(_) if rank > 0 => Vec::new(),
            Collective::Scan(_) => {
                let packet = (last > 0).then(|| Step::Send(Direction::Up, self.packet(SCAN, last)));
                packet.into_iter().chain([Step::Done]).collect()
            }
            Collective::Reduce { .. } | Collective::AllReduce(_) if rank == root => {
                self.missing = u8::from(rank > 0) + u8::from(rank < last);
                if self.missing == 0 { self.gathered() } else { Vec::new() }
            }
            Collective::Reduce { .. } | Collective::AllReduce(_) if rank == 0 || rank == last => {
                let direction = if rank < root { Direction::Up } else { Direction::Down };
                let mut steps = vec![Step::Send(direction, self.packet(REDUCE, root))];
                steps.extend(self.given());
                steps
            }
            Collective::Reduce { .. } | Collective::AllReduce(_) => Vec::new(),
        }
    }

    /// A board has given its part. It is done unless a result comes to it, or by it.
    fn given(&self) -> Option<Step> {
        let Collective::Reduce { root, .. } = self.what else { return None };
        (root == self.root() || self.rank < root).then_some(Step::Done)
    }

    /// Decides about a packet of a collective that has come to the board. Returns nothing while the
    /// host has not come to the packet's transaction.
    pub fn decide(&mut self, packet: &Packet) -> Option<Decision> {
        if !self.written || packet.number != self.number {
            return None;
        }
        let here = u32::from(packet.to) == self.members[self.rank as usize];
        let combined = combine(operator_of(self.what), &packet.payload, &self.value);
        let passes = |payload| (!here).then(|| Packet { payload, ..packet.clone() });
        Some(match packet.code {
            REDUCE if here => {
                self.value = combined;
                self.missing -= 1;
                Decision {
                    passes: None,
                    for_host: false,
                    steps: if self.missing == 0 { self.gathered() } else { Vec::new() },
                }
            }
            REDUCE => Decision {
                passes: passes(combined),
                for_host: false,
                steps: self.given().into_iter().collect(),
            },
            SCAN => {
                self.value = combined;
                Decision { passes: passes(combined), for_host: true, steps: Vec::new() }
            }
            _ => {
                (self.value, self.len) = (packet.payload, packet.len);
                // The total of a reduction passes boards whose hosts get nothing.
                let for_host = self.has_result();
                let steps = if for_host { Vec::new() } else { vec![Step::Done] };
                Decision { passes: passes(packet.payload), for_host, steps }
            }
        })
    }

    /// The result that the host gets.
    pub fn result(&self) -> &[u8] {
        let nothing = matches!(self.what, Collective::Reduce { root, .. } if root != self.rank);
        &self.value[..if nothing { 0 } else { self.len.into() }]
    }

    /// Whether the host has a result to read.
    pub fn has_result(&self) -> bool {
        !self.result().is_empty()
    }
}
