//! Deaths and departures: every wait ends, and its error names the PE that caused it.

use crate::setup::{LONG, Meeting, Run, Setup, within};
use memonet_core::{
    Access, Barrier, Cause, Cmp, Error, Job, JobOptions, Lock, Result, SignalOp, Span, Sum, Team,
    Window,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

on_every_fabric!(
    [also on recorded, copying, streams_dealt]
    every_wait_ends_when_somebody_is_dead,
    every_wait_ends_when_somebody_dies,
    death_at_any_moment,
    the_dead_is_blamed,
    the_dead_is_blamed_before_who_left,
    others_go_on,
    what_is_asked_of_the_dead_ends,
    what_has_happened_counts,
    a_complete_phase_stays_complete,
    the_panic_goes_on,
    the_first_panic_goes_on,
    finalising_after_a_death,
    everybody_dies,
    what_a_dead_thread_holds_is_told,
    a_new_job_after_a_failed_one,
);

/// The panic of a PE that is to die.
#[derive(Debug, PartialEq)]
struct Deliberate;

/// Runs a job in which all PEs run `prepare`; then PE `victim` dies at the end of `die`, and the
/// others run `survive`. Fails if any of these fails.
pub fn with_a_death<T>(
    run: Run,
    victim: usize,
    prepare: impl Fn(&Job) -> Result<T> + Send + Sync + 'static,
    die: impl Fn(&Job, T) -> Result<()> + Send + Sync + 'static,
    survive: impl Fn(&Job, &T) -> Result<()> + Send + Sync + 'static,
) {
    let complaints: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = complaints.clone();
    let prepared = Meeting::new(run.npes);
    let panic = run_to_panic(run, move |job| {
        let complain =
            |what: String| heard.lock().unwrap().push(format!("PE {}: {what}", job.pe()));
        let tools = prepare(job);
        // Writes that are under way when their sender dies need not arrive.
        prepared.meet();
        let tools = match tools {
            Ok(tools) => tools,
            Err(error) => return complain(format!("nobody was dead, but {error}")),
        };
        if job.pe() == victim {
            if let Err(error) = die(job, tools) {
                complain(format!("before it died: {error}"));
            }
            // Without a panic message.
            resume_unwind(Box::new(Deliberate));
        }
        match catch_unwind(AssertUnwindSafe(|| survive(job, &tools))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => complain(error.to_string()),
            Err(panic) => complain(text(&*panic)),
        }
    });
    let complaints = complaints.lock().unwrap();
    assert!(complaints.is_empty(), "{} PEs, seed {}: {complaints:#?}", run.npes, run.seed);
    assert!(panic.is::<Deliberate>(), "{}", text(&*panic));
}

/// Runs a job that must end with a panic, and gives the panic.
fn run_to_panic(run: Run, f: impl Fn(&Job) + Send + Sync + 'static) -> Box<dyn Any + Send> {
    let results = catch_unwind(AssertUnwindSafe(|| run.results(f)));
    results.map(drop).expect_err("the panic goes on")
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_else(|| "a panic without words".into())
}

#[track_caller]
pub fn blames<T>(result: Result<T>, victim: usize, why: Cause, what: &str) {
    let result = result.map(drop);
    let right =
        matches!(result, Err(Error::PeerFailed { pe, cause, .. }) if pe == victim && cause == why);
    assert!(right, "{what}: {result:?}, not the fault of PE {victim}");
}

/// Objects that survivors wait with, made while all PEs live.
pub struct Tools {
    words: Window<u64>,
    barrier: Barrier,
    team: Team,
    /// The victim's number.
    lock: Lock,
    /// For collectives: twice as much for each PE as is too large for an eager buffer.
    pub blocks: Window<u64>,
    victim: usize,
}

/// Numbers of elements that fit into a line, into an eager buffer, and into neither.
const FEW: usize = 1;
const SOME: usize = 100;
pub const MANY: usize = 200;

impl Tools {
    pub fn new(job: &Job, victim: usize) -> Result<Tools> {
        let everybody: Vec<usize> = (0..job.npes()).rev().collect();
        let words = job.window(5)?;
        let lock = words.lock(4)?;
        if job.pe() == victim {
            std::mem::forget(lock.lock()?);
        }
        Ok(Tools {
            words,
            lock,
            blocks: job.window(2 * MANY * job.npes())?,
            barrier: job.world().new_barrier()?,
            team: job.team(&everybody)?.expect("all are in it"),
            victim,
        })
    }

    /// Destination and source of `len` elements for each of `members`.
    pub fn spans(&self, len: usize, members: usize) -> Result<(Span<'_, u64>, Span<'_, u64>)> {
        let half = self.blocks.len() / 2;
        Ok((self.blocks.span(0..len * members)?, self.blocks.span(half..half + len * members)?))
    }

    fn broadcast(&self, team: &Team, root: usize, len: usize) -> Result<()> {
        let (to, from) = self.spans(len, 1)?;
        team.broadcast_into(root, to, from)
    }

    fn all_to_all(&self, team: &Team, len: usize) -> Result<()> {
        let (to, from) = self.spans(len, team.len())?;
        team.all_to_all_into(to, from)
    }

    fn all_reduce(&self, team: &Team, len: usize) -> Result<()> {
        let (to, from) = self.spans(len, 1)?;
        team.all_reduce_into(Sum, to, from)
    }
}

pub type Way = (&'static str, fn(&Job, &Tools) -> Result<()>);

/// Every call that waits.
pub const WAYS: [Way; 34] = [
    ("until", |_, t| t.words.wait_until(0, Cmp::Eq, 1).map(drop)),
    ("any", |_, t| t.words.wait_until_any(&[0, 3], Cmp::Eq, 1).map(drop)),
    ("all", |_, t| t.words.wait_until_all(&[0, 3], Cmp::Eq, 1)),
    ("some", |_, t| t.words.wait_until_some(&[0, 3], Cmp::Eq, 1).map(drop)),
    ("until, with a deadline", |_, t| t.words.wait().timeout(LONG).until(0, Cmp::Gt, 1).map(drop)),
    ("until, depending", |_, t| {
        t.words.wait().depends_on(&[t.victim]).until(0, Cmp::Eq, 1).map(drop)
    }),
    ("any, depending", |_, t| {
        t.words.wait().depends_on(&[t.victim]).any(&[1, 2], Cmp::Eq, 1).map(drop)
    }),
    ("all, depending", |_, t| t.words.wait().depends_on(&[t.victim]).all(&[1, 2], Cmp::Eq, 1)),
    ("some, depending", |_, t| {
        t.words.wait().timeout(LONG).depends_on(&[t.victim]).some(&[1, 2], Cmp::Eq, 1).map(drop)
    }),
    ("the job's barrier", |job, _| job.barrier()),
    ("a team's barrier", |_, t| t.team.barrier()),
    ("arrive and wait", |_, t| t.barrier.arrive()?.wait()),
    ("arrive and test", |_, t| {
        let arrival = t.barrier.arrive()?;
        while !arrival.test()? {
            crate::setup::yield_now();
        }
        Ok(())
    }),
    ("arrive twice", |_, t| {
        drop(t.barrier.arrive()?);
        t.barrier.arrive().map(drop)
    }),
    ("step twice", |_, t| {
        t.barrier.step()?;
        t.barrier.step()
    }),
    ("wait with a deadline", |_, t| {
        t.barrier.step()?;
        t.barrier.wait_timeout(LONG)
    }),
    ("a window", |job, _| job.window::<u64>(5).map(drop)),
    ("freeing a window", |_, t| t.words.clone().free()),
    ("a restricted window", |job, _| job.restricted::<u64>(5, |_, _| Access::ReadWrite).map(drop)),
    ("a team", |job, _| job.team(&[0, 1]).map(drop)),
    ("a team's team", |_, t| t.team.team(t.team.members()).map(drop)),
    ("every k-th", |job, _| job.world().split_strided(0, 1, 1).map(drop)),
    ("rows and columns", |job, _| job.world().split_2d(2).map(drop)),
    ("a lock", |_, t| t.lock.lock().map(drop)),
    ("trying a lock", |_, t| crate::locks::try_for_ever(&t.lock)),
    ("a broadcast", |job, t| t.broadcast(job.world(), t.victim, FEW)),
    ("a broadcast of some", |job, t| t.broadcast(job.world(), t.victim, SOME)),
    ("a broadcast of many", |job, t| t.broadcast(job.world(), t.victim, MANY)),
    ("an all-to-all", |job, t| t.all_to_all(job.world(), FEW)),
    ("an all-to-all of many", |job, t| t.all_to_all(job.world(), MANY)),
    ("an all-reduce", |job, t| t.all_reduce(job.world(), FEW)),
    ("an all-reduce of some", |job, t| t.all_reduce(job.world(), SOME)),
    ("an all-reduce of many", |job, t| t.all_reduce(job.world(), MANY)),
    ("a new barrier", |job, _| job.world().new_barrier().map(drop)),
];

/// One call after the other, long after the death.
fn every_wait_ends_when_somebody_is_dead(setup: Setup) {
    for run in setup.runs(&[2, 3, 5, 9]) {
        let victim = run.npes / 2;
        let meeting = Meeting::new(run.npes - 1);
        with_a_death(
            run,
            victim,
            move |job| Tools::new(job, victim),
            |_, _| Ok(()),
            move |job, tools| {
                for (what, way) in WAYS {
                    blames(way(job, tools), victim, Cause::Panic, what);
                    // A PE that went on could leave, and be missing too.
                    meeting.meet();
                }
                // Once more: a failed call leaves nothing that hangs.
                for (what, way) in WAYS {
                    assert!(way(job, tools).is_err(), "{what}, again");
                }
                meeting.meet();
                Ok(())
            },
        );
    }
}

/// Each call in a job of its own, whose survivors are in the call when the PE dies.
fn every_wait_ends_when_somebody_dies(setup: Setup) {
    for run in setup.many_runs(&[2, 3], 1) {
        for (i, (what, way)) in WAYS.into_iter().enumerate() {
            let victim = if i % 2 == 0 { run.npes - 1 } else { 0 };
            let meeting = Meeting::new(run.npes - 1);
            with_a_death(
                run,
                victim,
                move |job| Tools::new(job, victim),
                move |_, _| {
                    // Some survivors are awake then, some asleep.
                    crate::setup::nap(Duration::from_millis(i as u64 % 4 * 4));
                    Ok(())
                },
                move |job, tools| {
                    blames(way(job, tools), victim, Cause::Panic, what);
                    meeting.meet();
                    Ok(())
                },
            );
        }
    }
}

/// A few calls of every kind.
fn busy(job: &Job, tools: &Tools, round: usize) -> Result<()> {
    let (me, n) = (job.pe(), job.npes());
    let right = (me + 1) % n;
    match round % 11 {
        0 => job.barrier(),
        1 => {
            tools.words.signal(right, 2, SignalOp::Add, 1)?;
            let so_far = round as u64 / 11 + 1;
            tools.words.wait_until(2, Cmp::Ge, so_far).map(drop)
        }
        2 => {
            let w = job.window::<u64>(10 + round)?;
            w.put(right, 0, &[1; 10])?;
            job.barrier()
        }
        3 => job.team(&[me])?.expect("this PE named itself").barrier(),
        4 => {
            tools.barrier.step()?;
            tools.words.remote(right, 3)?.add(1)?;
            tools.barrier.wait()
        }
        5 => {
            tools.words.put(right, 1, &[2])?;
            job.quiet()
        }
        6 => tools.broadcast(job.world(), round % n, [FEW, SOME, MANY][round % 3]),
        7 => tools.all_to_all(&tools.team, [FEW, SOME, MANY][round % 3]),
        8 => tools.all_reduce(job.world(), [FEW, SOME, MANY][round % 3]),
        9 => tools.broadcast(&tools.team, round % n, [FEW, SOME, MANY][round % 3]),
        _ => job.restricted::<u64>(3, |_, _| Access::ReadWrite)?.free(),
    }
}

fn death_at_any_moment(setup: Setup) {
    for seed in 0..8 {
        for run in setup.many_runs(&[2, 4], 1) {
            let mut dice = run.dice(1000 + seed);
            let (victim, last, nap) =
                (dice.below(run.npes), dice.below(40), dice.below(300) as u64);
            with_a_death(
                run,
                victim,
                move |job| Tools::new(job, victim),
                move |job, tools| {
                    (0..last).try_for_each(|round| busy(job, &tools, round))?;
                    crate::setup::nap(Duration::from_micros(nap));
                    Ok(())
                },
                move |job, tools| {
                    let failed = (0..10_000).try_for_each(|round| busy(job, tools, round));
                    // A PE that gave up earlier must not be blamed.
                    blames(failed, victim, Cause::Panic, "something");
                    Ok(())
                },
            );
        }
    }
}

/// One PE dies, another gives up and leaves: errors still name the PE that died.
fn the_dead_is_blamed(setup: Setup) {
    for run in setup.runs(&[3, 5]) {
        for victim in [0, run.npes - 1] {
            with_a_death(
                run,
                victim,
                |job| job.barrier(),
                |_, ()| Ok(()),
                move |job, ()| {
                    // The later a PE looks, the more PEs have left before.
                    crate::setup::nap(Duration::from_millis(3 * job.pe() as u64));
                    blames(job.barrier(), victim, Cause::Panic, "the barrier");
                    Ok(())
                },
            );
        }
    }
}

/// Errors name the dead PE rather than one that had left before: it may have left because of the
/// death.
fn the_dead_is_blamed_before_who_left(setup: Setup) {
    for run in setup.runs(&[3]) {
        with_a_death(
            run,
            2,
            |job| job.window::<u64>(1),
            |_, _| Ok(()),
            move |job, w| {
                if job.pe() == 0 {
                    blames(w.wait_until(0, Cmp::Eq, 1), 2, Cause::Panic, "a word");
                } else {
                    blames(
                        w.wait().depends_on(&[0]).until(0, Cmp::Eq, 1),
                        0,
                        Cause::Finalized,
                        "a word from who left",
                    );
                    blames(job.barrier(), 2, Cause::Panic, "the barrier");
                    blames(w.wait_until(0, Cmp::Eq, 1), 2, Cause::Panic, "a word");
                    blames(job.window::<u64>(1), 2, Cause::Panic, "a window");
                }
                Ok(())
            },
        );
    }
}

/// A PE that does not depend on the dead PE goes on undisturbed.
fn others_go_on(setup: Setup) {
    for run in setup.runs(&[3, 5]) {
        let victim = 1;
        with_a_death(
            run,
            victim,
            move |job| {
                let others: Vec<usize> = (0..job.npes()).filter(|&pe| pe != victim).collect();
                Ok((Tools::new(job, victim)?, job.team(&others)?))
            },
            |_, _| Ok(()),
            move |job, (tools, team)| {
                let team = team.as_ref().unwrap();
                let others = team.members();
                blames(job.barrier(), victim, Cause::Panic, "the job's barrier");
                let next = others[(team.rank() + 1) % others.len()];
                let barrier = team.new_barrier()?;
                for round in 1..=10 {
                    tools.words.signal(next, 0, SignalOp::Set, round)?;
                    tools.words.wait().depends_on(others).until(0, Cmp::Ge, round)?;
                    team.barrier()?;
                    barrier.arrive()?.wait()?;
                }
                tools.words.put(next, 1, &[5, 6])?;
                job.fence()?;
                job.quiet()?;
                team.barrier()?;
                assert_eq!(tools.words.to_vec()[1..3], [5, 6]);
                let smaller = team.team(&others[1..])?;
                if let Some(smaller) = smaller {
                    smaller.barrier()?;
                }
                // On one machine, a PE's memory lives as long as the job. Elsewhere this may be an
                // error, but nothing worse.
                let _ = tools.words.put(victim, 0, &[1]);
                let _ = tools.words.get_one(victim, 0);
                let _ = job.quiet();
                team.barrier()
            },
        );
    }
}

/// A condition that holds already needs no wait, even with a dead PE.
fn what_has_happened_counts(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let victim = run.npes - 1;
        with_a_death(
            run,
            victim,
            move |job| {
                let tools = Tools::new(job, victim)?;
                if job.pe() == victim {
                    tools.words.signal(0, 0, SignalOp::Set, 1)?;
                    job.quiet()?;
                }
                Ok(tools)
            },
            |_, _| Ok(()),
            move |job, tools| {
                blames(tools.barrier.arrive()?.wait(), victim, Cause::Panic, "the barrier");
                if job.pe() == 0 {
                    assert_eq!(tools.words.wait_until(0, Cmp::Eq, 1)?, 1);
                    tools.words.wait_until_all(&[0, 0], Cmp::Eq, 1)?;
                    assert_eq!(tools.words.wait_until_any(&[1, 0], Cmp::Eq, 1)?, 1);
                    assert_eq!(tools.words.wait_until_some(&[1, 0], Cmp::Eq, 1)?, [1]);
                    // Even beside a word that never changes.
                    blames(
                        tools.words.wait_until_all(&[0, 1], Cmp::Eq, 1),
                        victim,
                        Cause::Panic,
                        "all",
                    );
                }
                Ok(())
            },
        );
    }
}

fn a_complete_phase_stays_complete(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        let victim = run.npes - 1;
        with_a_death(
            run,
            victim,
            move |job| {
                let tools = Tools::new(job, victim)?;
                tools.barrier.arrive()?.wait()?;
                Ok(tools)
            },
            |_, _| Ok(()),
            move |job, tools| {
                blames(job.barrier(), victim, Cause::Panic, "another barrier");
                assert!(tools.barrier.test()?);
                tools.barrier.wait()?;
                blames(tools.barrier.arrive()?.wait(), victim, Cause::Panic, "the next phase");
                Ok(())
            },
        );
    }
}

