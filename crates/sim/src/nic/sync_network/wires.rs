//! The chain as a bus of wires: barriers. This is pure state. Callers report what hosts do and
//! when; the wires say which barriers complete, and when.
//!
//! A board that has arrived sets its sync flag and drives its wire. Boards 16k to 16k + 15 are a
//! microcluster: each of them sees the wires of all.
//!
//! * One microcluster: a board's barrier completes when all boards that its group register names
//!   drive their wires.
//! * Several microclusters (the *divided* wire says so): the last board of each looks at its own
//!   group register. It passes *part complete* on when its microcluster is complete and *part
//!   complete* has come from the microcluster before. The last board of all raises *all complete*,
//!   which all boards see. A microcluster whose last board names no boards passes *part complete*
//!   on as it comes.
//!
//! Completion clears the flags, and the wires drop. All boards of a group complete at one time, so
//! a wire of one phase is never taken for one of the next.
//!
//! Times: with `hop` for each board on the bus, and `decide` at the end, 16 boards take
//! `decide + 16 hop`. Each further microcluster adds `further`, however many boards it has: a part
//! for *part complete* on its way up, and `all_complete` for *all complete* on its way back to the
//! first board. So a barrier whose last board arrives in the last microcluster takes that part too.

use crate::time::Ps;

/// Boards of a microcluster.
pub const MICROCLUSTER: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
struct Board {
    /// The group register: the boards of its microcluster that take part, a bit each.
    group: u16,
    flag: bool,
    /// When the board drove its wire.
    driven: Ps,
    /// Whether the board's barrier is complete, and the board will see that.
    completing: bool,
    /// Whether the board's connectors carry packets now.
    carries_packets: bool,
}

/// All boards of a chain.
#[derive(Debug, Clone)]
pub struct Wires {
    boards: Vec<Board>,
    /// Number of boards that carry packets.
    away: usize,
    /// The wires that are driven, of each microcluster.
    driven: Vec<u16>,
    hop: Ps,
    decide: Ps,
    times: Times,
}

/// The times of signals.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// In a full microcluster.
    pub microcluster: Ps,
    /// What each further microcluster adds.
    pub further: Ps,
    /// The part of that for *all complete*.
    pub all_complete: Ps,
}

impl Wires {
    /// The wires of so many boards.
    pub fn new(boards: usize, times: Times) -> Wires {
        Wires {
            boards: vec![Board::default(); boards],
            away: 0,
            driven: vec![0; boards.div_ceil(MICROCLUSTER)],
            hop: Ps(times.further.0 / MICROCLUSTER as u64),
            decide: times.microcluster.since(times.further),
            times,
        }
    }

    /// Whether there is more than one microcluster.
    pub fn is_divided(&self) -> bool {
        self.driven.len() > 1
    }

    /// Boards of a microcluster.
    pub fn boards_of(&self, cluster: usize) -> std::ops::Range<usize> {
        cluster * MICROCLUSTER..self.boards.len().min((cluster + 1) * MICROCLUSTER)
    }

    /// The last board of a board's microcluster.
    pub fn last_of(&self, board: usize) -> usize {
        self.boards_of(board / MICROCLUSTER).end - 1
    }

    /// Writes a group register.
    pub fn set_group(&mut self, board: usize, group: u16) {
        self.boards[board].group = group;
    }

    /// The sync flag: arrived, and not complete.
    pub fn flag(&self, board: usize) -> bool {
        self.boards[board].flag
    }

    /// A board arrives. Pushes the boards that complete, and when. While the board's flag is set,
    /// this does nothing and returns false. So a host that tries until it has arrived passes phase
    /// k when all have passed phase k - 1: the reduced barrier code.
    pub fn arrive(&mut self, now: Ps, board: usize, completes: &mut Vec<(Ps, usize)>) -> bool {
        let this = &mut self.boards[board];
        if this.flag {
            return false;
        }
        (this.flag, this.driven) = (true, now);
        self.driven[board / MICROCLUSTER] |= 1 << (board % MICROCLUSTER);
        self.settle(now, board / MICROCLUSTER, completes);
        true
    }

    /// Whether a board's barrier is complete, and the board will see that.
    pub fn is_completing(&self, board: usize) -> bool {
        self.boards[board].completing
    }

    /// Takes back a board's arrival at a barrier that is not complete: the driver has the board
    /// name itself alone, so that its flag is cleared. Returns false where there is nothing to take
    /// back.
    pub fn withdraw(&mut self, board: usize) -> bool {
        let this = &mut self.boards[board];
        let takes = this.flag && !this.completing;
        if takes {
            this.flag = false;
            self.driven[board / MICROCLUSTER] &= !(1 << (board % MICROCLUSTER));
        }
        takes
    }

