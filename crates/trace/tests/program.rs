//! Timelines of programs, from the events of real jobs, as they are and changed.

#[path = "../../cli/tests/common/timeline.rs"]
mod timeline;

use std::sync::Arc;

use memonet_core::unstable::recorder::events::layout::Areas;
use memonet_core::unstable::recorder::file::RecordFile;
use memonet_core::{Access, Cmp, Job, JobOptions, SignalOp};
use memonet_trace::chrome;
use memonet_trace::program::{Clock, Drawn, Source, draw};
use proptest::prelude::*;
use timeline::Timeline;

const PES: usize = 3;
const ROUNDS: u64 = 4;

/// The events of a job, with room for so many events of each PE.
fn recorded(room: u64) -> Arc<RecordFile> {
    let file = Arc::new(RecordFile::create(PES, 0, PES, Areas::bytes_for(room)).unwrap());
    let options = JobOptions::new().record(file.clone());
    let program = |job: Job| -> memonet_core::Result<()> {
        let next = (job.pe() + 1) % PES;
        let (block, ready) = (job.window::<u8>(100)?, job.window::<u64>(1)?);
        for round in 1..=ROUNDS {
            block.put_signal(next, 0, &[1; 100], &ready, 0, SignalOp::Set, round)?;
            ready.wait_until(0, Cmp::Ge, round)?;
            job.barrier()?;
        }
        Ok(())
    };
    let ended = Job::threads_with(&options, PES, program).unwrap();
    ended.into_iter().for_each(|result| result.unwrap());
    file
}

/// Draws what is in a file, and reads it as viewers do.
fn drawn(file: &RecordFile) -> (Drawn, Timeline) {
    drawn_by_clocks(file, [0; PES], 0)
}