fn the_panic_goes_on(setup: Setup) {
    for run in setup.runs(&[1, 2, 5]) {
        let panic = run_to_panic(run, |job| {
            if job.pe() == job.npes() - 1 {
                resume_unwind(Box::new(Deliberate));
            }
        });
        assert_eq!(panic.downcast_ref(), Some(&Deliberate));
    }
}

/// The user gets the first panic, not that of a PE that panicked because of it.
fn the_first_panic_goes_on(setup: Setup) {
    for run in setup.runs(&[2, 5]) {
        let panic = run_to_panic(run, |job| {
            if job.pe() == job.npes() - 1 {
                resume_unwind(Box::new(Deliberate));
            }
            if let Err(error) = job.barrier() {
                resume_unwind(Box::new(format!("a consequence: {error}")));
            }
        });
        assert!(panic.is::<Deliberate>(), "{}", text(&*panic));
    }
}

fn finalising_after_a_death(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        for victim in 0..2 {
            with_a_death(
                run,
                victim,
                |job| job.window::<u64>(1),
                |_, _| Ok(()),
                move |job, w| {
                    w.remote(victim, 0)?.store(1);
                    // With an error or without, it must not wait for ever.
                    let _ = job.finalize();
                    Ok(())
                },
            );
        }
    }
}

