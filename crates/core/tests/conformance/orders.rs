//! Order and completion: fences, data before their signal, quiet, and eventual arrival.

use crate::setup::{ALL, FEW, LONG, Meeting, SLUGGISH, Setup, eventually, mark, marks};
use memonet_core::{Cause, Cmp, Error, Job, Result, SignalOp, Window};
use std::sync::Arc;

on_every_fabric!(
    [also on recorded, copying]
    a_fence_orders_data_before_a_flag,
    a_fence_orders_every_kind_of_write,
    a_fence_orders_large_blocks,
    fences_make_a_chain,
    data_comes_before_its_signal,
    large_data_comes_before_its_signal,
    a_transfer_comes_before_its_signal,
    signals_are_counted,
    a_pipeline_of_all_pes,
    quiet_means_visible,
    quiet_comes_before_later_loads,
    a_get_sees_what_its_target_stored,
    a_barrier_completes_writes,
    what_was_started_arrives_without_further_calls,
    finalising_completes_writes,
    ; with threads of their own:
    quiet_covers_other_threads_writes,
);

const ROUNDS: usize = 25;

/// Around a ring of PEs: data by several stores, a fence, a flag. A PE that sees the flag sees the
/// data.
fn a_fence_orders_data_before_a_flag(setup: Setup) {
    for run in setup.many_runs(&[2, 3, 5, 8], 4) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (right, left) = ((me + 1) % n, (me + n - 1) % n);
            let (data, flags) = (job.window::<u64>(4)?, job.window::<u64>(2)?);
            let there = (0..4).map(|i| data.remote(right, i)).collect::<Result<Vec<_>>>()?;
            let (ready, seen) = (flags.remote(right, 0)?, flags.remote(left, 1)?);
            for round in 1..=ROUNDS {
                for (i, remote) in there.iter().enumerate() {
                    remote.store(mark(me, i, round));
                }
                job.fence()?;
                ready.store(round as u64);
                flags.wait_until(0, Cmp::Ge, round as u64)?;
                assert_eq!(data.to_vec(), marks(left, round, 4), "round {round}");
                seen.store(round as u64);
                // The next round must not overwrite what the neighbour has not checked yet.
                flags.wait_until(1, Cmp::Ge, round as u64)?;
            }
            job.barrier()
        });
    }
}

/// Writes a block in one of eight ways, and a fence.
fn write_and_fence(
    kind: usize,
    job: &Job,
    data: &Window<u64>,
    source: &Window<u64>,
    signals: &Window<u64>,
    round: usize,
) -> Result<()> {
    let block = marks(0, round, 9);
    match kind {
        0 => (0..9).try_for_each(|i| data.remote(1, i).map(|r| r.store(block[i])))?,
        1 => data.put(1, 0, &block)?,
        2 => data.put_nbi(1, 0, source, 0..9)?,
        3 => (0..3).try_for_each(|i| data.put_strided(1, i, 3, &block[i..], 3, 3))?,
        4 => data.put_indexed(
            1,
            &[8, 7, 6, 5, 4, 3, 2, 1, 0],
            &block.iter().rev().copied().collect::<Vec<_>>(),
        )?,
        5 => data.put_signal(1, 0, &block, signals, 1, SignalOp::Set, 1)?,
        6 => {
            let mut transfer = data.prepare(1, 0, source, 0..9)?;
            transfer.start()?;
            job.fence()?;
            // Only order is tested here, not completion.
            drop(transfer);
            return Ok(());
        }
        _ => (0..9).try_for_each(|i| data.remote(1, i)?.set(block[i]))?,
    }
    job.fence()
}

/// Tells of a round in one of seven ways.
fn tell(kind: usize, data: &Window<u64>, flags: &Window<u64>, round: u64) -> Result<()> {
    match kind {
        0 => flags.remote(1, 0)?.store(round),
        1 => drop(flags.remote(1, 0)?.fetch_add(1)?),
        2 => flags.signal(1, 0, SignalOp::Set, round)?,
        3 => flags.signal(1, 0, SignalOp::Add, 1)?,
        4 => flags.put(1, 0, &[round])?,
        5 => drop(flags.remote(1, 0)?.compare_swap(round - 1, round)?),
        _ => data.put_signal(1, 0, &[], flags, 0, SignalOp::Set, round)?,
    }
    Ok(())
}

