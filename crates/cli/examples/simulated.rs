//! Programs that know nothing of simulated machines, for the tests of `memonet run --machine`;
//! chosen by the first argument.

use memonet::{Cmp, Job, Min, MulticastOptions, Result, Sum, Window};
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

#[path = "programs/random_blocks.rs"]
mod random_blocks;
#[path = "programs/rounds.rs"]
mod rounds;

fn main() -> ExitCode {
    let begun = Instant::now();
    let mut args = std::env::args().skip(1);
    let program = args.next().unwrap_or_default();
    let argument = args.next().unwrap_or_default();
    let number = || argument.parse().expect("a number");
    match program.as_str() {
        "denied" => denied(),
        "meet" => meet(&argument),
        "before" => until_later("before joining"),
        "cycles" => return ExitCode::from(u8::from(cycles() == 0)),
        _ => {}
    }
    let run = || -> Result<()> {
        let job = memonet::init()?;
        match program.as_str() {
            "ping-pong" => ping_pong(&job, number()),
            "clocks" => clocks(begun),
            "threads" => threads(),
            "blocks" => blocks(&job),
            "random-blocks" => random_blocks(&job, number()),
            "rounds" => rounds(&job, number()),
            "attention" => attention(&job),
            "restricted" => restricted(&job),
            "offers" => offers(&job),
            "barriers" => barriers(&job),
            "talk" => talk(&job),
            "echo" => echo(&job),
            "late" => late(&job),
            "meet" => Ok(()),
            "poll" => poll(&job),
            "listen" => listen(&job),
            "deadlock" => deadlock(&job, &argument),
            "die" => die(&job, &argument),
            "work" => work(&job),
            "pour" => pour(&job),
            "compute" => compute(&job, number()),
            "hostile" => hostile(&job, number()),
            "vandal" => vandal(&job, number()),
            "children" => children(),
            "print" => print_much(&job),
            "stop" => stop(&job),
            "before" => job.barrier(),
            "forked" => forked(&job),
            "sleeper" => sleeper(&job),
            "readers" => readers(&job),
            "handler" => handler(&job),
            "select" => select(),
            "refused" => refused(),
            "exec" => exec(),
            other => panic!("there is no program {other:?}"),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::from(42)
        }
    }
}

/// What a network may do by itself: a multicast channel to all others, collectives of few numbers,
/// and broadcasts of many.
fn offers(job: &Job) -> Result<()> {
    let others: Vec<usize> = (1..job.npes()).collect();
    let mut channel =
        job.multicast::<u64>(0, &others, MulticastOptions::new().capacity(1 << 14))?;
    let many = job.window::<u64>(3000)?;
    let w = job.window::<i32>(4)?;
    let (from, to) = (w.span(0..2)?, w.span(2..4)?);
    let mut block = Vec::new();
    for round in 0..40u64 {
        let len = [1, 0, 300, 3000][round as usize % 4];
        let sent: Vec<u64> = (0..len).map(|index| round << 32 | index).collect();
        if job.pe() == 0 {
            channel.publish(&sent)?;
        } else {
            channel.recv(&mut block)?;
            assert_eq!(block, sent, "block {round}");
        }
        w.write_from(0, &[job.pe() as i32 - 1, -(round as i32)]);
        job.world().all_reduce_into(Min, to, from)?;
        assert_eq!(w.to_vec()[2..], [-1, -(round as i32)]);
        job.world().scan_into(Sum, to, from)?;
        let (root, all) = (round as usize % job.npes(), many.span(0..3000)?);
        many.fill(0..3000, round * 10 + job.pe() as u64);
        job.world().broadcast_into(root, all, all)?;
        assert_eq!(many.to_vec(), [round * 10 + root as u64; 3000]);
    }
    println!("{}: {:?}", job.pe(), w.to_vec());
    job.barrier()
}