fn everybody_dies(setup: Setup) {
    for run in setup.runs(&[1, 2, 5]) {
        let meeting = Meeting::new(run.npes);
        let panic = run_to_panic(run, move |job| {
            let w = job.window::<u64>(1).unwrap();
            w.remote((job.pe() + 1) % job.npes(), 0).unwrap().store(1);
            meeting.meet();
            resume_unwind(Box::new(Deliberate));
        });
        assert_eq!(panic.downcast_ref(), Some(&Deliberate));
    }
}

/// Remotes, transfers and arrivals of a dead PE hinder no other PE.
fn what_a_dead_thread_holds_is_told(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let victim = 1;
        let dying = Arc::new(Meeting::new(2));
        let living = dying.clone();
        with_a_death(
            run,
            victim,
            move |job| {
                let w = job.restricted::<u64>(2, |_, _| Access::ReadWrite)?;
                let remote = (job.pe() == victim).then(|| w.remote(0, 0)).transpose()?;
                Ok((w, remote))
            },
            move |_, held| {
                dying.meet();
                // Drops nothing: these PEs are threads, and others may still use it.
                std::mem::forget(held);
                Ok(())
            },
            move |job, (w, _)| {
                if job.pe() == 0 {
                    w.revoke()?;
                    let held = w.revoke_wait(Some(Duration::from_millis(2)));
                    assert!(matches!(held, Err(Error::Timeout { .. })), "{held:?}");
                    living.meet();
                    blames(
                        w.revoke_wait(None),
                        victim,
                        Cause::Panic,
                        "what the dead held lives on",
                    );
                }
                Ok(())
            },
        );
    }
}

