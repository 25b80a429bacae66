//! Running closures on a machine.

use crate::coroutine::{Port, Task, with_running};
use crate::engine::{Engine, Finished, Outside};
use crate::error::Error;
use crate::fabric::OfCoroutine;
use crate::host::{Answer, Atomic, Command, HostOp, Pe};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::packet::Payload;
use crate::program::Request;
use crate::stacks::stacks;
use crate::time::Ps;
use crate::trace::{Recorder, draw_programs};
use crate::usage::Usage;
use crate::world::{Counts, World};
use memonet_core::Job;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::hosted::{Hosted, HostedFabric};
use memonet_core::unstable::recorder::events::layout::Areas;
use memonet_core::unstable::recorder::file::RecordFile;
use memonet_trace::chrome::Timeline;
use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The seed of all random numbers of the machine.
    pub seed: u64,
    /// Bytes of stack for each PE, which gets at least 64 KiB. Only used pages take memory.
    pub stack: usize,
    /// Bytes for windows in each PE's segment. Only used pages take memory. `None` stands for
    /// `MEMONET_SEGMENT_SIZE`, or without that for the memory of the real machine.
    pub segment: Option<u64>,
    /// Whether to record every stage.
    pub record: bool,
    /// How many events of each PE's program to record, at most: calls, waits, and further
    /// operations of a call. With 0, no program records.
    pub events: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { seed: 1, stack: 256 << 10, segment: Some(64 << 20), record: false, events: 0 }
    }
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Done<R> {
    /// What each PE returned.
    pub results: Vec<R>,
    /// When the last PE returned.
    pub end: Ps,
    /// What the run has used.
    pub usage: Usage,
    /// The stages that were recorded.
    pub recorder: Recorder,
    /// What the programs have recorded.
    pub programs: Option<RecordFile>,
    /// Counts of packets, writes and events.
    pub counts: Counts,
}

impl<R> Done<R> {
    /// Writes a timeline in Chrome's trace format, which Perfetto opens: what the programs have
    /// recorded, and below it the stages.
    ///
    /// # Errors
    /// Those of the writer, and of reading what the programs have recorded.
    pub fn write_chrome(&self, out: &mut impl Write) -> io::Result<()> {
        let mut timeline = Timeline::begin(out)?;
        if let Some(programs) = &self.programs {
            draw_programs(programs, &mut timeline)?;
        }
        self.recorder.draw(&mut timeline)?;
        timeline.end(&[("clock", "virtual time of the simulated machine".into())]).map(drop)
    }
}

/// Runs `program` on each of `n` PEs of the machine. A PE that panics dies. Its panic is resumed
/// here when all others have ended, or wait for what cannot come.
///
/// When the run fails, as by a deadlock, what PEs wait for and ask for from then on is refused with
/// [`memonet_core::Error::Fabric`], until their programs have returned or panicked. Panics that
/// follow from a refusal are not resumed. A program that goes on nevertheless is unwound.
///
/// # Aborts
/// A refused call that a destructor unwraps while a panic unwinds the PE is a panic in a panic,
/// which ends the process; its message has the report of the deadlock. A program that catches
/// every panic and never ends cannot be left behind, because it may borrow what the caller owns:
/// the report is printed, and the process ends.
///
/// # Errors
/// [`Error::Machine`] for a wrong machine file; [`Error::Deadlock`], [`Error::Job`],
/// [`Error::Stacks`].
pub fn run<R>(
    machine: &Machine,
    n: usize,
    options: &Options,
    program: impl Fn(Job) -> R,
) -> Result<Done<R>, Error> {
    // SAFETY: the machine carries out what PEs ask of their fabrics, which are `HostedFabric`s.
    let hosted = Arc::new(unsafe { Hosted::create(n, options.segment) }?);
    let records = || RecordFile::create(n, 0, n, Areas::bytes_for(options.events));
    let programs = (options.events > 0).then(records).transpose()?;
    let memory = JobMemory(hosted.clone());
    let mut world = World::build(machine, n as u32, options.seed, Box::new(memory))?;
    world.recorder().keep(options.record);
    let offers = world.offers();
    let everybody: Arc<[u32]> = (0..n as u32).collect();
    let results: RefCell<Vec<Option<Result<R, memonet_core::Error>>>> =
        RefCell::new((0..n).map(|_| None).collect());
    let body = |port: &Arc<Port>| {
        let pe = port.pe() as usize;
        let port = OfCoroutine::new(port.clone(), hosted.clone(), everybody.clone());
        let fabric = HostedFabric::new(port, offers);
        let joined = hosted.join(pe, Box::new(fabric), programs.as_ref());
        let result = joined.map(|job| Hosted::live(job, &program));
        results.borrow_mut()[pe] = Some(result);
    };
    let body = &body;
    let start = |(pe, stack)| {
        // SAFETY: all that the body borrows was made above, and the engine owns the tasks: they are
        // gone when its `run` returns.
        unsafe { Task::new(stack, Port::new(pe as u32), body) }
    };
    let tasks = stacks(n, options.stack)?.into_iter().enumerate().map(start).collect();
    let Finished { mut world, usage, panic, result } =
        Engine::new(world, tasks, &Run { hosted: &hosted, stopped: None }).run();
    // Where others waited for the PE that died, its panic is the cause, and a deadlock follows.
    if let Some(panic) = panic {
        std::panic::resume_unwind(panic);
    }
    result?;
    let results = results.into_inner().into_iter();
    Ok(Done {
        results: results
            .map(|result| result.expect("without a panic, all have ended"))
            .collect::<Result<_, _>>()?,
        end: usage.end,
        usage,
        counts: world.counts(),
        recorder: std::mem::take(world.recorder()),
        programs,
    })
}

