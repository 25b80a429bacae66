//! Linearizability: one order of all operations must explain what all threads saw, and when.
//!
//! The data are a count. A writer adds one and records the new value, so the values order all
//! writes; a read of v lies between write v and write v + 1. The check is that this order agrees
//! with time: an operation that ended before another began comes before it.

use crate::setup::{Dice, Setup};
use memonet_core::dsm::{Mutex, RwLock};
use memonet_core::{Job, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Local};
use std::time::Duration;

on_every_fabric!(; with threads of their own: of_mutexes, of_rwlocks);

#[derive(Debug, Clone, Copy)]
struct Event {
    begin: u64,
    end: u64,
    /// 2 v for the write of v, 2 v + 1 for a read of v.
    place: u64,
}

/// A clock that all threads share, and their operations.
#[derive(Default)]
struct History {
    clock: AtomicU64,
    events: Local<Vec<Event>>,
}

impl History {
    fn record(&self, action: impl FnOnce() -> Result<Option<u64>>) -> Result<()> {
        let now = || self.clock.fetch_add(1, Ordering::SeqCst);
        let begin = now();
        let done = action()?;
        let end = now();
        if let Some(place) = done {
            self.events.lock().unwrap().push(Event { begin, end, place });
        }
        Ok(())
    }

    /// Checks that no event ended before one of an earlier place began. Each write has a place of
    /// its own.
    fn check(&self) -> std::result::Result<(), String> {
        let mut events = self.events.lock().unwrap().clone();
        events.sort_by_key(|event| (event.place, event.begin));
        // Of all events before a place, the latest begin.
        let mut latest: Option<Event> = None;
        for same in events.chunk_by(|a, b| a.place == b.place) {
            if same[0].place.is_multiple_of(2) && same.len() > 1 {
                return Err(format!("two writes made the same: {same:?}"));
            }
            let early = |event: &&Event| latest.is_some_and(|before| before.begin > event.end);
            if let Some(event) = same.iter().find(early) {
                return Err(format!(
                    "{event:?} had ended when {latest:?}, which comes before it, began"
                ));
            }
            latest = same.iter().copied().chain(latest).max_by_key(|event| event.begin);
        }
        Ok(())
    }
}

/// Two threads of each PE act at random; then the history is checked.
fn with_history(
    setup: Setup,
    act: impl Fn(&Tools, &mut Dice) -> Result<Option<u64>> + Send + Sync + Copy + 'static,
) {
    let times = if setup.is_near() { 200 } else { 20 };
    for run in setup.many_runs(&[1, 2, 3, 5], 3) {
        let history = Arc::new(History::default());
        let recorded = history.clone();
        run.job(move |job| {
            let tools = Tools::new(job)?;
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..2)
                    .map(|thread| {
                        let (tools, recorded, mut dice) =
                            (&tools, &recorded, run.dice(2 * job.pe() + thread));
                        scope.spawn(move || {
                            (0..times).try_for_each(|_| recorded.record(|| act(tools, &mut dice)))
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
            job.barrier()
        });
        let checked = history.check();
        assert!(checked.is_ok(), "{} PEs, seed {}: {checked:?}", run.npes, run.seed);
    }
}

struct Tools {
    mutex: Mutex<u64>,
    table: RwLock<u64>,
}

impl Tools {
    fn new(job: &Job) -> Result<Tools> {
        Ok(Tools { mutex: Mutex::new(job, &0)?, table: RwLock::new(job, &0)? })
    }
}

fn patience(dice: &mut Dice) -> Duration {
    Duration::from_micros(dice.below(100) as u64)
}

fn of_mutexes(setup: Setup) {
    with_history(setup, |tools, dice| {
        let guard = match dice.below(4) {
            0 => tools.mutex.try_lock()?,
            1 => tools.mutex.lock_timeout(patience(dice)).ok(),
            _ => Some(tools.mutex.lock()?),
        };
        let Some(mut guard) = guard else { return Ok(None) };
        dice.dawdle();
        if dice.below(3) == 0 {
            return Ok(Some(2 * *guard + 1));
        }
        *guard += 1;
        Ok(Some(2 * *guard))
    });
}

fn of_rwlocks(setup: Setup) {
    with_history(setup, |tools, dice| {
        if dice.below(3) > 0 {
            let guard = match dice.below(3) {
                0 => tools.table.read_timeout(patience(dice)).ok(),
                _ => Some(tools.table.read()?),
            };
            dice.dawdle();
            return Ok(guard.map(|guard| 2 * *guard + 1));
        }
        let Some(mut guard) = (match dice.below(3) {
            0 => tools.table.write_timeout(patience(dice)).ok(),
            _ => Some(tools.table.write()?),
        }) else {
            return Ok(None);
        };
        *guard += 1;
        dice.dawdle();
        Ok(Some(2 * *guard))
    });
}

/// The checker finds wrong histories.
#[test]
fn the_checker_checks() {
    let check = |events: &[(u64, u64, u64)]| {
        let history = History::default();
        let event = |&(begin, end, place): &(u64, u64, u64)| Event { begin, end, place };
        *history.events.lock().unwrap() = events.iter().map(event).collect();
        history.check()
    };
    // Write 1, reads of 0 and 1 beside it, and a read of 1 after it.
    assert!(check(&[(2, 5, 2), (1, 9, 1), (3, 4, 3), (6, 7, 3)]).is_ok());
    // A read of 0 that begins after the write of 1 has ended; a read of 1 before it begins; a write
    // lost.
    assert!(check(&[(2, 5, 2), (6, 9, 1)]).is_err());
    assert!(check(&[(2, 5, 2), (0, 1, 3)]).is_err());
    assert!(check(&[(2, 5, 2), (3, 6, 2)]).is_err());
    // Readers see the newer value before the older one.
    assert!(check(&[(0, 20, 2), (1, 2, 3), (3, 4, 1)]).is_err());
}
