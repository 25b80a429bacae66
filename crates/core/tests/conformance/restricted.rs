//! Restricted windows: rights by PE, keys, and taking rights back.

use crate::setup::{FAR, FEW, LONG, Meeting, NEAR, Setup, in_another_process, marks};
use memonet_core::{Access, Cmp, Error, Job, Key, Read, Result, SignalOp, Write};
use std::io::Write as _;
use zerocopy::{FromBytes, IntoBytes};

on_every_fabric!(
    [also on recorded]
    every_right_of_every_pair,
    all_that_windows_can_do,
    ordinary_windows_have_no_keys,
    keys_open_one_part,
    keys_open_nothing_to_strangers,
    changed_keys_open_nothing,
    keys_of_other_jobs_open_nothing,
    keys_die_with_their_window,
    windows_come_and_go,
    too_many,
);

const RIGHTS: [Access; 4] = [Access::None, Access::Read, Access::Write, Access::ReadWrite];

/// All four rights occur, and neighbours have different ones.
fn mixed(home: usize, holder: usize) -> Access {
    RIGHTS[(3 * home + holder + 1) % 4]
}

fn denied<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::AccessDenied { .. }))
}

fn every_right_of_every_pair(setup: Setup) {
    for run in setup.runs(&[1, 2, 5, 9]) {
        run.job(|job| {
            let me = job.pe();
            let w = job.restricted::<u64>(4, mixed)?;
            assert_eq!((w.len(), w.to_vec()), (4, vec![0; 4]));
            job.barrier()?;
            for home in 0..job.npes() {
                let right = if home == me { Access::ReadWrite } else { mixed(home, me) };
                let (read, write) = (right.allows(Access::Read), right.allows(Access::Write));
                let both = read && write;
                let source = job.window::<u64>(1)?;
                let refused = [
                    (write, denied(w.put(home, 1, &[7]))),
                    (write, denied(w.put_one(home, 1, 7))),
                    (write, denied(w.put_strided(home, 1, 1, &[7], 1, 1))),
                    (write, denied(w.put_indexed(home, &[1], &[7]))),
                    (write, denied(w.put_nbi(home, 1, &source, 0..1))),
                    (write, denied(w.prepare(home, 1, &source, 0..1))),
                    (write, denied(w.remote_as::<Write>(home, 1))),
                    (write, denied(w.signal(home, 1, SignalOp::Set, 0))),
                    (write, denied(source.put_signal(home, 0, &[], &w, 1, SignalOp::Set, 0))),
                    (both, denied(w.signal(home, 1, SignalOp::Add, 0))),
                    (both, denied(w.remote(home, 1))),
                    (both, denied(w.remote_word::<u8>(home, 1))),
                    (read, denied(w.get(home, 1, &mut [0]))),
                    (read, denied(w.get_one(home, 1))),
                    (read, denied(w.get_strided(home, 1, 1, &mut [0], 1, 1))),
                    (read, denied(w.get_indexed(home, &[1], &mut [0]))),
                    (read, denied(w.remote_as::<Read>(home, 1))),
                ];
                for (i, (allowed, denied)) in refused.into_iter().enumerate() {
                    assert_eq!(
                        allowed, !denied,
                        "call {i} of PE {me} to PE {home}'s part, with {right:?}"
                    );
                }
                assert!(right != Access::None || w.near_ptr(home, 0).is_none());
                assert!(!both || w.near_ptr(home, 0).is_some() == job.is_near(home));
                job.quiet()?;
                job.barrier()?;
            }
            // Only PEs with the right to write have written.
            job.barrier()?;
            for home in 0..job.npes() {
                if home != me && mixed(home, me).allows(Access::Write) {
                    w.put_one(home, 2, 1)?;
                }
            }
            job.barrier()?;
            let some = (0..job.npes())
                .any(|holder| holder != me && mixed(me, holder).allows(Access::Write));
            assert_eq!(w.to_vec()[2..], [u64::from(some), 0]);
            job.barrier()
        });
    }
}

fn all_that_windows_can_do(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (right, left) = ((me + 1) % n, (me + n - 1) % n);
            let w = job.restricted::<u64>(3000, |_, _| Access::ReadWrite)?;
            let signals = job.restricted::<u64>(2, |_, _| Access::ReadWrite)?;
            for round in 1..=8 {
                w.put_signal(right, 5, &marks(me, round, 2000), &signals, 0, SignalOp::Add, 1)?;
                signals.wait().timeout(LONG).until(0, Cmp::Eq, round as u64)?;
                let mut seen = vec![0; 2000];
                w.read_into(5, &mut seen);
                assert_eq!(seen, marks(left, round, 2000));
                signals.remote(left, 1)?.fetch_add(1)?;
                signals.wait().timeout(LONG).until(1, Cmp::Eq, round as u64)?;
            }
            let mut transfer = w.prepare(right, 0, &w, 5..10)?;
            transfer.start()?;
            transfer.wait()?;
            let mut back = [0; 5];
            w.get(right, 0, &mut back)?;
            assert_eq!(back, marks(left, 8, 2000)[..5]);
            job.barrier()?;
            w.remote(right, 2999)?.store(4);
            job.barrier()?;
            assert_eq!(w.read(2999), 4);
            w.free()?;
            job.barrier()
        });
    }
}

