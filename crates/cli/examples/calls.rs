//! Collective calls and multicast blocks in an order that the first argument seeds, each with its
//! result checked, by PEs that come early and late: those of near PEs, which go quick ways of their
//! own, between others. With a second argument, PE 1 has a second thread all the time.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use memonet::{Error, Job, Multicast, MulticastOptions, Operator, Result, Sum, Window};

/// The calls of a run.
const CALLS: usize = 4000;
/// The most elements of a block: more than go by a line, or by an eager buffer.
const MOST: usize = 700;

/// A small generator, equal at all PEs.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end
    }

    /// Mostly short lengths, those of a few lines, and all kinds of others.
    fn len(&mut self) -> usize {
        match self.below(8) {
            0 => self.below(MOST + 1),
            1 => 0,
            2 => self.below(160),
            _ => 1 + self.below(8),
        }
    }
}

/// The one of the lower rank.
#[derive(Clone, Copy)]
struct First;

impl Operator<u64> for First {
    fn combine(self, lower: u64, _higher: u64) -> u64 {
        lower
    }
}

fn value(call: usize, pe: usize, at: usize) -> u64 {
    (call * 1_000_003 + pe * 1009 + at) as u64
}

fn sum(call: usize, npes: usize, at: usize) -> u64 {
    (0..npes).map(|pe| value(call, pe, at)).sum()
}

fn fill(window: &Window<u64>, first: usize, call: usize, pe: usize, len: usize) {
    (0..len).for_each(|at| window.write(first + at, value(call, pe, at)));
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut random = Random(args.next().and_then(|seed| seed.parse().ok()).expect("a seed"));
    let job = memonet::init()?;
    let (end, ended) = channel::<()>();
    let with_thread = args.next().is_some() && job.pe() == 1;
    let beside = with_thread.then(|| std::thread::spawn(move || ended.recv()));
    calls(&job, &mut random)?;
    drop(end);
    beside.into_iter().for_each(|thread| assert!(thread.join().is_ok()));
    job.barrier()
}

fn calls(job: &Job, random: &mut Random) -> Result<()> {
    let (me, npes) = (job.pe(), job.npes());
    let (from, to) = (job.window::<u64>(MOST + 8)?, job.window::<u64>(MOST + 8)?);
    let flag = job.window::<u64>(1)?;
    let world = job.world();
    let other = world.split_strided(0, 1, npes)?.expect("all are members");
    let split = world.new_barrier()?;
    let readers: Vec<usize> = (1..npes).collect();
    let mut channel =
        job.multicast::<u64>(0, &readers, MulticastOptions::new().capacity(1 << 14))?;
    let mut own = Random(me as u64 + 7);
    let mut block = Vec::new();
    for call in 1..=CALLS {
        come_late(&mut own, call > CALLS / 4 * 3);
        let (what, len, root) = (random.below(9), random.len(), random.below(npes));
        let team = if random.below(3) == 0 { &other } else { world };
        let into = if random.below(2) == 0 { &from } else { &to };
        // In place where both are one window.
        let first = random.below(8);
        let (target, source) = (into.span(first..first + len)?, from.span(first..first + len)?);
        match what {
            0 => job.barrier()?,
            1 => {
                flag.put_one((me + 1) % npes, 0, value(call, me, 0))?;
                team.barrier()?;
                assert_eq!(flag.read(0), value(call, (me + npes - 1) % npes, 0));
                team.barrier()?;
            }
            2 | 3 => {
                fill(&from, first, call, me, len);
                team.all_reduce_into(Sum, target, source)?;
                for at in 0..len {
                    assert_eq!(into.read(first + at), sum(call, npes, at), "sum {call} of {len}");
                }
            }
            4 => {
                fill(&from, first, call, me, len);
                team.all_reduce_into(First, target, source)?;
                (0..len).for_each(|at| assert_eq!(into.read(first + at), value(call, 0, at)));
            }
            5 | 6 => {
                fill(&from, first, call, me, len);
                team.broadcast_into(root, target, source)?;
                for at in 0..len {
                    let found = into.read(first + at);
                    assert_eq!(found, value(call, root, at), "broadcast {call} of {len}");
                }
            }
            7 => {
                split.step()?;
                fill(&from, first, call, me, len);
                team.reduce_into(Sum, root, to.span(first..first + len)?, source)?;
                for at in (0..len).filter(|_| me == root) {
                    let found = to.read(first + at);
                    assert_eq!(found, sum(call, npes, at), "sum {call} of {len} to one");
                }
                split.wait()?;
            }
            _ => pass_block(&mut channel, &mut block, me == 0, call, len)?,
        }
        if call % 500 == 0 {
            let wrong = team.broadcast_into(npes, target, source);
            assert!(matches!(wrong, Err(Error::NoSuchPe { .. })), "{wrong:?}");
            let uneven = (to.span(0..1)?, from.span(0..2)?);
            let wrong = team.all_reduce_into(Sum, uneven.0, uneven.1);
            assert!(matches!(wrong, Err(Error::Length { .. })), "{wrong:?}");
        }
    }
    Ok(())
}

/// Most calls follow at once; some PEs compute or sleep before others, or have a thread. A process
/// that had one goes the general ways from then on.
fn come_late(own: &mut Random, threads: bool) {
    match own.below(200) {
        0 => std::thread::sleep(Duration::from_millis(1)),
        1 if threads => drop(std::thread::spawn(|| ()).join()),
        2..20 => {
            let until = Instant::now() + Duration::from_micros(own.below(20) as u64);
            while Instant::now() < until {}
        }
        _ => {}
    }
}

/// A block of the channel: the writer's, or at a reader.
fn pass_block(
    channel: &mut Multicast<u64>,
    block: &mut Vec<u64>,
    writes: bool,
    call: usize,
    len: usize,
) -> Result<()> {
    let expected: Vec<u64> = (0..len).map(|at| value(call, 0, at)).collect();
    if writes {
        return channel.publish(&expected);
    }
    if call.is_multiple_of(3) {
        channel.recv(block)?;
        assert_eq!(*block, expected, "block {call}");
        return Ok(());
    }
    let seen = channel.peek()?;
    assert_eq!(*seen, expected, "block {call}");
    seen.pop();
    Ok(())
}
