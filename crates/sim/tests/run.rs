//! Programs on a machine: time passes where it should, nothing hangs, and a run repeats itself to
//! the byte.

use memonet_core::dsm::Mutex;
use memonet_core::{Cause, Cmp, Delivery, Error as JobError, Job, MulticastOptions, Window};
use memonet_sim::nic::memory_slot::command::{self, Looks, route};
use memonet_sim::packet::{Destination, Node};
use memonet_sim::{Done, Error, Host, Machine, Options, Ps, now, run, sleep};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

fn machine() -> Machine {
    Machine::load("fast-ethernet-udp").unwrap()
}

fn ping_pong(job: &Job, times: u64) -> Duration {
    let w = job.window::<u64>(1).unwrap();
    let other = w.remote(1 - job.pe(), 0).unwrap();
    job.barrier().unwrap();
    let start = now();
    for round in 1..=times {
        if job.pe() == 0 {
            other.store(round);
            w.wait_until(0, Cmp::Ge, round).unwrap();
        } else {
            w.wait_until(0, Cmp::Ge, round).unwrap();
            other.store(round);
        }
    }
    let time = now() - start;
    job.barrier().unwrap();
    time
}

#[test]
fn a_round_trip_is_made_of_its_parts() {
    let options = Options { record: true, ..Options::default() };
    let done = run(&machine(), 2, &options, |job| ping_pong(&job, 10)).unwrap();
    let one_way = done.results[0].as_nanos() as u64 / 20;
    // Overheads 20 + 25 us, NICs 3 + 3, two frames of 74 bytes, the switch 5, two cables, a look or
    // two.
    assert!((68_800..69_200).contains(&one_way), "{one_way} ns");
    let op = done.recorder.stages().iter().rfind(|stage| stage.name == "send_overhead").unwrap().op;
    let names: Vec<_> = done.recorder.breakdown(op).into_iter().map(|(name, _)| name).collect();
    for name in
        ["send_overhead", "send_latency", "link", "port", "receive_latency", "receive_overhead"]
    {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
}

fn timeline(done: &Done<Duration>) -> Vec<u8> {
    let mut bytes = Vec::new();
    done.write_chrome(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_run_repeats_itself() {
    let options = Options { record: true, ..Options::default() };
    let runs: Vec<_> =
        (0..2).map(|_| run(&machine(), 2, &options, |job| ping_pong(&job, 3)).unwrap()).collect();
    assert_eq!(timeline(&runs[0]), timeline(&runs[1]));
    assert_eq!(runs[0].end, runs[1].end);
    assert_eq!(runs[0].counts, runs[1].counts);
}

/// Each PE's time is computing, calls and waits, and nothing else; each byte that was written went
/// over a link.
#[test]
fn what_a_run_has_used_is_all_of_it() {
    let done = run(&machine(), 3, &Options::default(), |job: Job| {
        let (window, source) = (job.window::<u8>(4096).unwrap(), [7; 1000]);
        job.barrier().unwrap();
        job.compute(10_000 * (1 + job.pe() as u64));
        if job.pe() == 0 {
            window.put(1, 0, &source).unwrap();
            window.get(2, 0, &mut [0; 500]).unwrap();
            job.quiet().unwrap();
        }
        job.barrier().unwrap();
        now()
    })
    .unwrap();
    let usage = &done.usage;
    for (pe, end) in usage.pes.iter().zip(&done.results) {
        let all = pe.computing + pe.calling + pe.waiting;
        // What follows is the end of the job.
        assert!(all >= Ps::from_duration(*end) && all <= done.end, "{pe:?} until {end:?}");
        assert!(pe.waiting > Ps::ZERO, "{pe:?}");
    }
    assert_eq!(
        usage.pes.iter().map(|pe| pe.computing).collect::<Vec<_>>(),
        [10, 20, 30].map(Ps::us)
    );
    assert!(usage.pes[0].written >= 1000 && usage.pes[1].written < 1000, "{usage}");
    // Making the window takes gets, too.
    let read = [0, 1, 2].map(|pe| usage.pes[pe].read);
    assert_eq!([read[0] - read[2], read[1] - read[2]], [500, 0], "{usage}");
    let packets: u64 = usage.links.iter().map(|link| link.carried.packets).sum();
    // One switch: each packet goes over two links.
    assert_eq!(packets, 2 * done.counts.sent, "{usage}");
    let times: Vec<_> = usage.links.iter().map(|link| link.carried.busy).collect();
    assert!(times.is_sorted_by(|first, then| first >= then) && times[0] > Ps::ZERO, "{usage}");
}

#[test]
fn computing_takes_the_time_that_the_program_says() {
    let done = run(&machine(), 1, &Options::default(), |job| {
        let start = now();
        job.compute(1_234_567);
        now() - start
    })
    .unwrap();
    assert_eq!(done.results, [Duration::from_nanos(1_234_567)]);
}

#[test]
fn a_deadline_passes_in_virtual_time() {
    let done = run(&machine(), 1, &Options::default(), |job| {
        let w = job.window::<u64>(1).unwrap();
        let start = now();
        let hour = Duration::from_secs(3600);
        let result = w.wait().timeout(hour).until(0, Cmp::Ne, 0);
        assert!(matches!(result, Err(JobError::Timeout { .. })), "{result:?}");
        now() - start
    })
    .unwrap();
    assert!(
        done.results[0] >= Duration::from_secs(3600) && done.results[0] < Duration::from_secs(3601)
    );
}

/// A wait with a limit that no run lasts for is one without.
#[test]
fn deadlines_beyond_the_end_of_time_never_come() {
    for limit in [Duration::from_secs(365 * 86_400), Duration::MAX] {
        let result = run(&machine(), 1, &Options::default(), move |job| {
            let w = job.window::<u64>(1).unwrap();
            w.wait().timeout(limit).until(0, Cmp::Ne, 0).map(drop)
        });
        assert!(matches!(result, Err(Error::Deadlock { .. })), "{:?}", result.map(drop));
    }
}

/// What would last beyond the end of time takes none, and that is told.
#[test]
fn nothing_lasts_beyond_the_end_of_time() {
    for name in ["rdma-100g", "scc"] {
        let machine = Machine::load(name).unwrap();
        let done = run(&machine, 2, &Options::default(), |job| {
            assert!(!sleep(Duration::MAX), "{name}");
            job.compute(u64::MAX);
            let told = job.quiet().unwrap_err().to_string();
            assert!(told.contains("simulated time ends after 106 days"), "{name}: {told}");
            job.barrier().unwrap();
            let window = job.window::<u64>(1).unwrap();
            let limit = Duration::from_millis(1);
            let late = window.wait().timeout(limit).until(0, Cmp::Ne, 0).unwrap_err();
            assert!(matches!(late, JobError::Timeout { .. }), "{name}: {late}");
            job.barrier().unwrap();
            now()
        });
        let ends = done.unwrap().results;
        assert!(ends.iter().all(|&end| end < Duration::from_millis(10)), "{name}: {ends:?}");
    }
}

#[test]
fn a_deadlock_is_an_error_that_lists_the_waits() {
    let result = run(&machine(), 3, &Options::default(), |job| {
        let w = job.window::<u64>(1).unwrap();
        if job.pe() < 2 {
            w.wait_until(0, Cmp::Ne, 0).unwrap();
        } else {
            job.barrier().unwrap();
        }
    });
    let error = result.expect_err("nobody stores that word");
    let text = error.to_string();
    assert!(
        text.contains("PE 1 waits for a word") && text.contains("PE 2 waits for a barrier"),
        "{text}"
    );
    assert!(matches!(error, Error::Deadlock { waits, .. } if waits.len() == 3));
}

/// A writer with a full channel asks its readers for ever, and they answer: the same all the time.
#[test]
fn a_full_channel_of_datagrams_that_nobody_reads_is_a_deadlock() {
    for (name, loss) in [("dimmnet-2", 0), ("dimmnet-2/lossy", 1)] {
        let machine = Machine::load(name).unwrap();
        let result = run(&machine, 3, &Options::default(), |job| {
            let options = MulticastOptions::new().capacity(1 << 14);
            let mut channel = job.multicast::<u64>(0, &[1, 2], options).unwrap();
            assert_eq!(channel.delivery(), Delivery::Datagrams);
            if job.pe() == 0 {
                (0..20).for_each(|_| channel.publish(&[7; 500]).unwrap());
            } else if job.pe() == 1 {
                let mut block = Vec::new();
                (0..20).for_each(|_| channel.recv(&mut block).unwrap());
            }
            job.barrier().unwrap();
        });
        let error = result.expect_err("PE 2 never reads").to_string();
        assert!(
            error.contains("PE 0 waits for ") && error.contains("PE 2 waits for a barrier"),
            "{loss}: {error}"
        );
    }
}

/// What is only said again and again because it is lost is no deadlock.
#[test]
fn a_network_that_loses_most_is_not_stuck() {
    let text = include_str!("../../../machines/dimmnet-2.toml")
        .replace("loss = { value = 0,", "loss = { value = 0.6,");
    let machine = Machine::parse("lossy", &text, None).unwrap();
    let done = run(&machine, 3, &Options::default(), |job| {
        let mut channel =
            job.multicast::<u64>(0, &[1, 2], MulticastOptions::new().capacity(1 << 14)).unwrap();
        let mut block = Vec::new();
        for number in 0..20 {
            match job.pe() {
                0 => channel.publish(&[number; 500]).unwrap(),
                _ => channel.recv(&mut block).unwrap(),
            }
        }
        job.barrier().unwrap();
        block.last().copied()
    });
    assert_eq!(done.unwrap().results[1..], [Some(19), Some(19)]);
}

/// Packets are sent again whose acknowledgements are only under way: on a long cable, and where
/// many wait before one node.
#[test]
fn late_acknowledgements_do_not_repeat_packets_for_ever() {
    let near = Machine::load("dimmnet-2/retransmit").unwrap();
    let mut far = near.clone();
    far.set("link.delay", 30_000.0).unwrap();
    for (machine, npes) in [(far, 2), (near, 64)] {
        let done = run(&machine, npes, &Options::default(), |job| {
            let window = job.window::<u64>(512 * job.npes()).unwrap();
            window.put(0, 512 * job.pe(), &[job.pe() as u64 + 1; 512]).unwrap();
            job.barrier().unwrap();
            (0..job.npes()).all(|pe| job.pe() > 0 || window.read(512 * pe + 511) == pe as u64 + 1)
        })
        .unwrap();
        assert!(done.results.iter().all(|&all| all));
    }
}

/// What a machine sends when it is switched on is no part of the run.
#[test]
fn links_are_busy_for_no_longer_than_the_run() {
    let machine = Machine::load("dimmnet-2").unwrap();
    let nothing = run(&machine, 3, &Options::default(), |_| ()).unwrap().usage;
    assert!(nothing.links.is_empty(), "{:?}", nothing.links);
    // Its manager begins to sweep with the job.
    let machine = Machine::load("dimmnet-2/managed").unwrap();
    let nothing = run(&machine, 3, &Options::default(), |_| ()).unwrap().usage;
    assert!(nothing.to_string().contains(" 100.0 %"), "{nothing}");
    let usage = run(&machine, 3, &Options::default(), |job| job.barrier()).unwrap().usage;
    let took = usage.end.since(usage.begin);
    assert!(!usage.links.is_empty());
    assert!(usage.links.iter().all(|link| link.carried.busy < took), "{usage}");
}

#[test]
fn a_run_has_a_pe() {
    let error = run(&machine(), 0, &Options::default(), |_| ()).unwrap_err().to_string();
    assert!(error.contains("a job has at least one PE"), "{error}");
}

#[test]
fn stacks_of_any_size_are_large_enough_or_an_error() {
    let with = |stack| {
        let options = Options { stack, ..Options::default() };
        run(&machine(), 2, &options, |job| {
            let panic = catch_unwind(|| std::hint::black_box("no number").parse::<u8>().unwrap());
            assert!(panic.is_err());
            job.barrier().unwrap();
        })
    };
    for small in [0, 1, 4096, 8192] {
        with(small).unwrap();
    }
    for large in [usize::MAX, usize::MAX - 4095, usize::MAX - 8191, usize::MAX / 2, 1 << 60] {
        let error = with(large).map(drop);
        assert!(matches!(error, Err(Error::Stacks { bytes, .. }) if bytes == large), "{error:?}");
    }
}

#[test]
fn no_run_records_more_events_than_there_is_room_for() {
    for events in [u64::MAX, u64::MAX / 64, u64::MAX / 64 - 100, 1 << 40] {
        let options = Options { events, ..Options::default() };
        let error = run(&machine(), 2, &options, |_| ()).map(drop);
        let told = matches!(error, Err(Error::Job(JobError::Misuse { .. })));
        assert!(told, "{events}: {error:?}");
    }
}

/// A command of a NIC hears of no death, so a PE that waits for it waits for ever. The panic is the
/// cause.
#[test]
fn a_panic_goes_before_the_deadlock_that_it_causes() {
    let ended = std::panic::catch_unwind(|| {
        let machine = Machine::load("dimmnet-1/D").unwrap();
        run(&machine, 2, &Options::default(), |job| {
            if job.pe() == 0 {
                std::panic::resume_unwind(Box::new("deliberate"));
            }
            let come = command::wait(0x7000, 4, 0xffff_ffff, 1, Looks::Words);
            // SAFETY: waiting writes no memory of programs.
            unsafe { Host::here().command(come) }.map(drop)
        })
        .map(drop)
    });
    let panic = ended.expect_err("the panic goes on");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"deliberate"));
}

#[test]
fn a_panic_is_a_death_that_others_hear_of() {
    let result = std::panic::catch_unwind(|| {
        run(&machine(), 2, &Options::default(), |job| {
            let w = job.window::<u64>(1).unwrap();
            if job.pe() == 0 {
                panic!("for a test");
            }
            let result = w.wait_until(0, Cmp::Ne, 0);
            assert!(matches!(result, Err(JobError::PeerFailed { pe: 0, .. })), "{result:?}");
        })
    });
    let panic = result.expect_err("the panic goes on");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"for a test"));
}

