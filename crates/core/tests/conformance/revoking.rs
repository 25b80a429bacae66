//! Revoking rights, and waiting until no PE uses them any more.

use crate::restricted::exchange;
use crate::setup::{FEW, LONG, Meeting, Run, Setup};
use memonet_core::{Access, Cmp, Error, Job, Key, Read, Result, SignalOp, Window, Write};
use std::sync::Arc;
use std::time::Duration;

on_every_fabric!(
    [also on recorded]
    revoking_takes_all_rights_back,
    revoking_again_and_again,
    revoke_wait_waits_for_remotes,
    revoke_wait_waits_for_transfers,
    after_revoke_wait_nothing_is_written,
);

fn revoking_takes_all_rights_back(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.restricted::<u64>(4, |_, _| Access::ReadWrite)?;
            let keys = exchange(job, w.key()?)?;
            let views = keys.iter().map(|key| job.attach::<u64>(key)).collect::<Result<Vec<_>>>()?;
            let plain = job.window::<u64>(1)?;
            if me == 0 {
                w.revoke()?;
                w.revoke_wait(Some(LONG))?;
            }
            job.barrier()?;
            let revoked = |result: Result<()>| matches!(result, Err(Error::Revoked { pe: 0, key_epoch, epoch, .. }) if key_epoch < epoch);
            if me != 0 {
                for window in [&w, &views[0]] {
                    assert!(revoked(window.put_one(0, 0, 7)));
                    assert!(revoked(window.get_one(0, 0).map(drop)));
                    assert!(revoked(window.remote(0, 0).map(drop)));
                    assert!(revoked(window.remote_as::<Read>(0, 0).map(drop)));
                    assert!(revoked(window.put_indexed(0, &[1], &[1])));
                    assert!(revoked(window.get_strided(0, 0, 1, &mut [0], 1, 1)));
                    assert!(revoked(window.signal(0, 0, SignalOp::Add, 1)));
                    assert!(revoked(window.put_signal(0, 0, &[7], &plain, 0, SignalOp::Set, 7)));
                    assert!(revoked(plain.put_signal(0, 0, &[7], window, 0, SignalOp::Set, 7)));
                    assert!(revoked(window.put_nbi(0, 0, &plain, 0..1)));
                    assert!(revoked(window.prepare(0, 0, &plain, 0..1).map(drop)));
                    assert!(revoked(
                        plain
                            .prepare(0, 0, &plain, 0..0)?
                            .with_signal(window, 0, SignalOp::Set, 7)
                            .map(drop)
                    ));
                }
                assert!(revoked(job.attach::<u64>(&keys[0]).map(drop)));
            } else {
                // The home keeps its part, and its rights to other parts.
                w.put_one(0, 3, 8)?;
                job.quiet()?;
                w.remote(0, 3)?.add(1)?;
                w.put_one(1, 3, 8)?;
                assert_eq!(w.remote(0, 3)?.load()?, 9);
            }
            job.barrier()?;
            if me == 0 {
                assert_eq!((w.to_vec(), plain.read(0)), (vec![0, 0, 0, 9], 0));
            }
            // A new key gives a new right.
            let keys = exchange(job, w.key()?)?;
            if me != 0 {
                let view = job.attach::<u64>(&keys[0])?;
                view.remote(0, 0)?.add(1)?;
                assert!(revoked(w.put_one(0, 0, 7)), "without it, nothing");
            }
            job.barrier()?;
            if me == 0 {
                assert_eq!(w.read(0), n as u64 - 1);
            }
            job.barrier()
        });
    }
}