    /// Switches a board to packets, or to wires. While any board of the bus carries packets, the
    /// bus carries no signals.
    pub fn set_packets(
        &mut self,
        now: Ps,
        board: usize,
        packets: bool,
        completes: &mut Vec<(Ps, usize)>,
    ) {
        let carried = std::mem::replace(&mut self.boards[board].carries_packets, packets);
        self.away = self.away + usize::from(packets) - usize::from(carried);
        if carried && !packets {
            // One microcluster settles all, where there are several.
            self.settle(now, 0, completes);
        }
    }

    /// Whether a board carries packets.
    pub fn carries_packets(&self, board: usize) -> bool {
        self.boards[board].carries_packets
    }

    /// The time of signals in a microcluster.
    fn local(&self, cluster: usize) -> Ps {
        self.decide + self.hop * self.boards_of(cluster).len() as u64
    }

    /// Completes the barriers that a change in a microcluster completes.
    fn settle(&mut self, now: Ps, cluster: usize, completes: &mut Vec<(Ps, usize)>) {
        if self.away > 0 {
            return;
        }
        if self.is_divided() {
            if self.is_complete(cluster) {
                self.settle_all(now, completes);
            }
            return;
        }
        let at = now + self.local(cluster);
        for board in self.boards_of(cluster) {
            let wires = self.driven[cluster];
            let this = &mut self.boards[board];
            if this.flag && !this.completing && this.group & wires == this.group {
                this.completing = true;
                completes.push((at, board));
            }
        }
    }

    /// Whether all boards drive their wires that the last board of a microcluster waits for.
    fn is_complete(&self, cluster: usize) -> bool {
        let group = self.boards[self.boards_of(cluster).end - 1].group;
        group & self.driven[cluster] == group
    }

    /// Completes barriers over several microclusters, where part complete passes from one to the
    /// next.
    fn settle_all(&mut self, now: Ps, completes: &mut Vec<(Ps, usize)>) {
        let mut part = Ps::ZERO;
        let mut any = false;
        for cluster in 0..self.driven.len() {
            if !self.is_complete(cluster) {
                return;
            }
            let range = self.boards_of(cluster);
            let group = self.boards[range.end - 1].group;
            let named = range.clone().filter(|board| group & 1 << (board % MICROCLUSTER) != 0);
            let driven = named.map(|board| self.boards[board].driven).max();
            let passes = self.times.further.since(self.times.all_complete);
            let passed = part + passes * u64::from(cluster > 0);
            // A wire that was driven while a board carried packets counts from its driving: `at` is
            // now, at the earliest.
            let local = driven.map_or(Ps::ZERO, |driven| driven + self.local(cluster));
            part = passed.max(local);
            any |= driven.is_some();
        }
        let back = self.times.all_complete * (self.driven.len() as u64 - 1);
        let at = part.max(now) + back;
        for board in 0..self.boards.len() {
            let this = &mut self.boards[board];
            if any && this.flag && !this.completing {
                this.completing = true;
                completes.push((at, board));
            }
        }
    }

