//! What the PEs of the tests are: coroutines on a machine. A test that asks for another fabric by
//! name gets threads on that.

use crate::setup::{LONG, Setup};
use memonet_core::{Job, JobOptions};
use memonet_sim::{Machine, Options};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A network whose hardware only writes.
pub const AGENTS: Setup = Setup::of("agents", "sim:machine=fast-ethernet-udp");
/// One whose hardware reads, and updates words, too.
pub const REMOTE_DMA: Setup = Setup::of("remote DMA", "sim:machine=rdma-100g");
/// One whose NICs show what is long only after a switch of banks.
pub const MEMORY_SLOT: Setup = Setup::of("memory slot", "sim:machine=dimmnet-1/D-tree");
/// The same, where core processors update words and run barriers.
pub const CORE_PROCESSOR: Setup =
    Setup::of("core processor", "sim:machine=dimmnet-1/D-core-barrier");
/// The same with four PEs on a NIC.
pub const SHARED: Setup = Setup::of("shared", "sim:machine=dimmnet-1/D-shared");
/// One by command words, with agents.
pub const COMMAND_WORD: Setup = Setup::of("command words", "sim:machine=sr2201");
/// The same with four PEs on a NIC.
pub const SHARED_COMMAND_WORD: Setup =
    Setup::of("shared command words", "sim:machine=sr2201/shared");
/// InfiniBand, with agents, and datagrams to groups that may be lost.
pub const INFINIBAND: Setup = Setup::of("InfiniBand", "sim:machine=dimmnet-2/lossy");
/// A LAN and wires.
pub const WIRES: Setup = Setup::of("wires", "sim:machine=scc");

/// Before the name of a fabric: PEs record what they do. None does here.
pub const RECORDED: &str = "recorded ";

/// Runs `f` on so many PEs.
pub fn run(fabric: Option<String>, npes: usize, f: &(dyn Fn(&Job) + Send + Sync)) {
    let Some(machine) = fabric.as_deref().and_then(|spec| spec.strip_prefix("sim:machine=")) else {
        let options =
            fabric.map_or_else(JobOptions::new, |spec| memonet_fabrics::options(&spec).unwrap());
        Job::threads_with(&options, npes, |job| f(&job)).expect("a job of threads");
        return;
    };
    let (machine, seed) = machine.split_once(",seed=").expect("the suite names a seed");
    let machine = Machine::load(machine).expect("a machine that is built in");
    let options = Options {
        seed: seed.parse().expect("a number"),
        // As large as those of other jobs: tests ask for too much.
        segment: None,
        ..Options::default()
    };
    memonet_sim::run(&machine, npes, &options, |job| f(&job)).expect("a run");
}

/// Whether PEs take just the time that they say they take.
pub const SIMULATED: bool = true;

/// The time of the PE that runs here.
pub fn now() -> Duration {
    memonet_sim::now()
}

/// Does nothing for a while.
pub fn nap(time: Duration) {
    if !memonet_sim::sleep(time) {
        std::thread::sleep(time);
    }
}

/// Lets others run.
pub fn yield_now() {
    nap(Duration::from_micros(1));
}

/// A place where PEs meet of which memonet knows nothing, to tell what memonet does by itself from
/// what a call does.
pub struct Meeting {
    came: Mutex<usize>,
    parties: usize,
}

impl Meeting {
    pub fn new(parties: usize) -> Self {
        Meeting { came: Mutex::new(0), parties }
    }

    /// Returns when all parties have called it as often as this one.
    pub fn meet(&self) {
        let enough = {
            let mut came = self.came.lock().unwrap();
            *came += 1;
            came.div_ceil(self.parties) * self.parties
        };
        let start = Instant::now();
        while *self.came.lock().unwrap() < enough {
            assert!(start.elapsed() < LONG, "somebody did not come to the meeting");
            nap(Duration::from_micros(10));
        }
    }
}
