//! Wrong calls are refused by the caller's own PE, and write nothing: not elsewhere, and not in
//! part.

use crate::setup::{FEW, Setup};
use memonet_core::{Access, Error, Job, Read, Result, SignalOp, Window, WindowOptions, Write};

on_every_fabric!(
    [also on recorded]
    out_of_range,
    strides_that_overflow,
    one_bad_index_among_good_ones,
    no_such_pe,
    lengths_that_differ,
    bad_sources,
    bad_signals,
    misaligned_words,
    words_beyond_the_end,
    access_modes,
    elements_without_size,
    refusals_cost_nothing,
);

const LEN: usize = 10;
const PATTERN: u64 = 0x5555_AAAA_5555_AAAA;

/// Runs `ask` on PE 0, with a window between two others, and checks that nothing was written
/// anywhere.
fn nothing_written(setup: Setup, ask: fn(&Job, &Window<u64>) -> Result<()>) {
    for run in setup.runs(FEW) {
        run.job(move |job| {
            let windows = (0..3).map(|_| job.window::<u64>(LEN)).collect::<Result<Vec<_>>>()?;
            windows.iter().for_each(|w| w.fill(0..LEN, PATTERN));
            job.barrier()?;
            if job.pe() == 0 {
                ask(job, &windows[1])?;
                job.quiet()?;
            }
            job.barrier()?;
            for w in &windows {
                assert_eq!(w.to_vec(), [PATTERN; LEN], "PE {}", job.pe());
            }
            job.barrier()
        });
    }
}

#[track_caller]
fn beyond<T>(result: Result<T>) {
    let result = result.map(drop);
    assert!(
        matches!(result, Err(Error::OutOfBounds { .. } | Error::Overflow { .. })),
        "{result:?}"
    );
}

#[track_caller]
fn length<T>(result: Result<T>) {
    let result = result.map(drop);
    assert!(matches!(result, Err(Error::Length { .. })), "{result:?}");
}

/// Indices from just beyond the end to those whose byte offsets wrap around to the start.
const BEYOND: [usize; 12] = [
    LEN,
    LEN + 1,
    1 << 20,
    1 << 32,
    u32::MAX as usize,
    1 << 60,
    1 << 61,
    (1 << 61) + 1,
    usize::MAX / 8,
    isize::MAX as usize,
    usize::MAX - 1,
    usize::MAX,
];

fn out_of_range(setup: Setup) {
    nothing_written(setup, |job, w| {
        for index in BEYOND {
            for pe in 0..job.npes() {
                beyond(w.put(pe, index, &[1]));
                beyond(w.put_one(pe, index, 1));
                beyond(w.get(pe, index, &mut [0]));
                beyond(w.get_one(pe, index));
                beyond(w.put_strided(pe, index, 1, &[1], 1, 1));
                beyond(w.get_strided(pe, index, 1, &mut [1], 1, 1));
                beyond(w.put_nbi(pe, index, w, 0..1));
                beyond(w.prepare(pe, index, w, 0..1));
                beyond(w.remote(pe, index));
                beyond(w.remote_as::<Read>(pe, index));
                beyond(w.remote_as::<Write>(pe, index));
                beyond(w.signal(pe, index, SignalOp::Set, 1));
                beyond(w.signal(pe, index, SignalOp::Add, 1));
                beyond(w.put_signal(pe, index, &[1], w, 0, SignalOp::Set, 1));
                assert!(w.near_ptr(pe, index).is_none());
                if index > LEN {
                    beyond(w.put(pe, index, &[]));
                    beyond(w.get(pe, index, &mut []));
                }
            }
        }
        // Blocks that begin inside, or are larger than the window.
        for pe in 0..job.npes() {
            for (index, count) in [
                (LEN - 1, 2),
                (1, LEN),
                (0, LEN + 1),
                (LEN / 2, 1000),
                (usize::MAX, 2),
                (usize::MAX - 1, 3),
            ] {
                beyond(w.put(pe, index, &vec![1; count]));
                beyond(w.get(pe, index, &mut vec![1; count]));
                beyond(w.put_signal(pe, index, &vec![1; count], w, 0, SignalOp::Add, 1));
                beyond(w.put_strided(pe, index, 1, &vec![1; count], 1, count));
            }
        }
        Ok(())
    });
}