/// All calls that write, before the fence; all calls that write a word, after it.
fn a_fence_orders_every_kind_of_write(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let [data, source, flags] = [9, 9, 2].map(|len| job.window::<u64>(len));
            let (data, source, flags) = (data?, source?, flags?);
            let mut round = 0;
            for kind in 0..8 {
                for telling in 0..7 {
                    round += 1;
                    if job.pe() == 0 {
                        source.write_from(0, &marks(0, round, 9));
                        write_and_fence(kind, job, &data, &source, &flags, round)?;
                        tell(telling, &data, &flags, round as u64)?;
                        // `source` must stay as it is until then.
                        job.quiet()?;
                    } else if job.pe() == 1 {
                        flags.wait_until(0, Cmp::Ge, round as u64)?;
                        assert_eq!(
                            data.to_vec(),
                            marks(0, round, 9),
                            "writing in way {kind}, telling in way {telling}"
                        );
                    }
                    job.barrier()?;
                }
            }
            Ok(())
        });
    }
}

/// Large copies may bypass the caches; the store after the fence does not.
fn a_fence_orders_large_blocks(setup: Setup) {
    const LEN: usize = 1 << 17;
    for run in setup.many_runs(&[2], 1) {
        run.job(|job| {
            let [data, source, flags] = [LEN, LEN, 2].map(|len| job.window::<u64>(len));
            let (data, source, flags) = (data?, source?, flags?);
            let mut transfer = data.prepare(1, 0, &source, 0..LEN)?;
            for round in 1..=9u64 {
                if job.pe() == 0 {
                    let block = vec![round; LEN];
                    match round % 3 {
                        0 => data.put(1, 0, &block)?,
                        1 => {
                            source.write_from(0, &block);
                            data.put_nbi(1, 0, &source, 0..LEN)?;
                        }
                        _ => {
                            source.write_from(0, &block);
                            transfer.start()?;
                        }
                    }
                    job.fence()?;
                    flags.remote(1, 0)?.store(round);
                    transfer.wait()?;
                    flags.wait_until(1, Cmp::Eq, round)?;
                } else {
                    flags.wait_until(0, Cmp::Eq, round)?;
                    let late = data.to_vec().iter().rposition(|&v| v != round);
                    assert_eq!(late, None, "round {round}");
                    flags.remote(0, 1)?.store(round);
                }
            }
            job.barrier()
        });
    }
}

