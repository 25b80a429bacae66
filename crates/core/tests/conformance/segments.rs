//! Segments by byte offset: blocks and spots.

use crate::setup::{Setup, segment_of, sizes_here};
use memonet_core::unstable::segment::Allowance;
use memonet_core::unstable::shm::{self, AtomicOp};
use memonet_core::{Error, Job, SignalOp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

on_every_fabric!(
    [also on recorded]
    blocks_are_the_same_everywhere,
    blocks_come_back,
    blocks_change_their_size,
    wrong_blocks,
    spots_end_where_segments_end,
    words_lie_in_their_spots,
    words_and_blocks_arrive,
    a_signal_comes_after_a_block_that_is_not_copied,
    overlapping_copies_on_oneself,
    a_quiet_or_fence_wakes_for_what_was_marked,
);

fn blocks_are_the_same_everywhere(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 3, 8])) {
        let offsets = run.results(|job| -> memonet_core::Result<Vec<u64>> {
            let mut all = Vec::new();
            for (bytes, align) in [(1, 1), (1000, 64), (1 << 20, 4096), (8, 8)] {
                let offset = job.allocate(bytes, align, true)?;
                assert!(
                    offset.is_multiple_of(align as u64) && segment_of(job).heap().contains(&offset)
                );
                let around = job.block_around(offset + bytes as u64 - 1).unwrap();
                assert_eq!(around, offset..offset + bytes as u64);
                all.push(offset);
            }
            Ok(all)
        });
        let offsets: Vec<_> = offsets.into_iter().map(Result::unwrap).collect();
        assert!(offsets.windows(2).all(|pair| pair[0] == pair[1]), "{offsets:?}");
    }
}

fn blocks_come_back(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 4])) {
        run.job(|job| {
            let segment = segment_of(job);
            for round in 0..20u64 {
                let offset = job.allocate(200_000, 8, round % 2 == 0)?;
                let mine = segment.at(job.pe(), offset, 8).unwrap();
                if round % 2 == 0 {
                    assert_eq!(mine.load::<u64>()?, 0, "zeroed, whatever was there before");
                }
                mine.store(round + 1);
                job.release(offset)?;
                assert_eq!(job.block_around(offset), None);
            }
            Ok(())
        });
    }
}

fn blocks_change_their_size(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 3])) {
        run.job(|job| {
            let (segment, next) = (segment_of(job), (job.pe() + 1) % job.npes());
            let offset = job.allocate(300_000, 8, true)?;
            // The write into what is kept arrives, the other one does no harm.
            let word = |at: u64| segment.at(next, offset + at, 8).unwrap();
            word(8).store(job.pe() as u64 + 1);
            word(200_000).store(7);
            assert!(job.fits(offset, 300_001) && !job.fits(offset, 310_000));
            assert!(job.resize(offset, 100_000, Allowance::ALL)?);
            let from = (job.pe() + job.npes() - 1) % job.npes();
            let mine = segment.at(job.pe(), offset + 8, 8).unwrap();
            assert_eq!(mine.load::<u64>()?, from as u64 + 1);
            assert_eq!(job.block_around(offset + 1), Some(offset..offset + 100_000));
            // What is left is another block's; both serve writes.
            let other = job.allocate(150_000, 8, true)?;
            let there = segment.at(next, other + 149_992, 8).unwrap();
            there.store(5);
            word(99_992).store(6);
            job.barrier()?;
            for (offset, value) in [(other + 149_992, 5), (offset + 99_992, 6)] {
                assert_eq!(segment.at(job.pe(), offset, 8).unwrap().load::<u64>()?, value);
            }
            // Errors and limits change nothing.
            let unequal = job.resize(offset, 10 + job.pe() * 100, Allowance::ALL);
            let is_unequal = matches!(unequal, Err(Error::Unequal { call: "memory", .. }));
            assert!(is_unequal || job.npes() == 1, "{unequal:?}");
            let beyond = job.resize(offset, 200_000, Allowance::ALL);
            assert!(matches!(beyond, Err(Error::Misuse { .. })), "{beyond:?}");
            let limited = Allowance { limit: Some(100), used: 50 };
            assert!(!job.resize(offset, 51, limited)? && job.resize(offset, 50, limited)?);
            job.release(other)?;
            job.release(offset)?;
            job.barrier()
        });
    }
}