/// Likewise, with PEs' clocks that lead by so many nanoseconds, and are known to be off by so many.
/// Each PE is on a host of its own.
fn drawn_by_clocks(file: &RecordFile, leads: [i64; PES], uncertainty: u64) -> (Drawn, Timeline) {
    let source = |pe| Source {
        pe,
        events: file.events(pe).unwrap().unwrap(),
        clock: Clock { lead: leads[pe], uncertainty, ..Clock::default() },
        ended: None,
        group: ["PE 0", "PE 1", "PE 2"][pe],
    };
    let sources: Vec<_> = (0..PES).map(source).collect();
    let mut timeline = chrome::Timeline::begin(Vec::new()).unwrap();
    let drawn = draw(&sources, None, &mut timeline).unwrap();
    let bytes = timeline.end(&[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeline");
    std::fs::write(&path, bytes).unwrap();
    (drawn, Timeline::read(&path))
}

#[test]
fn each_call_of_a_job_is_drawn_once() {
    let (drawn, timeline) = drawn(&recorded(1000));
    assert!(drawn.missing.is_empty(), "{drawn:?}");
    for pe in 0..PES {
        let track = format!("PE {pe}");
        for name in ["Window::put_signal", "Window::wait_until", "Job::barrier"] {
            assert_eq!(timeline.count(&track, name), ROUNDS as usize, "{name} of {track}");
        }
    }
    assert_eq!((timeline.arrows.len() as u64, timeline.leading_back), (drawn.arrows, 0));
    let from_puts = timeline.arrows.iter().filter(|[from, _]| from.1 == "Window::put_signal");
    assert_eq!(from_puts.count(), PES * ROUNDS as usize);
}

/// Calls that wait for more words than a timeline has: arrows come from the write that ended them.
#[test]
fn waits_for_very_many_words_have_arrows() {
    const WORDS: usize = 500;
    let file = Arc::new(RecordFile::create(PES, 0, PES, Areas::bytes_for(10_000)).unwrap());
    let options = JobOptions::new().record(file.clone());
    let program = |job: Job| -> memonet_core::Result<()> {
        let words = job.window::<u64>(WORDS)?;
        let all: Vec<usize> = (0..WORDS).collect();
        let next = (job.pe() + 1) % PES;
        words.remote(next, 400)?.store(1);
        assert_eq!(words.wait_until_any(&all, Cmp::Ge, 1)?, 400);
        job.barrier()?;
        words.remote(next, 300)?.store(2);
        assert_eq!(words.wait_until_some(&all, Cmp::Ge, 2)?, [300]);
        job.barrier()?;
        all.iter().for_each(|&word| words.remote(next, word).unwrap().store(3));
        words.wait_until_all(&all, Cmp::Ge, 3)?;
        job.barrier()
    };
    let ended = Job::threads_with(&options, PES, program).unwrap();
    ended.into_iter().for_each(|result| result.unwrap());
    let (_, timeline) = drawn(&file);
    assert_eq!(timeline.leading_back, 0);
    for pe in 0..PES {
        let (me, left) = (format!("PE {pe}"), format!("PE {}", (pe + PES - 1) % PES));
        let leads = |[from, to]: &&[(String, String); 2]| {
            *from == (left.clone(), "Remote::store".into()) && to.0 == me
        };
        assert_eq!(timeline.arrows.iter().filter(leads).count(), 3, "{:#?}", timeline.arrows);
    }
}

/// The arrows of a timeline, as PEs and calls: from whom by what, to whom in what.
fn arrows(timeline: &Timeline) -> Vec<String> {
    let text =
        |[from, to]: &[(String, String); 2]| format!("{} {} -> {} {}", from.0, from.1, to.0, to.1);
    timeline.arrows.iter().map(text).collect()
}

/// Runs a program, and draws it.
fn drawn_of(program: impl Fn(&Job) -> memonet_core::Result<()> + Sync) -> Timeline {
    let file = Arc::new(RecordFile::create(PES, 0, PES, Areas::bytes_for(1000)).unwrap());
    let options = JobOptions::new().record(file.clone());
    let ended = Job::threads_with(&options, PES, |job| program(&job)).unwrap();
    ended.into_iter().for_each(|result| result.unwrap());
    let (drawn, timeline) = drawn(&file);
    assert_eq!((timeline.arrows.len() as u64, timeline.leading_back), (drawn.arrows, 0));
    timeline
}

/// A PE that is certain to come later than the others.
fn come_late(job: &Job) {
    if job.pe() == 1 {
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
}

/// Each wait that ends a phase has an arrow from the arrival that came last, in whatever calls PEs
/// arrive and wait.
#[test]
fn arrivals_lead_to_the_waits_that_they_end() {
    let timeline = drawn_of(|job| {
        let (barrier, other) = (job.world().new_barrier()?, job.world().split_barrier());
        come_late(job);
        barrier.arrive()?.wait()?;
        come_late(job);
        // Between the two, a call of the team, and a phase of another barrier.
        let arrival = barrier.arrive()?;
        let later = other.arrive()?;
        arrival.wait()?;
        later.wait()?;
        job.barrier()?;
        come_late(job);
        barrier.step()?;
        // Ends the phase before it.
        barrier.step()?;
        barrier.wait()?;
        come_late(job);
        barrier.step()?;
        // One that ends by its limit has no arrow.
        drop(barrier.wait_timeout(std::time::Duration::from_millis(1)));
        while !barrier.test()? {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    });
    let arrows = arrows(&timeline);
    for pe in [0, 2] {
        let from_late = |call: &str| {
            let arrow = format!("PE 1 {call} -> PE {pe} ");
            arrows.iter().filter(|each| each.starts_with(&arrow)).count()
        };
        assert_eq!(from_late("Barrier::arrive"), 3, "{arrows:#?}");
        assert!(from_late("Barrier::step") >= 2, "{arrows:#?}");
    }
}

/// A team that comes after another one in its slot has calls of its own.
#[test]
fn calls_of_teams_that_follow_each_other_have_arrows() {
    const TEAMS: usize = 3;
    let timeline = drawn_of(|job| {
        for _ in 0..TEAMS {
            let team = job.world().team(&[0, 1, 2])?.expect("all are in it");
            come_late(job);
            team.barrier()?;
        }
        Ok(())
    });
    let arrows = arrows(&timeline);
    for pe in [0, 2] {
        let arrow = format!("PE 1 Team::barrier -> PE {pe} ");
        let found = arrows.iter().filter(|each| each.starts_with(&arrow)).count();
        assert_eq!(found, TEAMS, "{arrows:#?}");
    }
}

/// Words of restricted windows are known wherever they are mapped.
#[test]
fn waits_for_words_of_restricted_windows_have_arrows() {
    let timeline = drawn_of(|job| {
        let first = job.restricted::<u64>(600, |_, _| Access::ReadWrite)?;
        let second = job.restricted::<u64>(600, |_, _| Access::ReadWrite)?;
        let next = (job.pe() + 1) % PES;
        for (round, window) in [&first, &second, &first].into_iter().enumerate() {
            window.put(next, 599, &[round as u64 + 1])?;
            window.wait_until(599, Cmp::Ge, round as u64 + 1)?;
        }
        drop(first);
        job.barrier()
    });
    for pe in 0..PES {
        let from = format!("PE {pe} Window::put -> PE {} ", (pe + 1) % PES);
        let all = arrows(&timeline);
        assert_eq!(all.iter().filter(|arrow| arrow.starts_with(&from)).count(), 3, "{all:#?}");
    }
}

/// Two threads of a PE, which append at once, lose nothing, and what has no room is counted.
#[test]
fn threads_append_at_once() {
    let calls = 3000u64;
    for room in [4 * calls, 100] {
        let file = Arc::new(RecordFile::create(1, 0, 1, Areas::bytes_for(room)).unwrap());
        let options = JobOptions::new().record(file.clone());
        let program = |job: Job| {
            let word = job.window::<u64>(1).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| (0..calls).for_each(|k| word.put(0, 0, &[k]).unwrap()));
                }
            });
        };
        Job::threads_with(&options, 1, program).unwrap();
        let events = file.events(0).unwrap().unwrap();
        // The calls, those that make the window and leave, their waits, and three threads.
        let others = 2..20u64;
        let all = events.len() + events.missing();
        assert!(others.contains(&(all - 2 * calls)), "{all} events");
        assert_eq!(events.missing() > 0, room < calls);
        assert_eq!(events.iter().count() as u64, events.len(), "each record is whole");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A program can write anything over its events. The timeline is one that viewers show.
    #[test]
    fn changed_events_are_drawn_as_something(
        changes in proptest::collection::vec((0..PES, 0..30_000usize, any::<u8>()), 0..400),
    ) {
        static RECORDED: std::sync::LazyLock<Arc<RecordFile>> =
            std::sync::LazyLock::new(|| recorded(200));
        let name = "changed";
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let room = RECORDED.geometry().events;
        let changed = RecordFile::received(file, (PES, 0, PES), room).unwrap();
        for pe in 0..PES {
            for piece in RECORDED.pieces(pe, 1 << 20).unwrap() {
                let (at, bytes) = piece.unwrap();
                changed.receive(pe, at, &bytes).unwrap();
            }
        }
        for (pe, at, byte) in changes {
            let at = at as u64 % room;
            changed.receive(pe, at, &[byte]).unwrap();
        }
        let (drawn, timeline) = drawn(&changed);
        prop_assert_eq!(timeline.arrows.len() as u64, drawn.arrows);
    }

    /// PEs may be held up between any two of their events, as if clocks differed.
    #[test]
    fn no_arrow_leads_back_whenever_calls_begin(
        leads in proptest::array::uniform3(-100_000..100_000i64),
    ) {
        static RECORDED: std::sync::LazyLock<Arc<RecordFile>> =
            std::sync::LazyLock::new(|| recorded(1000));
        prop_assert_eq!(drawn_by_clocks(&RECORDED, leads, 0).1.leading_back, 0);
        // Where clocks are known to be off, no arrow is lost by it either.
        let (of_agreed, timeline) = drawn_by_clocks(&RECORDED, leads, 100_000);
        prop_assert_eq!(timeline.leading_back, 0);
        prop_assert_eq!(of_agreed.arrows, drawn(&RECORDED).0.arrows);
    }

    #[test]
    fn pieces_that_have_no_place_are_refused(pe in 0..2 * PES, at: u64, len in 0..100usize) {
        let file = rustix::fs::memfd_create("none", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let records = RecordFile::received(file, (PES, 0, PES), 4096).unwrap();
        let fits = pe < PES && at.checked_add(len as u64).is_some_and(|end| end <= 4096);
        prop_assert_eq!(records.receive(pe, at, &vec![0; len]).is_ok(), fits);
    }
}
