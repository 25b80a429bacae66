//! A job on a simulated machine: the engine, in a thread of the launcher, and its requests to the
//! main thread.
//!
//! ```text
//! [ engine: virtual time ] <-- turns --> PE 0, PE 1 ... one runs, on the same CPU; or several, on all
//!    | start a PE, pass its output on                  ^
//!    v                                                 | starts them (children die with the thread that started them)
//! [ launcher: the epoll loop ] --- a PE has ended ---> engine
//! ```

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use memonet_core::unstable::hosted::{Hosted, Passages};
use memonet_core::unstable::launch::{Activity, JobFile};
use memonet_sim::trace::Recorder;
use memonet_sim::{Launcher, Machine, Pace, ProcessOptions, Usage, run_processes};
use rustix::process::Pid;

use super::no_cycles::NoCycles;
use super::seats::{Seats, Start};
use super::spec::Simulated;
use super::wakers::Wakers;
use super::wakeup::Wakeup;
use crate::unpoisoned::unpoisoned;

/// How long a PE may run without a call, unless `--patience` says otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// Number of the main thread's checks in that time.
const CHECKS: u32 = 10;

/// Most PEs that are started at once: the main thread does nothing else meanwhile.
const STARTS: usize = 16;

/// Another cause of a deadlock, which the machine does not see: threads that wait for the turn of
/// their own PE.
pub const ONE_THREAD: &str = "While one thread of a PE waits, calls of its other threads do not proceed: call memonet from one thread";

/// The main thread's view of a simulated machine and its job.
pub struct Simulation {
    passages: Arc<Passages>,
    /// Becomes readable when there is news.
    wakeup: Wakeup,
    news: Receiver<News>,
    engine: Option<JoinHandle<Result<()>>>,
    started: Arc<Started>,
    pace: Arc<Pace>,
    patience: Duration,
    /// The turn that was in progress at the last check.
    turn: Option<Seen>,
    last_check: Instant,
}

/// A PE's turn, as far as the checks have seen.
#[derive(Clone, Copy)]
struct Seen {
    number: u64,
    /// For how long the PE could have made a call, and made none.
    silent_for: Duration,
    /// No check has seen the PE's process run.
    asleep: bool,
}

/// A request of the engine to the main thread. The engine waits for the answer.
pub enum News {
    /// Start these PEs. The answer says how many were started.
    Start(Vec<Start>, Sender<usize>),
    /// Read the output of these PEs, in this order.
    PassOn(Vec<usize>, Sender<()>),
    /// The last one: the engine has ended with this result.
    Ended(Result<()>),
}

/// What the engine has to know of the processes that were started.
#[derive(Default)]
struct Started(Mutex<Vec<Process>>);

struct Process {
    pid: Pid,
    /// The descriptors from which its output is read.
    output: [i32; 2],
    /// Whether the main thread withholds output.
    is_withheld: bool,
}

impl Started {
    fn pid(&self, pe: usize) -> Option<Pid> {
        unpoisoned(self.0.lock()).get(pe).map(|process| process.pid)
    }

    /// PEs of which output is withheld.
    fn withheld(&self) -> Vec<usize> {
        let all = unpoisoned(self.0.lock());
        let withheld = all.iter().enumerate().filter(|(_, process)| process.is_withheld);
        withheld.map(|(pe, _)| pe).collect()
    }

    /// Those of these PEs that have output that is to be passed on.
    fn with_output(&self, pes: &[usize]) -> Vec<usize> {
        let mut all = unpoisoned(self.0.lock());
        // The call looks at no descriptor below 0.
        let outputs = pes.iter().flat_map(|&pe| all.get(pe).map_or([-1; 2], |it| it.output));
        let mut polled: Vec<_> =
            outputs.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: so many pollfd are in the vector. The call changes nothing about the descriptors.
        // If one was closed meanwhile, poll says so; if its number stands for another file by now,
        // the launcher reads once too often.
        let done = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 0) };
        let has_output = |&(&pe, polled): &(&usize, &[libc::pollfd])| {
            let withheld = all.get_mut(pe).is_some_and(|it| std::mem::take(&mut it.is_withheld));
            withheld || done < 0 || polled.iter().any(|polled| polled.revents != 0)
        };
        pes.iter().zip(polled.chunks_exact(2)).filter(has_output).map(|(&pe, _)| pe).collect()
    }
}