/// What a PE drops while another one unwinds is not dropped by a panic.
#[test]
fn a_panic_is_the_panic_of_one_pe() {
    /// Takes time where it is dropped, and then waits for an answer.
    struct Slow<'a>(&'a Job, Window<u64>);
    impl Drop for Slow<'_> {
        fn drop(&mut self) {
            self.0.compute(1_000_000);
            self.0.quiet().unwrap();
            self.1.remote(1, 0).unwrap().store(1);
            self.1.wait_until(0, Cmp::Eq, 2).unwrap();
            assert!(std::thread::panicking());
        }
    }
    for name in ["rdma-100g", "scc", "fast-ethernet-udp"] {
        let machine = Machine::load(name).unwrap();
        let done = run(&machine, 3, &Options::default(), |job| {
            let (sum, window) = (Mutex::new(&job, &0u64).unwrap(), job.window::<u64>(1).unwrap());
            job.barrier().unwrap();
            if job.pe() == 0 {
                let panics = AssertUnwindSafe(|| {
                    let _slow = Slow(&job, window.clone());
                    panic!("of PE 0 alone");
                });
                assert!(catch_unwind(panics).is_err());
            } else {
                let mut guard = sum.lock().unwrap();
                job.compute(300_000);
                *guard += 7;
                drop(guard);
                if job.pe() == 1 {
                    window.wait_until(0, Cmp::Eq, 1).unwrap();
                    *sum.lock().unwrap() += 7;
                    window.remote(0, 0).unwrap().store(2);
                }
            }
            job.barrier().unwrap();
            let sum = *sum.lock().unwrap();
            job.barrier().unwrap();
            sum
        });
        assert_eq!(done.unwrap().results, [21; 3], "{name}");
    }
}

