//! The chain as links: packets of 64 bytes between neighbours, in both directions, cut through.
//! This is pure state. Callers report what happens; the chain says what happens next and when.
//!
//! A board has four buffers of one packet: for each direction, one for a packet that comes in, and
//! one for a packet that goes out. A packet leaves for the neighbour when the neighbour's buffer is
//! free. It goes on from the neighbour when its header has come in and the buffer for going out is
//! free. So nothing is ever lost, and a packet that cannot go on waits where it is. The two
//! directions share nothing, so they cannot wait for each other in a circle.

use crate::host::Op;
use crate::time::Ps;
use std::collections::VecDeque;

/// Bytes of a packet's payload.
pub const PAYLOAD_BYTES: usize = 56;

/// A way along the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To higher boards.
    Up,
    /// To lower boards.
    Down,
}

impl Direction {
    pub const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];

    pub fn to(from: u32, to: u32) -> Direction {
        if to > from { Direction::Up } else { Direction::Down }
    }
}

/// A packet. Its header has 8 bytes: `code`, `len`, `from`, `to` and `number`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The kind of transaction.
    pub code: u8,
    /// Bytes of payload that count.
    pub len: u8,
    pub from: u16,
    /// The last board that the packet is for.
    pub to: u16,
    /// Number of the transaction.
    pub number: u16,
    pub payload: [u8; PAYLOAD_BYTES],
    /// The call that the packet is recorded for.
    pub op: Op,
}

/// What is due at a board, for one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// The header of a packet has come in.
    Head,
    /// A packet has come in.
    Tail,
    /// A packet has gone out.
    Sent,
}

/// What is due: the time, the board, the direction, and what.
pub type Agenda = Vec<(Ps, u32, Direction, Due)>;

#[derive(Debug, Clone)]
struct Incoming {
    packet: Packet,
    /// Whether the header has come in. Until then the buffer is kept for the packet.
    begun: bool,
    /// Whether the whole packet has come in.
    whole: bool,
    /// Whether the board has decided what becomes of the packet.
    decided: bool,
    /// The packet that goes on, until it has left this buffer.
    passes: Option<Packet>,
    /// How many packets of the host go before it.
    behind: usize,
    /// Whether the host has to take the packet.
    for_host: bool,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    incoming: Option<Incoming>,
    outgoing: Option<Packet>,
    under_way: bool,
    /// Packets of the host that wait for the buffer for going out.
    from_host: VecDeque<Packet>,
}

impl Lane {
    /// The next packet for the buffer for going out.
    fn next(&mut self) -> Option<Packet> {
        match &mut self.incoming {
            Some(Incoming { passes, behind: 0, .. }) if passes.is_some() => return passes.take(),
            Some(Incoming { behind, .. }) => *behind = behind.saturating_sub(1),
            None => {}
        }
        self.from_host.pop_front()
    }
}

/// All boards of a chain.
#[derive(Debug, Clone)]
pub struct Chain {
    lanes: Vec<[Lane; 2]>,
    carries_packets: Vec<bool>,
    times: Times,
}

/// The times of a link.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The time of a header.
    pub header: Ps,
    /// The time of a packet.
    pub packet: Ps,
    /// The delay between two boards.
    pub delay: Ps,
}

/// What a board must do about its packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Decide, by [`Chain::decide`], now or later.
    Decide(Packet),
    /// Have the host take it, by [`Chain::take`].
    ForHost,
}

impl Chain {
    pub fn new(boards: usize, times: Times) -> Chain {
        Chain {
            lanes: vec![Default::default(); boards],
            carries_packets: vec![false; boards],
            times,
        }
    }

    fn lane(&mut self, board: u32, direction: Direction) -> &mut Lane {
        &mut self.lanes[board as usize][direction as usize]
    }

    fn neighbour(&self, board: u32, direction: Direction) -> Option<u32> {
        match direction {
            Direction::Up => Some(board + 1).filter(|&other| (other as usize) < self.lanes.len()),
            Direction::Down => board.checked_sub(1),
        }
    }

    fn upstream(&self, board: u32, direction: Direction) -> Option<u32> {
        let back = if direction == Direction::Up { Direction::Down } else { Direction::Up };
        self.neighbour(board, back)
    }

