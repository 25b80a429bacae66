//! A job on a simulated machine: the engine, in a thread of the launcher, and what it needs of the
//! main thread.
//!
//! ```text
//! [ engine: virtual time ] <-- turns --> PE 0, PE 1 ... one of them runs, on the same CPU
//!    | start a PE, pass its output on                  ^
//!    v                                                 | starts them (children die with the thread that started them)
//! [ launcher: the epoll loop ] --- a PE has ended ---> engine
//! ```

use std::fs::File;
use std::io::BufWriter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use memonet_core::hosted::{Hosted, Passages};
use memonet_core::launch::JobFile;
use memonet_sim::{Launcher, Machine, Pace, ProcessOptions, run_processes};
use rustix::thread::CpuSet;

use super::spec::Simulated;
use super::wakeup::Wakeup;
use crate::unpoisoned::unpoisoned;

/// How long a PE may run without a call, unless `--patience` says otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the main thread looks in that time.
const LOOKS: u32 = 10;

/// What else may be behind a deadlock: the machine does not see who waits for a PE's turn in the PE
/// itself.
const ONE_THREAD: &str = "While one thread of a PE waits, no other of its threads gets a call of memonet through: use it from one thread";

/// A simulated machine with a job on it, as the main thread has it.
pub struct Simulation {
    passages: Arc<Passages>,
    /// Becomes readable when there is news.
    wakeup: Wakeup,
    news: Receiver<News>,
    engine: Option<JoinHandle<Result<()>>>,
    outputs: Arc<Outputs>,
    pace: Arc<Pace>,
    patience: Duration,
    /// The turn that was under way at the last look.
    turn: Option<Turn>,
    next_look: Instant,
}

/// A PE's turn, as looks have seen it.
#[derive(Clone, Copy)]
struct Turn {
    number: u64,
    since: Instant,
    /// No look has seen the PE's process run.
    asleep: bool,
}

/// What the engine wants of the main thread; it waits for the answer.
pub enum News {
    /// That this PE is started: whether it was.
    Start(usize, Sender<bool>),
    /// That what this PE has written is read.
    PassOn(usize, Sender<()>),
    /// Nothing more: so it ended.
    Ended(Result<()>),
}

/// The numbers of the descriptors from which each PE's output is read.
#[derive(Default)]
struct Outputs(Mutex<Vec<[i32; 2]>>);

impl Outputs {
    /// Whether there is something to read.
    fn wait(&self, pe: usize) -> bool {
        let all = unpoisoned(self.0.lock());
        let Some(fds) = all.get(pe) else { return false };
        let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: two descriptions on this stack frame. What the numbers stand for is only looked
        // at; one that has been closed meanwhile is answered as such, one of another file by one
        // reading too many.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, 0) > 0 }
    }
}

/// The engine's way to the main thread.
struct Main {
    wakeup: Wakeup,
    /// Until the end.
    news: Option<Sender<News>>,
    outputs: Arc<Outputs>,
}

impl Main {
    /// Asks, and waits for the answer; nothing, when the main thread is ending the job.
    fn ask<A>(&self, question: impl FnOnce(Sender<A>) -> News) -> Option<A> {
        let (answer, answered) = channel();
        self.news.as_ref()?.send(question(answer)).ok()?;
        self.wakeup.wake();
        answered.recv().ok()
    }
}

impl Drop for Main {
    fn drop(&mut self) {
        // The thread that wakes up is to see that nothing more comes.
        self.news = None;
        self.wakeup.wake();
    }
}

impl Launcher for Main {
    fn start(&self, pe: usize) -> bool {
        self.ask(|answer| News::Start(pe, answer)).unwrap_or(false)
    }

    fn pass_on(&self, pe: usize) {
        if self.outputs.wait(pe) {
            // The job is being ended where there is no answer.
            let _ = self.ask(|answer| News::PassOn(pe, answer));
        }
    }
}

/// What `--machine` asks for, understood.
pub struct Plan {
    machine: Machine,
    options: ProcessOptions,
    patience: Duration,
    trace: Option<(PathBuf, File)>,
    cpu_scale: Option<f64>,
}

/// Reads what the options ask for.
pub fn plan(options: &Simulated) -> Result<Option<Plan>> {
    let Some(name) = &options.machine else { return Ok(None) };
    let create = |path: &PathBuf| -> Result<(PathBuf, File)> {
        let file = File::create(path)
            .with_context(|| format!("cannot write the trace to {}", path.display()))?;
        Ok((path.clone(), file))
    };
    Ok(Some(Plan {
        machine: Machine::load(name)?,
        options: ProcessOptions {
            seed: options.seed.unwrap_or(1),
            record: options.trace.is_some(),
        },
        patience: options.patience.unwrap_or(PATIENCE),
        trace: options.trace.as_ref().map(create).transpose()?,
        cpu_scale: options.cpu_scale,
    }))
}

impl Plan {
    /// The pages by which PEs will talk to the engine.
    pub fn passages(&self, npes: usize) -> Result<Arc<Passages>> {
        Ok(Arc::new(Passages::create(npes, self.options.seed, self.cpu_scale)?))
    }