/// Barriers of teams that overlap, with phases under way at once, and collectives between them.
fn barriers(job: &Job) -> Result<()> {
    let w = job.window::<u64>(2)?;
    let (from, to) = (w.span(0..1)?, w.span(1..2)?);
    let came = job.window::<u64>(job.npes())?;
    let lists: Vec<Vec<usize>> = vec![(0..job.npes()).collect(), vec![1, 0], vec![2, 1]];
    let mut teams = Vec::new();
    for list in &lists {
        teams.extend(job.world().team(list)?);
    }
    let split = job.world().new_barrier()?;
    for round in 1..=30 {
        while !split.try_step()? {}
        for team in &teams {
            for &pe in team.members() {
                came.remote(pe, job.pe())?.store(round * 10 + team.len() as u64);
            }
            team.barrier()?;
            for &pe in team.members() {
                assert!(came.read(pe) >= round * 10 + 2, "round {round}: PE {pe}");
            }
        }
        w.write(0, round + job.pe() as u64);
        job.world().all_reduce_into(Sum, to, from)?;
        split.wait()?;
    }
    println!("{}: {}", job.pe(), w.read(1));
    job.barrier()
}

/// Words to and fro between PEs 0 and 1; says how long that took.
fn ping_pong(job: &Job, times: u64) -> Result<()> {
    let window = job.window::<u64>(1)?;
    job.barrier()?;
    let start = Instant::now();
    if job.pe() < 2 {
        let other = window.remote(1 - job.pe(), 0)?;
        for round in 1..=times {
            if job.pe() == 0 {
                other.store(round);
            }
            window.wait_until(0, Cmp::Ge, round)?;
            if job.pe() == 1 {
                other.store(round);
            }
        }
    }
    let time = start.elapsed();
    job.barrier()?;
    println!("{} {}", job.pe(), time.as_nanos());
    Ok(())
}

/// Time passes when the program sleeps, and for a program that waits for it; by each of its clocks.
fn clocks(begun: Instant) -> Result<()> {
    println!(
        "in 2000: {}",
        SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs() / 86_400 == 10_957
    );
    let hour = Duration::from_secs(3600);
    let (start, date, cycle) = (Instant::now(), SystemTime::now(), cycles());
    std::thread::sleep(hour);
    println!("slept: {:?} {:?}", start.elapsed(), date.elapsed().expect("forward"));
    println!("cycles: {}", cycles() - cycle);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(10) {}
    println!("waited for {} ms", start.elapsed().as_millis());
    println!("since the first line: {} s", begun.elapsed().as_secs());
    Ok(())
}

// Of libc's, and not in the crate.
unsafe extern "C" {
    fn pthread_cond_clockwait(
        condition: *mut libc::pthread_cond_t,
        mutex: *mut libc::pthread_mutex_t,
        clock: i32,
        limit: *const libc::timespec,
    ) -> i32;
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: i32,
        limit: *const libc::timespec,
    ) -> i32;
    fn sem_clockwait(semaphore: *mut libc::sem_t, clock: i32, limit: *const libc::timespec) -> i32;
    fn pthread_rwlock_timedrdlock(
        lock: *mut libc::pthread_rwlock_t,
        limit: *const libc::timespec,
    ) -> i32;
    fn pthread_rwlock_clockwrlock(
        lock: *mut libc::pthread_rwlock_t,
        clock: i32,
        limit: *const libc::timespec,
    ) -> i32;
}

/// Waits for another thread, which answers or does not, so long at most: by the waits of Rust and
/// of C.
fn threads() -> Result<()> {
    // SAFETY: all zeros is a value of the structure.
    let mut semaphore: libc::sem_t = unsafe { std::mem::zeroed() };
    // SAFETY: a semaphore of this stack frame, which outlives all of its users.
    unsafe { libc::sem_init(&mut semaphore, 0, 0) };
    let (answer, answered) = mpsc::channel();
    answered_waits(&mut semaphore, answer.clone(), &answered);
    timed("channel", &mut || answered.recv_timeout(BRIEF).is_ok());
    // SAFETY: as above.
    timed("semaphore", &mut || unsafe { libc::sem_timedwait(&mut semaphore, &date(BRIEF)) == 0 });
    // The channel stays open so far, or its wait would end at once.
    drop(answer);
    // SAFETY: a mutex and conditions of this stack frame; all zeros are those of C's initialisers.
    unsafe {
        let (mut mutex, mut condition): (libc::pthread_mutex_t, libc::pthread_cond_t) =
            std::mem::zeroed();
        libc::pthread_mutex_lock(&mut mutex);
        unanswered_waits(&mut mutex, &mut condition);
        timed("mutex by a clock", &mut || {
            pthread_mutex_clocklock(&mut mutex, libc::CLOCK_MONOTONIC, &uptime(BRIEF)) == 0
        });
        timed("semaphore by a clock", &mut || {
            sem_clockwait(&mut semaphore, libc::CLOCK_MONOTONIC, &uptime(BRIEF)) == 0
        });
        waits_for_readers_and_writers();
        let no_time = libc::timespec { tv_sec: 1, tv_nsec: 1_000_000_000 };
        let refused = [
            libc::pthread_mutex_timedlock(&mut mutex, &no_time),
            libc::pthread_cond_timedwait(&mut condition, &mut mutex, &no_time),
            pthread_cond_clockwait(&mut condition, &mut mutex, libc::CLOCK_TAI, &uptime(BRIEF)),
        ];
        println!("refused: {}", refused.iter().all(|&error| error == libc::EINVAL));
    }
    Ok(())
}

