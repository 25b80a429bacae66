//! The CPUs of PEs on a simulated machine.
//!
//! A PE that runs alone runs on the machine's CPU, as a hand-over to another CPU takes several
//! times as long. PEs that run at once are spread over all CPUs, if that saves more than it takes.

use std::collections::BTreeMap;
use std::time::Duration;

use memonet_core::unstable::launch::available_cpus;
use rustix::io::Result;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// What it takes to run PEs on several CPUs: the first of each has to be woken there.
const SPREAD_COST: Duration = Duration::from_micros(40);
/// What a PE has to do in its first turn: about what it takes to start a small program.
const START: Duration = Duration::from_millis(1);

/// A PE that is to be started, and its CPU if it has one.
#[derive(Debug, PartialEq, Eq)]
pub struct Start {
    pub pe: usize,
    pub cpu: Option<usize>,
}

/// Which CPU each PE may use.
pub struct Seats {
    /// The CPUs. The first is the machine's; none, where PEs are not bound.
    cpus: Vec<usize>,
    /// Number of each PE's CPU in that list.
    of_pe: Vec<usize>,
    /// PEs that run at once, and the number of CPUs that they are spread over.
    at_once: usize,
    over: usize,
    /// When they began.
    began: Duration,
    /// What each PE had to do when several ran last.
    work: Duration,
}

impl Seats {
    pub fn new(cpus: Vec<usize>) -> Seats {
        Seats { cpus, of_pe: Vec::new(), at_once: 1, over: 1, began: Duration::ZERO, work: START }
    }

    /// Binds the calling thread to the machine's CPU.
    pub fn bind_machine(&self) -> Result<()> {
        self.cpus.first().map_or(Ok(()), |&cpu| bind(None, cpu))
    }

    /// So many PEs are about to run at once. Gives the number of CPUs for them.
    pub fn begin(&mut self, at_once: usize) -> usize {
        (self.at_once, self.over) = (at_once, 1);
        if self.cpus.is_empty() {
            // The kernel spreads them.
            return available_cpus().min(at_once);
        }
        if at_once < 2 || self.cpus.len() < 2 {
            return 1;
        }
        let over = at_once.min(self.cpus.len());
        let saved = (at_once - at_once.div_ceil(over)) as u32;
        if self.work * saved > SPREAD_COST {
            self.over = over;
        }
        self.began = now();
        self.over
    }

    /// The seat of number `number` of these PEs. The machine's CPU comes last: what runs there
    /// delays the starts of others. The others have to be woken first, so it gets so many PEs more
    /// as can run meanwhile.
    fn seat(&self, number: usize) -> usize {
        let meanwhile = SPREAD_COST.as_nanos() / self.work.as_nanos().max(1);
        let spread = self.at_once.saturating_sub(meanwhile as usize);
        self.seat_of(number, spread.div_ceil(self.over))
    }

    /// The seat of number `number` of PEs that start. The machine's CPU makes all processes, so the
    /// others get a fifth more PEs, as far as there are so many.
    fn first_seat(&self, number: usize) -> usize {
        let (pes, over) = (self.at_once, self.over);
        let more = (pes * 6 / (5 * over)).min(pes.div_ceil((over - 1).max(1)));
        self.seat_of(number, more.max(pes.div_ceil(over)))
    }

    /// The seat, where each CPU but the machine's has so many PEs.
    fn seat_of(&self, number: usize, each: usize) -> usize {
        (self.over - 1).saturating_sub(number / each.max(1))
    }

    /// These PEs start, the next ones of the job. Gives the CPU of each; none, where PEs are not
    /// bound.
    pub fn start(&mut self, pes: &[usize]) -> Vec<Start> {
        let start = |(number, &pe)| {
            let seat = self.first_seat(number);
            debug_assert_eq!(self.of_pe.len(), pe, "PEs start in order");
            self.of_pe.push(seat);
            Start { pe, cpu: self.cpus.get(seat).copied() }
        };
        pes.iter().enumerate().map(start).collect()
    }

    /// Gives the CPU of number `number` of these PEs to PE `pe`.
    pub fn place(&mut self, pe: usize, number: usize, pid: impl FnOnce() -> Option<Pid>) {
        let seat = self.seat(number);
        if self.cpus.len() < 2 || self.of_pe[pe] == seat {
            return;
        }
        let Some(pid) = pid() else { return };
        // One that has just been killed cannot be placed, and needs no place.
        if bind(Some(pid), self.cpus[seat]).is_ok() {
            self.of_pe[pe] = seat;
        }
    }

