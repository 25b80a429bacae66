//! The PEs of the tests: threads. Everything in which another sort of PE would differ is here.

use crate::setup::LONG;
use memonet_core::unstable::recorder::events::layout::Areas;
use memonet_core::unstable::recorder::file::RecordFile;
use memonet_core::{Job, JobOptions};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Before the name of a fabric, or of none: PEs record what they do.
pub const RECORDED: &str = "recorded ";

/// Runs `f` on so many PEs, on the fabric of that name, or with all peers near. With a type of `f`
/// as a parameter it would be compiled for each test: half of the compiler's time.
pub fn run(fabric: Option<String>, npes: usize, f: &(dyn Fn(&Job) + Send + Sync)) {
    let (is_recorded, fabric) = match fabric.as_deref().map(|spec| spec.strip_prefix(RECORDED)) {
        Some(Some(rest)) => (true, Some(rest.to_owned()).filter(|rest| !rest.is_empty())),
        _ => (false, fabric),
    };
    let options =
        fabric.map_or_else(JobOptions::new, |spec| memonet_fabrics::options(&spec).unwrap());
    let options = match is_recorded {
        true => {
            // In long tests it becomes full.
            let room = Areas::bytes_for(500);
            options.record(Arc::new(RecordFile::create(npes, 0, npes, room).unwrap()))
        }
        false => options,
    };
    Job::threads_with(&options, npes, |job| f(&job)).expect("a job of threads");
}

/// Whether PEs take exactly the time that they compute.
pub const SIMULATED: bool = false;

/// The PEs' time, since any moment.
pub fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Does nothing for a while.
pub fn nap(time: Duration) {
    std::thread::sleep(time);
}

/// Lets other PEs run.
pub fn yield_now() {
    std::thread::yield_now();
}

/// A barrier of threads without memonet, to separate what memonet does by itself from what a call
/// does.
pub struct Meeting {
    came: Mutex<usize>,
    changed: Condvar,
    parties: usize,
}

impl Meeting {
    pub fn new(parties: usize) -> Self {
        Meeting { came: Mutex::new(0), changed: Condvar::new(), parties }
    }

    /// Returns when all parties have called it as often as this one.
    pub fn meet(&self) {
        let mut came = self.came.lock().unwrap();
        *came += 1;
        let enough = came.div_ceil(self.parties) * self.parties;
        self.changed.notify_all();
        let (came, timeout) =
            self.changed.wait_timeout_while(came, LONG, |came| *came < enough).unwrap();
        drop(came);
        assert!(!timeout.timed_out(), "somebody did not come to the meeting");
    }
}