/// How long a wait without an answer lasts.
const BRIEF: Duration = Duration::from_millis(20);

/// Says how long a wait takes in the machine's time, and whether it was answered.
fn timed(what: &str, wait: &mut dyn FnMut() -> bool) {
    let start = Instant::now();
    println!("{what}: {} after {:?}", wait(), start.elapsed());
}

/// Waits that another thread answers long before they end.
fn answered_waits(
    semaphore: &mut libc::sem_t,
    answer: mpsc::Sender<()>,
    answered: &mpsc::Receiver<()>,
) {
    let limit = Duration::from_secs(20);
    let (done, changed) = (Mutex::new(false), Condvar::new());
    let place = std::ptr::from_mut(semaphore) as usize;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for answers in 0..4 {
                really_sleep();
                match answers {
                    0 => answer.send(()).expect("somebody waits"),
                    1 => {
                        *done.lock().expect("nobody panics") = true;
                        changed.notify_one();
                    }
                    // SAFETY: the caller's semaphore, which outlives the scope.
                    _ => _ = unsafe { libc::sem_post(place as *mut libc::sem_t) },
                }
            }
        });
        println!("channel: {:?}", answered.recv_timeout(limit));
        let (seen, late) = changed
            .wait_timeout_while(done.lock().expect("nobody panics"), limit, |done| !*done)
            .expect("nobody panics");
        println!("condition: {} {}", *seen, late.timed_out());
        // SAFETY: the caller's semaphore.
        println!("semaphore: {}", unsafe {
            libc::sem_timedwait(place as *mut libc::sem_t, &date(limit))
        });
        // SAFETY: the caller's semaphore.
        println!("semaphore: {}", unsafe {
            sem_clockwait(place as *mut libc::sem_t, libc::CLOCK_MONOTONIC, &uptime(limit))
        });
    });
}

/// Waits for a locked mutex and for conditions that nobody signals.
///
/// # Safety
/// Both are initialised, and this thread has locked the mutex. Nothing else uses them.
unsafe fn unanswered_waits(
    mutex: &mut libc::pthread_mutex_t,
    condition: &mut libc::pthread_cond_t,
) {
    // SAFETY: as the caller says; the attributes lie on this stack frame.
    unsafe {
        timed("mutex", &mut || libc::pthread_mutex_timedlock(mutex, &date(BRIEF)) == 0);
        timed("condition", &mut || {
            libc::pthread_cond_timedwait(condition, mutex, &date(BRIEF)) == 0
        });
        let mut monotonic = std::mem::zeroed();
        libc::pthread_condattr_init(&mut monotonic);
        libc::pthread_condattr_setclock(&mut monotonic, libc::CLOCK_MONOTONIC);
        libc::pthread_cond_init(condition, &monotonic);
        timed("monotonic condition", &mut || {
            libc::pthread_cond_timedwait(condition, mutex, &uptime(BRIEF)) == 0
        });
        timed("condition by a clock", &mut || {
            pthread_cond_clockwait(condition, mutex, libc::CLOCK_MONOTONIC, &uptime(BRIEF)) == 0
        });
        timed("condition by the other", &mut || {
            pthread_cond_clockwait(condition, mutex, libc::CLOCK_REALTIME, &date(BRIEF)) == 0
        });
    }
}

