//! Blocks: put and get of any size and place; strided, indexed, and with sources that are read
//! late.

use crate::setup::{ALL, FEW, Setup, mark, marks};
use memonet_core::{Error, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

on_every_fabric!(
    [also on recorded]
    every_size_at_every_offset,
    large_blocks,
    all_to_all,
    the_source_may_be_reused,
    the_source_of_put_nbi_may_be_reused_after_quiet,
    nothing_is_a_block_too,
    elements_of_any_plain_type,
    strided,
    indexed,
    own_part_is_a_target_too,
    own_part_by_copies,
    overlap_is_refused,
);

fn every_size_at_every_offset(setup: Setup) {
    const LEN: usize = 700;
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.window::<u8>(LEN)?;
            let (me, to) = (job.pe(), (job.pe() + 1) % job.npes());
            let sizes = [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 511];
            for (round, size) in sizes.into_iter().enumerate() {
                w.fill(0..LEN, 0xEE);
                job.barrier()?;
                let index = [0, 1, 3, 8, 13, 64, LEN - 511][round % 7];
                let block: Vec<u8> = (0..size).map(|i| mark(me, i, round) as u8).collect();
                w.put(to, index, &block)?;
                job.quiet()?;
                let mut back = vec![0; size];
                w.get(to, index, &mut back)?;
                assert_eq!(back, block);
                job.barrier()?;
                let from = (me + job.npes() - 1) % job.npes();
                let mut expected = vec![0xEE; LEN];
                for i in 0..size {
                    expected[index + i] = mark(from, i, round) as u8;
                }
                assert_eq!(w.to_vec(), expected, "{size} bytes at {index}");
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// The size from which copies use other instructions.
fn large_blocks(setup: Setup) {
    const LEN: usize = 3 << 17;
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let w = job.window::<u64>(LEN)?;
            let (me, to) = (job.pe(), 1 - job.pe());
            for (round, (index, len)) in
                [(0, 1 << 12), (1, (1 << 15) + 3), (5, LEN - 7)].into_iter().enumerate()
            {
                let block = marks(me, round, len);
                w.put(to, index, &block)?;
                job.barrier()?;
                let mut own = vec![0; len];
                w.read_into(index, &mut own);
                assert_eq!(own, marks(to, round, len));
                let mut back = vec![0; len];
                w.get(to, index, &mut back)?;
                assert_eq!(back, block);
                assert_eq!(w.read(LEN - 1), 0, "beyond the block");
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn all_to_all(setup: Setup) {
    const LEN: usize = 37;
    for run in setup.runs(ALL) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(n * LEN)?;
            for round in 0..4 {
                for step in 0..n {
                    let to = (me + step) % n;
                    w.put(to, me * LEN, &marks(me, round * n + to, LEN))?;
                }
                job.barrier()?;
                let expected: Vec<u64> =
                    (0..n).flat_map(|from| marks(from, round * n + me, LEN)).collect();
                assert_eq!(w.to_vec(), expected);
                let mut theirs = vec![0; LEN];
                let next = (me + 1) % n;
                w.get(next, me * LEN, &mut theirs)?;
                assert_eq!(theirs, marks(me, round * n + next, LEN));
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn the_source_may_be_reused(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (w, signals) = (job.window::<u64>(600)?, job.window::<u64>(1)?);
            if job.pe() == 0 {
                let mut block = marks(0, 0, 100);
                for round in 0..5 {
                    block.copy_from_slice(&marks(0, round, 100));
                    w.put(1, round * 100, &block)?;
                    block.fill(0);
                }
                block.copy_from_slice(&marks(0, 5, 100));
                w.put_signal(1, 500, &block, &signals, 0, memonet_core::SignalOp::Set, 1)?;
                block.fill(0);
                drop(block);
            }
            job.barrier()?;
            if job.pe() == 1 {
                let expected: Vec<u64> = (0..6).flat_map(|round| marks(0, round, 100)).collect();
                assert_eq!(w.to_vec(), expected);
            }
            job.barrier()
        });
    }
}

fn the_source_of_put_nbi_may_be_reused_after_quiet(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (target, source) = (job.window::<u64>(400)?, job.window::<u64>(100)?);
            if job.pe() == 0 {
                for round in 0..4 {
                    source.write_from(0, &marks(0, round, 100));
                    target.put_nbi(1, round * 100, &source, 0..50)?;
                    target.put_nbi(1, round * 100 + 50, &source, 50..100)?;
                    job.quiet()?;
                }
            }
            job.barrier()?;
            if job.pe() == 1 {
                let expected: Vec<u64> = (0..4).flat_map(|round| marks(0, round, 100)).collect();
                assert_eq!(target.to_vec(), expected);
                assert_eq!(source.to_vec(), [0; 100], "the source is the caller's own part");
            }
            job.barrier()
        });
    }
}

fn nothing_is_a_block_too(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let (w, none) = (job.window::<u32>(3)?, job.window::<u32>(0)?);
            let to = job.npes() - 1;
            assert!(none.is_empty() && !w.is_empty());
            assert_eq!((none.len(), w.len()), (0, 3));
            assert!(none.to_vec().is_empty());
            for index in [0, 3] {
                w.put(to, index, &[])?;
                w.get(to, index, &mut [])?;
                w.put_nbi(to, index, &w, 1..1)?;
            }
            none.put(to, 0, &[])?;
            none.get(to, 0, &mut [])?;
            w.put_strided(to, 0, 1, &[], 1, 0)?;
            w.get_strided(to, 3, 2, &mut [], 2, 0)?;
            w.put_indexed(to, &[], &[])?;
            w.get_indexed(to, &[], &mut [])?;
            let mut transfer = w.prepare(to, 3, &none, 0..0)?;
            transfer.start()?;
            transfer.wait()?;
            job.barrier()?;
            assert_eq!(w.to_vec(), [0; 3]);
            none.free()?;
            job.barrier()
        });
    }
}