fn revoking_again_and_again(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.restricted::<u64>(1, |_, _| Access::ReadWrite)?;
            let mut old: Vec<Key> = Vec::new();
            for round in 0..10 {
                let key = exchange(job, w.key()?)?[0];
                if job.pe() == 1 {
                    job.attach::<u64>(&key)?.remote(0, 0)?.add(1)?;
                    for old in &old {
                        assert!(matches!(
                            job.attach::<u64>(old).map(drop),
                            Err(Error::Revoked { .. })
                        ));
                    }
                }
                old.push(key);
                job.barrier()?;
                if job.pe() == 0 {
                    assert_eq!(w.read(0), round + 1);
                    w.revoke()?;
                    w.revoke_wait(Some(LONG))?;
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// PE 1 holds a handle into PE 0's part. Meanwhile `revoke_wait` does not return at PE 0.
fn held<H: 'static>(
    run: Run,
    hold: fn(&Window<u64>) -> Result<H>,
    use_it: fn(&mut H) -> Result<()>,
) {
    let meeting = Arc::new(Meeting::new(2));
    run.job(move |job| {
        let w = job.restricted::<u64>(2, |_, _| Access::ReadWrite)?;
        if job.pe() == 0 {
            meeting.meet();
            w.revoke()?;
            for _ in 0..3 {
                let timeout = Duration::from_millis(2);
                let waited = w.revoke_wait(Some(timeout));
                assert!(
                    matches!(waited, Err(Error::Timeout { after, .. }) if after == timeout),
                    "{waited:?}"
                );
            }
            meeting.meet();
            w.revoke_wait(None)?;
            assert_eq!(w.read(0), 6, "what was written by it is there");
            w.write(0, 0);
        } else if job.pe() == 1 {
            let mut held = hold(&w)?;
            meeting.meet();
            meeting.meet();
            crate::setup::nap(Duration::from_millis(8));
            assert!(matches!(w.remote(0, 0).map(drop), Err(Error::Revoked { .. })));
            // A remote that was made before stays valid until it is dropped.
            use_it(&mut held)?;
            drop(held);
        }
        job.barrier()?;
        if job.pe() == 0 {
            assert_eq!(w.read(0), 0, "nothing comes after `revoke_wait`");
        }
        job.barrier()
    });
}

fn revoke_wait_waits_for_remotes(setup: Setup) {
    for run in setup.runs(FEW) {
        held(run, |w| w.remote(0, 0), |remote| remote.set(6));
        held(
            run,
            |w| w.remote_as::<Write>(0, 0),
            |remote| {
                remote.store(6);
                Ok(())
            },
        );
    }
}

fn revoke_wait_waits_for_transfers(setup: Setup) {
    for run in setup.runs(FEW) {
        held(
            run,
            |w| {
                w.write(1, 6);
                w.prepare(0, 0, w, 1..2)
            },
            |transfer| {
                transfer.start()?;
                transfer.wait()
            },
        );
    }
}

/// Other PEs write by every call while they may; after that, the home alone writes its part.
fn after_revoke_wait_nothing_is_written(setup: Setup) {
    const LEN: usize = 64;
    fn write(job: &Job, w: &Window<u64>, round: usize) -> Result<()> {
        let ones = [u64::MAX; LEN];
        match round % 7 {
            0 => w.put(0, 0, &ones),
            1 => w.remote(0, round % LEN).map(|remote| remote.store(u64::MAX)),
            2 => w.remote(0, round % LEN)?.set(u64::MAX),
            3 => w.put_strided(0, 0, 2, &ones, 1, LEN / 2),
            4 => w.put_indexed(0, &[1, 3, 5], &ones[..3]),
            5 => w.signal(0, round % LEN, SignalOp::Set, u64::MAX),
            _ => w
                .put_signal(0, 0, &ones[..9], w, LEN - 1, SignalOp::Set, u64::MAX)
                .and_then(|()| job.fence()),
        }
    }
    for run in setup.many_runs(&[2, 3], 3) {
        run.job(move |job| {
            let mut dice = run.dice(job.pe());
            for _ in 0..6 {
                let w = job.restricted::<u64>(LEN, |_, _| Access::ReadWrite)?;
                if job.pe() == 0 {
                    // Some writes are under way.
                    w.wait().timeout(LONG).any(&(0..LEN).collect::<Vec<_>>(), Cmp::Ne, 0)?;
                    dice.dawdle();
                    w.revoke()?;
                    w.revoke_wait(Some(LONG))?;
                    w.fill(0..LEN, 5);
                    for _ in 0..20 {
                        crate::setup::nap(Duration::from_micros(50));
                        assert_eq!(w.to_vec(), [5; LEN]);
                    }
                } else {
                    let mut round = 0;
                    let error = loop {
                        match write(job, &w, round) {
                            Ok(()) => round += 1,
                            Err(error) => break error,
                        }
                    };
                    assert!(matches!(error, Error::Revoked { pe: 0, .. }), "{error}");
                }
                job.barrier()?;
                if job.pe() == 0 {
                    assert_eq!(w.to_vec(), [5; LEN], "something came late");
                }
            }
            job.barrier()
        });
    }
}
