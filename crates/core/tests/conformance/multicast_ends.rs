//! The bounds and the ends of multicast channels: slow readers, those that leave, and deaths.

use crate::failure::{blames, with_a_death};
use crate::ground::nap;
use crate::multicast::{others, reads_in_place, small, with_capacity};
use crate::setup::{Dice, Meeting, SHUFFLED_SLOWLY, Setup, eventually};
use memonet_core::{Cause, Cmp, Delivery, Error, Job, Multicast, Result, SignalOp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

on_every_fabric!(
    [also on streams_dealt]
    a_slow_reader_stops_the_writer_at_the_bound,
    slow_readers_are_dropped_and_told,
    a_dropped_reader_sees_no_torn_block,
    the_writer_leaves,
    the_writer_panics,
    readers_leave,
    who_leaves_early_owes_the_others_nothing,
    whoever_is_done_leaves_the_job,
    who_finalises_with_an_end_leaves_the_channel,
    the_writer_dies,
    a_reader_dies,
    a_reader_leaves_and_dies,
    a_block_that_fails_in_the_midst_was_never_published,
    readers_may_die,
    a_lost_reader_holds_up_nobody;
    with threads of their own:
    a_peek_outlives_its_pe,
    a_peek_outlives_finalising,
    a_leaked_peek_keeps_no_pe,
);

/// It goes on as a PE. But what it has published may be less than it meant to.
fn the_writer_panics(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(|job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            if job.pe() == 0 {
                let publish = || {
                    for number in 0..100 {
                        channel.publish(&[number]).unwrap();
                        assert!(number < 40, "as expected");
                    }
                    // It is part of what the panic drops.
                    drop(channel);
                };
                catch_unwind(AssertUnwindSafe(publish)).expect_err("a panic");
            } else {
                let mut block = Vec::new();
                for number in 0..=40 {
                    channel.recv(&mut block)?;
                    assert_eq!(block, [number]);
                }
                for _ in 0..2 {
                    let ended = channel.recv(&mut block).expect_err("there is no more");
                    let is = matches!(ended, Error::PeerFailed { pe: 0, cause: Cause::Panic, .. });
                    assert!(is, "{ended}");
                }
            }
            job.barrier()
        });
    }
}

fn a_slow_reader_stops_the_writer_at_the_bound(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(|job| {
            let slow = job.npes() - 1;
            const CAPACITY: usize = 1 << 13;
            let mut channel = job.multicast::<u64>(0, &others(job, 0), with_capacity(CAPACITY))?;
            let mut published = 0;
            let mut buffer = Vec::new();
            for round in 1..=4 {
                if job.pe() == 0 {
                    // All readers read all the time, except for the last one.
                    let mut refused = 0;
                    while refused < 200 {
                        match channel.try_claim(7)? {
                            Some(mut claim) => {
                                claim.fill(published);
                                claim.commit()?;
                                published += 1;
                                refused = 0;
                            }
                            None => {
                                refused += 1;
                                nap(Duration::from_micros(100));
                            }
                        }
                    }
                    let unread = (published as usize - (round - 1) * 20) * 64;
                    assert!(
                        (CAPACITY / 8 * 7 - 64..=CAPACITY).contains(&unread),
                        "stopped with {unread} bytes unread"
                    );
                    assert!(channel.dropped().is_empty());
                } else if job.pe() != slow {
                    // As many as the writer can publish while the slow reader stands still.
                    while channel.try_recv(&mut buffer)? {}
                }
                job.barrier()?;
                if job.pe() == slow {
                    for number in 0..20 {
                        channel.recv(&mut buffer)?;
                        assert_eq!(buffer, [(round as u64 - 1) * 20 + number; 7]);
                    }
                } else if job.pe() != 0 {
                    while channel.try_recv(&mut buffer)? {}
                }
                job.barrier()?;
            }
            job.barrier()
        });
    }
}

