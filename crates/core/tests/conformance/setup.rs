//! Means of all tests: fabrics, numbers of PEs, a time limit, and repeatable chance.

use crate::ground;
pub use crate::ground::{Meeting, nap, yield_now};
use memonet_core::unstable::segment::{Segment, Spot};
use memonet_core::{Job, Result, SymmetricRange};
use std::ffi::OsStr;
use std::fmt::Debug;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Time after which a job counts as hanging. Jobs take milliseconds; the rest is for busy machines.
pub const PATIENCE: Duration = Duration::from_secs(45);
/// Limit of waits that must end before it.
pub const LONG: Duration = Duration::from_secs(30);
/// Numbers of PEs: alone, few, powers of two and of eight, and one more.
pub const ALL: &[usize] = &[1, 2, 3, 5, 8, 9, 17];
/// For tests in which two PEs have a part, with and without a third one.
pub const FEW: &[usize] = &[2, 3];

/// A job's segment. Tests access only blocks that they have allocated, and hold no guards of shared
/// data meanwhile.
pub struct OwnBlocks(Segment);

/// The job's segments.
pub fn segment_of(job: &Job) -> OwnBlocks {
    OwnBlocks(job.segment())
}

impl std::ops::Deref for OwnBlocks {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        &self.0
    }
}

impl OwnBlocks {
    pub fn at(&self, pe: usize, offset: u64, bytes: usize) -> Option<Spot<'_>> {
        // SAFETY: as the type says.
        unsafe { self.0.at(pe, offset, bytes) }
    }

    pub fn place(&self, offset: u64, bytes: usize) -> Option<SymmetricRange> {
        // SAFETY: as the type says.
        unsafe { self.0.place(offset, bytes) }
    }

    pub fn lock_set(&self, offset: u64) -> Result<()> {
        // SAFETY: as the type says.
        unsafe { self.0.lock_set(offset) }
    }

    pub fn lock_test(&self, offset: u64) -> Result<bool> {
        // SAFETY: as the type says.
        unsafe { self.0.lock_test(offset) }
    }

    pub fn lock_clear(&self, offset: u64) -> Result<()> {
        // SAFETY: as the type says.
        unsafe { self.0.lock_clear(offset) }
    }
}

/// The way between the PEs.
#[derive(Clone, Copy)]
pub struct Setup {
    pub name: &'static str,
    /// As in `MEMONET_FABRIC`, without the seed.
    spec: Option<&'static str>,
    seeds: u64,
    /// Whether all PEs record what they do.
    recorded: bool,
}

/// All peers are mapped.
pub const NEAR: Setup = Setup { name: "near", spec: None, seeds: 1, recorded: false };
/// All peers are behind the fabric, which delivers at once.
pub const FAR: Setup = Setup { name: "far", spec: Some("far"), seeds: 1, recorded: false };
/// The fabric delays deliveries, and wakes sleepers by descriptors.
pub const LATE: Setup =
    Setup { name: "late", spec: Some("far:delay_us=40,wake=1"), seeds: 1, recorded: false };
/// The fabric delays deliveries, and reorders what no fence separates.
pub const SHUFFLED: Setup =
    Setup { name: "shuffled", spec: Some("far:delay_us=40,reorder=1"), seeds: 3, recorded: false };
/// That fabric, which copies writes to groups, too.
#[allow(dead_code, reason = "for PEs that are threads")]
pub const COPYING: Setup = Setup {
    name: "copying",
    spec: Some("far:delay_us=40,reorder=1,copies=1"),
    seeds: 1,
    recorded: false,
};

/// Nodes of two PEs, which are near to each other, with that fabric between nodes.
pub const MIXED: Setup = Setup {
    name: "mixed",
    spec: Some("far:nodes=2,delay_us=40,reorder=1"),
    seeds: 1,
    recorded: false,
};
/// As many nodes, to which PEs are dealt in turn; every other node has one CPU. The fabric delivers
/// at once.
pub const DEALT: Setup =
    Setup { name: "dealt", spec: Some("far:nodes=2,deal=1,cpus=1"), seeds: 1, recorded: false };

