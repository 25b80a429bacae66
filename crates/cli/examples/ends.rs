//! PEs that end the job, or that keep it from ending: small programs for the tests of the command,
//! chosen by the first argument.

use std::io::Write;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::Duration;

use memonet::unstable::launch::Participation;
use memonet::unstable::layout::JobHeader;
use memonet::{Job, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (program, how) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let job = memonet::init()?;
    match program.as_str() {
        "handler" => with_a_handler(&job, &how),
        "child" => by_a_child(&job, &how),
        "garbage" => after_garbage(&job, how.parse().expect("a number")),
        "unused" => without_taking_part(&job),
        "random" => at_random(&job, how.parse().expect("a number")),
        other => panic!("there is no program {other:?}"),
    }
}

fn forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

/// The last PE ends the job, with status 5, or 0 where it dies; its exit handler does what `how`
/// says. The others do not look.
fn with_a_handler(job: &Job, how: &str) -> Result<()> {
    static HOW: OnceLock<String> = OnceLock::new();
    extern "C" fn handler() {
        println!("in the handler");
        // SAFETY: signals to this process and its own dispositions; no pointers, and no handler.
        unsafe {
            match HOW.get().map(String::as_str) {
                Some("block") => forever(),
                Some("ignore") => {
                    libc::signal(libc::SIGTERM, libc::SIG_IGN);
                    forever()
                }
                Some("stop") => drop(libc::raise(libc::SIGSTOP)),
                Some("kill") => drop(libc::raise(libc::SIGKILL)),
                Some("abort") => libc::abort(),
                _ => {}
            }
        }
    }
    job.barrier()?;
    if job.pe() + 1 < job.npes() {
        forever();
    }
    HOW.set(how.into()).expect("set once");
    // SAFETY: a function of the type that libc calls.
    assert_eq!(unsafe { libc::atexit(handler) }, 0);
    match how {
        "thread" => {
            let job = job.clone();
            // Another thread ends the process, while this one is anywhere.
            std::thread::spawn(move || job.exit(5));
            forever()
        }
        "kill" | "abort" => job.exit(0),
        _ => job.exit(5),
    }
}

/// A process that the last PE has forked off ends the job with status 7. Its parent waits for it,
/// or for ever.
fn by_a_child(job: &Job, how: &str) -> Result<()> {
    job.barrier()?;
    if job.pe() + 1 == job.npes() {
        // SAFETY: this process has one thread, or others that are in no lock which the child takes.
        let child = unsafe { libc::fork() };
        if child == 0 {
            if how == "later" {
                // The launcher has seen by then who has joined, and looks no more.
                std::thread::sleep(Duration::from_millis(500));
            }
            job.exit(7);
        }
        if how != "waits" {
            forever();
        }
        // SAFETY: asks for no status.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
    job.barrier()
}

/// PE 0 writes over all of the control page but what PEs read as they join, the same byte
/// everywhere or, above 255, random words; then it fails. The others stay for ever.
fn after_garbage(job: &Job, seed: u64) -> Result<()> {
    job.barrier()?;
    if job.pe() > 0 {
        forever();
    }
    let number = std::env::var("MEMONET_JOB_FD").expect("started by memonet run");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{number}"))
        .expect("the job's memory");
    let mut end = [0; 8];
    file.read_exact_at(&mut end, offset_of!(JobHeader, segments) as u64).expect("its length");
    let all = offset_of!(JobHeader, departures) as u64..u64::from_ne_bytes(end);
    let mut random = seed;
    for at in all.step_by(8) {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let word = match random >> 60 {
            _ if seed < 256 => u64::from_ne_bytes([seed as u8; 8]),
            0..6 => random >> 33 & 7,
            6..10 => 1 << (random >> 33 & 63),
            _ => random,
        };
        file.write_all_at(&word.to_ne_bytes(), at).expect("memory");
    }
    // SAFETY: ends the process.
    unsafe { libc::_exit(3) }
}

/// Joins, as a C program does that is loaded, takes part in nothing, and ends when the launcher has
/// seen it.
fn without_taking_part(job: &Job) -> Result<()> {
    job.take_part(Participation::NotYet)?;
    std::thread::sleep(Duration::from_millis(200));
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Each PE says that it is there; then all meet and say so again. For kills at any moment.
fn at_random(job: &Job, rounds: usize) -> Result<()> {
    let say = |what: &str| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "PE {} {what}", job.pe()).and_then(|()| out.flush()).expect("output");
    };
    say("is there");
    for _ in 0..rounds {
        job.barrier()?;
    }
    say("is done");
    Ok(())
}