/// PEs that panic at one moment, and wait and call while they unwind, keep nobody.
#[test]
fn panics_at_once_end_like_one() {
    struct Waits<'a>(&'a Job, Window<u64>);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            let limit = Duration::from_micros(100 << self.0.pe());
            self.1.wait().timeout(limit).until(0, Cmp::Ne, 0).unwrap_err();
            self.0.compute(1000);
            self.0.quiet().unwrap();
        }
    }
    for (name, caught) in [("rdma-100g", true), ("rdma-100g", false), ("scc", true)] {
        let machine = Machine::load(name).unwrap();
        let all = AssertUnwindSafe(|| {
            run(&machine, 4, &Options::default(), |job| {
                let window = job.window::<u64>(1).unwrap();
                let sum = Mutex::new(&job, &0u64).unwrap();
                if job.pe() == 3 {
                    let mut guard = sum.lock().unwrap();
                    job.compute(400_000);
                    *guard = 7;
                } else {
                    let panics = AssertUnwindSafe(|| {
                        let _waits = Waits(&job, window.clone());
                        panic!("at one moment");
                    });
                    let panicked = catch_unwind(panics).unwrap_err();
                    if !caught {
                        resume_unwind(panicked);
                    }
                }
                job.barrier().unwrap();
                *sum.lock().unwrap()
            })
            .unwrap()
        });
        assert_eq!(catch_unwind(all).ok().map(|done| done.results), caught.then(|| vec![7; 4]));
    }
}