/// Waits for a lock of readers and writers, while a writer has it and afterwards.
fn waits_for_readers_and_writers() {
    // SAFETY: a lock of this stack frame; all zeros are those of C's initialiser.
    unsafe {
        let mut lock: libc::pthread_rwlock_t = std::mem::zeroed();
        libc::pthread_rwlock_wrlock(&mut lock);
        timed("reader", &mut || pthread_rwlock_timedrdlock(&mut lock, &date(BRIEF)) == 0);
        timed("writer", &mut || {
            pthread_rwlock_clockwrlock(&mut lock, libc::CLOCK_MONOTONIC, &uptime(BRIEF)) == 0
        });
        libc::pthread_rwlock_unlock(&mut lock);
        timed("free lock", &mut || pthread_rwlock_timedrdlock(&mut lock, &date(BRIEF)) == 0);
    }
}

/// So long from now, as C's waits want it.
fn date(ahead: Duration) -> libc::timespec {
    let then = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970") + ahead;
    libc::timespec { tv_sec: then.as_secs() as libc::time_t, tv_nsec: then.subsec_nanos().into() }
}

/// The same on the clock that nobody sets.
fn uptime(ahead: Duration) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel's function writes to this stack frame.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let then = Duration::new(now.tv_sec as u64, now.tv_nsec as u32) + ahead;
    libc::timespec { tv_sec: then.as_secs() as libc::time_t, tv_nsec: then.subsec_nanos().into() }
}

/// Sleeps in real time, as what a thread computes takes.
fn really_sleep() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    // SAFETY: the kernel reads the structure. By number, which is not replaced.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, 0) };
}

fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Blocks of many sizes there and back, an atomic on each, and what the others have in the end.
fn blocks(job: &Job) -> Result<()> {
    const MOST: usize = 9 << 20;
    let window = job.window::<u8>(MOST)?;
    let count = job.window::<u64>(1)?;
    let next = (job.pe() + 1) % job.npes();
    for len in [0, 1, 7, 8, 9, 100, 5000, 300_000, MOST] {
        let block: Vec<u8> = (0..len).map(|i| (i * 7 + job.pe()) as u8).collect();
        window.put(next, 0, &block)?;
        job.quiet()?;
        let mut back = vec![0; len];
        window.get(next, 0, &mut back)?;
        assert!(back == block, "{len} bytes");
        count.remote(0, 0)?.fetch_add(len as u64)?;
        job.barrier()?;
    }
    println!("{} {}", job.pe(), count.remote(0, 0)?.load()?);
    Ok(())
}

/// A random program, and the time that it took.
fn random_blocks(job: &Job, seed: u64) -> Result<()> {
    let begun = Instant::now();
    let time = random_blocks::run(job, seed, || begun.elapsed())?;
    println!("{} {}", job.pe(), time.as_nanos());
    Ok(())
}

/// Barriers and collectives, and the moments of their ends.
fn rounds(job: &Job, seed: u64) -> Result<()> {
    let begun = Instant::now();
    println!("{} {:?}", job.pe(), rounds::run(job, seed, || begun.elapsed())?);
    Ok(())
}

/// PE 0 waits for a barrier to which PE 1 never comes, until another thread of PE 0 calls.
/// Meanwhile PE 1 writes to the memory of PE 0, until it hears that the wait has ended.
fn attention(job: &Job) -> Result<()> {
    let window = job.window::<u64>(1)?;
    job.barrier()?;
    if job.pe() == 1 {
        while window.read(0) == 0 {
            window.remote(0, 0)?.store(1);
            job.quiet()?;
        }
        return Ok(());
    }
    let attention = job.attention();
    let caller = attention.clone();
    let late = std::thread::spawn(move || {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        // SAFETY: the kernel reads this stack frame. By number: the program's sleeps are of the
        // machine's time, and would wait for the turn of the other thread.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const pause, 0) };
        caller.call();
    });
    let ended = job.barrier();
    late.join().expect("the caller ends");
    attention.dismiss();
    println!("interrupted: {}", matches!(ended, Err(memonet::Error::Interrupted { .. })));
    window.remote(1, 0)?.store(1);
    job.quiet()
}

/// Memory that others have not mapped.
fn restricted(job: &Job) -> Result<()> {
    let window: Window<u64> = job.restricted(4, |_, _| memonet::Access::ReadWrite)?;
    let next = (job.pe() + 1) % job.npes();
    window.remote(next, 1)?.store(job.pe() as u64 + 10);
    window.remote(next, 2)?.fetch_add(5)?;
    job.barrier()?;
    println!("{} {} {}", job.pe(), window.read(1), window.read(2));
    job.barrier()
}