/// Nodes of two PEs with the shuffling fabric between them, where each PE records what it does.
/// Jobs of two PEs record mapped memory alone, larger ones both ways.
#[allow(dead_code, reason = "for PEs that are threads")]
pub const RECORDED: Setup = Setup { name: "recorded", recorded: true, ..MIXED };

/// Streams of sockets between all PEs.
pub const STREAMS: Setup = Setup { name: "streams", spec: Some("tcp"), seeds: 1, recorded: false };
/// Nodes of two PEs, with streams between nodes.
pub const STREAMS_MIXED: Setup =
    Setup { name: "streams, mixed", spec: Some("tcp:nodes=2"), seeds: 1, recorded: false };
/// As many nodes, to which PEs are dealt in turn; every other node has one CPU.
pub const STREAMS_DEALT: Setup = Setup {
    name: "streams, dealt",
    spec: Some("tcp:nodes=2,deal=1,cpus=1"),
    seeds: 1,
    recorded: false,
};

/// What libfabric offers on every machine.
const PROVIDER: &str = "tcp;ofi_rxm";
/// Endpoints of libfabric between all PEs.
pub const LIBFABRIC: Setup =
    Setup { name: "libfabric", spec: Some("ofi:provider=tcp;ofi_rxm"), seeds: 1, recorded: false };

/// A reordering fabric so slow that a PE can look between two deliveries, even on a busy machine.
pub const SHUFFLED_SLOWLY: Setup = Setup {
    name: "slowly shuffled",
    spec: Some("far:delay_us=50000,reorder=1"),
    seeds: 3,
    recorded: false,
};

/// Operations stay under way for long, unless a PE waits for their completion.
pub const SLUGGISH: Setup =
    Setup { name: "sluggish", spec: Some("far:delay_us=20000"), seeds: 1, recorded: false };

impl Setup {
    /// Another way, as `ground` understands `spec`.
    #[allow(dead_code, reason = "for PEs of the simulator")]
    pub const fn of(name: &'static str, spec: &'static str) -> Setup {
        Setup { name, spec: Some(spec), seeds: 1, recorded: false }
    }

    /// Whether this machine has what the fabric needs. Where it has not, says so.
    pub fn is_here(self) -> bool {
        static MISSING: OnceLock<Option<String>> = OnceLock::new();
        if !self.is_libfabric() {
            return true;
        }
        let missing = MISSING.get_or_init(|| memonet_fabrics::libfabric_has(PROVIDER).err());
        if let Some(why) = missing {
            eprintln!("SKIPPED, nothing was tested: {why}");
        }
        missing.is_none()
    }

    pub fn is_libfabric(self) -> bool {
        self.spec.is_some_and(|spec| spec.starts_with("ofi"))
    }

    /// Whether there is no fabric: all peers' memory is mapped.
    pub fn is_near(self) -> bool {
        self.spec.is_none()
    }

    /// Whether PEs live on a simulated machine.
    pub fn is_simulated(self) -> bool {
        self.spec.is_some_and(|spec| spec.starts_with("sim:"))
    }

    /// Whether every PE can read what a dead one's memory holds.
    pub fn reads_the_dead(self) -> bool {
        !self.is_between_hosts()
    }

    /// Whether the fabric is one between hosts.
    fn is_between_hosts(self) -> bool {
        self.is_libfabric() || self.spec.is_some_and(|spec| spec.starts_with("tcp"))
    }