/// Polls while it unwinds for what another PE does.
#[test]
fn who_unwinds_may_poll() {
    struct Polls<'a>(&'a Job, Window<u64>);
    impl Drop for Polls<'_> {
        fn drop(&mut self) {
            while self.1.remote(1, 0).unwrap().load().unwrap() == 0 {
                self.0.compute(1000);
            }
        }
    }
    for name in ["rdma-100g", "scc"] {
        let machine = Machine::load(name).unwrap();
        let done = run(&machine, 2, &Options::default(), |job| {
            let window = job.window::<u64>(1).unwrap();
            job.barrier().unwrap();
            if job.pe() == 0 {
                let panics = AssertUnwindSafe(|| {
                    let _polls = Polls(&job, window.clone());
                    panic!("it polls");
                });
                return catch_unwind(panics).is_err();
            }
            job.compute(200_000);
            window.remote(1, 0).unwrap().store(1);
            true
        });
        assert_eq!(done.unwrap().results, [true; 2], "{name}");
    }
}

/// With its program a PE is gone, though it has forgotten what it was shown.
#[test]
fn a_pe_that_forgets_a_peek_is_gone() {
    for name in ["rdma-100g", "scc"] {
        let machine = Machine::load(name).unwrap();
        let done = run(&machine, 2, &Options::default(), |job| {
            let mut channel = job.multicast::<u64>(0, &[1], MulticastOptions::new()).unwrap();
            if job.pe() == 1 {
                assert_eq!(*channel.peek().unwrap(), [1, 2]);
                std::mem::forget(channel);
                return None;
            }
            channel.publish(&[1, 2]).unwrap();
            Some(job.barrier().unwrap_err())
        });
        let results = done.unwrap().results;
        let left = |error: &JobError| {
            matches!(error, JobError::PeerFailed { pe: 1, cause: Cause::Finalized, .. })
        };
        assert!(results[0].as_ref().is_some_and(left), "{name}: {results:?}");
    }
}

/// A place in a lock's queue keeps a window until its PE is gone, by a panic, too.
#[test]
fn a_panic_leaves_no_memory() {
    let machine = Machine::load("rdma-100g").unwrap();
    // No other job here is as large.
    let (segment, sizes) = (700 << 20, 1400 << 20..1500 << 20);
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let size = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let address = |text| usize::from_str_radix(text, 16).ok();
            Some(address(end)? - address(start)?)
        };
        maps.lines().filter_map(size).filter(|size| sizes.contains(size)).count()
    };
    let options = Options { segment: Some(segment), ..Options::default() };
    let died = catch_unwind(AssertUnwindSafe(|| {
        run(&machine, 2, &options, |job| {
            assert_eq!(mapped(), 1);
            let window = job.window::<u64>(1).unwrap();
            let lock = window.lock(0).unwrap();
            if job.pe() == 1 {
                std::mem::forget(lock.lock().unwrap());
                job.barrier().unwrap();
                job.compute(10_000);
                panic!("PE 1 dies");
            }
            job.barrier().unwrap();
            job.attention().call();
            lock.lock().map(drop).expect("interrupted");
        })
        .map(drop)
    }));
    assert!(died.is_err());
    assert_eq!(mapped(), 0);
}

#[test]
fn a_job_that_outlives_its_run_is_refused() {
    let done = run(&machine(), 1, &Options::default(), |job| job).unwrap();
    for result in [done.results[0].quiet(), done.results[0].fence()] {
        assert!(matches!(result, Err(JobError::Misuse { .. })), "{result:?}");
    }
}

#[test]
fn blocks_signals_gets_and_atomics() {
    run(&machine(), 3, &Options::default(), |job| {
        let n = job.npes();
        let w = job.window::<u64>(1001).unwrap();
        let next = (job.pe() + 1) % n;
        let block: Vec<u64> = (0..1000).map(|i| (job.pe() * 1000 + i) as u64).collect();
        w.put_signal(next, 0, &block, &w, 1000, memonet_core::SignalOp::Add, 1).unwrap();
        w.wait_until(1000, Cmp::Eq, 1).unwrap();
        let before = (job.pe() + n - 1) % n;
        assert!((0..1000).all(|i| w.read(i) == (before * 1000 + i) as u64));
        let mut got = vec![0; 1000];
        w.get(next, 0, &mut got).unwrap();
        assert_eq!(got, block);
        job.barrier().unwrap();
        w.remote(0, 1000).unwrap().fetch_add(1).unwrap();
        job.barrier().unwrap();
        if job.pe() == 0 {
            assert_eq!(w.read(1000), 1 + n as u64);
        }
    })
    .unwrap();
}

/// A receiver that blocks sees a word later than one that spins, by an interrupt and a context
/// switch. Blocking itself costs it nothing as long as the word comes after that.
#[test]
fn a_blocking_receiver_is_woken_by_an_interrupt() {
    let took = |name: &str| {
        let (machine, rounds) = (Machine::load(name).unwrap(), 100);
        let done = run(&machine, 2, &Options::default(), |job| ping_pong(&job, rounds)).unwrap();
        done.results[0] / (2 * rounds as u32)
    };
    let machine = Machine::load("sr2201/interrupts").unwrap();
    let time = |name| machine.section("host").time(name).unwrap().to_duration();
    let (wakes, look) = (time("interrupt") + time("context_switch"), time("look"));
    let [spins, sleeps] = ["sr2201/system-call", "sr2201/interrupts"].map(took);
    assert!(spins + wakes <= sleeps + look, "{spins:?} {sleeps:?}");
    assert!(sleeps <= spins + wakes + look, "{spins:?} {sleeps:?}");
    let direct = took("sr2201") + time("system_call") - time("direct_start");
    assert!(direct.abs_diff(spins) <= look, "{direct:?} {spins:?}");
}