/// PEs that take turns at writing lines, and what differs from run to run on most machines.
fn talk(job: &Job) -> Result<()> {
    let window = job.window::<u64>(1)?;
    let names: HashSet<usize> = (0..20).collect();
    println!("{} begins with {names:?}, {:p}", job.pe(), &raw const names);
    for round in 1..4 {
        window.wait_until(0, Cmp::Ge, if job.pe() == 0 { round - 1 } else { round })?;
        println!("{} in round {round} at {:?}", job.pe(), Instant::now());
        eprintln!("{} has said so", job.pe());
        window.remote((job.pe() + 1) % job.npes(), 0)?.store(round);
    }
    job.barrier()
}

/// All print at one moment, the first PEs last, and some much.
fn echo(job: &Job) -> Result<()> {
    for round in 0..4 {
        job.barrier()?;
        spin((job.npes() - job.pe()) * 30_000);
        for line in 0..1 + job.pe() % 3 * 40 * round {
            println!("round {round} of {}: {line:100}", job.pe());
        }
    }
    job.barrier()?;
    spin((job.npes() - job.pe()) * 30_000);
    print!("{} ends in the middle of a line", job.pe());
    Ok(())
}

/// All sleep to one moment, at which they print. One of them wakes alone before.
fn late(job: &Job) -> Result<()> {
    let sleep = |us| std::thread::sleep(std::time::Duration::from_micros(us));
    for early in 0..8 {
        job.barrier()?;
        if job.pe() == early {
            sleep(50);
            println!("{early} is early");
            sleep(50);
        } else {
            sleep(100);
        }
        println!("after {early}: {}", job.pe());
    }
    Ok(())
}

fn spin(times: usize) {
    (0..times).for_each(|_| std::hint::spin_loop());
}

/// Before it joins, PE k writes file `k` and looks for the file of the next PE: it comes while PE k
/// runs, where both run at once.
fn meet(folder: &str) {
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().expect("a number");
    let (pe, npes) = (number("MEMONET_PE"), number("MEMONET_NPES"));
    let file = |pe: usize| std::path::Path::new(folder).join(pe.to_string());
    std::fs::write(file(pe), "").expect("the folder can be written");
    let next = file((pe + 1) % npes);
    let met = (0..500_000).any(|_| next.exists());
    println!("{pe} {}", if met { "meets" } else { "is alone" });
}

/// PE 0 polls by plain loads.
fn poll(job: &Job) -> Result<()> {
    let window = job.window::<u64>(1)?;
    if job.pe() == 0 {
        while window.read(0) == 0 {
            std::hint::spin_loop();
        }
    } else {
        window.remote(0, 0)?.store(1);
    }
    Ok(())
}

/// PE 0 waits for something to read.
fn listen(job: &Job) -> Result<()> {
    use std::io::Read;
    if job.pe() == 0 {
        let (mut nothing, _writer) = std::io::pipe().expect("a pipe");
        let read = nothing.read(&mut [0]).expect("some day");
        println!("{read} bytes");
    }
    job.barrier()
}

/// Prints more than pipes and launcher hold while nobody reads.
fn print_much(job: &Job) -> Result<()> {
    let line = "x".repeat(1023);
    (0..4096).for_each(|_| println!("{line}"));
    job.barrier()
}

/// Stops until somebody continues it.
fn stop(job: &Job) -> Result<()> {
    job.barrier()?;
    // SAFETY: a signal to this process.
    unsafe { libc::raise(libc::SIGSTOP) };
    job.barrier()
}

/// Sleeps until a moment, as it reads the clock.
fn until_later(what: &str) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(30) {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{what}: it is later");
}

/// A child that waits for a moment, and reads cycles.
fn forked(job: &Job) -> Result<()> {
    job.barrier()?;
    // SAFETY: the process has one thread, and the child ends by itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        until_later("in a child");
        assert!(cycles() > 0);
        // SAFETY: ends the child.
        unsafe { libc::_exit(3) };
    }
    let mut status = 0;
    // SAFETY: collects the child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    println!("{}", libc::WEXITSTATUS(status));
    job.barrier()
}