fn slow_readers_are_dropped_and_told(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(|job| {
            let slow = 1;
            let options = small().drop_slow(Duration::from_millis(20));
            let mut channel = job.multicast::<u64>(0, &others(job, 0), options)?;
            let mut buffer = Vec::new();
            const BLOCKS: usize = 300;
            match job.pe() {
                0 => {
                    for number in 0..BLOCKS {
                        channel.publish(&[number as u64; 8])?;
                    }
                    assert!(channel.dropped().contains(&slow), "{:?}", channel.dropped());
                    job.barrier()?;
                }
                1 => {
                    // On a busy machine it may be dropped so soon.
                    match channel.recv(&mut buffer) {
                        Ok(()) => assert_eq!(buffer, [0; 8]),
                        Err(Error::Dropped { .. }) => {}
                        Err(error) => return Err(error),
                    }
                    job.barrier()?;
                    eventually("the reader is told", || {
                        matches!(channel.try_recv(&mut buffer), Err(Error::Dropped { .. }))
                    });
                    assert!(matches!(channel.recv(&mut buffer), Err(Error::Dropped { .. })));
                    let looked = channel.peek().map(|block| block.to_vec());
                    assert!(matches!(looked, Err(Error::Dropped { .. })), "{looked:?}");
                    assert!(matches!(channel.try_peek().map(drop), Err(Error::Dropped { .. })));
                }
                _ => {
                    for number in 0..BLOCKS {
                        match channel.recv(&mut buffer) {
                            Ok(()) => assert_eq!(buffer, [number as u64; 8]),
                            // On a busy machine.
                            Err(Error::Dropped { .. }) => break,
                            Err(error) => return Err(error),
                        }
                    }
                    job.barrier()?;
                }
            }
            job.barrier()
        });
    }
}