/// A PE that makes a change in its own memory tells nobody; who asks it again and again finds out.
#[test]
fn looks_that_ask_others_are_repeated() {
    let done = run(&machine(), 3, &Options::default(), |job| {
        let w = job.window::<u64>(1).unwrap();
        match job.pe() {
            // Teams of their own members alone are made by asking each other.
            0 => job.team_among(&[0, 1]).unwrap().barrier().unwrap(),
            1 => {
                job.compute(500_000);
                job.team_among(&[0, 1]).unwrap().barrier().unwrap();
            }
            // Somebody has something else to do for long: the others are not to wait until nothing
            // else can happen.
            _ => job.compute(1_000_000_000),
        }
        let time = now();
        drop(w);
        time
    })
    .unwrap();
    assert!(done.results[1] < Duration::from_millis(20), "{:?}", done.results);
}

/// A team of one PE needs nobody's agreement, so it takes no call of the machine.
#[test]
fn teams_of_one_take_no_time() {
    let done = run(&machine(), 3, &Options::default(), |job| {
        job.barrier().unwrap();
        let start = now();
        let mut teams = Vec::new();
        for _ in 0..3 {
            teams.push(job.team_among(&[job.pe()]).unwrap());
            teams.push(job.world().split_by_node().unwrap());
        }
        let took = now() - start;
        for team in &teams {
            assert_eq!((team.members(), team.rank()), (&[job.pe()][..], 0));
            team.barrier().unwrap();
            assert_eq!(team.all_reduce(memonet_core::Sum, job.pe()).unwrap(), job.pe());
        }
        drop(teams);
        // What they have used is free again, for others too.
        let pair = job.world().split_strided(0, 1, 2).unwrap();
        pair.inspect(|pair| pair.barrier().unwrap());
        took
    })
    .unwrap();
    assert_eq!(done.results, [Duration::ZERO; 3]);
}

/// However long it takes: who asks again and again while another computes does so ever less often,
/// or not at all where its NIC tells it.
#[test]
fn long_waits_take_few_looks() {
    let minutes = 100_000_000_000;
    for machine in ["rdma-100g", "scc"] {
        let done = run(&Machine::load(machine).unwrap(), 2, &Options::default(), |job| {
            job.barrier().unwrap();
            job.compute(if job.pe() == 1 { minutes } else { 0 });
            match machine {
                "scc" => job.barrier().unwrap(),
                _ => job.team_among(&[0, 1]).unwrap().barrier().unwrap(),
            }
            now()
        })
        .unwrap();
        let late = done.results[0].as_nanos() as f64 / minutes as f64;
        assert!((1.0..1.01).contains(&late), "{machine}: {:?}", done.results);
        assert!(done.counts.events < 1_000_000, "{machine}: {:?}", done.counts);
    }
}

/// Where a machine has wires for barriers, those of the library go by them: no packet is sent, and
/// data that was sent before is there.
#[test]
fn barriers_by_hardware() {
    let machine = Machine::load("scc").unwrap();
    let done = run(&machine, 4, &Options::default(), |job| {
        let algorithm = job.world().split_barrier().algorithm();
        let w = job.window::<u64>(4).unwrap();
        for round in 1..20u64 {
            job.compute(round * 1777 * (1 + job.pe() as u64) % 20_000);
            for other in 0..4 {
                w.remote(other, job.pe()).unwrap().store(round);
            }
            job.barrier().unwrap();
            assert_eq!(w.to_vec(), [round; 4]);
            job.barrier().unwrap();
        }
        let (before, start) = (w.to_vec(), now());
        for _ in 0..100 {
            job.barrier().unwrap();
        }
        assert_eq!(before, w.to_vec());
        (algorithm, now() - start)
    });
    for (algorithm, time) in done.unwrap().results {
        assert_eq!(algorithm, memonet_core::Algorithm::Hardware);
        // One look or two of 3 us each, at every barrier.
        assert!(time > Duration::from_micros(300) && time < Duration::from_micros(700), "{time:?}");
    }
}

/// Barriers of any team go by the wires, in all their forms, once they have taken them from another
/// team.
#[test]
fn barriers_of_teams_by_hardware() {
    const ROUNDS: u32 = 50;
    let machine = Machine::load("scc").unwrap();
    let done = run(&machine, 4, &Options::default(), |job| {
        let world = job.world();
        let half: Vec<usize> = (0..4).filter(|pe| pe % 2 == job.pe() % 2).rev().collect();
        let half = world.team(&half).unwrap().unwrap();
        let all = world.new_barrier().unwrap();
        let timed = |f: &dyn Fn()| {
            (0..4).for_each(|_| f());
            let start = now();
            (0..ROUNDS).for_each(|_| f());
            (now() - start) / ROUNDS
        };
        let times = [
            timed(&|| half.barrier().unwrap()),
            timed(&|| all.step().unwrap()),
            timed(&|| all.arrive().unwrap().wait().unwrap()),
            timed(&|| while !half.split_barrier().try_step().unwrap() {}),
            timed(&|| world.barrier().unwrap()),
        ];
        all.wait().unwrap();
        half.split_barrier().wait().unwrap();
        times
    });
    for times in done.unwrap().results {
        assert!(times.iter().all(|&time| time <= Duration::from_nanos(6200)), "{times:?}");
    }
}