fn strides_that_overflow(setup: Setup) {
    nothing_written(setup, |_, w| {
        let max = usize::MAX;
        let half = 1usize << 63;
        let mut to = [0; 4];
        for (index, stride, count) in [
            (0, 10, 2),
            (0, 9, 3),
            (1, 3, 4),
            (0, max, 2),
            (1, max, 2),
            (0, half, 3),
            (0, 1 << 61, 2),
            (0, 1 << 61, 9),
            (0, 1 << 60, 3),
            (9, max, 3),
            (max, max, 2),
        ] {
            beyond(w.put_strided(1, index, stride, &[7; 16], 1, count));
            beyond(w.get_strided(1, index, stride, &mut [7; 16], 1, count));
        }
        // Too many elements, or too far apart, for any source.
        for (from_stride, count) in
            [(1, 5), (2, 3), (4, 2), (1, max), (max, 2), (half, 3), (max, max), (2, half), (0, max)]
        {
            let put = w.put_strided(1, 0, 1, &[7; 4], from_stride, count);
            assert!(put.is_err(), "{count} elements at a stride of {from_stride}");
            assert!(w.get_strided(1, 0, 1, &mut to, from_stride, count).is_err());
        }
        for count in [max, half, max / 8 + 1, LEN + 1] {
            beyond(w.put_strided(1, 0, 1, &[7; LEN + 1], 0, count));
        }
        assert_eq!(to, [0; 4]);
        Ok(())
    });
}

fn one_bad_index_among_good_ones(setup: Setup) {
    nothing_written(setup, |_, w| {
        for bad in BEYOND {
            for place in 0..3 {
                let mut indices = [1, 2, 3];
                indices[place] = bad;
                beyond(w.put_indexed(1, &indices, &[1; 3]));
                let mut to = [9; 3];
                beyond(w.get_indexed(1, &indices, &mut to));
            }
        }
        Ok(())
    });
}

fn no_such_pe(setup: Setup) {
    nothing_written(setup, |job, w| {
        let n = job.npes();
        for pe in [n, n + 1, 1000, 1 << 16, 1 << 32, (1 << 32) + 1, 1 << 63, usize::MAX] {
            #[track_caller]
            fn none<T>(result: Result<T>, asked: usize, n: usize) {
                let result = result.map(drop);
                assert!(
                    matches!(result, Err(Error::NoSuchPe { pe, npes, .. }) if pe == asked && npes == n),
                    "{asked}: {result:?}"
                );
            }
            none(w.put(pe, 0, &[1]), pe, n);
            none(w.put(pe, 0, &[]), pe, n);
            none(w.get(pe, 0, &mut [1]), pe, n);
            none(w.put_one(pe, 0, 1), pe, n);
            none(w.get_one(pe, 0), pe, n);
            none(w.put_strided(pe, 0, 1, &[1], 1, 1), pe, n);
            none(w.get_strided(pe, 0, 1, &mut [1], 1, 1), pe, n);
            none(w.put_indexed(pe, &[0], &[1]), pe, n);
            none(w.get_indexed(pe, &[0], &mut [1]), pe, n);
            none(w.put_nbi(pe, 0, w, 1..2), pe, n);
            none(w.prepare(pe, 0, w, 1..2), pe, n);
            none(w.put_signal(pe, 0, &[1], w, 1, SignalOp::Set, 1), pe, n);
            none(w.signal(pe, 0, SignalOp::Set, 1), pe, n);
            none(w.remote(pe, 0), pe, n);
            none(w.remote_word::<u8>(pe, 0), pe, n);
            assert!(w.near_ptr(pe, 0).is_none());
            assert!(
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.is_near(pe))).is_err()
            );
        }
        Ok(())
    });
}

fn lengths_that_differ(setup: Setup) {
    nothing_written(setup, |_, w| {
        length(w.put_indexed(1, &[0, 1], &[1]));
        length(w.put_indexed(1, &[0], &[1, 2]));
        length(w.put_indexed(1, &[], &[1]));
        length(w.get_indexed(1, &[0, 1], &mut [1]));
        length(w.get_indexed(1, &[0], &mut []));
        length(w.put_strided(1, 0, 1, &[1, 2], 1, 3));
        length(w.put_strided(1, 0, 2, &[1, 2, 3, 4], 2, 3));
        length(w.put_strided(1, 0, 1, &[], 1, 1));
        length(w.get_strided(1, 0, 2, &mut [1, 2, 3, 4], 2, 3));
        length(w.get_strided(1, 0, 1, &mut [], 5, 1));
        Ok(())
    });
}

/// Ranges of a PE's own part.
fn bad_sources(setup: Setup) {
    nothing_written(setup, |job, w| {
        let to = job.npes() - 1;
        #[expect(clippy::reversed_empty_ranges, reason = "it must be refused")]
        let ranges = [
            LEN..LEN + 1,
            0..LEN + 1,
            LEN + 1..LEN + 1,
            3..2,
            usize::MAX..0,
            0..usize::MAX,
            usize::MAX - 1..usize::MAX,
            1 << 61..(1 << 61) + 1,
        ];
        for range in ranges {
            assert!(w.put_nbi(to, 0, w, range.clone()).is_err(), "{range:?}");
            assert!(w.prepare(to, 0, w, range.clone()).is_err(), "{range:?}");
        }
        beyond(w.put_nbi(to, 5, w, 0..6));
        beyond(w.prepare(to, 5, w, 0..6));
        Ok(())
    });
}

