//! What programs see of the parts of a NIC in a memory slot.

use memonet_core::Job;
use memonet_core::dsm::Mutex;
use memonet_sim::{Done, Machine, Options, Ps, now, run};
use std::time::Duration;

fn on<R>(machine: &str, pes: usize, program: impl Fn(&Job) -> R) -> Done<R> {
    let options = Options { record: true, ..Options::default() };
    run(&Machine::load(machine).unwrap(), pes, &options, |job| program(&job)).unwrap()
}

/// How often and for how long anything was in a stage.
fn stage<R>(done: &Done<R>, name: &str) -> (usize, Ps) {
    let stages = done.recorder.stages().iter().filter(|stage| stage.name == name);
    stages.fold((0, Ps::ZERO), |(count, time), stage| (count + 1, time + (stage.end - stage.start)))
}

/// The host of PE 0 computes; its NIC's core processor counts and hands over locks meanwhile.
#[test]
fn the_core_processor_serves_counters_and_locks_while_the_host_computes() {
    const ROUNDS: u64 = 20;
    let program = |job: &Job| {
        let w = job.window::<u64>(2).unwrap();
        let mutex = Mutex::<u64>::new(job, &0).unwrap();
        job.barrier().unwrap();
        let begin = now();
        if job.pe() == 0 {
            job.compute(50_000_000);
        }
        for _ in 0..if job.pe() == 0 { 0 } else { ROUNDS } {
            w.remote(0, 0).unwrap().fetch_add(1).unwrap();
            *mutex.lock().unwrap() += 1;
        }
        let took = now() - begin;
        job.barrier().unwrap();
        (w.remote(0, 0).unwrap().fetch_add(0).unwrap(), *mutex.lock().unwrap(), took)
    };
    let core = on("dimmnet-1/D-core", 4, program);
    let agents = on("dimmnet-1/D-tree", 4, program);
    for done in [&core, &agents] {
        for &(counted, locked, took) in &done.results[1..] {
            assert_eq!((counted, locked), (3 * ROUNDS, 3 * ROUNDS));
            assert!(took < Duration::from_millis(10), "{took:?}: nobody waits for PE 0");
        }
    }
    let (updates, busy) = stage(&core, "update");
    assert!(updates > 3 * ROUNDS as usize, "{updates}");
    assert_eq!(busy, Ps::ns(680) * updates as u64);
    assert_eq!(stage(&agents, "update").0, 0);
    // What is left for agents are gets.
    assert!(stage(&agents, "agent").0 > stage(&core, "agent").0 + 3 * ROUNDS as usize);
    assert!(core.results[1].2 < agents.results[1].2, "a request takes less than by an agent");
}

/// The time of a message between PEs 0 and 4, which wait for each other, while their neighbours
/// flood the same two NICs or do nothing.
fn ping_pong(machine: &str, floods: bool) -> Duration {
    const TURNS: u64 = 50;
    let program = |job: &Job| {
        let (w, blocks) = (job.window::<u64>(1).unwrap(), job.window::<u8>(20_000).unwrap());
        let (pe, peer) = (job.pe(), (job.pe() + 4) % 8);
        job.barrier().unwrap();
        let begin = now();
        if pe % 4 > 0 {
            for _ in 0..if floods { 8 } else { 0 } {
                blocks.put(peer, 0, &[1; 20_000]).unwrap();
            }
            return Duration::ZERO;
        }
        let there = w.remote(peer, 0).unwrap();
        for turn in 1..=TURNS {
            if pe == 0 {
                there.store(turn);
            }
            w.wait_until(0, memonet_core::Cmp::Ge, turn).unwrap();
            if pe == 4 {
                there.store(turn);
            }
        }
        (now() - begin) / (2 * TURNS as u32)
    };
    on(machine, 8, program).results[0]
}

/// Four PEs on a NIC have its queues, link and host side together, and slow each other; those with
/// a NIC each do not.
#[test]
fn neighbours_on_a_nic_slow_each_other() {
    let [alone, beside] = [false, true].map(|floods| ping_pong("dimmnet-1/D-shared", floods));
    assert!(alone < Duration::from_nanos(1500), "{alone:?}");
    assert!(beside > alone + Duration::from_nanos(500), "{alone:?} alone, {beside:?} beside");
    let [alone, beside] = [false, true].map(|floods| ping_pong("dimmnet-1/D-wide", floods));
    assert!(beside < alone + Duration::from_nanos(50), "{alone:?} alone, {beside:?} beside");
}

/// When each PE came to each of some barriers, and when it went on.
fn barriers_hold(machine: &str, pes: usize) -> Done<Vec<[Duration; 2]>> {
    let program = |job: &Job| {
        let mut times = Vec::new();
        for round in 0..6u64 {
            job.compute(round * 1777 * (1 + job.pe() as u64) % 20_000);
            let arrived = now();
            job.barrier().unwrap();
            times.push([arrived, now()]);
        }
        times
    };
    on(machine, pes, program)
}

/// Nobody passes a barrier before all have come. The core processor of PE 0's NIC gathers and
/// announces, in one packet for all that the switch copies.
#[test]
fn core_processors_run_barriers() {
    for pes in [2, 3, 8, 9, 20] {
        let done = barriers_hold("dimmnet-1/D-core-barrier", pes);
        for round in 0..6 {
            let last = done.results.iter().map(|times| times[round][0]).max().unwrap();
            for times in &done.results {
                assert!(times[round][1] > last, "{pes} PEs: a PE passed barrier {round} early");
            }
        }
        assert!(stage(&done, "announce").0 >= 6, "{pes} PEs");
        assert_eq!(stage(&barriers_hold("dimmnet-1/D-core", pes), "announce").0, 0);
    }
}

/// The time of a barrier of PEs that come together.
fn barrier(machine: &str, pes: usize) -> Duration {
    let program = |job: &Job| {
        job.barrier().unwrap();
        let begin = now();
        (0..20).for_each(|_| job.barrier().unwrap());
        (now() - begin) / 20
    };
    on(machine, pes, program).results[0]
}

/// By the core processor a barrier takes a fixed 600 ns more for its software, and another message:
/// the hosts of a few PEs are faster.
#[test]
fn a_barrier_by_the_core_processor_takes_two_messages_and_its_software() {
    for (pes, least, most) in [(2, 2_500, 4_500), (7, 3_000, 6_500)] {
        let [core, hosts] = ["D-core-barrier", "D-core"]
            .map(|variant| barrier(&format!("dimmnet-1/{variant}"), pes));
        assert!((least..most).contains(&(core.as_nanos() as u64)), "{pes} PEs: {core:?}");
        assert!(core > hosts, "{pes} PEs: {core:?} by the core processor, {hosts:?} by hosts");
    }
}
