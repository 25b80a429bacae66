//! A program for tests of reports on long waits: its PEs wait in known ways, most of them for ever.

use memonet::{Cmp, Job, MulticastOptions, Result, dsm::Mutex};
use memonet_core::unstable::layout::{Geometry, JobHeader, ReportArea};
use std::os::unix::fs::FileExt;
use std::time::Duration;

fn main() -> Result<()> {
    let case = std::env::args().nth(1).unwrap_or_default();
    if case == "never" && std::env::var("MEMONET_PE").as_deref() == Ok("1") {
        loop {
            std::thread::park();
        }
    }
    if case == "garbage" {
        write_garbage();
    }
    let job = memonet::init()?;
    match &*case {
        "barrier" => barrier_missed(&job),
        "word" => word(&job),
        "compute" => compute(&job),
        "beside" => beside(&job),
        "sleep" => sleep(&job),
        "never" => job.barrier(),
        "lock" => lock(&job),
        "mutexes" => mutexes(&job),
        "teams" => teams(&job),
        "calls" => calls(&job),
        "channel" => channel(&job),
        "threads" => threads(&job),
        "twice" => twice(&job),
        "limit" => limit(&job),
        "slow" => slow(&job),
        "finalised" => finalised(&job),
        "together" => together(&job),
        "stopped" => stopped(&job),
        "garbage" => barrier_missed(&job),
        other => panic!("there is no case {other:?}"),
    }
}

/// PE 1 waits for a word that nobody writes, the others for PE 1.
fn barrier_missed(job: &Job) -> Result<()> {
    let window = job.window::<u64>(8)?;
    if job.pe() == 1 {
        window.write(3, 4);
        window.wait_until(3, Cmp::Ge, 5)?;
    }
    job.barrier()
}

/// PE 2 is stopped, and the others need answers of it: without a wait for memory, where it is far.
fn stopped(job: &Job) -> Result<()> {
    let window = job.window::<u64>(8)?;
    job.barrier()?;
    if job.pe() == 2 {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)
            .expect("a process may stop itself");
    }
    std::thread::sleep(Duration::from_millis(300));
    if job.pe() == 0 {
        window.get(2, 1, &mut [0; 3])?;
    }
    window.put(2, 4, &[1, 2])?;
    job.quiet()?;
    window.remote(2, 0)?.fetch_add(1)?;
    job.barrier()
}

/// Every PE waits for a word.
fn word(job: &Job) -> Result<()> {
    let window = job.window::<i32>(4)?;
    window.write(job.pe() % 4, -7);
    window.wait_until_any(&[0, 1, 2, 3], Cmp::Gt, 0)?;
    Ok(())
}

/// PE 1 computes for ever.
fn compute(job: &Job) -> Result<()> {
    let _window = job.window::<u64>(1)?; // the last call
    while job.pe() == 1 {
        std::hint::spin_loop();
    }
    job.barrier()
}

/// Two threads of PE 1 compute for ever.
fn beside(job: &Job) -> Result<()> {
    if job.pe() == 1 {
        std::thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
    }
    compute(job)
}

/// PE 1 sleeps.
fn sleep(job: &Job) -> Result<()> {
    if job.pe() == 1 {
        std::thread::sleep(Duration::from_secs(1000));
    }
    job.barrier()
}

/// PE 0 holds a lock that PE 1 wants, and waits for PE 1.
fn lock(job: &Job) -> Result<()> {
    let window = job.window::<u64>(2)?;
    let lock = window.lock(0)?;
    if job.pe() == 0 {
        let _held = lock.lock()?;
        window.remote(1, 1)?.store(1);
        return job.barrier();
    }
    if job.pe() == 1 {
        window.wait_until(1, Cmp::Eq, 1)?;
        let _held = lock.lock()?;
    }
    job.barrier()
}

/// PEs 0 and 1 take two mutexes in different orders.
fn mutexes(job: &Job) -> Result<()> {
    let (one, two) = (Mutex::new(job, &0u64)?, Mutex::new(job, &0u64)?);
    let flags = job.window::<u64>(1)?;
    let mine = if job.pe() == 0 { &one } else { &two };
    let others = if job.pe() == 0 { &two } else { &one };
    if job.pe() > 1 {
        return Ok(());
    }
    let _first = mine.lock()?;
    flags.remote(1 - job.pe(), 0)?.store(1);
    flags.wait_until(0, Cmp::Eq, 1)?;
    let _second = others.lock()?;
    Ok(())
}