fn fences_make_a_chain(setup: Setup) {
    const LINKS: usize = 6;
    for run in setup.many_runs(FEW, 6) {
        run.job(|job| {
            let w = job.window::<u64>(LINKS)?;
            for round in 1..=ROUNDS as u64 {
                if job.pe() == 0 {
                    for i in 0..LINKS {
                        w.remote(1, i)?.store(round);
                        job.fence()?;
                    }
                } else if job.pe() == 1 {
                    // Reads backwards: what is read later was written earlier.
                    eventually("the chain", || {
                        let seen: Vec<u64> = (0..LINKS).rev().map(|i| w.read(i)).collect();
                        assert!(
                            seen.is_sorted(),
                            "a later link came before an earlier one: {seen:?}"
                        );
                        seen[0] == round
                    });
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn data_comes_before_its_signal(setup: Setup) {
    for run in setup.many_runs(&[2, 3, 5, 9], 4) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (right, left) = ((me + 1) % n, (me + n - 1) % n);
            let (data, signals) = (job.window::<u64>(ROUNDS * 5)?, job.window::<u64>(3)?);
            // All at once, each to a place of its own: only their signals order them.
            for round in 0..ROUNDS {
                let (index, block) = (round * 5, marks(me, round, 5));
                match round % 2 {
                    0 => data.put_signal(
                        right,
                        index,
                        &block,
                        &signals,
                        0,
                        SignalOp::Add,
                        1 << (2 * round),
                    )?,
                    _ => data.put_signal(
                        right,
                        index,
                        &block,
                        &signals,
                        2,
                        SignalOp::Add,
                        1 << (2 * round),
                    )?,
                }
            }
            let mut checked = [false; ROUNDS];
            while !checked.iter().all(|&done| done) {
                let before = [signals.read(0), signals.read(2)];
                for round in 0..ROUNDS {
                    if !checked[round] && before[round % 2] & 1 << (2 * round) != 0 {
                        let mut block = vec![0; 5];
                        data.read_into(round * 5, &mut block);
                        assert_eq!(
                            block,
                            marks(left, round, 5),
                            "the signal of round {round} came before its data"
                        );
                        checked[round] = true;
                    }
                }
                if before == [signals.read(0), signals.read(2)] && !checked.iter().all(|&done| done)
                {
                    let which =
                        if before[0].count_ones() < ROUNDS.div_ceil(2) as u32 { 0 } else { 2 };
                    let place = usize::from(which == 2);
                    signals.wait_until(which, Cmp::Ne, before[place])?;
                }
            }
            assert_eq!(signals.read(1), 0);
            job.barrier()
        });
    }
}

/// Large copies may use other stores than the signal.
fn large_data_comes_before_its_signal(setup: Setup) {
    const LEN: usize = 1 << 16;
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let (data, signals) = (job.window::<u64>(LEN)?, job.window::<u64>(2)?);
            for round in 1..=6u64 {
                if job.pe() == 0 {
                    data.put_signal(1, 0, &vec![round; LEN], &signals, 0, SignalOp::Set, round)?;
                    signals.wait_until(1, Cmp::Eq, round)?;
                } else {
                    signals.wait_until(0, Cmp::Eq, round)?;
                    let seen = data.to_vec();
                    let bad = seen.iter().rposition(|&v| v != round);
                    assert_eq!(bad, None, "round {round}");
                    signals.signal(0, 1, SignalOp::Set, round)?;
                }
            }
            job.barrier()
        });
    }
}

fn a_transfer_comes_before_its_signal(setup: Setup) {
    for run in setup.many_runs(FEW, 4) {
        run.job(|job| {
            let [source, data, signals] = [30, 30, 2].map(|len| job.window::<u64>(len));
            let (source, data, signals) = (source?, data?, signals?);
            if job.pe() == 0 {
                let mut transfer = data.prepare(1, 0, &source, 0..30)?.with_signal(
                    &signals,
                    0,
                    SignalOp::Add,
                    1,
                )?;
                for round in 1..=ROUNDS {
                    source.write_from(0, &marks(0, round, 30));
                    transfer.start()?;
                    transfer.wait()?;
                    signals.wait_until(1, Cmp::Eq, round as u64)?;
                }
            } else if job.pe() == 1 {
                for round in 1..=ROUNDS {
                    signals.wait_until(0, Cmp::Eq, round as u64)?;
                    assert_eq!(data.to_vec(), marks(0, round, 30));
                    signals.signal(0, 1, SignalOp::Add, 1)?;
                }
            }
            job.barrier()
        });
    }
}

fn signals_are_counted(setup: Setup) {
    for run in setup.runs(ALL) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (signals, data) = (job.window::<u64>(2)?, job.window::<u16>(n)?);
            for i in 0..10 {
                for step in 0..n {
                    let to = (me + step) % n;
                    if i % 2 == 0 {
                        signals.signal(to, 0, SignalOp::Add, 1)?;
                    } else {
                        data.put_signal(to, me, &[i], &signals, 0, SignalOp::Add, 1)?;
                    }
                }
            }
            assert_eq!(signals.wait_until(0, Cmp::Ge, 10 * n as u64)?, 10 * n as u64);
            job.barrier()?;
            assert_eq!(signals.to_vec(), [10 * n as u64, 0]);
            job.barrier()?;
            // Addition wraps, as the contract says; set stores.
            if me == 0 {
                signals.signal(n - 1, 1, SignalOp::Set, u64::MAX)?;
                job.fence()?;
                signals.signal(n - 1, 1, SignalOp::Add, 3)?;
            }
            job.barrier()?;
            assert_eq!(signals.remote(n - 1, 1)?.load()?, 2);
            job.barrier()
        });
    }
}