    /// Whether these PEs of a job of so many have each other's memory mapped.
    pub fn are_near(self, pes: &[usize], npes: usize) -> bool {
        let of_node = |spec: &str| {
            let (_, rest) = spec.split_once("nodes=")?;
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse::<usize>().ok()
        };
        let of_node = self.spec.and_then(of_node);
        let node = |pe: usize| match (self.spec, of_node) {
            (None, _) => Some(0),
            (Some(spec), Some(count)) if spec.contains("deal=1") => Some(pe % npes.div_ceil(count)),
            (Some(_), Some(count)) => Some(pe / count),
            // The test fabric is between a PE and itself, too.
            (Some(_), None) if self.is_between_hosts() && npes == 1 => Some(0),
            (Some(_), None) => None,
        };
        pes.iter().all(|&pe| node(pe).is_some() && node(pe) == node(pes[0]))
    }

    /// One job to run for each number of PEs and, where there is chance in it, each of several
    /// seeds.
    pub fn runs(self, sizes: &[usize]) -> Vec<Run> {
        self.seeded(sizes, self.seeds)
    }

    /// As [`runs`](Self::runs), with so many seeds on a fabric that uses chance.
    pub fn many_runs(self, sizes: &[usize], seeds: u64) -> Vec<Run> {
        self.seeded(sizes, if self.seeds == 1 { 1 } else { seeds })
    }

    /// PEs of the largest job, unless a test has larger ones alone.
    fn most_pes(self) -> usize {
        match self.spec {
            // Connections in software take long. What a large job does stands on the calls that a
            // small one makes.
            _ if self.is_libfabric() => 3,
            // A fabric knows pairs of PEs. More of them are on streams without nodes, and more
            // nodes on the test fabric.
            Some(spec) if spec.starts_with("tcp:") => 9,
            _ => usize::MAX,
        }
    }

    fn seeded(self, sizes: &[usize], seeds: u64) -> Vec<Run> {
        let most = self.most_pes().max(sizes[0]);
        sizes
            .iter()
            .filter(|&&npes| npes <= most)
            // Large jobs are slow, and one seed reorders their many messages enough.
            .flat_map(|&npes| (0..if npes > 5 { 1 } else { seeds }).map(move |seed| (npes, seed)))
            .map(|(npes, seed)| Run { npes, setup: self, seed: 1 + seed * 100 + npes as u64 })
            .collect()
    }
}

/// A job to run.
#[derive(Clone, Copy)]
pub struct Run {
    pub npes: usize,
    pub setup: Setup,
    pub seed: u64,
}

impl Run {
    /// Whether all PEs are near.
    pub fn is_near(self) -> bool {
        let all: Vec<usize> = (0..self.npes).collect();
        self.setup.are_near(&all, self.npes)
    }

    /// Runs `f` on every PE, and gives the results.
    pub fn results<R: Send + 'static>(
        &self,
        f: impl Fn(&Job) -> R + Send + Sync + 'static,
    ) -> Vec<R> {
        self.results_of(Box::new(f))
    }

    /// As [`results`](Self::results), compiled once for each sort of results.
    fn results_of<R: Send + 'static>(&self, f: Program<R>) -> Vec<R> {
        let (npes, options) = (self.npes, self.options());
        within(&self.label(), move || results_of(options, npes, &*f))
    }

    /// Runs `f` on every PE. None may fail.
    pub fn job(&self, f: impl Fn(&Job) -> Result<()> + Send + Sync + 'static) {
        self.no_failures(self.results(f));
    }

    fn no_failures(&self, results: Vec<Result<()>>) {
        let failures: Vec<String> = results
            .into_iter()
            .enumerate()
            .filter_map(|(pe, result)| Some(format!("PE {pe}: {}", result.err()?)))
            .collect();
        assert!(failures.is_empty(), "{}: {failures:#?}", self.label());
    }

    /// Dice that differ between runs and PEs, and repeat themselves.
    pub fn dice(&self, pe: usize) -> Dice {
        Dice(self.seed << 20 ^ pe as u64)
    }

    /// Dice that all PEs throw alike.
    pub fn shared_dice(&self) -> Dice {
        Dice(self.seed << 20 ^ 0xF_FFFF)
    }

    pub fn options(&self) -> Option<String> {
        let seeded = |spec: &str| {
            let separator = if spec.contains(':') { ',' } else { ':' };
            format!("{spec}{separator}seed={}", self.seed)
        };
        let spec = self.setup.spec.map(seeded);
        match self.setup.recorded {
            true => Some(format!("{}{}", ground::RECORDED, spec.unwrap_or_default())),
            false => spec,
        }
    }

    fn label(&self) -> String {
        format!("{} PEs, {}, seed {}", self.npes, self.setup.name, self.seed)
    }
}