    /// Starts the engine, on these CPUs: those of the PEs, as a hand-over to another CPU takes
    /// several times as long.
    pub fn start(
        self,
        job: &JobFile,
        passages: Arc<Passages>,
        cpus: Option<CpuSet>,
    ) -> Result<Simulation> {
        // SAFETY: the machine carries out what the processes ask for, each of which is a PE of this
        // job.
        let hosted = Arc::new(unsafe { Hosted::of(job) }?);
        let wakeup = Wakeup::new()?;
        let (sender, news) = channel();
        let outputs = Arc::new(Outputs::default());
        let main =
            Main { wakeup: wakeup.try_clone()?, news: Some(sender), outputs: outputs.clone() };
        let (of_engine, patience) = (passages.clone(), self.patience);
        let pace = Arc::new(Pace::default());
        let its_pace = pace.clone();
        let engine = move || self.run(&hosted, &of_engine, &its_pace, main, cpus);
        let engine = std::thread::Builder::new()
            .name("machine".into())
            .spawn(engine)
            .context("cannot start a thread")?;
        Ok(Simulation {
            passages,
            wakeup,
            news,
            engine: Some(engine),
            outputs,
            pace,
            patience,
            turn: None,
            next_look: Instant::now() + patience / LOOKS,
        })
    }

    /// The engine's life.
    fn run(
        self,
        hosted: &Arc<Hosted>,
        passages: &Passages,
        pace: &Pace,
        main: Main,
        cpus: Option<CpuSet>,
    ) -> Result<()> {
        if let Some(cpus) = cpus {
            rustix::thread::sched_setaffinity(None, &cpus)
                .context("cannot bind the machine to its CPU; use --bind none")?;
        }
        // PEs may not read the cycle counter, and to switch between a thread that may and one that
        // may not costs more than a hand-over. From here to the end of the run this thread reads no
        // clock.
        let ended = {
            let _like_its_pes = NoCycles::begin();
            run_processes(&self.machine, hosted, passages, &self.options, pace, &main)?
        };
        if let Some((path, file)) = self.trace {
            let mut out = BufWriter::new(file);
            let written = ended
                .recorder
                .write_chrome(&mut out)
                .and_then(|()| std::io::Write::flush(&mut out));
            written.with_context(|| format!("cannot write the trace to {}", path.display()))?;
        }
        match ended.result {
            Err(error @ memonet_sim::Error::Deadlock { .. }) => {
                Err(anyhow!("{error}  {ONE_THREAD}"))
            }
            result => Ok(result?),
        }
    }
}

impl Simulation {
    /// Becomes readable when there is [`news`](Self::news).
    pub fn wakeup(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// What the engine wants next, if it wants anything now.
    pub fn news(&mut self) -> Option<News> {
        self.wakeup.clear();
        match self.news.try_recv() {
            Ok(news) => Some(news),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                let ended = self.engine.take()?.join();
                Some(News::Ended(ended.unwrap_or_else(|_| bail_out())))
            }
        }
    }

    /// When to look next whether the PE that runs gets on.
    pub fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Looks, if it is time; one that has not passed its turn for too long ends the run.
    /// `is_asleep` tells of a PE's process.
    pub fn look(&mut self, now: Instant, is_asleep: impl Fn(usize) -> bool) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + self.patience / LOOKS;
        self.turn = self.pace.turn().map(|(number, pe)| {
            let first = Turn { number, since: now, asleep: true };
            let before = self.turn.filter(|turn| turn.number == number).unwrap_or(first);
            let turn = Turn { asleep: before.asleep && is_asleep(pe), ..before };
            if now - turn.since >= self.patience {
                self.pace.give_up(&self.passages, pe, self.patience, turn.asleep);
            }
            turn
        });
    }

    /// The next PE's output comes by these descriptors.
    pub fn started(&self, stdout: &OwnedFd, stderr: &OwnedFd) {
        let mut outputs = unpoisoned(self.outputs.0.lock());
        outputs.push([stdout.as_raw_fd(), stderr.as_raw_fd()]);
    }

    /// A PE's process has ended, which its state in the job's memory says already.
    pub fn left(&self, pe: usize) {
        self.passages.left(pe);
    }
}

/// While this value lives, its thread may not read the cycle counter, as PEs may not.
struct NoCycles(());

impl NoCycles {
    fn begin() -> NoCycles {
        allow_cycles(libc::PR_TSC_SIGSEGV);
        NoCycles(())
    }
}

impl Drop for NoCycles {
    fn drop(&mut self) {
        allow_cycles(libc::PR_TSC_ENABLE);
    }
}

/// Where the processor has no such thing, that is refused, and there is nothing to be avoided.
fn allow_cycles(how: i32) {
    // SAFETY: concerns this thread's cycle counter alone.
    unsafe { libc::prctl(libc::PR_SET_TSC, how) };
}

fn bail_out() -> Result<()> {
    bail!(
        "the simulated machine has broken down; what it said about that is a bug of memonet's, please report it"
    )
}