fn a_new_job_after_a_failed_one(setup: Setup) {
    for run in setup.runs(&[2, 5]) {
        for _ in 0..3 {
            run_to_panic(run, |job| {
                if job.pe() == 0 {
                    resume_unwind(Box::new(Deliberate));
                }
                drop(job.barrier());
            });
            run.job(|job| job.barrier());
        }
    }
}

/// The message names the PE and the cause.
#[test]
fn messages_name_the_dead() {
    let said = within("a job", || {
        let said = Mutex::new(String::new());
        let run = catch_unwind(AssertUnwindSafe(|| {
            Job::threads_with(&JobOptions::new(), 2, |job| {
                if job.pe() == 1 {
                    panic_any(Deliberate);
                }
                *said.lock().unwrap() = job.barrier().unwrap_err().to_string();
            })
        }));
        assert!(run.is_err());
        said.into_inner().unwrap()
    });
    assert!(said.contains("PE 1") && said.contains("panicked"), "{said}");
}

/// Operations that need the dead PE's answer fail, unless its memory outlives it. Others do not.
fn what_is_asked_of_the_dead_ends(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let survive = move |job: &Job, w: &Window<u64>| {
            // The first may end between the death and its announcement to the fabric.
            for _ in 0..2 {
                let waited = w.wait().depends_on(&[1]).until(0, Cmp::Ne, 0);
                blames(waited, 1, Cause::Panic, "a wait");
            }
            let answers = setup.is_simulated() || setup.are_near(&[job.pe(), 1], run.npes);
            if let Err(error) = w.get_one(1, 1) {
                blames(Err::<(), _>(error), 1, Cause::Panic, "a get");
            }
            let added = w.remote(1, 1)?.fetch_add(1);
            assert!(answers || added.is_err(), "an atomic: {added:?}");
            if added.is_err() {
                blames(added, 1, Cause::Panic, "an atomic");
            }
            // These may have arrived just before the death.
            w.put(1, 1, &[1, 2])?;
            w.put_signal(1, 1, &[1], w, 3, SignalOp::Set, 1)?;
            w.signal(1, 3, SignalOp::Add, 1)?;
            let mut transfer = w.prepare(1, 2, w, 0..1)?;
            transfer.start()?;
            transfer.wait()?;
            w.remote(1, 2)?.store(7);
            job.quiet()
        };
        with_a_death(run, 1, |job| job.window::<u64>(4), |_, _| Ok(()), survive);
    }
}