/// What each PE does.
type Program<R> = Box<dyn Fn(&Job) -> R + Send + Sync>;

/// Runs `f` on so many PEs, and gives the results.
pub fn results_of<R: Send>(
    fabric: Option<String>,
    npes: usize,
    f: &(dyn Fn(&Job) -> R + Send + Sync),
) -> Vec<R> {
    let results: Vec<Mutex<Option<R>>> = (0..npes).map(|_| Mutex::new(None)).collect();
    ground::run(fabric, npes, &|job| {
        let result = f(job);
        *results[job.pe()].lock().unwrap() = Some(result);
    });
    let of_pe = |slot: Mutex<Option<R>>| slot.into_inner().unwrap().expect("each PE has returned");
    results.into_iter().map(of_pe).collect()
}

/// Runs `f` in a thread of its own. Panics if it takes longer than [`PATIENCE`], or panics itself.
pub fn within<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || drop(sender.send(f())));
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => {
            panic!("{what}: has not ended after {PATIENCE:?}, so something waits in vain")
        }
        Err(RecvTimeoutError::Disconnected) => {
            resume_unwind(thread.join().expect_err("it sends, or it panics"))
        }
    }
}

/// Repeats `look` until it is true; panics if it stays false for too long.
pub fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < LONG, "{what}: not after {LONG:?}");
        yield_now();
    }
}

/// Chance (splitmix64).
#[derive(Clone)]
pub struct Dice(u64);

impl From<u64> for Dice {
    fn from(seed: u64) -> Self {
        Dice(seed)
    }
}

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.roll() % limit as u64) as usize
    }

    /// Work of uneven length: none, a little, a yield, a sleep.
    pub fn dawdle(&mut self) {
        match self.below(16) {
            0..8 => {}
            8..12 => (0..self.below(2000)).for_each(|_| std::hint::spin_loop()),
            12..15 => yield_now(),
            _ => nap(Duration::from_micros(self.below(200) as u64)),
        }
    }
}

/// A value that shows its writer, place and round.
pub fn mark(writer: usize, index: usize, round: usize) -> u64 {
    let mut dice = Dice((writer as u64) << 48 ^ (index as u64) << 16 ^ round as u64);
    // Never zero, the initial value of windows.
    dice.roll() | 1
}

/// A block of such values.
pub fn marks(writer: usize, round: usize, len: usize) -> Vec<u64> {
    (0..len).map(|index| mark(writer, index, round)).collect()
}

/// The numbers of PEs that a forced barrier can serve: `everyone` serves up to eight.
pub fn sizes_here(sizes: &[usize]) -> Vec<usize> {
    let everyone =
        std::env::var_os(memonet_core::ENV_BARRIER).is_some_and(|name| name == "everyone");
    sizes.iter().copied().filter(|&n| !everyone || n <= 8).collect()
}

/// Runs this program's tests whose names contain one of `filters`, hidden ones too, in a process of
/// its own with `environment`.
pub fn in_another_process<S: AsRef<OsStr> + Debug>(filters: &[S], environment: &[(&str, &str)]) {
    let program = std::env::current_exe().expect("this program has a name");
    let output = std::process::Command::new(program)
        .args(filters)
        .args(["--include-ignored", "--test-threads=2"])
        .envs(environment.iter().copied())
        .output()
        .expect("this program can be started again");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "with {environment:?}:\n{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!said.contains(" 0 passed"), "{filters:?} names no test");
}