/// On the wires, a step ends the phase before and arrives at the next by one code: the reduced one,
/// which is a look. An arrival and a wait write the register besides.
#[test]
fn a_step_is_one_code_of_the_board() {
    const PHASES: usize = 50;
    let writes = |phase: &(dyn Fn(&memonet_core::Barrier) + Sync)| {
        let options = Options { record: true, ..Options::default() };
        let done = run(&Machine::load("scc").unwrap(), 4, &options, |job| {
            let barrier = job.world().new_barrier().unwrap();
            let steps = job.window::<u64>(4).unwrap();
            for round in 1..=PHASES as u64 {
                job.compute((round * 997 + job.pe() as u64 * 1409) * 613 % 3000);
                (0..4).for_each(|pe| steps.remote(pe, job.pe()).unwrap().store(round));
                phase(&barrier);
                let seen = steps.to_vec();
                assert!(seen.iter().all(|&other| other + 1 >= round), "{round}: {seen:?}");
            }
            barrier.wait().unwrap();
            assert_eq!(steps.to_vec(), [PHASES as u64; 4]);
            job.barrier().unwrap();
        });
        let stages = done.unwrap().recorder;
        stages.stages().iter().filter(|stage| stage.name == "register_write").count()
    };
    let two_codes = writes(&|barrier| barrier.arrive().unwrap().wait().unwrap());
    assert!(two_codes > 4 * PHASES, "{two_codes}");
    for one_code in [
        writes(&|barrier| barrier.step().unwrap()),
        writes(&|barrier| while !barrier.try_step().unwrap() {}),
    ] {
        // Phases until the barrier has the wires, those of the job's own, and the barriers by which
        // windows are made.
        assert!(one_code < PHASES, "{one_code} instead of {two_codes}");
    }
}

/// A barrier that hardware cannot complete is a deadlock like any other.
#[test]
fn a_barrier_without_wires_is_a_deadlock() {
    use memonet_sim::nic::sync_network::set_mode;
    let machine = Machine::load("scc").unwrap();
    let error = run(&machine, 3, &Options::default(), |job| {
        if job.pe() > 0 {
            job.compute(100_000);
            return job.barrier();
        }
        let arrived = job.world().split_barrier().arrive()?;
        // SAFETY: writes nothing.
        unsafe { memonet_sim::Host::here().command(set_mode(true)) }.unwrap();
        arrived.wait()
    });
    assert!(matches!(error, Err(Error::Deadlock { .. })), "{error:?}");
}

/// Where a machine has collectives in the network, those of the library of few numbers go by them,
/// in parts where they are longer: the results are those of software.
#[test]
fn collectives_by_hardware() {
    use memonet_core::{And, Max, Min, Or, Product, Sum, Window};
    fn results(job: &Job, round: i64, len: usize) -> Vec<Vec<i64>> {
        let w: Window<i64> = job.window(2 * len).unwrap();
        let small: Window<i16> = job.window(2).unwrap();
        let mut all = Vec::new();
        let me = job.pe() as i64;
        let (from, to) = (w.span(0..len).unwrap(), w.span(len..2 * len).unwrap());
        let world = job.world();
        let values: Vec<i64> = (0..len as i64)
            .map(|i| ((round + 3) * (me - 2)).wrapping_mul(0x1234_5678_9abc_def1) ^ i << 60)
            .collect();
        let root = round as usize % job.npes();
        w.write_from(0, &values);
        world.all_reduce_into(Sum, to, from).unwrap();
        all.push(w.to_vec());
        world.all_reduce_into(Min, to, from).unwrap();
        all.push(w.to_vec());
        world.reduce_into(Max, root, to, from).unwrap();
        all.push(w.to_vec());
        world.scan_into(Or, to, from).unwrap();
        all.push(w.to_vec());
        world.exclusive_scan_into(to, from).unwrap();
        all.push(w.to_vec());
        world.broadcast_into(root, to, from).unwrap();
        all.push(w.to_vec());
        world.scan_into(And, from, from).unwrap();
        all.push(w.to_vec());
        small.write_from(0, &[-5 - me as i16, 7 * me as i16]);
        let both = small.span(0..2).unwrap();
        world.all_reduce_into(Min, both, both).unwrap();
        world.scan_into(Sum, both, both).unwrap();
        all.push(small.to_vec().into_iter().map(i64::from).collect());
        // What the network does not know.
        world.all_reduce_into(Product, to, from).unwrap();
        all.push(w.to_vec());
        job.barrier().unwrap();
        all
    }
    for pes in [2, 4, 7, 20] {
        let on = |machine: &str| {
            let machine = Machine::load(machine).unwrap();
            let options = Options { record: true, ..Options::default() };
            run(&machine, pes, &options, |job| {
                let most = job.world().most_in_network();
                // A part of the network has 7 words, and a collective has at most 16 parts.
                let lens = [7, 1, 8, 14, 15, 16 * 7, 16 * 7 + 1];
                let results = (0..).zip(lens).map(|(round, len)| results(&job, round, len));
                results.map(|all| (most, all)).collect::<Vec<_>>()
            })
            .unwrap()
        };
        let (hardware, software) = (on("scc"), on("fast-ethernet-udp"));
        for (pe, (hard, soft)) in hardware.results.iter().zip(&software.results).enumerate() {
            for ((most, hard), (none, soft)) in hard.iter().zip(soft) {
                assert_eq!((*most, *none), (16 * 56, 0));
                assert_eq!(hard, soft, "PE {pe} of {pes}");
            }
        }
    }
}