    /// Whether no packet is in a board's buffers, or waits for them.
    pub fn is_empty(&self, board: u32) -> bool {
        let empty = |lane: &Lane| {
            lane.incoming.is_none() && lane.outgoing.is_none() && lane.from_host.is_empty()
        };
        self.lanes[board as usize].iter().all(empty)
    }

    /// Switches a board between wires and packets.
    pub fn set_packets(&mut self, now: Ps, board: u32, packets: bool, agenda: &mut Agenda) {
        self.carries_packets[board as usize] = packets;
        for direction in Direction::BOTH {
            self.advance(now, board, direction, agenda);
            if let Some(upstream) = self.upstream(board, direction) {
                self.advance(now, upstream, direction, agenda);
            }
        }
    }

    /// The host sends a packet.
    pub fn send(
        &mut self,
        now: Ps,
        board: u32,
        direction: Direction,
        packet: Packet,
        agenda: &mut Agenda,
    ) {
        self.lane(board, direction).from_host.push_back(packet);
        self.advance(now, board, direction, agenda);
    }

    /// Moves packets on that can move: into the buffer for going out, and from there onto the link.
    /// Packets that pass go before packets that the host sends later, and behind earlier ones: if
    /// the packet of a collective overtook that of the one before, the next board, which waits for
    /// that one, would keep it in its buffer for ever.
    fn advance(&mut self, now: Ps, board: u32, direction: Direction, agenda: &mut Agenda) {
        let lane = self.lane(board, direction);
        if lane.outgoing.is_none() {
            lane.outgoing = lane.next();
            self.let_go(now, board, direction, agenda);
        }
        let Some(next) = self.neighbour(board, direction) else {
            return;
        };
        let ready = self.carries_packets[board as usize] && self.carries_packets[next as usize];
        let lane = self.lane(board, direction);
        let Some(packet) = lane.outgoing.clone().filter(|_| ready && !lane.under_way) else {
            return;
        };
        if self.lane(next, direction).incoming.is_some() {
            return;
        }
        self.lane(board, direction).under_way = true;
        self.lane(next, direction).incoming = Some(Incoming {
            packet,
            begun: false,
            whole: false,
            decided: false,
            passes: None,
            behind: 0,
            for_host: false,
        });
        let Times { header, packet, delay } = self.times;
        agenda.push((now + header + delay, next, direction, Due::Head));
        agenda.push((now + packet + delay, next, direction, Due::Tail));
        agenda.push((now + packet, board, direction, Due::Sent));
    }

    /// Frees the buffer of a packet that has come in, if it needs neither to be passed on nor to be
    /// taken any more.
    fn let_go(&mut self, now: Ps, board: u32, direction: Direction, agenda: &mut Agenda) {
        let lane = self.lane(board, direction);
        let done = |incoming: &Incoming| {
            incoming.whole && incoming.decided && incoming.passes.is_none() && !incoming.for_host
        };
        if lane.incoming.as_ref().is_some_and(done) {
            lane.incoming = None;
            if let Some(upstream) = self.upstream(board, direction) {
                self.advance(now, upstream, direction, agenda);
            }
        }
    }

    /// The moment of something that was due.
    pub fn due(
        &mut self,
        now: Ps,
        board: u32,
        direction: Direction,
        due: Due,
        agenda: &mut Agenda,
    ) -> Option<Notice> {
        let lane = self.lane(board, direction);
        match due {
            Due::Head => {
                let incoming = lane.incoming.as_mut().expect("its buffer was kept for it");
                incoming.begun = true;
                Some(Notice::Decide(incoming.packet.clone()))
            }
            Due::Tail => {
                let incoming = lane.incoming.as_mut().expect("its buffer was kept for it");
                incoming.whole = true;
                let notice = incoming.for_host.then_some(Notice::ForHost);
                self.let_go(now, board, direction, agenda);
                notice
            }
            Due::Sent => {
                (lane.outgoing, lane.under_way) = (None, false);
                self.advance(now, board, direction, agenda);
                None
            }
        }
    }

    /// Decides what becomes of the packet that has come to a board: it goes on, changed or not; the
    /// host takes it; both; or neither. Returns a notice if the host can take it at once.
    pub fn decide(
        &mut self,
        now: Ps,
        board: u32,
        direction: Direction,
        passes: Option<Packet>,
        for_host: bool,
        agenda: &mut Agenda,
    ) -> Option<Notice> {
        let lane = self.lane(board, direction);
        let incoming = lane.incoming.as_mut().expect("it was there to be decided");
        incoming.behind = lane.from_host.len();
        (incoming.decided, incoming.passes, incoming.for_host) = (true, passes, for_host);
        let notice = (for_host && incoming.whole).then_some(Notice::ForHost);
        self.advance(now, board, direction, agenda);
        self.let_go(now, board, direction, agenda);
        notice
    }