/// A value travels from PE to PE; each adds to it.
fn a_pipeline_of_all_pes(setup: Setup) {
    for run in setup.runs(ALL) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (data, signals) = (job.window::<[u64; 4]>(1)?, job.window::<u64>(1)?);
            for lap in 1..=6u64 {
                if me > 0 || lap > 1 {
                    signals.wait_until(0, Cmp::Ge, if me > 0 { lap } else { lap - 1 })?;
                }
                let mut value = data.read(0);
                value[me % 4] += lap;
                data.put_signal((me + 1) % n, 0, &[value], &signals, 0, SignalOp::Add, 1)?;
            }
            if me == 0 {
                signals.wait_until(0, Cmp::Ge, 6)?;
                assert_eq!(data.read(0).iter().sum::<u64>(), 21 * n as u64);
            }
            job.barrier()
        });
    }
}

/// Two PEs count in each other's memory. Each completes a step by quiet, then reads the other's
/// count. Of two steps, one must have seen the other.
fn quiet_comes_before_later_loads(setup: Setup) {
    let steps: u64 = if setup.is_near() { 200_000 } else { 2_000 };
    for run in setup.runs(&[2]) {
        let seen = run.results(move |job| -> Result<Vec<u64>> {
            let word = job.window::<u64>(1)?;
            let there = word.remote(1 - job.pe(), 0)?;
            job.barrier()?;
            let seen = (1..=steps).map(|step| {
                there.store(step);
                job.quiet()?;
                Ok(word.read(0))
            });
            let seen = seen.collect();
            job.barrier()?;
            seen
        });
        one_of_two_saw(seen, steps);
    }
}

/// Checks the other's count that each PE saw at each of its steps: of two steps, one has seen the
/// other.
fn one_of_two_saw(seen: Vec<Result<Vec<u64>>>, steps: u64) {
    let seen = seen.into_iter().collect::<Result<Vec<_>>>().unwrap();
    let at = |pe: usize, step: u64| seen[pe][step as usize - 1];
    for step in 1..=steps {
        let other = at(0, step) + 1;
        let missed = other <= steps && at(1, other) < step;
        assert!(!missed, "neither PE 0's step {step} nor PE 1's step {other} has seen the other");
    }
}

/// A PE stores to its own memory and then reads there; another PE writes there, calls quiet, and
/// then gets. Of two steps, one must have seen the other.
fn a_get_sees_what_its_target_stored(setup: Setup) {
    let steps: u64 = if setup.is_near() { 200_000 } else { 2_000 };
    for run in setup.runs(&[2]) {
        let seen = run.results(move |job| -> Result<Vec<u64>> {
            let words = job.window::<u64>(2)?;
            let there = words.remote(0, 1)?;
            job.barrier()?;
            let step = |step: u64| -> Result<u64> {
                if job.pe() == 0 {
                    words.write(0, step);
                    job.quiet()?;
                    return Ok(words.read(1));
                }
                there.store(step);
                job.quiet()?;
                words.get_one(0, 0)
            };
            let seen = (1..=steps).map(step).collect();
            job.barrier()?;
            seen
        });
        one_of_two_saw(seen, steps);
    }
}

/// The other PEs learn of the quiet without memonet.
fn quiet_means_visible(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        let meeting = Arc::new(Meeting::new(run.npes));
        run.job(move |job| {
            let (me, n) = (job.pe(), job.npes());
            let [data, source, signals] = [8 * n, 8 * n, n].map(|len| job.window::<u64>(len));
            let (data, source, signals) = (data?, source?, signals?);
            for round in 0..6 {
                for to in 0..n {
                    let (block, at) = (marks(me, round * n + to, 8), 8 * me);
                    data.remote(to, at)?.store(block[0]);
                    data.put(to, at + 1, &block[1..3])?;
                    source.write_from(8 * to, &block);
                    data.put_nbi(to, at + 3, &source, 8 * to + 3..8 * to + 5)?;
                    data.put_strided(to, at + 5, 2, &[block[5], block[7]], 1, 2)?;
                    data.put_signal(to, at + 6, &block[6..7], &signals, me, SignalOp::Add, 1)?;
                }
                job.quiet()?;
                meeting.meet();
                for from in 0..n {
                    let expected = marks(from, round * n + me, 8);
                    let mut seen = vec![0; 8];
                    data.read_into(8 * from, &mut seen);
                    assert_eq!(seen, expected, "round {round}");
                    assert_eq!(signals.read(from), round as u64 + 1);
                }
                meeting.meet();
            }
            job.barrier()
        });
    }
}

