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