fn ordinary_windows_have_no_keys(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let w = job.window::<u64>(1)?;
            assert!(matches!(w.key(), Err(Error::Misuse { .. })));
            assert!(matches!(w.revoke(), Err(Error::Misuse { .. })));
            assert!(matches!(w.revoke_wait(None), Err(Error::Misuse { .. })));
            job.barrier()
        });
    }
}

/// Sends every PE's key to every PE. Gives the keys by home.
pub fn exchange(job: &Job, key: Key) -> Result<Vec<Key>> {
    let keys = job.window::<Key>(job.npes())?;
    for to in 0..job.npes() {
        keys.put_one(to, job.pe(), key)?;
    }
    job.barrier()?;
    Ok(keys.to_vec())
}

fn keys_open_one_part(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.restricted::<u64>(6, |_, _| Access::ReadWrite)?;
            w.write(0, 50 + me as u64);
            let keys = exchange(job, w.key()?)?;
            for (home, key) in keys.iter().enumerate() {
                let view = job.attach::<u64>(key)?;
                assert_eq!(view.len(), 6);
                assert_eq!(view.get_one(home, 0)?, 50 + home as u64);
                view.put_one(home, 1 + me, me as u64 + 1)?;
                for other in (0..n).filter(|&other| other != home) {
                    assert!(view.put_one(other, 5, 9).is_err(), "the view is of PE {home}'s part");
                    assert!(view.get_one(other, 0).is_err());
                }
                assert!(matches!(view.put_one(home, 6, 9), Err(Error::OutOfBounds { .. })));
                assert!(matches!(view.put_one(n, 0, 9), Err(Error::NoSuchPe { .. })));
                // With other elements, which fit or do not.
                assert!(matches!(
                    job.attach::<[u8; 7]>(&keys[home]).map(drop),
                    Err(Error::WrongKey { .. })
                ));
                let bytes = job.attach::<u8>(&keys[home]);
                assert!(bytes.is_err() || bytes.is_ok_and(|bytes| bytes.len() == 48));
            }
            job.barrier()?;
            let mut expected = vec![0; 6];
            expected[0] = 50 + me as u64;
            (0..n).for_each(|pe| expected[1 + pe] = pe as u64 + 1);
            assert_eq!(w.to_vec(), expected);
            job.barrier()
        });
    }
}

fn keys_open_nothing_to_strangers(setup: Setup) {
    for run in setup.runs(&[2, 5]) {
        run.job(|job| {
            let me = job.pe();
            let w = job.restricted::<u64>(2, mixed)?;
            let keys = exchange(job, w.key()?)?;
            for (home, key) in keys.iter().enumerate().filter(|&(home, _)| home != me) {
                let right = mixed(home, me);
                match job.attach::<u64>(key) {
                    Err(Error::AccessDenied { .. }) => assert_eq!(right, Access::None),
                    Err(other) => panic!("{right:?}: {other}"),
                    Ok(view) => {
                        assert_ne!(right, Access::None);
                        assert_eq!(denied(view.put_one(home, 0, 0)), !right.allows(Access::Write));
                        assert_eq!(denied(view.get_one(home, 0)), !right.allows(Access::Read));
                    }
                }
            }
            job.barrier()
        });
    }
}

/// Each bit of a key matters.
fn changed_keys_open_nothing(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.restricted::<u64>(2, |_, _| Access::ReadWrite)?;
            let keys = exchange(job, w.key()?)?;
            let home = (job.pe() + 1) % job.npes();
            let good = keys[home];
            for bit in 0..8 * size_of::<Key>() {
                let mut bytes = good.as_bytes().to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let bad = Key::read_from_bytes(&bytes).unwrap();
                let opened = job.attach::<u64>(&bad);
                assert!(opened.is_err(), "bit {bit} was changed");
            }
            for bytes in [[0; size_of::<Key>()], [0xFF; size_of::<Key>()]] {
                let bad = Key::read_from_bytes(&bytes).unwrap();
                assert!(matches!(job.attach::<u64>(&bad).map(drop), Err(Error::WrongKey { .. })));
            }
            job.attach::<u64>(&good)?.put_one(home, 0, 1)?;
            job.barrier()?;
            assert_eq!(w.to_vec(), [1, 0]);
            job.barrier()
        });
    }
}