/// A reader that is overtaken while it reads gets whole blocks, and then an error.
fn a_dropped_reader_sees_no_torn_block(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(move |job| {
            for round in 0..if setup.is_near() { 60 } else { 4 } {
                let mut channel =
                    job.multicast::<u64>(0, &others(job, 0), small().drop_slow(Duration::ZERO))?;
                let (mut dice, mut buffer) = (Dice::from(run.seed << 8 | round), Vec::new());
                let mut next = 0;
                for number in 0..300u64 {
                    if job.pe() == 0 {
                        channel.publish(&[number; 100])?;
                        continue;
                    }
                    if number % 16 == 0 {
                        dice.dawdle();
                    }
                    let seen = match dice.below(2) {
                        0 => channel.recv(&mut buffer),
                        _ => channel.peek().map(|block| {
                            buffer.clear();
                            buffer.extend_from_slice(&block);
                            block.pop();
                        }),
                    };
                    match seen {
                        Ok(()) => {
                            assert_eq!(buffer, [next; 100]);
                            next += 1;
                        }
                        Err(Error::Dropped { .. }) => break,
                        Err(Error::Closed { .. }) => break,
                        Err(error) => return Err(error),
                    }
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// Records to a dropped reader are still under way. Those that come later do not take their place.
#[test]
fn a_dropped_reader_is_sent_nothing_wrong() {
    for run in SHUFFLED_SLOWLY.runs(&[2, 3]) {
        run.job(move |job| {
            let mut channel =
                job.multicast::<u64>(0, &others(job, 0), small().drop_slow(Duration::ZERO))?;
            if job.pe() == 0 {
                for number in 0..300u64 {
                    channel.publish(&[number; 100])?;
                }
            } else {
                let mut buffer = Vec::new();
                let ended = (0..300u64).find_map(|number| {
                    let ended = channel.recv(&mut buffer).err();
                    assert!(ended.is_some() || buffer == [number; 100], "{number}: {buffer:?}");
                    ended
                });
                assert!(matches!(ended, None | Some(Error::Dropped { .. })), "{ended:?}");
            }
            job.barrier()
        });
    }
}

fn the_writer_leaves(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(|job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            let mut buffer = Vec::new();
            if job.pe() == 0 {
                for number in 0..30 {
                    channel.publish(&[number])?;
                }
                drop(channel);
            } else {
                for number in 0..30 {
                    channel.recv(&mut buffer)?;
                    assert_eq!(buffer, [number]);
                }
                for _ in 0..2 {
                    assert!(matches!(channel.recv(&mut buffer), Err(Error::Closed { .. })));
                    assert!(matches!(channel.try_recv(&mut buffer), Err(Error::Closed { .. })));
                    assert!(matches!(channel.peek().map(drop), Err(Error::Closed { .. })));
                    assert!(matches!(channel.try_peek().map(drop), Err(Error::Closed { .. })));
                }
            }
            job.barrier()
        });
    }
}

fn readers_leave(setup: Setup) {
    for run in setup.runs(&[2, 3, 5, 8]) {
        run.job(|job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            let mut buffer = Vec::new();
            const BLOCKS: u64 = 400;
            if job.pe() == 0 {
                for number in 0..BLOCKS {
                    channel.publish(&[number; 16])?;
                }
                assert!(channel.dropped().is_empty());
            } else {
                // Each reads a different number of blocks; the last one all.
                let mine = BLOCKS * job.pe() as u64 / (job.npes() as u64 - 1);
                for number in 0..mine {
                    channel.recv(&mut buffer)?;
                    assert_eq!(buffer, [number; 16]);
                }
                drop(channel);
            }
            job.barrier()
        });
    }
}

/// The writer publishes, the first readers read one block, and the others begin late and read all,
/// and then the end.
fn some_are_done_early(job: &Job, channel: &mut Multicast<u64>) -> Result<()> {
    const BLOCKS: u64 = 300;
    let mut buffer = Vec::new();
    match job.pe() {
        0 => (0..BLOCKS).try_for_each(|number| channel.publish(&[number; 20])),
        pe if pe <= job.npes() / 2 => channel.recv(&mut buffer),
        _ => {
            nap(Duration::from_millis(5));
            for number in 0..BLOCKS {
                channel.recv(&mut buffer)?;
                assert_eq!(buffer, [number; 20]);
            }
            assert!(matches!(channel.recv(&mut buffer), Err(Error::Closed { .. })));
            Ok(())
        }
    }
}

/// The writer, and readers that have read enough, leave the job before the others have begun to
/// read. These still get all blocks, and then the end.
fn whoever_is_done_leaves_the_job(setup: Setup) {
    for run in setup.runs(&[2, 3, 5, 9]) {
        run.job(|job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            some_are_done_early(job, &mut channel)
        });
    }
}

/// As above, but they still have their ends, or have leaked them. Where readers read in place, the
/// writer has nothing that could tell it of that.
fn who_finalises_with_an_end_leaves_the_channel(setup: Setup) {
    for run in setup.runs(&[2, 3, 5, 9]) {
        run.job(|job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            if in_place(&channel) {
                return Ok(());
            }
            some_are_done_early(job, &mut channel)?;
            if job.npes() % 2 == 0 {
                std::mem::forget(channel);
                return Ok(());
            }
            job.finalize()?;
            if job.pe() == 0 {
                let late = channel.publish(&[1]).expect_err("nobody would read it");
                assert!(matches!(late, Error::Misuse { .. }), "{late}");
            }
            Ok(())
        });
    }
}

/// A reader that has left still helps those that depend on it, in any wait.
fn who_leaves_early_owes_the_others_nothing(setup: Setup) {
    for run in setup.runs(&[3, 5, 8]) {
        run.job(|job| {
            let last = job.npes() - 1;
            let mut channel = Some(job.multicast::<u64>(0, &others(job, 0), small())?);
            let mut buffer = Vec::new();
            if job.pe() != 0 && job.pe() != last {
                drop(channel.take());
            }
            for number in 0..200 {
                match &mut channel {
                    Some(channel) if job.pe() == 0 => channel.publish(&[number; 20])?,
                    Some(channel) => {
                        channel.recv(&mut buffer)?;
                        assert_eq!(buffer, [number; 20]);
                    }
                    None => {}
                }
            }
            job.barrier()
        });
    }
}