/// Reductions and scans of floating-point numbers have the same bits by the boards as by messages,
/// and are faster.
#[test]
fn floats_by_hardware() {
    use memonet_core::{Max, Min, Product, Sum, Window};
    fn rounds<T>(job: &Job, values: &[T], bits: impl Fn(T) -> u64) -> (Vec<u64>, Duration)
    where
        T: memonet_core::Plain + memonet_core::Number,
        Sum: memonet_core::Operator<T>,
        Min: memonet_core::Operator<T>,
        Max: memonet_core::Operator<T>,
        Product: memonet_core::Operator<T>,
    {
        let len = values.len();
        let w: Window<T> = job.window(2 * len).unwrap();
        let (from, to) = (w.span(0..len).unwrap(), w.span(len..2 * len).unwrap());
        let (world, last) = (job.world(), job.npes() - 1);
        w.write_from(0, values);
        let mut all = Vec::new();
        let mut note = || all.extend(w.to_vec().into_iter().map(&bits));
        job.barrier().unwrap();
        let begin = now();
        world.all_reduce_into(Sum, to, from).unwrap();
        let took = now() - begin;
        note();
        for root in [0, last / 2, last] {
            world.reduce_into(Sum, root, to, from).unwrap();
            note();
        }
        world.scan_into(Sum, to, from).unwrap();
        note();
        world.exclusive_scan_into(to, from).unwrap();
        note();
        world.all_reduce_into(Min, to, from).unwrap();
        note();
        world.scan_into(Max, to, from).unwrap();
        note();
        world.all_reduce_into(Product, to, from).unwrap();
        note();
        job.barrier().unwrap();
        (all, took)
    }
    for pes in [2, 5, 18] {
        let on = |machine: &str| {
            let machine = Machine::load(machine).unwrap();
            let done = run(&machine, pes, &Options::default(), |job| {
                let me = job.pe() as f64;
                // Sums of these depend on the order of additions; the last two try signs and NaN.
                let mut doubles: Vec<f64> = (1..9).map(|i| (me + 0.1) / f64::from(i)).collect();
                doubles.extend([1e16 * (me - 1.0), if me == 1.0 { f64::NAN } else { -me }]);
                let singles: Vec<f32> = doubles.iter().map(|&value| value as f32).collect();
                let doubles = rounds(&job, &doubles, f64::to_bits);
                [doubles, rounds(&job, &singles, |value| value.to_bits().into())]
            });
            done.unwrap().results
        };
        let (hardware, software) = (on("scc"), on("fast-ethernet-udp"));
        let times = |results: &[[(Vec<u64>, Duration); 2]], kind: usize| {
            results.iter().map(|of| of[kind].1).max().expect("there are PEs")
        };
        for kind in [0, 1] {
            for (hard, soft) in hardware.iter().zip(&software) {
                assert_eq!(hard[kind].0, soft[kind].0, "{pes} PEs");
            }
            let (hard, soft) = (times(&hardware, kind), times(&software, kind));
            assert!(hard < soft, "{pes} PEs: {hard:?} by the boards, {soft:?} by messages");
        }
    }
}

/// Nothing but what makes windows and ends them is sent.
#[test]
fn collectives_by_hardware_send_nothing() {
    let machine = Machine::load("scc").unwrap();
    let packets = |rounds: usize| {
        let done = run(&machine, 5, &Options::default(), |job| {
            let w = job.window::<u32>(60).unwrap();
            for round in 0..rounds {
                // Up to five parts of the network.
                let len = 1 + round % 30;
                let (from, to) = (w.span(0..len).unwrap(), w.span(30..30 + len).unwrap());
                job.compute((round * 1777 * (1 + job.pe()) % 20_000) as u64);
                w.fill(0..len, (round + job.pe()) as u32);
                job.world().all_reduce_into(memonet_core::Sum, to, from).unwrap();
                assert_eq!(w.read(30), 5 * round as u32 + 10);
                assert_eq!(w.read(29 + len), 5 * round as u32 + 10);
                if round % 3 == 0 {
                    job.barrier().unwrap();
                }
            }
        });
        done.unwrap().counts.sent
    };
    assert_eq!(packets(50), packets(0));
}

/// A packet that a switch does not know where to send is no silence.
#[test]
fn a_missing_route_ends_the_run() {
    let machine = Machine::load("dimmnet-1/D-switch").unwrap();
    let error = run(&machine, 3, &Options::default(), |job| {
        let w = job.window::<u64>(1).unwrap();
        job.barrier().unwrap();
        if job.pe() == 0 {
            // SAFETY: writes nothing.
            unsafe { Host::here().command(route(0, Node(2), None)) }.unwrap();
            w.put(2, 0, &[1]).unwrap();
        }
    });
    let error = error.unwrap_err();
    assert!(
        matches!(error, Error::Unrouted { pe: 0, switch: 0, to: Destination::Node(Node(2)), .. }),
        "{error}"
    );
}

/// Through a fabric, large blocks come by the root's puts: about as soon as by those alone, where a
/// get is software on the root's host.
#[test]
fn large_broadcasts_are_pushed() {
    const WORDS: usize = 1 << 15;
    let timed = |job: &Job, way: &dyn Fn()| {
        job.barrier().unwrap();
        let begin = now();
        way();
        job.barrier().unwrap();
        now() - begin
    };
    let done = run(&Machine::load("sr2201").unwrap(), 4, &Options::default(), |job| {
        let (to, from) = (job.window::<u64>(WORDS).unwrap(), job.window::<u64>(4 * WORDS).unwrap());
        let (all, parts) = (to.span(0..WORDS).unwrap(), from.span(0..4 * WORDS).unwrap());
        let puts = timed(&job, &|| {
            if job.pe() == 1 {
                [0, 2, 3].into_iter().for_each(|pe| to.put(pe, 0, &vec![1; WORDS]).unwrap());
            }
        });
        let broadcast = timed(&job, &|| {
            job.world().broadcast_into(1, all, from.span(0..WORDS).unwrap()).unwrap()
        });
        let scatter = timed(&job, &|| job.world().scatter_into(1, all, parts).unwrap());
        [broadcast, scatter].map(|time| time.as_secs_f64() / puts.as_secs_f64())
    });
    for ratio in done.unwrap().results.concat() {
        assert!(ratio < 1.1, "{ratio}");
    }
}