    /// The packet at a board that waits for a decision, if there is one.
    pub fn undecided(&self, board: u32, direction: Direction) -> Option<&Packet> {
        let incoming = self.lanes[board as usize][direction as usize].incoming.as_ref()?;
        (incoming.begun && !incoming.decided).then_some(&incoming.packet)
    }

    /// The packet that goes out.
    pub fn outgoing(&self, board: u32, direction: Direction) -> &Packet {
        let packet = &self.lanes[board as usize][direction as usize].outgoing;
        packet.as_ref().expect("one was put on the link just now")
    }

    /// The packet that has come in.
    pub fn incoming(&self, board: u32, direction: Direction) -> &Packet {
        let incoming = &self.lanes[board as usize][direction as usize].incoming;
        &incoming.as_ref().expect("one has come for the host").packet
    }

    /// The host has taken the packet that came.
    pub fn take(
        &mut self,
        now: Ps,
        board: u32,
        direction: Direction,
        agenda: &mut Agenda,
    ) -> Packet {
        let incoming =
            self.lane(board, direction).incoming.as_mut().expect("it was kept for the host");
        assert!(incoming.for_host && incoming.whole, "the host takes what has come for it");
        incoming.for_host = false;
        let packet = incoming.packet.clone();
        self.let_go(now, board, direction, agenda);
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Pe;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const TIMES: Times = Times { header: Ps(11), packet: Ps(86), delay: Ps(1) };

    fn packet(from: u16, to: u16, number: u16) -> Packet {
        Packet {
            code: 0,
            len: 2,
            from,
            to,
            number,
            payload: std::array::from_fn(|i| (i as u16 ^ number) as u8),
            op: Op { pe: Pe(0), number: 0 },
        }
    }

    /// A packet over k links takes the time of k headers and one packet.
    #[test]
    fn cut_through() {
        for boards in 2..9u32 {
            let mut chain = Chain::new(boards as usize, TIMES);
            let mut agenda = Agenda::new();
            (0..boards).for_each(|board| chain.set_packets(Ps::ZERO, board, true, &mut agenda));
            chain.send(Ps::ZERO, 0, Direction::Up, packet(0, boards as u16 - 1, 7), &mut agenda);
            let mut end = None;
            while !agenda.is_empty() {
                agenda.sort();
                let (now, board, direction, due) = agenda.remove(0);
                match chain.due(now, board, direction, due, &mut agenda) {
                    Some(Notice::Decide(packet)) => {
                        let here = u32::from(packet.to) == board;
                        let passes = (!here).then_some(packet);
                        chain.decide(now, board, direction, passes, here, &mut agenda);
                    }
                    Some(Notice::ForHost) => end = Some(now),
                    None => {}
                }
            }
            let links = u64::from(boards - 1);
            assert_eq!(end, Some(Ps((links - 1) * 12 + 87)));
        }
    }

    /// Board 2 keeps all packets waiting at first. What the host of board 1 sends before a packet
    /// passes there goes first, and what it sends later goes last.
    #[test]
    fn packets_that_pass_overtake_no_earlier_ones() {
        let (mut chain, mut agenda) = (Chain::new(3, TIMES), Agenda::new());
        for board in [0, 1] {
            chain.set_packets(Ps::ZERO, board, true, &mut agenda);
        }
        for number in [1, 2] {
            chain.send(Ps::ZERO, 1, Direction::Up, packet(1, 2, number), &mut agenda);
        }
        chain.send(Ps::ZERO, 0, Direction::Up, packet(0, 2, 3), &mut agenda);
        let (mut came, mut opened) = (Vec::new(), false);
        while came.len() < 4 {
            if agenda.is_empty() && !opened {
                opened = true;
                chain.send(Ps(500), 1, Direction::Up, packet(1, 2, 4), &mut agenda);
                chain.set_packets(Ps(500), 2, true, &mut agenda);
            }
            agenda.sort();
            let (now, board, direction, due) = agenda.remove(0);
            match chain.due(now, board, direction, due, &mut agenda) {
                Some(Notice::Decide(packet)) => {
                    let passes = (board == 1).then_some(packet);
                    chain.decide(now, board, direction, passes, board == 2, &mut agenda);
                }
                Some(Notice::ForHost) => {
                    came.push(chain.take(now, board, direction, &mut agenda).number);
                }
                None => {}
            }
        }
        assert_eq!(came, [1, 2, 3, 4]);
    }

    proptest! {
        /// Whatever is sent, however slowly hosts take and whenever boards carry wires for a while:
        /// everything comes, once, in the order of sending between two boards, and the buffers are
        /// empty in the end.
        #[test]
        fn nothing_is_lost_or_made(boards in 2u32..9, sends in prop::collection::vec((0u64..2000, 0u16..9, 0u16..9), 1..120), slow in 1u64..400,
                                   pauses in prop::collection::vec((0u64..4000, 1u64..500, 0u32..9), 0..6)) {
            #[derive(PartialEq, Eq, PartialOrd, Ord)]
            enum What { Chain(u32, Direction, Due), Send(usize), Take(u32, Direction), Mode(u32, bool) }
            let mut chain = Chain::new(boards as usize, TIMES);
            let (mut queue, mut order) = (BTreeMap::new(), 0u64);
            let mut out = Agenda::new();
            (0..boards).for_each(|board| chain.set_packets(Ps::ZERO, board, true, &mut out));
            let mut push = |queue: &mut BTreeMap<(Ps, u64), What>, at, what| { order += 1; queue.insert((at, order), what); };
            let limit = boards as u16;
            let sends: Vec<_> = sends.into_iter().map(|(at, from, to)| (at, from % limit, to % limit)).filter(|(_, from, to)| from != to).collect();
            for (number, &(at, ..)) in sends.iter().enumerate() {
                push(&mut queue, Ps(at), What::Send(number));
            }
            let mut away = BTreeSet::new();
            for (at, length, board) in pauses {
                if away.insert(board % boards) {
                    push(&mut queue, Ps(at), What::Mode(board % boards, false));
                    push(&mut queue, Ps(at + length), What::Mode(board % boards, true));
                }
            }
            let mut got: BTreeMap<(u16, u16), Vec<u16>> = BTreeMap::new();
            while let Some(((now, _), what)) = queue.pop_first() {
                let mut agenda = Agenda::new();
                let notice = match what {
                    What::Chain(board, direction, due) => chain.due(now, board, direction, due, &mut agenda).map(|notice| (board, direction, notice)),
                    What::Send(number) => {
                        let (_, from, to) = sends[number];
                        chain.send(now, from.into(), Direction::to(from.into(), to.into()), packet(from, to, number as u16), &mut agenda);
                        None
                    }
                    What::Take(board, direction) => {
                        let taken = chain.take(now, board, direction, &mut agenda);
                        prop_assert_eq!(&taken, &packet(taken.from, board as u16, taken.number));
                        got.entry((taken.from, taken.to)).or_default().push(taken.number);
                        None
                    }
                    What::Mode(board, packets) => { chain.set_packets(now, board, packets, &mut agenda); None }
                };
                let notice = match notice {
                    Some((board, direction, Notice::Decide(packet))) => {
                        let here = u32::from(packet.to) == board;
                        let passes = (!here).then_some(packet);
                        chain.decide(now, board, direction, passes, here, &mut agenda).map(|_| (board, direction))
                    }
                    Some((board, direction, Notice::ForHost)) => Some((board, direction)),
                    None => None,
                };
                if let Some((board, direction)) = notice {
                    push(&mut queue, now + Ps(slow), What::Take(board, direction));
                }
                for (at, board, direction, due) in agenda {
                    push(&mut queue, at, What::Chain(board, direction, due));
                }
            }
            let mut expected: BTreeMap<(u16, u16), Vec<u16>> = BTreeMap::new();
            let mut by_time: Vec<usize> = (0..sends.len()).collect();
            by_time.sort_by_key(|&number| sends[number].0);
            for number in by_time {
                let (_, from, to) = sends[number];
                expected.entry((from, to)).or_default().push(number as u16);
            }
            prop_assert_eq!(got, expected);
            prop_assert!((0..boards).all(|board| chain.is_empty(board)));
        }
    }
}