fn the_writer_dies(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        let published = Arc::new(AtomicBool::new(false));
        let says = published.clone();
        with_a_death(
            run,
            0,
            |job| {
                let channel = job.multicast::<u64>(0, &others(job, 0), small())?;
                job.barrier()?;
                Ok(std::sync::Mutex::new(channel))
            },
            move |job, channel| {
                let mut channel = channel.into_inner().unwrap();
                for number in 0..20 {
                    channel.publish(&[number])?;
                }
                job.quiet()?;
                says.store(true, Ordering::Release);
                // It dies with its end of the channel.
                std::mem::forget(channel);
                Ok(())
            },
            move |_, channel| {
                let mut channel = channel.lock().unwrap();
                let (mut buffer, mut next) = (Vec::new(), 0);
                let ended = loop {
                    match channel.recv(&mut buffer) {
                        Ok(()) => {
                            assert_eq!(buffer, [next]);
                            next += 1;
                        }
                        ended => break ended,
                    }
                };
                blames(ended, 0, Cause::Panic, "recv");
                // A reader in place gets all published blocks; blocks that must be passed on may
                // end with their sender.
                assert!(!reads_in_place(setup) || next == 20, "{next}");
                if reads_in_place(setup) {
                    // Otherwise other readers may still be passing blocks on.
                    blames(channel.peek().map(drop), 0, Cause::Panic, "peek");
                    blames(channel.try_recv(&mut buffer), 0, Cause::Panic, "try_recv");
                    blames(channel.try_peek().map(drop), 0, Cause::Panic, "try_peek");
                }
                Ok(())
            },
        );
        assert!(published.load(Ordering::Acquire));
    }
}

fn a_reader_dies(setup: Setup) {
    let runs = setup.runs(&[2, 3, 5]).into_iter();
    for (run, finalises) in runs.flat_map(|run| [(run, false), (run, true)]) {
        let victim = run.npes - 1;
        with_a_death(
            run,
            victim,
            |job| Ok(std::sync::Mutex::new(job.multicast::<u64>(0, &others(job, 0), small())?)),
            |_, channel| {
                std::mem::forget(channel);
                Ok(())
            },
            move |job, channel| {
                let mut channel = channel.lock().unwrap();
                let mut buffer = Vec::new();
                if job.pe() == 0 {
                    let ended = loop {
                        let ended = channel.publish(&[1; 50]);
                        if ended.is_err() {
                            break ended;
                        }
                    };
                    blames(ended, victim, Cause::Panic, "publish");
                    let ended = loop {
                        match channel.try_claim(50).map(|claim| claim.map(|claim| claim.commit())) {
                            Ok(Some(committed)) => committed?,
                            Ok(None) => {}
                            Err(error) => break Err::<(), _>(error),
                        }
                    };
                    blames(ended, victim, Cause::Panic, "try_claim");
                    if finalises && !in_place(&channel) {
                        // With its end in hand.
                        return job.finalize();
                    }
                } else {
                    // Any block may come; no other PE leaves before the writer does.
                    let ended = loop {
                        let ended = channel.recv(&mut buffer);
                        if ended.is_err() {
                            break ended;
                        }
                    };
                    blames(ended, victim, Cause::Panic, "recv");
                }
                Ok(())
            },
        );
    }
}

/// Who has left before it dies ends no channel.
fn a_reader_leaves_and_dies(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let victim = run.npes - 1;
        with_a_death(
            run,
            victim,
            |job| {
                let channel = job.multicast::<u64>(0, &others(job, 0), small())?;
                Ok(std::sync::Mutex::new(Some(channel)))
            },
            |job, channel| {
                drop(channel);
                job.quiet()
            },
            move |job, channel| {
                let mut channel = channel.lock().unwrap().take().unwrap();
                let mut buffer = Vec::new();
                for number in 0..300 {
                    match job.pe() {
                        0 => channel.publish(&[number; 20])?,
                        _ => channel.recv(&mut buffer)?,
                    }
                }
                if job.pe() != 0 {
                    let ended = channel.recv(&mut buffer);
                    assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
                }
                Ok(())
            },
        );
    }
}