/// The engine's connection to the main thread.
struct Main {
    wakeup: Wakeup,
    /// `None` at the end.
    news: Option<Sender<News>>,
    started: Arc<Started>,
    seats: RefCell<Seats>,
    wakers: Wakers,
}

impl Main {
    /// Asks, and waits for the answer. `None` if the main thread is ending the job.
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
    fn start(&self, pes: &[usize]) -> usize {
        let (mut pes, mut started) = (self.seats.borrow_mut().start(pes), 0);
        while !pes.is_empty() {
            let some = pes.drain(..STARTS.min(pes.len())).collect();
            started += self.ask(|answer| News::Start(some, answer)).unwrap_or(0);
        }
        started
    }

    fn begin(&self, at_once: usize) -> usize {
        self.seats.borrow_mut().begin(at_once)
    }

    fn place(&self, pe: usize, number: usize) {
        self.seats.borrow_mut().place(pe, number, || self.started.pid(pe));
    }

    fn wake(&self, pes: &[usize]) {
        if let [_] = pes {
            return self.wakers.wake(pes);
        }
        let (here, there) = self.seats.borrow().by_cpu(pes);
        there.into_iter().for_each(|(cpu, pes)| self.wakers.wake_there(cpu, pes));
        self.wakers.wake(&here);
    }

    fn end(&self, at_once: usize) {
        self.seats.borrow_mut().end(at_once);
        if at_once > 1 {
            self.pass_on(&self.started.withheld());
        }
    }

    fn pass_on(&self, pes: &[usize]) {
        let pes = self.started.with_output(pes);
        if !pes.is_empty() {
            // Without an answer, the job is being ended.
            let _ = self.ask(|answer| News::PassOn(pes, answer));
        }
    }
}

/// The machine and options that `--machine` asks for.
pub struct Plan {
    machine: Machine,
    options: ProcessOptions,
    patience: Duration,
    cpu_scale: Option<f64>,
    report: Report,
}

/// What a run on a simulated machine has used. It is there when the run has ended.
#[derive(Clone, Default)]
pub struct Report(Arc<OnceLock<(String, Recorder)>>);

impl Report {
    /// The report. Nothing for a run that never began.
    pub fn text(&self) -> &str {
        self.0.get().map_or("", |(text, _)| text.as_str())
    }

    /// What the machine's parts have done, if that was recorded.
    pub fn stages(&self) -> Option<&Recorder> {
        self.0.get().map(|(_, stages)| stages)
    }

    fn set(&self, machine: &Machine, usage: &Usage, stages: Recorder) {
        self.0.get_or_init(|| (format!("machine {}: {usage}", machine.name()), stages));
    }
}

/// Reads the options. `record`: what the machine's parts do is recorded.
pub fn plan(options: &Simulated, record: bool) -> Result<Option<Plan>> {
    let Some(name) = &options.machine else { return Ok(None) };
    Ok(Some(Plan {
        machine: Machine::load(name)?,
        options: ProcessOptions {
            seed: options.seed.unwrap_or(1),
            record,
            at_once: options.cpu_scale.is_none(),
        },
        patience: options.patience.unwrap_or(PATIENCE),
        cpu_scale: options.cpu_scale,
        report: Report::default(),
    }))
}

impl Plan {
    /// Gets the report of the run at its end.
    pub fn report(&self) -> Report {
        self.report.clone()
    }

    /// The pages through which PEs communicate with the engine.
    pub fn passages(&self, npes: usize) -> Result<Arc<Passages>> {
        Ok(Arc::new(Passages::create(npes, self.options.seed, self.cpu_scale)?))
    }

    /// Starts the engine on the first of the CPUs that the PEs may use, if they are bound: a
    /// hand-over to another CPU takes several times as long.
    pub fn start(
        self,
        job: &JobFile,
        passages: Arc<Passages>,
        cpus: Vec<usize>,
    ) -> Result<Simulation> {
        // SAFETY: the machine carries out the requests of processes that are PEs of this job.
        let hosted = Arc::new(unsafe { Hosted::of(job) }?);
        let wakeup = Wakeup::new()?;
        let (sender, news) = channel();
        let started = Arc::new(Started::default());
        let main = Main {
            wakeup: wakeup.try_clone()?,
            news: Some(sender),
            started: started.clone(),
            seats: RefCell::new(Seats::new(cpus)),
            wakers: Wakers::new(passages.clone()),
        };
        let (of_engine, patience) = (passages.clone(), self.patience);
        let pace = Arc::new(Pace::default());
        let its_pace = pace.clone();
        let engine = move || self.run(&hosted, &of_engine, &its_pace, main);
        let engine = std::thread::Builder::new()
            .name("machine".into())
            .spawn(engine)
            .context("cannot start a thread")?;
        Ok(Simulation {
            passages,
            wakeup,
            news,
            engine: Some(engine),
            started,
            pace,
            patience,
            turn: None,
            last_check: Instant::now(),
        })
    }