/// A member's memory is written only once it has come, and those that have come do not wait for it.
#[test]
fn who_is_late_for_a_broadcast_delays_nobody() {
    const WORDS: usize = 10_000;
    let late = Duration::from_secs(1);
    for name in ["sr2201", "rdma-100g"] {
        let done = run(&Machine::load(name).unwrap(), 4, &Options::default(), |job| {
            let window = job.window::<u64>(WORDS).unwrap();
            window.fill(0..WORDS, job.pe() as u64);
            job.barrier().unwrap();
            let begin = now();
            if job.pe() == 1 {
                job.compute(late.as_nanos() as u64);
                assert_eq!(window.to_vec(), [1; WORDS], "written before it came");
            }
            let all = window.span(0..WORDS).unwrap();
            job.world().broadcast_into(0, all, all).unwrap();
            let took = now() - begin;
            assert_eq!(window.to_vec(), [0; WORDS]);
            job.barrier().unwrap();
            took
        });
        let took = done.unwrap().results;
        assert!(took[1] > late && took[2].max(took[3]) < late / 2, "{name}: {took:?}");
    }
}

/// The root hears of a member that dies before it has come; who dies as root leaves nobody waiting.
/// Others may have theirs already.
#[test]
fn a_death_ends_a_pushed_broadcast() {
    const WORDS: usize = 10_000;
    for victim in 0..4 {
        let heard = std::sync::Mutex::new(Vec::new());
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&Machine::load("rdma-100g").unwrap(), 4, &Options::default(), |job| {
                let window = job.window::<u64>(WORDS).unwrap();
                window.fill(0..WORDS, job.pe() as u64);
                let all = window.span(0..WORDS).unwrap();
                job.barrier().unwrap();
                if job.pe() == victim {
                    job.compute(300_000);
                    std::panic::resume_unwind(Box::new("deliberate"));
                }
                let result = job.world().broadcast_into(1, all, all);
                heard.lock().unwrap().push((job.pe(), result, window.to_vec() == [1; WORDS]));
            })
            .map(drop)
        }));
        assert_eq!(*ended.unwrap_err().downcast::<&str>().unwrap(), "deliberate");
        let heard = heard.into_inner().unwrap();
        assert_eq!(heard.len(), 3);
        for (pe, result, whole) in heard {
            let right = match &result {
                Ok(()) => whole && pe != 1 && victim != 1,
                Err(JobError::PeerFailed { pe, .. }) => *pe == victim,
                Err(_) => false,
            };
            assert!(right, "PE {pe}: {result:?}, {whole}, and {victim} died");
        }
    }
}

/// A death at any moment of large broadcasts, and of sums of floating-point numbers by all and by
/// half of the PEs. On SCC these go by messages of the LAN, beside the boards; on DIMMnet-1 the
/// switch copies them. Each call ends, with what it gives or with an error that names the dead.
#[test]
fn a_death_ends_collectives_beside_hardware() {
    const PES: usize = 6;
    const WORDS: usize = 5000;
    type Heard = std::sync::Mutex<Vec<String>>;
    let calls = |job: &Job, dies: Option<Duration>| -> Result<bool, JobError> {
        let words = job.window::<u64>(WORDS)?;
        let floats = job.window::<f64>(600)?;
        let half: Vec<usize> = (job.pe() % 2..PES).step_by(2).collect();
        let half = job.world().team(&half)?.expect("this PE is in it");
        let all = words.span(0..WORDS)?;
        for _ in 0..4 {
            for (team, len) in [(&half, 1), (job.world(), 300), (&half, 300), (job.world(), 1)] {
                if dies.is_some_and(|at| now() >= at) {
                    std::panic::resume_unwind(Box::new("deliberate"));
                }
                floats.fill(0..len, job.pe() as f64 + 0.5);
                let (to, from) = (floats.span(300..300 + len)?, floats.span(0..len)?);
                team.all_reduce_into(memonet_core::Sum, to, from)?;
                let sum: f64 = team.members().iter().map(|&pe| pe as f64 + 0.5).sum();
                words.fill(0..WORDS, job.pe() as u64);
                job.world().broadcast_into(1, all, all)?;
                if floats.read(300) != sum || words.to_vec() != [1; WORDS] {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    };
    for name in ["scc", "dimmnet-1/D-switch"] {
        let machine = Machine::load(name).unwrap();
        let whole = run(&machine, PES, &Options::default(), |job| calls(&job, None)).unwrap();
        assert!(whole.results.iter().all(|result| matches!(result, Ok(true))), "{name}");
        let end = whole.end.to_duration();
        for (victim, part) in (0..PES).cycle().zip(1..14) {
            let (heard, at) = (Heard::default(), end * part / 16);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run(&machine, PES, &Options::default(), |job| {
                    let result = calls(&job, (job.pe() == victim).then_some(at));
                    // A half without the dead goes on, until a member has heard of the death in the
                    // other calls, and has left.
                    let names = |pe: usize, cause: Cause| {
                        pe == victim || (pe % 2 != victim % 2 && cause == Cause::Finalized)
                    };
                    let right = matches!(&result, Err(JobError::PeerFailed { pe, cause, .. }) if names(*pe, *cause));
                    if !right {
                        heard.lock().unwrap().push(format!("PE {}: {result:?}", job.pe()));
                    }
                })
                .map(drop)
            }));
            assert_eq!(*ended.unwrap_err().downcast::<&str>().unwrap(), "deliberate");
            let heard = heard.into_inner().unwrap();
            assert!(heard.is_empty(), "{name}, PE {victim} dies at {at:?}: {heard:#?}");
        }
    }
}