/// A thread that sleeps does not make barriers longer. A thread for which all others wait does.
fn sleeper(job: &Job) -> Result<()> {
    job.barrier()?;
    let begun = Instant::now();
    let sleeper = std::thread::spawn(|| std::thread::sleep(Duration::from_secs(1)));
    for _ in 0..100 {
        job.barrier()?;
    }
    println!("barriers end early: {}", begun.elapsed() < Duration::from_millis(1));
    sleeper.join().expect("it has slept");
    println!("joined after {} s", begun.elapsed().as_secs());
    let begun = Instant::now();
    let sleep = move |seconds| {
        std::thread::sleep(Duration::from_secs(seconds));
        begun.elapsed().as_secs()
    };
    let sleepers = [3, 1, 2].map(|seconds| std::thread::spawn(move || sleep(seconds)));
    println!("each: {:?}", sleepers.map(|sleeper| sleeper.join().expect("it has slept")));
    job.barrier()
}

/// A thread reads the clock while another one calls.
fn readers(job: &Job) -> Result<()> {
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut last, mut back) = (Duration::ZERO, 0);
            while !stop.load(order) {
                let time = uptime(Duration::ZERO);
                let now = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
                back += u32::from(now < last);
                last = now;
            }
            back
        });
        (0..3000).try_for_each(|_| job.barrier())?;
        stop.store(true, order);
        println!("went back: {}", reader.join().expect("it has read"));
        Ok(())
    })
}

/// A signal handler sleeps, and interrupts calls.
fn handler(job: &Job) -> Result<()> {
    extern "C" fn sleeps(_: i32) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 1000 };
        // SAFETY: reads a time of this stack frame.
        unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
    }
    let often = libc::timeval { tv_sec: 0, tv_usec: 1000 };
    let timer = libc::itimerval { it_interval: often, it_value: often };
    // SAFETY: the handler makes a call that may be made in handlers; by number, as the crate does
    // not have the function.
    unsafe {
        libc::signal(libc::SIGALRM, sleeps as *const () as usize);
        libc::syscall(libc::SYS_setitimer, 0, &raw const timer, 0);
    }
    (0..10_000).try_for_each(|_| job.barrier())?;
    println!("over");
    job.barrier()
}

/// Sleeps by microseconds that are seconds.
fn select() -> Result<()> {
    let begun = Instant::now();
    let call = |tv_sec, tv_usec| {
        let (mut time, none) = (libc::timeval { tv_sec, tv_usec }, std::ptr::null_mut());
        // SAFETY: no descriptors, and a time of this stack frame.
        unsafe { libc::select(0, none, none, none, &mut time) }
    };
    println!("{} {}", call(1, 2_500_000), call(0, -1));
    println!("{:?}", begun.elapsed());
    Ok(())
}

/// Sleeps longer than a machine's time goes.
fn refused() -> Result<()> {
    let time = libc::timespec { tv_sec: 200 * 86_400, tv_nsec: 0 };
    // SAFETY: reads a time of this stack frame.
    println!("{}", unsafe { libc::nanosleep(&time, std::ptr::null_mut()) });
    Ok(())
}

/// Children become other programs, which read cycles as they start.
fn exec() -> Result<()> {
    let file = std::fs::File::open("/proc/self/exe").expect("/proc");
    let (fd, null) = (std::os::fd::AsRawFd::as_raw_fd(&file), std::ptr::null());
    let arguments = [c"simulated".as_ptr(), c"cycles".as_ptr(), null];
    let environment = [null];
    for way in 0..3 {
        let (arguments, environment) = (arguments.as_ptr(), environment.as_ptr());
        let flag = libc::AT_EMPTY_PATH;
        // SAFETY: the process has one thread; the lists end with null.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let nothing = c"".as_ptr();
                match way {
                    0 => libc::fexecve(fd, arguments, environment),
                    1 => {
                        libc::syscall(libc::SYS_execveat, fd, nothing, arguments, environment, flag)
                            as i32
                    }
                    _ => {
                        let own = c"/proc/self/exe".as_ptr();
                        libc::syscall(libc::SYS_execve, own, arguments, environment) as i32
                    }
                };
                libc::_exit(9);
            }
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            println!("{status:#x}");
        }
    }
    Ok(())
}