    /// Runs the engine from start to end.
    fn run(self, hosted: &Arc<Hosted>, passages: &Passages, pace: &Pace, main: Main) -> Result<()> {
        main.seats
            .borrow()
            .bind_machine()
            .context("cannot bind the machine to its CPU; use --bind none")?;
        // PEs may not read the cycle counter. A switch between a thread that may and one that may
        // not costs more than a hand-over. So from here to the end of the run, this thread may not
        // read it either, and reads no clock.
        let ended = {
            let _like_its_pes = NoCycles::begin();
            run_processes(&self.machine, hosted, passages, &self.options, pace, &main)?
        };
        self.report.set(&self.machine, &ended.usage, ended.recorder);
        Ok(ended.result?)
    }
}

impl Simulation {
    /// Becomes readable when there is [`news`](Self::news).
    pub fn wakeup(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// The engine's next request, if there is one now.
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

    /// When to check again whether the running PE makes progress.
    pub fn next_check(&self) -> Instant {
        self.last_check + self.patience / CHECKS
    }

    /// Forgets for how long the running PE has made no call. Called when something outside of the
    /// PE has kept it from making one.
    pub fn be_patient(&mut self) {
        self.turn = None;
    }

    /// Checks, if it is time, and ends the run if a PE has kept its turn for too long. `activity`
    /// says what a PE's process does; one that has no call to make counts as stopped.
    pub fn check(&mut self, now: Instant, activity: impl Fn(usize) -> Activity) {
        if now < self.next_check() {
            return;
        }
        // The launcher may have been stopped since the last check, and its PEs with it. So a check
        // that comes late counts as two.
        let passed = (now - self.last_check).min(2 * self.patience / CHECKS);
        self.last_check = now;
        self.turn = self.pace.turn().map(|turn| {
            let before = self.turn.filter(|seen| seen.number == turn.number);
            let passed = if before.is_some() { passed } else { Duration::ZERO };
            let first = Seen { number: turn.number, silent_for: Duration::ZERO, asleep: true };
            let mut seen = before.unwrap_or(first);
            match activity(turn.pe) {
                // It cannot make a call.
                Activity::Stopped => return seen,
                Activity::Sleeps => {}
                Activity::Runs => seen.asleep = false,
            }
            seen.silent_for += passed;
            // PEs that share a CPU wait for each other.
            let patience = self.patience * turn.share;
            if seen.silent_for >= patience {
                self.pace.give_up(&self.passages, turn.pe, patience, seen.asleep);
            }
            seen
        });
    }

    /// Adds the process of the next PE, and the descriptors of its output.
    pub fn started(&self, pid: Pid, stdout: &OwnedFd, stderr: &OwnedFd) {
        let output = [stdout.as_raw_fd(), stderr.as_raw_fd()];
        unpoisoned(self.started.0.lock()).push(Process { pid, output, is_withheld: false });
    }

    /// Whether output of PE `pe` that is read now is to be withheld until the engine asks for it:
    /// PEs run at once, and others come before this one.
    pub fn withholds(&self, pe: usize) -> bool {
        // The engine looks for what is withheld once PEs no longer run at once.
        let mut all = unpoisoned(self.started.0.lock());
        let withholds = !self.pace.shows(pe);
        // Before the output is read: the engine asks for what it sees unread, or knows withheld.
        all[pe].is_withheld |= withholds;
        withholds
    }

    /// Has parked PEs say what they wait for. One that is just about to sleep may miss it: the
    /// caller repeats this.
    pub fn wake(&self, parked: &[usize]) {
        parked.iter().for_each(|&pe| self.passages.wake(pe));
    }

    /// Ends the run, as no PE is left: what is still under way is of interest to nobody.
    pub fn stop(&self) {
        self.pace.stop();
    }

    /// Notifies the engine that a PE's process has ended. The job's memory says so already.
    pub fn left(&self, pe: usize) {
        self.passages.left(pe);
    }
}

fn bail_out() -> Result<()> {
    bail!(
        "the simulated machine has failed; the message above shows a bug of memonet, please report it"
    )
}