fn wrong_blocks(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3])) {
        run.job(|job| {
            let offset = job.allocate(4096, 8, false)?;
            assert!(matches!(job.release(offset + 128), Err(Error::Misuse { .. })));
            job.release(offset)?;
            assert!(matches!(job.release(offset), Err(Error::Misuse { .. })), "a second time");
            assert!(matches!(job.allocate(0, 8, false), Err(Error::Misuse { .. })));
            assert!(matches!(job.allocate(8, 3, false), Err(Error::Misuse { .. })));
            let unequal = job.allocate(100 + 1000 * usize::from(job.pe() == 0), 8, false);
            assert!(matches!(unequal, Err(Error::Unequal { call: "memory", .. })), "{unequal:?}");
            assert!(matches!(job.allocate(1 << 60, 8, false), Err(Error::OutOfMemory { .. })));
            job.barrier()
        });
    }
}

fn spots_end_where_segments_end(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let segment = segment_of(job);
            let size = segment.size() as u64;
            assert!(segment.at(0, size - 8, 8).is_some() && segment.at(0, size, 0).is_some());
            for (pe, offset, bytes) in [
                (0, size - 8, 9),
                (0, size + 1, 0),
                (0, u64::MAX, 1),
                (0, 8, usize::MAX),
                (2, 0, 1),
                (usize::MAX, 0, 1),
            ] {
                assert!(
                    segment.at(pe, offset, bytes).is_none(),
                    "{bytes} bytes at {offset} of PE {pe}"
                );
            }
            job.barrier()
        });
    }
}

fn words_lie_in_their_spots(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let segment = segment_of(job);
            let block = job.allocate(64, 64, true)?;
            let next = (job.pe() + 1) % job.npes();
            for (at, bytes) in [(8, 4), (12, 8), (9, 8), (63, 0)] {
                let spot = segment.at(next, block + at, bytes).unwrap();
                let refused = |f: &dyn Fn()| {
                    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "{bytes} bytes at {at}")
                };
                refused(&|| spot.store(u64::MAX));
                refused(&|| drop(spot.load::<u64>()));
                refused(&|| drop(spot.fetch_op(AtomicOp::Swap, u64::MAX)));
                refused(&|| drop(spot.compare_swap(0, u64::MAX)));
                refused(&|| drop(spot.signal(SignalOp::Set, u64::MAX)));
            }
            job.barrier()?;
            let mut all = [1u8; 64];
            // SAFETY: the array has as many bytes.
            unsafe { segment.at(job.pe(), block, 64).unwrap().get(all.as_mut_ptr())? };
            assert_eq!(all, [0; 64]);
            Ok(())
        });
    }
}

fn words_and_blocks_arrive(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 5])) {
        run.job(|job| {
            let (me, n, segment) = (job.pe(), job.npes(), segment_of(job));
            let block = job.allocate(8192, 8, true)?;
            let next = (me + 1) % n;
            let there = |at: u64, bytes| segment.at(next, block + at, bytes).unwrap();
            let here = |at: u64| {
                segment
                    .at(me, block + at, 8)
                    .unwrap()
                    .near()
                    .unwrap_or_else(|| segment.local().wrapping_add((block + at) as usize))
            };
            let bytes: Vec<u8> = (0..4096).map(|i| (i + me) as u8).collect();
            there(0, 4).store(7u32 + me as u32);
            // SAFETY: both sources are 4096 bytes long, and live until after the quiet.
            unsafe {
                there(4096, 2000).put_nbi(bytes.as_ptr())?;
                there(64, 1000).put_signal(bytes.as_ptr(), &there(8, 8), SignalOp::Add, 5)?;
            }
            let before = (me + n - 1) % n;
            // SAFETY: aligned words of this PE's own block.
            segment.wait(|| (unsafe { shm::load(here(8).cast::<u64>()) } == 5).then_some(()))?;
            let mut got = vec![0u8; 1000];
            // SAFETY: the vector has 1000 bytes.
            unsafe { segment.at(me, block + 64, 1000).unwrap().get(got.as_mut_ptr())? };
            assert!(got.iter().enumerate().all(|(i, &byte)| byte == (i + before) as u8));
            job.barrier()?;
            assert_eq!(segment.at(me, block, 4).unwrap().load::<u32>()?, 7 + before as u32);
            let mut got = vec![0u8; 2000];
            // SAFETY: the vector has 2000 bytes.
            unsafe { there(4096, 2000).get(got.as_mut_ptr())? };
            assert!(got.iter().enumerate().all(|(i, &byte)| byte == (i + me) as u8));
            assert_eq!(there(16, 8).fetch_op(AtomicOp::Add, 3u64)?, 0);
            assert_eq!(there(16, 8).compare_swap(3u64, 9)?, 3);
            job.barrier()?;
            assert_eq!(segment.at(me, block + 16, 8).unwrap().load::<u64>()?, 9);
            Ok(())
        });
    }
}