/// PE 0 waits for a word that nobody writes, the others for PE 0. Each has one thread, or two.
fn deadlock(job: &Job, threads: &str) -> Result<()> {
    if threads == "threads" {
        std::thread::spawn(std::thread::park);
    }
    let window = job.window::<u64>(1)?;
    if job.pe() == 0 {
        // Longer than any run.
        let year = Duration::from_secs(365 * 86_400);
        window.wait().timeout(year).until(0, Cmp::Ne, 0)?;
    }
    job.barrier()
}

/// PE 1 ends while the others wait for it, after a round of work.
fn die(job: &Job, how: &str) -> Result<()> {
    let window = job.window::<u64>(1)?;
    job.barrier()?;
    if job.pe() == 1 {
        job.compute(1000);
        match how {
            // SAFETY: sends a signal to this process.
            "kill" => drop(unsafe { libc::kill(libc::getpid(), libc::SIGKILL) }),
            // SAFETY: ends this process.
            "quietly" => unsafe { libc::_exit(0) },
            status => std::process::exit(status.parse().expect("a status")),
        }
    }
    window.wait_until(0, Cmp::Ne, 0).map(drop)
}

/// PE 0 has its NIC send for long, and says so by a file. All wait for what never comes.
fn pour(job: &Job) -> Result<()> {
    const WORDS: usize = 4 << 20;
    let (source, window) = (job.window::<u64>(WORDS)?, job.window::<u64>(WORDS)?);
    job.barrier()?;
    if job.pe() == 0 {
        window.put_nbi(1, 0, &source, 0..WORDS)?;
        std::fs::write("poured", "").expect("a folder");
    }
    source.wait_until(0, Cmp::Ne, 0).map(drop)
}

/// Communicates until it is ended.
fn work(job: &Job) -> Result<()> {
    let (window, many) = (job.window::<u64>(1)?, job.window::<u64>(1000)?);
    let all = many.span(0..1000)?;
    loop {
        window.remote((job.pe() + 1) % job.npes(), 0)?.fetch_add(1)?;
        job.barrier()?;
        job.world().broadcast_into(0, all, all)?;
    }
}

/// Says what a fifth of a second of CPU time takes.
/// Computes for 200 ms of CPU time, shared out among so many threads.
fn compute(job: &Job, threads: u64) -> Result<()> {
    let cpu = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes to this stack frame. By number: the program's clocks show the
        // machine's time.
        unsafe {
            libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time)
        };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let share = || {
        let real = cpu();
        while cpu() - real < Duration::from_millis(200 / threads) {}
    };
    job.barrier()?;
    let start = Instant::now();
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(share))));
    job.quiet()?;
    println!("{}", start.elapsed().as_millis());
    Ok(())
}

/// Numbers of 31 bits that look random.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// PE 1 writes garbage into the pages that it shares with the machine.
fn hostile(job: &Job, seed: u64) -> Result<()> {
    job.barrier()?;
    if job.pe() == 1 {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
        let line = maps.lines().find(|line| line.contains("memonet-machine")).expect("the pages");
        let page = usize::from_str_radix(line.split('-').next().expect("an address"), 16)
            .expect("an address");
        let mut random = numbers(seed);
        for round in 0..2000 {
            let last = round == 1999;
            // A wait for a word that nobody writes is for ever.
            let kinds = if round < 1900 { 28 } else { 29 };
            for (place, word) in (0..2).flat_map(|place| (0..10).map(move |word| (place, word))) {
                let value = match (word, random() % 3) {
                    (0, _) => {
                        let [kind, size, what, flags] =
                            [kinds, 4, 8, 8].map(|range| random() % range);
                        u64::from(u32::from_le_bytes([
                            kind as u8,
                            1 << size,
                            what as u8,
                            flags as u8,
                        ]))
                    }
                    (8, _) => random() % 1000,
                    (9, 1..) => random() % 3 * 64,
                    (_, 0) => random() % 16,
                    (_, 1) => 1 << (random() % 64),
                    _ => random() << 32 | random(),
                };
                // SAFETY: none is meant: the words of the first two questions, which lie there.
                unsafe { ((page + 256 + 80 * place + 8 * word) as *mut u64).write_volatile(value) };
            }
            let count = [1, 1, 1, 2, 2, 0, 201, u64::MAX][random() as usize % 8];
            // SAFETY: as above: how many they are.
            unsafe { ((page + 64) as *mut u64).write_volatile(count) };
            // A block, which may be a list of members; of more than this one only towards the end,
            // as nobody else joins their group.
            for member in 0..4 {
                let value = if round < 1900 { 1 } else { random() % 4 };
                // SAFETY: as above.
                unsafe { ((page + 20480 + 4 * member) as *mut u32).write_volatile(value as u32) };
            }
            // SAFETY: as above: the turn's word.
            let turn = unsafe { std::sync::atomic::AtomicU32::from_ptr(page as *mut u32) };
            turn.store(
                if last { [77, 2][seed as usize % 2] } else { 1 },
                std::sync::atomic::Ordering::SeqCst,
            );
            // SAFETY: the kernel is given the address of a mapped word.
            unsafe { libc::syscall(libc::SYS_futex, page, libc::FUTEX_WAKE, 9) };
            // As a waiter of the library: with the bit that says that it sleeps.
            let sleeps = 4;
            while turn.load(std::sync::atomic::Ordering::SeqCst) & !sleeps == 1 {
                let order = std::sync::atomic::Ordering::SeqCst;
                let _ = turn.compare_exchange(1, 1 | sleeps, order, order);
                // SAFETY: as above.
                unsafe { libc::syscall(libc::SYS_futex, page, libc::FUTEX_WAIT, 1 | sleeps, 0) };
            }
        }
        // Until the machine has seen it.
        loop {
            std::thread::park();
        }
    }
    job.barrier()
}