/// Its parts do not count as the beginning of the next block.
fn a_block_that_fails_in_the_midst_was_never_published(setup: Setup) {
    for run in setup.runs(&[3, 5]) {
        let victim = run.npes - 1;
        with_a_death(
            run,
            victim,
            |job| Ok(std::sync::Mutex::new(job.multicast::<u64>(0, &others(job, 0), small())?)),
            |_, channel| {
                std::mem::forget(channel);
                Ok(())
            },
            move |job, channel| {
                let mut channel = channel.lock().unwrap();
                if job.pe() == 0 {
                    blames(channel.publish(&[1; 5000]), victim, Cause::Panic, "publish");
                    // There is room for some more.
                    channel.publish(&[2; 3])?;
                    channel.publish(&[3; 1])?;
                    return Ok(());
                }
                let mut buffer = Vec::new();
                for block in [&[2; 3][..], &[3]] {
                    match channel.recv(&mut buffer) {
                        Ok(()) => assert_eq!(buffer, block),
                        // Otherwise other readers may still be passing it on.
                        Err(error) => {
                            assert!(
                                !reads_in_place(setup) && matches!(error, Error::PeerFailed { .. }),
                                "{error}"
                            );
                            break;
                        }
                    }
                }
                Ok(())
            },
        );
    }
}

/// Whether readers read in the writer's memory.
pub fn in_place(channel: &Multicast<u64>) -> bool {
    channel.delivery() == Delivery::Near
}

fn readers_may_die(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        let victim = 1;
        let done = Meeting::new(run.npes - 1);
        with_a_death(
            run,
            victim,
            |job| {
                let options = small().survive_readers(true);
                Ok(std::sync::Mutex::new(Some(job.multicast::<u64>(
                    0,
                    &others(job, 0),
                    options,
                )?)))
            },
            |_, channel| {
                // These PEs are threads. In place, a thread may still read by a dead PE's end.
                if !in_place(channel.lock().unwrap().as_ref().unwrap()) {
                    std::mem::forget(channel);
                }
                Ok(())
            },
            move |job, channel| {
                let mut slot = channel.lock().unwrap();
                let channel = slot.as_mut().unwrap();
                let mut buffer = Vec::new();
                const BLOCKS: u64 = 300;
                for number in 0..BLOCKS {
                    if job.pe() == 0 {
                        channel.publish(&[number; 20])?;
                    } else {
                        channel.recv(&mut buffer)?;
                        assert_eq!(buffer, [number; 20]);
                    }
                }
                if job.pe() == 0 {
                    // If the writer first sees that a reader has left, it does not drop it.
                    let left = in_place(channel) && channel.dropped().is_empty();
                    assert!(left || channel.dropped() == [victim], "{:?}", channel.dropped());
                }
                // A writer that computes repairs nothing; a writer that leaves waits until all
                // readers have everything.
                *slot = None;
                done.meet();
                Ok(())
            },
        );
    }
}

/// The writer waits for other things than room: for each block, until the others have it.
fn a_lost_reader_holds_up_nobody(setup: Setup) {
    const BLOCKS: u64 = 250;
    for run in setup.runs(&[3, 5]) {
        let victim = 1;
        with_a_death(
            run,
            victim,
            |job| {
                let options = with_capacity(1 << 20).survive_readers(true);
                let channel = job.multicast::<u64>(0, &others(job, 0), options)?;
                Ok((std::sync::Mutex::new(channel), job.window::<u64>(job.npes())?))
            },
            |_, (channel, _)| {
                // As in `readers_may_die`.
                if !in_place(&channel.lock().unwrap()) {
                    std::mem::forget(channel);
                }
                Ok(())
            },
            move |job, (channel, got)| {
                let (mut channel, me) = (channel.lock().unwrap(), job.pe());
                let living: Vec<usize> = (2..job.npes()).collect();
                let mut buffer = Vec::new();
                for number in 1..=BLOCKS {
                    if me == 0 {
                        channel.publish(&[number; 100])?;
                        for &reader in &living {
                            got.wait().depends_on(&living).until(reader, Cmp::Ge, number)?;
                        }
                    } else {
                        channel.recv(&mut buffer)?;
                        assert_eq!(buffer, [number; 100]);
                        got.signal(0, me, SignalOp::Add, 1)?;
                    }
                }
                let dropped = channel.dropped();
                assert!(dropped.is_empty() || dropped == [victim], "{dropped:?}");
                Ok(())
            },
        );
    }
}