/// PE 0 waits in a barrier of one team, PE 1 in that of another.
fn teams(job: &Job) -> Result<()> {
    let (one, two) = (job.team(&[0, 1])?, job.team(&[1, 0])?);
    match (job.pe(), one, two) {
        (0, Some(one), _) => one.barrier(),
        (1, _, Some(two)) => two.barrier(),
        _ => Ok(()),
    }
}

/// PE 0 is in a broadcast of PE 1, the others are in a barrier.
fn calls(job: &Job) -> Result<()> {
    let world = job.world();
    world.barrier()?;
    match job.pe() {
        0 => world.broadcast(1, 7u64).map(drop),
        _ => world.barrier(),
    }
}

/// A reader waits for a block that the writer never publishes.
fn channel(job: &Job) -> Result<()> {
    let mut channel = job.multicast::<u64>(0, &[1, 2], MulticastOptions::new())?;
    match job.pe() {
        0 => job.barrier(),
        _ => channel.recv(&mut Vec::new()),
    }
}

/// Two threads of PE 0 wait, and a third one computes.
fn threads(job: &Job) -> Result<()> {
    let window = job.window::<u64>(2)?;
    if job.pe() == 0 {
        let waits = |index| window.wait_until(index, Cmp::Ne, 0).map(drop);
        return std::thread::scope(|scope| {
            scope.spawn(|| waits(1));
            scope.spawn(|| {
                loop {
                    std::hint::spin_loop();
                }
            });
            waits(0)
        });
    }
    job.barrier()
}

/// PE 0 takes a lock twice.
fn twice(job: &Job) -> Result<()> {
    let mutex = Mutex::new(job, &0u64)?;
    if job.pe() == 0 {
        let _first = mutex.lock()?;
        let _second = mutex.lock()?;
    }
    job.barrier()
}

/// PE 1 waits for a limited time, again and again.
fn limit(job: &Job) -> Result<()> {
    let window = job.window::<u64>(1)?;
    while job.pe() == 1 {
        let wait = window.wait().timeout(Duration::from_secs(2));
        let _ = wait.until(0, Cmp::Eq, 1);
    }
    job.barrier()
}

/// All waits end, after a while.
fn slow(job: &Job) -> Result<()> {
    for _ in 0..3 {
        if job.pe() == 0 {
            std::thread::sleep(Duration::from_millis(300));
        }
        job.barrier()?;
    }
    Ok(())
}

/// PE 1 has left the job, and PE 0 waits for PE 2.
fn finalised(job: &Job) -> Result<()> {
    let window = job.window::<u64>(1)?;
    match job.pe() {
        1 => {
            job.finalize()?;
            std::thread::sleep(Duration::from_secs(1000));
            Ok(())
        }
        _ => window.wait_until(0, Cmp::Eq, 1).map(drop),
    }
}

/// PEs meet again and again, from when the file `begin` is there.
fn together(job: &Job) -> Result<()> {
    let window = job.window::<u64>(2)?;
    while !std::fs::exists("begin").expect("a folder") {
        std::thread::sleep(Duration::from_millis(1));
    }
    job.barrier()?;
    if job.pe() == 0 {
        std::fs::remove_file("begin").expect("all have seen it");
    }
    for round in 1..=150u64 {
        let next = (job.pe() + 1) % job.npes();
        window.remote(next, 0)?.store(round);
        window.wait_until(0, Cmp::Ge, round)?;
        assert_eq!(job.world().all_reduce(memonet::Sum, round)?, round * job.npes() as u64);
        job.barrier()?;
        std::thread::sleep(Duration::from_micros(200));
    }
    println!("PE {} has ended in order", job.pe());
    Ok(())
}

/// A thread of PE 1 writes anything where PEs say what they wait for, and where they are asked.
fn write_garbage() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("MEMONET_PE") != Some(1) {
        return;
    }
    let [file, npes] =
        ["MEMONET_JOB_FD", "MEMONET_NPES"].map(|name| number(name).expect("a number"));
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(format!("/proc/self/fd/{file}")).unwrap();
    let places = Geometry::new(npes as usize, 1).unwrap();
    let mut state: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    std::thread::spawn(move || {
        loop {
            // Multiplicative congruential, with Knuth's constants.
            let mut random = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                state >> 33
            };
            let bytes: Vec<u8> = (0..64).map(|_| random() as u8).collect();
            let place = random() % (npes * size_of::<ReportArea>() as u64 - 64);
            file.write_all_at(&bytes, places.reports(0) + place).unwrap();
            if random() % 50 == 0 {
                let question = [0, u32::MAX, random() as u32][random() as usize % 3];
                let place = std::mem::offset_of!(JobHeader, question) as u64;
                file.write_all_at(&question.to_le_bytes(), place).unwrap();
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    });
}