/// Quiet completes the writes of all threads of a PE.
fn quiet_covers_other_threads_writes(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(40)?;
            let to = (me + 1) % n;
            for round in 0..5 {
                std::thread::scope(|scope| {
                    for part in 0..4 {
                        let w = &w;
                        scope.spawn(move || {
                            for i in 0..10 {
                                w.put_one(to, part * 10 + i, mark(me, part * 10 + i, round))
                                    .unwrap();
                            }
                        });
                    }
                });
                job.quiet()?;
                let mut seen = vec![0; 40];
                w.get(to, 0, &mut seen)?;
                assert_eq!(seen, marks(me, round, 40));
            }
            job.barrier()
        });
    }
}

fn a_barrier_completes_writes(setup: Setup) {
    for run in setup.runs(ALL) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(n)?;
            for round in 0..8 {
                for step in 0..n {
                    let to = (me + step) % n;
                    w.remote(to, me)?.store(mark(me, to, round));
                }
                job.barrier()?;
                for from in 0..n {
                    assert_eq!(w.read(from), mark(from, me, round));
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn what_was_started_arrives_without_further_calls(setup: Setup) {
    for run in setup.runs(FEW) {
        let meeting = Arc::new(Meeting::new(2));
        run.job(move |job| {
            let [data, source, signals] = [4, 2, 1].map(|len| job.window::<u64>(len));
            let (data, source, signals) = (data?, source?, signals?);
            if job.pe() == 0 {
                source.write_from(0, &[4, 4]);
                data.remote(1, 0)?.store(1);
                data.put(1, 1, &[2, 3])?;
                data.put_nbi(1, 3, &source, 0..1)?;
                data.put_signal(1, 0, &[], &signals, 0, SignalOp::Set, 5)?;
                // Makes no further call until the other PE has seen everything.
                meeting.meet();
            } else if job.pe() == 1 {
                data.wait().timeout(LONG).all(&[0, 1, 2, 3], Cmp::Ne, 0)?;
                signals.wait().timeout(LONG).until(0, Cmp::Eq, 5)?;
                assert_eq!(data.to_vec(), [1, 2, 3, 4]);
                meeting.meet();
            }
            job.barrier()
        });
    }
}

/// Returning finalises: no write is lost because its sender has left.
fn finalising_completes_writes(setup: Setup) {
    for run in setup.runs(&[2, 5]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(n)?;
            if me == 0 {
                w.wait().timeout(LONG).all(&(1..n).collect::<Vec<_>>(), Cmp::Ne, 0)?;
                assert_eq!(w.to_vec()[1..], (1..n).map(|pe| mark(pe, 0, 0)).collect::<Vec<_>>());
            } else {
                w.remote(0, me)?.store(mark(me, 0, 0));
            }
            Ok(())
        });
    }
}

/// Waits for these writes succeed: a PE counts as gone only when all its writes are visible.
#[test]
fn finalising_completes_writes_first() {
    const BLOCK: usize = 1 << 15;
    for run in SLUGGISH.runs(&[3]) {
        run.job(|job| {
            let (data, flag) = (job.window::<u64>(BLOCK)?, job.window::<u64>(1)?);
            match job.pe() {
                0 => drop(flag.wait().timeout(LONG).until(0, Cmp::Eq, 1)?),
                1 => {
                    let left = flag.wait().depends_on(&[2]).until(0, Cmp::Eq, 1);
                    assert!(matches!(
                        left,
                        Err(Error::PeerFailed { pe: 2, cause: Cause::Finalized, .. })
                    ));
                    // This takes a while to complete.
                    for round in 0..40 {
                        data.put(0, 0, &[round; BLOCK])?;
                    }
                    flag.remote(0, 0)?.store(1);
                }
                // The PE leaves at once.
                _ => {}
            }
            Ok(())
        });
    }
}