/// A PE dies while one of its threads reads a block in place: the block stays as it is until the
/// thread is done with it.
fn a_peek_outlives_its_pe(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let victim = 1;
        let (held, written) = (Arc::new(Meeting::new(2)), Arc::new(Meeting::new(2)));
        let (holds, writes) = ((held.clone(), written.clone()), written);
        with_a_death(
            run,
            victim,
            |job| {
                let options = small().survive_readers(true);
                let mut channel = job.multicast::<u64>(0, &[1], options)?;
                if job.pe() == 0 {
                    channel.publish(&[7; 20])?;
                }
                Ok(std::sync::Mutex::new(Some(channel)))
            },
            move |_, channel| {
                let (held, written) = holds.clone();
                std::thread::spawn(move || {
                    let mut channel = channel.into_inner().unwrap().expect("it is there");
                    let block = channel.peek().expect("a block was published");
                    held.meet();
                    written.meet();
                    assert_eq!(*block, [7; 20]);
                    drop(channel);
                    written.meet();
                });
                holds.0.meet();
                Ok(())
            },
            move |job, channel| {
                if job.pe() != 0 {
                    return Ok(());
                }
                let mut slot = channel.lock().unwrap();
                let channel = slot.as_mut().unwrap();
                let stopped = (0..300).find_map(|number| channel.publish(&[number; 20]).err());
                if in_place(channel) {
                    blames(stopped.map_or(Ok(()), Err), victim, Cause::Panic, "the writer went on");
                } else {
                    assert!(stopped.is_none(), "{stopped:?}");
                }
                writes.meet();
                writes.meet();
                (0..300).try_for_each(|number| channel.publish(&[number; 20]))
            },
        );
    }
}

/// A PE leaks a channel that shows it a block, and returns: the job ends all the same.
fn a_leaked_peek_keeps_no_pe(setup: Setup) {
    for run in setup.runs(&[2, 4]) {
        run.job(move |job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            match job.pe() {
                0 => channel.publish(&[7; 20]),
                1 => {
                    let block = Box::leak(Box::new(channel)).peek()?;
                    assert_eq!(*block, [7; 20]);
                    Ok(())
                }
                _ => {
                    let mut buffer = Vec::new();
                    while channel.recv(&mut buffer).is_ok() {}
                    Ok(())
                }
            }
        });
    }
}

/// A PE finalises, or tries to, while it reads a block in place. The others go on with the channel.
fn a_peek_outlives_finalising(setup: Setup) {
    for run in setup.runs(&[2, 4]) {
        let written = Meeting::new(2);
        run.job(move |job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            if !setup.is_near() && channel.delivery() != Delivery::Tree {
                // With this setup, finalising waits for all other PEs.
                return Ok(());
            }
            match job.pe() {
                0 => {
                    channel.publish(&[7; 20])?;
                    let mut number = 0;
                    while number < 1000 {
                        // The block that is being read stops the writer at last.
                        match channel.try_claim(20) {
                            Ok(Some(mut block)) => block.fill(number),
                            Ok(None) => nap(Duration::from_micros(100)),
                            Err(Error::PeerFailed { .. }) => break,
                            Err(error) => return Err(error),
                        }
                        match channel.try_claim(20) {
                            Ok(Some(block)) => block.commit()?,
                            Ok(None) => {}
                            Err(_) => break,
                        }
                        number += 1;
                    }
                    written.meet();
                }
                1 => {
                    let block = channel.peek()?;
                    let finalised = job.finalize();
                    assert!(
                        matches!(finalised, Ok(()) | Err(Error::Misuse { .. })),
                        "{finalised:?}"
                    );
                    written.meet();
                    assert_eq!(*block, [7; 20]);
                    block.pop();
                }
                _ => {
                    let mut buffer = Vec::new();
                    while channel.recv(&mut buffer).is_ok() {}
                }
            }
            Ok(())
        });
    }
}