/// The memory of a job, as the machine reads and writes it.
pub(crate) struct JobMemory(pub(crate) Arc<Hosted>);

fn no_memory(at: FarAddress, len: usize) -> String {
    format!("PE {} has no {len} bytes at byte {} of region {}", at.pe, at.offset, at.region)
}

impl Memory for JobMemory {
    fn write(&mut self, by: Pe, to: FarAddress, data: &Payload) -> Result<(), String> {
        let written = data.with(|bytes| self.0.write(by.0, to, bytes));
        written.then_some(()).ok_or_else(|| no_memory(to, data.len()))
    }

    fn read(&mut self, by: Pe, from: FarAddress, len: usize) -> Result<Payload, String> {
        let bytes = self.0.read(by.0, from, len).ok_or_else(|| no_memory(from, len))?;
        Ok(Payload::copy(&bytes))
    }

    fn atomic(&mut self, by: Pe, at: FarAddress, size: usize, what: Atomic) -> Result<u64, String> {
        let old = match what {
            Atomic::Op(op, operand) => self.0.fetch_op(by.0, at, size, op, operand),
            Atomic::CompareSwap { expected, new } => {
                self.0.compare_swap(by.0, at, size, expected, new)
            }
        };
        old.ok_or_else(|| no_memory(at, size))
    }
}

/// A job, and what says that its run is to stop, if it may be stopped.
pub(crate) struct Run<'a> {
    pub(crate) hosted: &'a Hosted,
    pub(crate) stopped: Option<&'a AtomicBool>,
}

impl Outside for Run<'_> {
    fn is_stopped(&self) -> bool {
        self.stopped.is_some_and(|stopped| stopped.load(Ordering::Relaxed))
    }

    fn count(&self) -> u32 {
        self.hosted.departures()
    }

    fn has_left(&self, pe: Pe) -> bool {
        self.hosted.has_left(pe.index())
    }

    fn died(&self, pe: Pe) {
        self.hosted.died(pe.index());
    }
}

/// The time of the PE that runs on this thread, since the start of the run.
///
/// # Panics
/// When no simulated PE runs on this thread.
pub fn now() -> Duration {
    with_running(|port| port.expect("only a simulated PE has a virtual time").now()).to_duration()
}

/// Has the PE that runs on this thread do nothing for this time. False when no simulated PE runs on
/// this thread, and, at once, where simulated time would end before: after 106 days. False, too,
/// when the run has failed.
pub fn sleep(time: Duration) -> bool {
    let time = Ps::from_duration(time);
    with_running(|port| {
        let port = port.filter(|port| (port.now() + time).in_time().is_ok());
        let reply = port.and_then(|port| port.call(Request::Compute(time)));
        reply.is_some_and(|reply| reply.answer.refused.is_none())
    })
}

/// The NIC of the PE that runs on this thread: for programs that use the NIC's own interface rather
/// than the library.
#[derive(Debug, Clone, Copy)]
pub struct Host(());

impl Host {
    /// The NIC of the PE that runs on this thread.
    ///
    /// # Panics
    /// When no simulated PE runs on this thread.
    pub fn here() -> Host {
        with_running(|port| assert!(port.is_some(), "only a simulated PE has a NIC"));
        Host(())
    }

    /// The PE's time, in picoseconds.
    pub fn now(self) -> Ps {
        with_running(|port| port.map_or(Ps::ZERO, Port::now))
    }

    /// Asks the NIC for an operation, and returns with its answer.
    ///
    /// # Errors
    /// The NIC's reason for a refusal.
    ///
    /// # Safety
    /// A NIC writes anywhere in any PE's segment. This call makes it write only to memory that the
    /// caller has allocated ([`Job::allocate`]), or that the library does not use.
    pub unsafe fn ask(self, what: HostOp) -> Result<Answer, String> {
        let reply = with_running(|port| port.and_then(|port| port.call(Request::Host(what))));
        let answer = reply.ok_or("no simulated PE runs on this thread")?.answer;
        match answer.refused {
            Some(why) => Err(why),
            None => Ok(answer),
        }
    }

    /// Gives the NIC a command of its kind's own interface.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask).
    ///
    /// # Safety
    /// As for [`ask`](Self::ask).
    pub unsafe fn command(self, command: Command) -> Result<Answer, String> {
        // SAFETY: the caller's promise.
        unsafe { self.ask(HostOp::Command(command)) }
    }

    /// One look at this PE's memory. It takes the time of a look.
    pub fn look(self) {
        with_running(|port| port.and_then(|port| port.call(Request::Look)));
    }
}