/// A bad signal keeps its data from being sent, and bad data their signal.
fn bad_signals(setup: Setup) {
    nothing_written(setup, |job, w| {
        let short = [1u64; 3];
        for index in BEYOND {
            for op in [SignalOp::Set, SignalOp::Add] {
                beyond(w.put_signal(1, 0, &short, w, index, op, 1));
                beyond(w.put_signal(1, index, &short, w, 0, op, 1));
                beyond(w.prepare(1, 0, w, 0..3)?.with_signal(w, index, op, 1));
            }
        }
        beyond(w.put_signal(1, LEN - 2, &short, w, 0, SignalOp::Set, 1));
        let none = w.put_signal(job.npes(), 0, &[], w, 0, SignalOp::Set, 1);
        assert!(matches!(none, Err(Error::NoSuchPe { .. })));
        Ok(())
    });
}

fn misaligned_words(setup: Setup) {
    #[track_caller]
    fn misaligned<T>(result: Result<T>, at: usize, of: usize) {
        let result = result.map(drop);
        assert!(
            matches!(result, Err(Error::Misaligned { offset, size, .. }) if offset == at && size == of),
            "{result:?}"
        );
    }
    nothing_written(setup, |job, w| {
        for pe in 0..job.npes() {
            for offset in 0..16 {
                if offset % 8 != 0 {
                    misaligned(w.remote_word::<u64>(pe, offset), offset, 8);
                    misaligned(w.remote_word::<f64>(pe, offset), offset, 8);
                }
                if offset % 4 != 0 {
                    misaligned(w.remote_word::<u32>(pe, offset), offset, 4);
                    misaligned(w.remote_word::<f32>(pe, offset), offset, 4);
                }
                if offset % 2 != 0 {
                    misaligned(w.remote_word::<i16>(pe, offset), offset, 2);
                }
                w.remote_word::<u8>(pe, offset)?;
            }
        }
        Ok(())
    });
}

fn words_beyond_the_end(setup: Setup) {
    nothing_written(setup, |job, w| {
        let bytes = 8 * LEN;
        for pe in 0..job.npes() {
            for offset in [bytes, bytes + 8, 1 << 32, 1 << 63, usize::MAX - 7, usize::MAX & !63] {
                let out = [
                    w.remote_word::<u8>(pe, offset).map(drop),
                    w.remote_word::<u16>(pe, offset).map(drop),
                    w.remote_word::<u32>(pe, offset).map(drop),
                    w.remote_word::<u64>(pe, offset).map(drop),
                ];
                for result in out {
                    beyond(result);
                }
            }
            beyond(w.remote_word::<u8>(pe, usize::MAX));
            assert!(w.remote_word::<u64>(pe, usize::MAX).is_err());
        }
        // A range that is partly inside.
        let odd = w.remote_word::<u64>(1, bytes - 4);
        assert!(odd.is_err());
        Ok(())
    });
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.window::<[u8; 3]>(3)?;
            w.remote_word::<u64>(1, 0)?;
            w.remote_word::<u8>(1, 8)?;
            beyond(w.remote_word::<u64>(1, 8));
            beyond(w.remote_word::<u32>(1, 8));
            beyond(w.remote_word::<u16>(1, 8));
            job.barrier()
        });
    }
}