/// Each PE changes its source as soon as the target has answered.
fn a_signal_comes_after_a_block_that_is_not_copied(setup: Setup) {
    const BYTES: usize = 4000;
    for run in setup.runs(&sizes_here(&[1, 2, 3])) {
        run.job(|job| {
            let (me, n, segment) = (job.pe(), job.npes(), segment_of(job));
            let block = job.allocate(16 << 10, 8, true)?;
            let (signal, answer, source, target) = (block, block + 8, block + 4096, block + 8192);
            let (next, before) = ((me + 1) % n, (me + n - 1) % n);
            let here = |at: u64| segment.local().wrapping_add(at as usize);
            let comes = |word: u64, round: u64| {
                // SAFETY: an aligned word of this PE's own block.
                let seen = || unsafe { shm::load(here(word).cast::<u64>()) };
                segment.wait(|| (seen() == round).then_some(()))
            };
            for round in 1..=30 {
                let bytes = |pe: usize| [pe as u8 + 1, round as u8].repeat(BYTES / 2);
                // SAFETY: the source lies in this PE's own block, and no PE reads it now.
                unsafe { shm::copy(here(source), bytes(me).as_ptr(), BYTES) };
                let to = segment.at(next, target, BYTES).unwrap();
                let word = segment.at(next, signal, 8).unwrap();
                // SAFETY: the source stays as it is until the answer below.
                unsafe { to.put_signal_nbi(here(source), &word, SignalOp::Set, round)? };
                comes(signal, round)?;
                let mut seen = vec![0; BYTES];
                // SAFETY: the target lies in this PE's own block; the vector is as long.
                unsafe { shm::copy(seen.as_mut_ptr(), here(target), BYTES) };
                assert!(seen == bytes(before), "round {round}");
                segment.at(before, answer, 8).unwrap().signal(SignalOp::Set, round)?;
                comes(answer, round)?;
            }
            job.barrier()
        });
    }
}

fn overlapping_copies_on_oneself(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2])) {
        run.job(|job| {
            let segment = segment_of(job);
            let block = job.allocate(20_000, 8, true)?;
            let mut model: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
            let spot = |at: usize, bytes| segment.at(job.pe(), block + at as u64, bytes).unwrap();
            // SAFETY: source and destination have 20,000 bytes each.
            unsafe { spot(0, 20_000).put(model.as_ptr())? };
            job.quiet()?;
            for (to, from, bytes) in
                [(1, 0, 19_999), (0, 5, 9000), (7000, 7000, 300), (4000, 0, 10_000)]
            {
                model.copy_within(from..from + bytes, to);
                let source = segment.local().wrapping_add((block as usize) + from);
                // SAFETY: the source lies in this PE's own block.
                unsafe { spot(to, bytes).put(source)? };
                job.quiet()?;
            }
            let mut got = vec![0u8; 20_000];
            // SAFETY: the vector has as many bytes.
            unsafe { spot(0, 20_000).get(got.as_mut_ptr())? };
            assert!(got == model);
            job.barrier()
        });
    }
}

/// A store that another function made, which the caller has marked: whoever sleeps until it comes
/// is woken by the next quiet or fence, and not only when it looks by itself.
fn a_quiet_or_fence_wakes_for_what_was_marked(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 3])) {
        run.job(|job| {
            let (marks, near) = (segment_of(job).written(), segment_of(job).near_pes());
            let next = (job.pe() + 1) % job.npes();
            // Far PEs have no marks.
            for complete in [Job::quiet, Job::fence].into_iter().filter(|_| near.contains(&next)) {
                // SAFETY: the job, and so its segment, lives.
                let marked = |at: usize| unsafe { &*marks.as_ptr().add(at) }.load(Relaxed);
                // SAFETY: as above, and the PE is near.
                unsafe { marks.to(next) };
                assert_eq!([marked(0), marked(1 + next)], [1, 1]);
                complete(job)?;
                assert_eq!([marked(0), marked(1 + next)], [0, 0]);
            }
            job.barrier()
        });
    }
}