fn keys_of_other_jobs_open_nothing(setup: Setup) {
    for run in setup.runs(FEW) {
        let make = |job: &Job| job.restricted::<u64>(2, |_, _| Access::ReadWrite);
        let keys = run.results(move |job| -> Result<Key> { make(job)?.key() });
        let keys: Vec<Key> = keys.into_iter().map(Result::unwrap).collect();
        run.job(move |job| {
            let _same = make(job)?;
            for key in &keys {
                assert!(matches!(job.attach::<u64>(key).map(drop), Err(Error::WrongKey { .. })));
            }
            job.barrier()
        });
    }
}

fn keys_die_with_their_window(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let home = (job.pe() + 1) % job.npes();
            let w = job.restricted::<u64>(2, |_, _| Access::ReadWrite)?;
            let old = exchange(job, w.key()?)?[home];
            w.free()?;
            let gone = job.attach::<u64>(&old).map(drop);
            assert!(
                matches!(gone, Err(Error::WrongKey { .. } | Error::Revoked { .. })),
                "{gone:?}"
            );
            job.barrier()?;
            // It may get the same slot.
            let new = job.restricted::<u64>(2, |_, _| Access::ReadWrite)?;
            let gone = job.attach::<u64>(&old).map(drop);
            assert!(
                matches!(gone, Err(Error::WrongKey { .. } | Error::Revoked { .. })),
                "{gone:?}"
            );
            assert_eq!(new.to_vec(), [0; 2]);
            // A view keeps the part that it has opened.
            let key = exchange(job, new.key()?)?[home];
            let view = job.attach::<u64>(&key)?;
            drop(new);
            let another = job.restricted::<u64>(2, |_, _| Access::ReadWrite)?;
            view.put_one(home, 0, 5)?;
            job.quiet()?;
            assert_eq!(view.get_one(home, 0)?, 5);
            job.barrier()?;
            assert_eq!(another.to_vec(), [0; 2]);
            job.barrier()
        });
    }
}

fn windows_come_and_go(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(move |job| {
            let (mut shared, mut own) = (run.shared_dice(), run.dice(job.pe()));
            let next = (job.pe() + 1) % job.npes();
            let mut kept = Vec::new();
            for round in 0..25 {
                let len = shared.below(2000);
                let w = job.restricted::<u64>(len, |_, _| Access::ReadWrite)?;
                assert_eq!(w.to_vec(), vec![0; len]);
                job.barrier()?;
                w.put(next, 0, &marks(job.pe(), round, len))?;
                if own.below(2) == 0 {
                    kept.push((w, round));
                }
                // Ordinary windows in between.
                let plain = job.window::<u64>(len)?;
                assert_eq!(plain.to_vec(), vec![0; len]);
                plain.fill(0..len, 1);
                if kept.len() > 3 {
                    kept.swap_remove(own.below(4));
                }
                let before = (job.pe() + job.npes() - 1) % job.npes();
                for (w, round) in &kept {
                    assert_eq!(w.to_vec(), marks(before, *round, w.len()));
                }
            }
            job.barrier()
        });
    }
}

fn too_many(setup: Setup) {
    for run in setup.many_runs(&[2], 1) {
        run.job(|job| {
            let mut all = Vec::new();
            let limit = loop {
                match job.restricted::<u8>(1, |_, _| Access::Read) {
                    Ok(w) => all.push(w),
                    Err(Error::TooMany { limit, .. }) => break limit,
                    Err(other) => return Err(other),
                }
                assert!(all.len() < 10_000);
            };
            assert!(all.len() <= limit && all.len() + 8 > limit, "{} of {limit}", all.len());
            job.window::<u8>(1)?.free()?;
            all.pop();
            all.push(job.restricted::<u8>(1, |_, _| Access::Read)?);
            job.barrier()
        });
    }
}

/// Alone in a process, because it counts all descriptors and mappings of the process.
#[test]
fn nothing_is_left_open() {
    in_another_process(&["in_a_process_that_counts"], &[("MEMONET_CONFORMANCE_COUNTS", "1")]);
}

#[test]
#[ignore = "started by `nothing_is_left_open`"]
fn in_a_process_that_counts() {
    if std::env::var_os("MEMONET_CONFORMANCE_COUNTS").is_none() {
        return;
    }
    let count = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        (open, maps.lines().filter(|line| line.contains("memonet")).count())
    };
    let before = count();
    for setup in [crate::setup::NEAR, crate::setup::SHUFFLED] {
        for run in setup.runs(&[3]) {
            run.job(move |job| {
                // One PE counts, while the others are in a barrier: counting opens a file.
                let counted = || -> Result<Option<(usize, usize)>> {
                    job.barrier()?;
                    let counted = (job.pe() == 0).then(count);
                    job.barrier()?;
                    Ok(counted)
                };
                let one = || job.restricted::<u64>(10, mixed)?.free();
                one()?;
                let before = counted()?;
                for _ in 0..20 {
                    one()?;
                }
                assert_eq!(counted()?, before, "descriptors and mappings in a job");
                job.barrier()
            });
        }
    }
    assert_eq!(count(), before, "descriptors and mappings after all jobs");
}

