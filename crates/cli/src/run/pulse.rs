//! Threads of the launcher that have PEs take turns on their CPUs while they write to each other.
//!
//! A program may poll its own memory without a call, and then keeps its CPU for a slice of the
//! scheduler. While PEs write to each other they beat the job's [`Pulse`]. Then a thread that is
//! bound to each shared CPU wakes every [`TURN`]. Its waking is all that it is for: the kernel
//! chooses anew who runs next. While nobody beats the pulse, the threads sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use memonet_core::unstable::launch::{JobFile, Pulse};
use rustix::thread::CpuSet;

/// Time between two turns: more than most programs need to work off what they have been sent, and
/// much less than a slice.
const TURN: Duration = Duration::from_micros(400);
/// Turns without a beat after which a thread goes to sleep.
const LAST_TURNS: u32 = 5;
/// The longest sleep. A beat wakes the threads, but a stray store to the control page may lose it,
/// and must not keep the launcher from ending.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 64 << 10;

/// One thread for each shared CPU. Dropping this ends them.
#[derive(Default)]
pub struct Keepers {
    shared: Option<Arc<Shared>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    pulse: Pulse,
    over: AtomicBool,
}

impl Keepers {
    /// Starts a thread on each of the CPUs. The job is right without them, only slower; so it goes
    /// on without a thread that cannot be started or bound.
    pub fn start(cpus: &[usize], job: &JobFile) -> Keepers {
        if cpus.is_empty() {
            return Keepers::default();
        }
        let Ok(pulse) = Pulse::of(job) else { return Keepers::default() };
        let shared = Arc::new(Shared { pulse, over: AtomicBool::new(false) });
        let start = |&cpu: &usize| {
            let shared = shared.clone();
            let thread = Builder::new().name("pulse".into()).stack_size(STACK_BYTES);
            thread
                .spawn(move || {
                    if bind(cpu) {
                        _ = shared.keep()
                    }
                })
                .ok()
        };
        let threads = cpus.iter().filter_map(start).collect();
        Keepers { shared: Some(shared), threads }
    }
}

impl Drop for Keepers {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.end();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Binds this thread to a CPU; false where that cannot be.
fn bind(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu);
    // By default a sleep may last 50 us longer.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    rustix::thread::sched_setaffinity(None, &set).is_ok()
}

impl Shared {
    /// Takes turns while the pulse beats, and sleeps while it does not, until the job is over.
    /// Gives the number of turns.
    fn keep(&self) -> u64 {
        let (mut seen, mut vain, mut turns) = (self.pulse.beats(), LAST_TURNS, 0);
        while !self.over.load(Ordering::SeqCst) {
            let now = self.pulse.beats();
            if now != seen {
                (seen, vain) = (now, 0);
            } else if vain < LAST_TURNS {
                vain += 1;
            } else {
                self.pulse.sleep(seen, LONGEST_SLEEP);
                continue;
            }
            sleep(TURN);
            turns += 1;
        }
        turns
    }

    /// Has [`keep`](Self::keep) return. The beat comes after `over` is set: a thread that has read
    /// `over` before sees another number of beats, and does not sleep.
    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.pulse.beat();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        let job = JobFile::create(1, 1).unwrap();
        Shared { pulse: Pulse::of(&job).unwrap(), over: AtomicBool::new(false) }
    }

    #[test]
    fn without_a_beat_they_sleep() {
        let shared = shared();
        let turns = std::thread::scope(|scope| {
            let keeper = scope.spawn(|| shared.keep());
            sleep(Duration::from_millis(50));
            shared.end();
            keeper.join().unwrap()
        });
        // The thread may see the last beat, which ends it.
        assert!(turns <= 1, "{turns}");
    }

    #[test]
    fn a_beat_is_good_for_a_few_turns() {
        let shared = shared();
        let turns = std::thread::scope(|scope| {
            let keeper = scope.spawn(|| shared.keep());
            sleep(Duration::from_millis(50));
            shared.pulse.beat();
            sleep(Duration::from_millis(50));
            shared.end();
            keeper.join().unwrap()
        });
        assert!(turns <= u64::from(LAST_TURNS) + 2, "{turns}");
    }

    #[test]
    fn they_go_on_while_it_beats() {
        let shared = shared();
        let turns = std::thread::scope(|scope| {
            let keeper = scope.spawn(|| shared.keep());
            for _ in 0..100 {
                shared.pulse.beat();
                sleep(Duration::from_millis(1));
            }
            shared.end();
            keeper.join().unwrap()
        });
        assert!(turns > u64::from(2 * LAST_TURNS), "{turns}");
    }

    #[test]
    fn they_end_with_the_job() {
        let job = JobFile::create(1, 1).unwrap();
        let cpus = memonet_core::unstable::launch::cpu_list();
        let keepers = Keepers::start(&cpus, &job);
        assert_eq!(keepers.threads.len(), cpus.len());
        let shared = Arc::downgrade(keepers.shared.as_ref().unwrap());
        drop(keepers);
        assert_eq!(shared.strong_count(), 0, "no thread holds it any more");
        assert!(Keepers::start(&[], &job).shared.is_none());
    }
}