fn access_modes(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let plain = job.window::<u64>(2)?;
            for access in [Access::None, Access::Read, Access::Write, Access::ReadWrite] {
                let w = job.window_with::<u64>(2, WindowOptions::new().access(access))?;
                w.fill(0..2, PATTERN);
                job.barrier()?;
                if job.pe() == 0 {
                    other_pes_have(access, job, &w, &plain)?;
                }
                owners_have_all(access, job, &w)?;
                job.barrier()?;
                let write = access.allows(Access::Write);
                let expected = if job.pe() == 1 && write { [2, 3] } else { [PATTERN; 2] };
                assert_eq!(
                    (w.to_vec(), plain.to_vec()),
                    (expected.to_vec(), vec![0; 2]),
                    "{access:?}"
                );
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// PE 0 may do with PE 1's part of `w` what `access` says, and nothing else.
fn other_pes_have(access: Access, job: &Job, w: &Window<u64>, plain: &Window<u64>) -> Result<()> {
    #[track_caller]
    fn denied<T>(result: Result<T>) {
        let result = result.map(drop);
        assert!(matches!(result, Err(Error::AccessDenied { pe: 1, .. })), "{result:?}");
    }
    let (read, write) = (access.allows(Access::Read), access.allows(Access::Write));
    if read {
        assert_eq!(w.get_one(1, 0)?, PATTERN);
        assert_eq!(w.remote_as::<Read>(1, 1)?.load()?, PATTERN);
    } else {
        denied(w.get_one(1, 0));
        denied(w.get_strided(1, 0, 1, &mut [0], 1, 1));
        denied(w.get_indexed(1, &[1], &mut [0]));
        denied(w.remote_as::<Read>(1, 1));
    }
    if write {
        w.put_one(1, 0, 1)?;
        job.fence()?;
        w.signal(1, 0, SignalOp::Set, 2)?;
        w.remote_as::<Write>(1, 1)?.store(3);
    } else {
        denied(w.put_one(1, 0, 1));
        denied(w.put_nbi(1, 0, plain, 0..1));
        denied(w.prepare(1, 0, plain, 0..1));
        denied(w.put_strided(1, 0, 1, &[1], 1, 1));
        denied(w.put_indexed(1, &[1], &[1]));
        denied(w.signal(1, 0, SignalOp::Set, 2));
        denied(w.put_signal(1, 0, &[1], plain, 0, SignalOp::Set, 1));
        denied(plain.put_signal(1, 0, &[1], w, 0, SignalOp::Set, 1));
        denied(plain.prepare(1, 0, plain, 0..1)?.with_signal(w, 0, SignalOp::Set, 1));
        denied(w.remote_as::<Write>(1, 1));
    }
    if !(read && write) {
        denied(w.remote(1, 0));
        denied(w.remote_word::<u32>(1, 0));
        denied(w.signal(1, 0, SignalOp::Add, 1));
        denied(plain.put_signal(1, 0, &[1], w, 0, SignalOp::Add, 1));
    }
    // Wrong in two ways: either error will do.
    assert!(w.remote(1, 2).is_err() && w.remote(job.npes(), 0).is_err());
    Ok(())
}

/// A PE may always read and write its own part. *Collective.*
fn owners_have_all(access: Access, job: &Job, w: &Window<u64>) -> Result<()> {
    let own = job.window_with::<u64>(1, WindowOptions::new().access(access))?;
    if job.pe() == 1 {
        w.remote(1, 1)?.fetch_add(0)?;
        // PE 0's store may come between any two of these.
        for seen in [w.get_one(1, 1)?, w.read(1)] {
            let stored = access.allows(Access::Write) && seen == 3;
            assert!(seen == PATTERN || stored, "{seen:#x}");
        }
        own.put_one(1, 0, 9)?;
        job.quiet()?;
        assert_eq!(own.read(0), 9);
    }
    Ok(())
}

/// Plain data may have size zero: nothing to copy, and no division by it.
fn elements_without_size(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            for len in [0, 5, usize::MAX] {
                let Ok(w) = job.window::<[u64; 0]>(len) else { continue };
                assert_eq!(w.len(), len);
                if len == 5 {
                    w.put(1, 4, &[[]])?;
                    assert_eq!(w.get_one(1, 4)?, [0; 0]);
                    assert_eq!(w.read(3), [0; 0]);
                    assert_eq!(w.to_vec().len(), 5);
                }
                if len < usize::MAX {
                    assert!(w.put(1, len, &[[]]).is_err());
                }
                w.free()?;
            }
            job.barrier()
        });
    }
}

/// Any number of refusals changes nothing: nothing stays held or used up.
fn refusals_cost_nothing(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let w = job.restricted::<u64>(4, |_, holder| {
                if holder == 1 { Access::Read } else { Access::ReadWrite }
            })?;
            if job.pe() == 1 {
                for _ in 0..200 {
                    assert!(w.put_one(0, 0, 1).is_err());
                    assert!(w.get_one(0, 4).is_err());
                    assert!(w.remote(0, 9).is_err());
                    assert!(w.remote_word::<u64>(0, 4).is_err());
                }
            }
            job.barrier()?;
            if job.pe() == 0 {
                w.revoke()?;
                w.revoke_wait(Some(crate::setup::LONG))?;
            }
            job.barrier()?;
            if job.pe() == 1 {
                for _ in 0..200 {
                    assert!(matches!(w.get_one(0, 0), Err(Error::Revoked { .. })));
                }
            }
            job.barrier()?;
            if job.pe() == 0 {
                w.revoke_wait(Some(crate::setup::LONG))?;
            }
            w.free()?;
            job.barrier()
        });
    }
}