fn elements_of_any_plain_type(setup: Setup) {
    #[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    struct Particle {
        position: [f64; 3],
        mass: f32,
        kind: u16,
        flags: [u8; 2],
    }
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let make = |pe: usize, i: usize| Particle {
                position: [pe as f64, i as f64, -0.5],
                mass: 1.5 * i as f32,
                kind: pe as u16,
                flags: [i as u8, 7],
            };
            let (w, bytes) = (job.window::<Particle>(n * 2)?, job.window::<[u8; 3]>(5)?);
            for to in 0..n {
                w.put_one(to, 2 * me, make(me, 0))?;
                w.put(to, 2 * me + 1, &[make(me, 1)])?;
            }
            bytes.put((me + 1) % n, 1, &[[me as u8, 2, 3]; 3])?;
            job.barrier()?;
            for from in 0..n {
                assert_eq!(w.read(2 * from), make(from, 0));
                assert_eq!(w.get_one((me + 1) % n, 2 * from + 1)?, make(from, 1));
            }
            let left = ((me + n - 1) % n) as u8;
            assert_eq!(bytes.to_vec(), [[0; 3], [left, 2, 3], [left, 2, 3], [left, 2, 3], [0; 3]]);
            job.barrier()
        });
    }
}

fn strided(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.window::<u32>(10)?;
            if job.pe() == 0 {
                // Every second element of the source to every third of the target.
                w.put_strided(1, 1, 3, &[10, 0, 20, 0, 30], 2, 3)?;
                job.quiet()?;
                let mut back = [0; 7];
                w.get_strided(1, 1, 3, &mut back, 3, 3)?;
                assert_eq!(back, [10, 0, 0, 20, 0, 0, 30]);
                // The last element's stride need not fit.
                w.put_strided(1, 9, 5, &[90], 7, 1)?;
            }
            job.barrier()?;
            if job.pe() == 1 {
                assert_eq!(w.to_vec(), [0, 10, 0, 0, 20, 0, 0, 30, 0, 90]);
            }
            job.barrier()
        });
    }
}

fn indexed(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.window::<i16>(6)?;
            if job.pe() == 0 {
                w.put_indexed(1, &[5, 0, 3], &[-5, 100, 33])?;
                job.quiet()?;
                let mut back = [1; 5];
                w.get_indexed(1, &[3, 3, 0, 1, 5], &mut back)?;
                assert_eq!(back, [33, 33, 100, 0, -5]);
            }
            job.barrier()?;
            if job.pe() == 1 {
                assert_eq!(w.to_vec(), [100, 0, 0, 33, 0, -5]);
            }
            job.barrier()
        });
    }
}

fn own_part_is_a_target_too(setup: Setup) {
    for run in setup.runs(&[1, 3]) {
        run.job(|job| {
            let me = job.pe();
            let w = job.window::<u64>(8)?;
            w.put(me, 0, &[1, 2, 3])?;
            w.put_strided(me, 3, 2, &[4, 5], 1, 2)?;
            job.quiet()?;
            assert_eq!(w.to_vec(), [1, 2, 3, 4, 0, 5, 0, 0]);
            w.put_nbi(me, 6, &w, 0..2)?;
            job.quiet()?;
            let mut all = [0; 8];
            w.get(me, 0, &mut all)?;
            assert_eq!(all, [1, 2, 3, 4, 0, 5, 1, 2]);
            job.barrier()
        });
    }
}

fn own_part_by_copies(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let w = job.window::<u16>(6)?;
            w.write(0, 1);
            w.write_from(1, &[2, 3]);
            w.fill(3..5, 9);
            w.fill(6..6, 8);
            let mut some = [0; 3];
            w.read_into(2, &mut some);
            assert_eq!((some, w.read(5)), ([3, 9, 9], 0));
            // SAFETY: no other PE, and nothing else here, touches this part before the barrier.
            unsafe {
                w.local_slice_mut()[5] = 77;
                assert_eq!(w.local_slice(), [1, 2, 3, 9, 9, 77]);
                assert_eq!(*w.local_ptr().add(5), 77);
            }
            type Access = fn(&memonet_core::Window<u16>);
            let beyond: [Access; 7] = [
                |w| assert_eq!(w.read(6), 0),
                |w| w.write(6, 0),
                |w| assert_eq!(w.read(usize::MAX), 0),
                |w| w.read_into(5, &mut [0; 2]),
                |w| w.write_from(usize::MAX, &[0; 2]),
                |w| w.fill(5..7, 0),
                |w| w.fill(0..usize::MAX, 0),
            ];
            for (i, access) in beyond.into_iter().enumerate() {
                let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| access(&w)));
                assert!(panic.is_err(), "access {i} is out of range");
            }
            assert_eq!(w.to_vec(), [1, 2, 3, 9, 9, 77]);
            job.barrier()
        });
    }
}

fn overlap_is_refused(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let me = job.pe();
            let w = job.window::<u64>(8)?;
            w.write_from(0, &marks(me, 0, 8));
            for (index, range) in [(0, 0..8), (1, 0..2), (0, 1..8), (3, 3..4)] {
                let refused = w.put_nbi(me, index, &w, range.clone());
                assert!(
                    matches!(refused, Err(Error::Misuse { .. })),
                    "{range:?} to {index}: {refused:?}"
                );
                let refused: Result<_> = w.prepare(me, index, &w, range);
                assert!(matches!(refused.map(drop), Err(Error::Misuse { .. })));
            }
            assert_eq!(w.to_vec(), marks(me, 0, 8));
            job.barrier()
        });
    }
}