/// Alone in a process, because it changes the process's limit on open files.
#[test]
fn all_or_none_when_files_run_out() {
    in_another_process(&["in_a_process_with_few_files"], &[("MEMONET_CONFORMANCE_FEW", "1")]);
}

#[test]
#[ignore = "started by `all_or_none_when_files_run_out`"]
fn in_a_process_with_few_files() {
    if std::env::var_os("MEMONET_CONFORMANCE_FEW").is_none() {
        return;
    }
    let mut refused = 0;
    for run in crate::setup::NEAR.runs(&[3]) {
        for spare in 0..12 {
            let meeting = Meeting::new(run.npes);
            let made = run.results(move |job| {
                // The first window opens descriptors that all share.
                job.restricted::<u8>(1, |_, _| Access::ReadWrite).unwrap().free().unwrap();
                meeting.meet();
                let old = (job.pe() == 0).then(|| limit_files(spare));
                meeting.meet();
                let made = job.restricted::<u8>(1, |_, _| Access::ReadWrite).map(drop);
                if let Some(old) = old {
                    set_file_limit(old);
                }
                // Whatever the outcome, the PEs stay in step.
                let w = job.window::<u64>(1).unwrap();
                w.remote(0, 0).unwrap().add(1).unwrap();
                job.barrier().unwrap();
                assert_eq!(w.remote(0, 0).unwrap().load().unwrap(), job.npes() as u64);
                let again = job.restricted::<u64>(1, |_, _| Access::ReadWrite).unwrap();
                again.put_one((job.pe() + 1) % job.npes(), 0, 5).unwrap();
                job.barrier().unwrap();
                assert_eq!(
                    again.read(0),
                    5,
                    "what was left of the refused one is not taken for this"
                );
                made.map_err(|error| error.to_string())
            });
            assert!(
                made.iter().all(|m| m.is_ok()) || made.iter().all(|m| m.is_err()),
                "{spare} files to spare: {made:?}"
            );
            refused += made.iter().filter(|m| m.is_err()).count();
        }
    }
    assert_ne!(refused, 0, "there were files enough, so this tests nothing");
}

/// Leaves room for `spare` more descriptors. Gives the old limit.
fn limit_files(spare: usize) -> libc::rlimit {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid during the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut old) }, 0);
    // New descriptors get the lowest free numbers, and the limit is on numbers.
    let is_open = |fd: u64| std::fs::exists(format!("/proc/self/fd/{fd}")).unwrap();
    let rlim_cur = (0..old.rlim_cur).filter(|&fd| !is_open(fd)).nth(spare).expect("there is room");
    set_file_limit(libc::rlimit { rlim_cur, ..old });
    old
}

fn set_file_limit(limit: libc::rlimit) {
    // SAFETY: the pointer is valid during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// A process reopens every descriptor of a part for writing: it can still write only to parts that
/// it had mapped for writing when the window was made. In a process of its own, because other tests
/// may be making windows.
#[test]
fn descriptors_open_no_way_to_write() {
    in_another_process(
        &["in_a_process_without_other_windows"],
        &[("MEMONET_CONFORMANCE_ALONE", "1")],
    );
}

#[test]
#[ignore = "started by `descriptors_open_no_way_to_write`"]
fn in_a_process_without_other_windows() {
    if std::env::var_os("MEMONET_CONFORMANCE_ALONE").is_none() {
        return;
    }
    for setup in [NEAR, FAR] {
        open_anew(setup);
    }
}

fn open_anew(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let window = job.restricted::<u64>(512, |_, _| Access::Read)?;
            window.fill(0..512, 7);
            job.barrier()?;
            let parts =
                std::fs::read_dir("/proc/self/fd").expect("/proc").flatten().filter(|entry| {
                    let name = std::fs::read_link(entry.path()).unwrap_or_default();
                    name.to_string_lossy().contains("memonet-restricted")
                });
            let mut found = 0;
            for part in parts {
                found += 1;
                if let Ok(mut file) = std::fs::OpenOptions::new().write(true).open(part.path()) {
                    let written = file.write(&[1; 8]);
                    assert!(written.is_err(), "{written:?}");
                }
            }
            assert!(found > 0, "each PE has some");
            job.barrier()?;
            assert_eq!(window.to_vec(), [7; 512]);
            job.barrier()
        });
    }
}