/// PE 1 writes garbage into all that it can reach: everybody's passages, the job's control page,
/// segments.
fn vandal(job: &Job, seed: u64) -> Result<()> {
    let window = job.window::<u64>(1 << 12)?;
    job.barrier()?;
    let mut random = numbers(seed);
    for round in 0..300 {
        if job.pe() == 1 {
            for _ in 0..random() % 4 {
                let value =
                    [random() % 4, random() % 64, 1 << (random() % 64), random() << 32 | random()]
                        [random() as usize % 4];
                let file = ["memonet-machine", "memonet-job"][random() as usize % 2];
                // Passages begin at 4096, one behind 20 KiB and blocks of 1 GiB after the other.
                let word = match file {
                    "memonet-machine" => {
                        [0, 4096, 24576 + (1 << 30), 45056 + (2 << 30)][random() as usize % 4] / 8
                            + random() % 96
                    }
                    _ => random() % [256, 1 << 12, 1 << 15][random() as usize % 3],
                };
                deface(file, 8 * word, value);
            }
        }
        let next = (job.pe() + 1) % job.npes();
        window.remote(next, round % 7)?.store(1);
        window.put(next, 10, &vec![round as u64; round * 13])?;
        window.remote(next, 8)?.fetch_add(1)?;
        if round % 3 == 0 {
            job.barrier()?;
        } else {
            job.compute(100);
        }
    }
    job.barrier()
}

/// Begins anew where code cannot be changed.
fn denied() {
    use std::os::unix::process::CommandExt;
    const PR_SET_MDWE: i32 = 65;
    // SAFETY: concerns the protection of this process's memory from now on.
    assert_eq!(unsafe { libc::prctl(PR_SET_MDWE, 1, 0, 0, 0) }, 0, "Linux 6.3 or later");
    let own = std::env::current_exe().expect("/proc");
    panic!("{}", std::process::Command::new(own).args(["ping-pong", "3"]).exec());
}

/// Writes a word of a file that this process has inherited.
fn deface(name: &str, at: u64, value: u64) {
    use std::os::unix::fs::FileExt;
    for entry in std::fs::read_dir("/proc/self/fd").expect("/proc") {
        let path = entry.expect("/proc").path();
        let is_it = std::fs::read_link(&path).is_ok_and(|link| {
            link.to_string_lossy()
                .trim_end_matches(" (deleted)")
                .ends_with(&format!("memfd:{name}"))
        });
        if is_it && let Ok(file) = std::fs::OpenOptions::new().write(true).open(&path) {
            let _ = file.write_at(&value.to_le_bytes(), at);
        }
    }
}

/// What a PE starts is no PE, and lives in real time.
fn children() -> Result<()> {
    let output = std::process::Command::new("sh")
        .args(["-c", "sleep 0.01; echo a child"])
        .output()
        .expect("sh");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    // SAFETY: a command of this program's own.
    println!("{}", unsafe { libc::system(c"sleep 0.01; true".as_ptr()) });
    Ok(())
}