    /// Those of these PEs that are on the machine's CPU, or not bound, and the others by CPU.
    pub fn by_cpu(&self, pes: &[usize]) -> (Vec<usize>, BTreeMap<usize, Vec<usize>>) {
        let (mut here, mut there) = (Vec::new(), BTreeMap::<usize, Vec<usize>>::new());
        for &pe in pes {
            match self.of_pe[pe] {
                0 => here.push(pe),
                seat => there.entry(self.cpus[seat]).or_default().push(pe),
            }
        }
        (here, there)
    }

    /// The PEs have run.
    pub fn end(&mut self, at_once: usize) {
        if at_once > 1 && self.cpus.len() > 1 {
            let took = now().saturating_sub(self.began);
            self.work = took * self.over as u32 / at_once as u32;
        }
    }
}

/// Binds a thread to a CPU; none: the caller.
pub fn bind(thread: Option<Pid>, cpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(thread, &only)
}

/// The time, by a system call: the engine's thread may not read the cycle counter.
fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a `timespec`, which is on this stack frame.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(seats: &mut Seats, pes: usize) -> Vec<usize> {
        seats.begin(pes);
        (0..pes).map(|number| seats.seat(number)).collect()
    }

    #[test]
    fn pes_are_spread_where_that_saves_time_and_the_machine_s_cpu_comes_last() {
        let mut four = Seats::new(vec![8, 9, 10, 11]);
        assert_eq!(seats(&mut four, 8), [3, 3, 2, 2, 1, 1, 0, 0]);
        assert_eq!(seats(&mut four, 3), [2, 1, 0]);
        assert_eq!(seats(&mut four, 1), [0]);
        four.work = SPREAD_COST / 8;
        assert_eq!(seats(&mut four, 8), [0; 8]);
        // The machine runs eight while the others are woken, and each has a quarter of the rest.
        let of_20 = seats(&mut four, 20);
        assert_eq!(of_20[..9], [3, 3, 3, 2, 2, 2, 1, 1, 1]);
        assert_eq!(of_20[9..], [0; 11]);
        for cpus in [vec![], vec![1]] {
            let mut few = Seats::new(cpus.clone());
            few.begin(2);
            let start = |pe| Start { pe, cpu: cpus.first().copied() };
            assert_eq!(few.start(&[0, 1]), [start(0), start(1)]);
            few.place(1, 1, || unreachable!("nobody is moved"));
            assert_eq!(few.by_cpu(&[1, 0]), (vec![1, 0], BTreeMap::new()));
        }
    }

    #[test]
    fn pes_that_start_are_spread_and_those_that_start_alone_are_on_the_machine_s_cpu() {
        let cpus = |cpus: &[usize], pes: usize| -> Vec<usize> {
            let mut seats = Seats::new(cpus.to_vec());
            seats.begin(pes);
            let pes: Vec<usize> = (0..pes).collect();
            seats.start(&pes).iter().map(|start| start.cpu.unwrap()).collect()
        };
        assert_eq!(cpus(&[8, 9], 2), [9, 8]);
        assert_eq!(cpus(&[8, 9], 5), [9, 9, 9, 8, 8]);
        assert_eq!(cpus(&[8, 9, 10], 9), [10, 10, 10, 9, 9, 9, 8, 8, 8]);
        assert_eq!(cpus(&[8, 9], 1), [8]);
        assert_eq!(cpus(&[8, 9], 3), [9, 9, 8]);
        for (among, pes) in [(8, 13), (16, 26), (64, 100), (16, 80), (2, 64), (3, 4)] {
            let all: Vec<usize> = (0..among).collect();
            let seats = cpus(&all, pes);
            let on = |cpu| seats.iter().filter(|&&seat| seat == cpu).count();
            let (here, most) = (on(0), all.iter().map(|&cpu| on(cpu)).max().unwrap());
            assert!(here <= pes.div_ceil(among) && most <= pes * 6 / (5 * among) + 1, "{seats:?}");
        }
        let mut two = Seats::new(vec![8, 9]);
        two.begin(4);
        two.start(&[0, 1, 2, 3]);
        assert_eq!(two.by_cpu(&[0, 3, 1]), (vec![3], BTreeMap::from([(9, vec![0, 1])])));
    }

    #[test]
    fn work_is_what_each_pe_takes_of_a_cpu() {
        let mut two = Seats::new(vec![0, 1]);
        two.begin(10);
        std::thread::sleep(Duration::from_millis(10));
        two.end(10);
        assert!(two.work >= Duration::from_millis(2), "{:?}", two.work);
        let before = two.work;
        two.begin(1);
        two.end(1);
        assert_eq!(two.work, before);
    }
}