    /// A board sees that its barrier is complete.
    pub fn complete(&mut self, board: usize) {
        let this = &mut self.boards[board];
        debug_assert!(this.flag && this.completing, "completions are told once");
        (this.flag, this.completing) = (false, false);
        self.driven[board / MICROCLUSTER] &= !(1 << (board % MICROCLUSTER));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn wires(boards: usize) -> Wires {
        let times =
            Times { microcluster: Ps::ns(600), further: Ps::ns(540), all_complete: Ps::ns(270) };
        Wires::new(boards, times)
    }

    /// All boards arrive at once: when is it complete?
    fn barrier(boards: usize) -> Ps {
        let mut wires = wires(boards);
        for board in 0..boards {
            let cluster = wires.boards_of(board / MICROCLUSTER).len();
            wires.set_group(board, ((1u32 << cluster) - 1) as u16);
        }
        let mut completes = Vec::new();
        for board in 0..boards {
            assert!(completes.is_empty(), "complete before board {board} has arrived");
            assert!(wires.arrive(Ps::ZERO, board, &mut completes));
        }
        assert_eq!(completes.len(), boards);
        assert!(completes.iter().all(|&(at, _)| at == completes[0].0), "all at one time");
        completes[0].0
    }

    #[test]
    fn published_times() {
        assert_eq!(barrier(16), Ps::ns(600));
        assert_eq!(barrier(32), Ps::ns(600 + 540));
        assert_eq!(barrier(64), Ps::ns(600 + 3 * 540));
        assert_eq!((barrier(17), barrier(33)), (Ps::ns(600 + 540), Ps::ns(600 + 2 * 540)));
        assert!(barrier(2) < barrier(15));
    }

    proptest! {
        /// Groups of one microcluster, apart from each other, against the AND of their wires: a
        /// board has passed k barriers when all of its group have arrived k times, and not before.
        /// Arriving too early does nothing.
        #[test]
        fn any_subset(boards in 1usize..17, owner in prop::collection::vec(0usize..4, 16), steps in prop::collection::vec((0usize..16, any::<bool>()), 1..200)) {
            let mut wires = wires(boards);
            let members = |board: usize| (0..boards).filter(|&other| owner[other] == owner[board]).collect::<Vec<_>>();
            for board in 0..boards {
                wires.set_group(board, members(board).iter().fold(0, |mask, other| mask | 1 << other));
            }
            let (mut arrivals, mut agenda, mut now) = (vec![0u64; boards], BTreeMap::new(), 0);
            let mut phases = vec![0u64; boards];
            for (board, wait) in steps {
                let board = board % boards;
                let mut completes = Vec::new();
                let open = phases[board] == arrivals[board];
                now += 1;
                prop_assert_eq!(wires.arrive(Ps::ns(now), board, &mut completes), open);
                arrivals[board] += u64::from(open);
                // Nothing completes but what the AND says; and all of that does.
                let due = members(board).iter().all(|&other| arrivals[other] == arrivals[board]);
                prop_assert_eq!(completes.len(), if open && due { members(board).len() } else { 0 });
                for (at, board) in completes {
                    agenda.insert((at, board), ());
                }
                if wait {
                    now += 1000;
                }
                while let Some((&(at, board), ())) = agenda.first_key_value() {
                    if at > Ps::ns(now) {
                        break;
                    }
                    agenda.remove(&(at, board));
                    wires.complete(board);
                    phases[board] += 1;
                    prop_assert_eq!(phases[board], arrivals[board]);
                }
                for board in 0..boards {
                    let all = members(board).iter().map(|&other| arrivals[other]).min().unwrap();
                    prop_assert!(phases[board] <= all, "a barrier that not all have reached");
                    prop_assert_eq!(wires.flag(board), phases[board] < arrivals[board]);
                }
            }
        }

        /// Over several microclusters, with the last board of each that takes part, in any order
        /// and at any times: complete when the last has come, at the time that the chain of part
        /// complete gives.
        #[test]
        fn divided(boards in 17usize..100, mut takes_part in prop::collection::vec(any::<bool>(), 100), times in prop::collection::vec(0u64..5000, 100), phases in 1u64..4) {
            let mut wires = wires(boards);
            takes_part.truncate(boards);
            let clusters = boards.div_ceil(16);
            for cluster in 0..clusters {
                let range = wires.boards_of(cluster);
                if takes_part[range.clone()].contains(&true) {
                    takes_part[range.end - 1] = true;
                }
            }
            prop_assume!(takes_part.contains(&true));
            for board in (0..boards).filter(|&board| takes_part[board]) {
                let range = wires.boards_of(board / 16);
                wires.set_group(board, range.filter(|&other| takes_part[other]).fold(0, |mask, other| mask | 1 << (other % 16)));
            }
            let mut start = 0;
            for phase in 1..=phases {
                let mut arrivals: Vec<(u64, usize)> = (0..boards).filter(|&board| takes_part[board]).map(|board| (start + times[board], board)).collect();
                arrivals.sort_unstable();
                let last = arrivals.len() - 1;
                let mut completes = Vec::new();
                for (number, &(at, board)) in arrivals.iter().enumerate() {
                    prop_assert!(wires.arrive(Ps::ns(at), board, &mut completes));
                    prop_assert!(!wires.arrive(Ps::ns(at), board, &mut completes), "the reduced code spins while the phase is open");
                    prop_assert_eq!(completes.is_empty(), number != last);
                }
                let mut part = Ps::ZERO;
                for cluster in 0..clusters {
                    let range = wires.boards_of(cluster);
                    let hops = Ps(33_750) * range.len() as u64;
                    let local = arrivals.iter().filter(|(_, board)| range.contains(board)).map(|&(at, _)| Ps::ns(at + 60) + hops).max();
                    part = (part + if cluster > 0 { Ps::ns(270) } else { Ps::ZERO }).max(local.unwrap_or(Ps::ZERO));
                }
                let all = part.max(Ps::ns(arrivals[last].0)) + Ps::ns(270 * (clusters as u64 - 1));
                prop_assert_eq!(completes.len(), arrivals.len());
                for (at, board) in completes {
                    prop_assert_eq!(at, all);
                    wires.complete(board);
                    prop_assert!(!wires.flag(board), "phase {}", phase);
                }
                start = all.0 / 1000 + 1;
            }
        }
    }

    #[test]
    fn no_signals_while_a_board_carries_packets() {
        let mut wires = wires(4);
        let mut completes = Vec::new();
        for board in 0..4 {
            wires.set_group(board, 0b0011);
        }
        wires.set_packets(Ps::ZERO, 2, true, &mut completes);
        wires.arrive(Ps::ns(1), 0, &mut completes);
        wires.arrive(Ps::ns(2), 1, &mut completes);
        assert!(completes.is_empty());
        wires.set_packets(Ps::ns(1000), 2, false, &mut completes);
        assert_eq!(completes, [(Ps::ns(1195), 0), (Ps::ns(1195), 1)]);
    }
}
