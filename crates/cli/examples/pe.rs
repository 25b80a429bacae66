//! The PE that the tests of the command start: small programs, chosen by the first argument.

use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use memonet::dsm::{Mutex, Region, RwLock};
use memonet::{Cmp, Error, Job, Lock, MulticastOptions, Result, SignalOp, Window};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (program, argument) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let result = match program.as_str() {
        "init" => memonet::init().map(drop),
        "need" => need(argument.parse().expect("a number of bytes")),
        "print" => print(argument.parse().expect("a number of lines")),
        "ring" => ring(&argument),
        "work" => work(),
        "share" => share(),
        "use" => use_shared(),
        "die" => die(&argument),
        "bereave" => bereave(argument.parse().expect("a PE")),
        "late" => late(),
        "orphan" => orphan(&argument),
        "mourn" => mourn(&argument),
        // It stays for a while, so that others do not learn of its end first.
        "wake" => mourn("").inspect_err(|_| std::thread::sleep(Duration::from_secs(3))),
        "soak" => soak(argument.parse().expect("a number of seconds")),
        "interrupts" => interrupts(),
        "leave" => leave(&argument),
        "end" => end(),
        "multicast" => multicast(&argument),
        "silence" => silence(),
        "publish" => publish(&argument),
        "flood" => flood(&argument),
        "count" => count(&argument),
        "twice" => memonet::init().and_then(|job| job.finalize()),
        other => panic!("there is no program {other:?}"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // In one write: launchers of others may end before they have passed on a second one.
            let _ = std::io::stderr().write_all(format!("error: {error}\n").as_bytes());
            ExitCode::from(42)
        }
    }
}

/// A window of so many bytes.
fn need(bytes: usize) -> Result<()> {
    memonet::init()?.window::<u8>(bytes).map(drop)
}

/// Lines that can be checked, each written in pieces.
fn print(lines: usize) -> Result<()> {
    let pe = std::env::var("MEMONET_PE").expect("started by memonet run");
    for i in 0..lines {
        for out in [&mut std::io::stdout().lock() as &mut dyn Write, &mut std::io::stderr()] {
            let text = "x".repeat(i * 7 % 300);
            let (first, second) = text.split_at(text.len() / 2);
            out.write_all(format!("{pe} {i} {first}").as_bytes()).expect("output");
            out.flush().expect("output");
            out.write_all(format!("{second}\n").as_bytes()).expect("output");
        }
    }
    Ok(())
}

/// PE 0 publishes BLOCKS blocks of BYTES bytes to all others, given as "BLOCKS BYTES", which look
/// at every word; it tells how fast that was.
fn multicast(argument: &str) -> Result<()> {
    let numbers: Vec<usize> =
        argument.split(' ').map(|number| number.parse().expect("two numbers")).collect();
    let (blocks, words) = (numbers[0], numbers[1] / 8);
    let job = memonet::init()?;
    let readers: Vec<usize> = (1..job.npes()).collect();
    let value = |block: usize, word: usize| (block * words + word) as u64;
    let mut channel = job.multicast::<u64>(0, &readers, MulticastOptions::new())?;
    job.barrier()?;
    let start = Instant::now();
    let mut buffer = Vec::new();
    for block in 0..blocks {
        if job.pe() == 0 {
            let mut claim = channel.claim(words)?;
            claim.iter_mut().enumerate().for_each(|(word, to)| *to = value(block, word));
            claim.commit()?;
        } else {
            channel.recv(&mut buffer)?;
            let right = buffer.iter().enumerate().all(|(word, &seen)| seen == value(block, word));
            assert!(right && buffer.len() == words, "block {block} is not what was published");
        }
    }
    job.barrier()?;
    if job.pe() == 0 {
        let rate = (blocks * numbers[1]) as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("published by {} at {rate:.1} MB/s", channel.delivery());
    } else {
        println!("{} received {blocks} blocks", job.pe());
    }
    Ok(())
}

/// PE 0 publishes a block, and leaves; the others make no call for longer than a reader may be
/// silent.
fn silence() -> Result<()> {
    let job = memonet::init()?;
    let readers: Vec<usize> = (1..job.npes()).collect();
    let mut channel = job.multicast::<u64>(0, &readers, MulticastOptions::new())?;
    if job.pe() > 0 {
        std::thread::sleep(Duration::from_secs(12));
        return Ok(());
    }
    channel.publish(&[7])?;
    drop(channel);
    job.quiet()
}

/// PE 0 publishes blocks of all sizes until somebody dies. If it is to "survive" that of a reader,
/// it goes on for a while, and leaves. All tell how many blocks they have published, or received
/// whole, and why no more.
fn publish(how: &str) -> Result<()> {
    // From what fits into a line of the cache to what goes in many parts.
    const WORDS: [usize; 5] = [1, 7, 100, 500, 3000];
    let job = memonet::init()?;
    let readers: Vec<usize> = (1..job.npes()).collect();
    let options = MulticastOptions::new().capacity(1 << 14).survive_readers(how == "survive");
    let mut channel = job.multicast::<u64>(0, &readers, options)?;
    let (mut number, mut after, mut buffer) = (0, 0, Vec::new());
    let ended = loop {
        let words = WORDS[number % WORDS.len()];
        let done = if job.pe() == 0 {
            after += usize::from(!channel.dropped().is_empty());
            if after > 100 {
                break "it had enough".into();
            }
            channel.publish(&vec![number as u64; words])
        } else {
            channel.recv(&mut buffer).map(|()| {
                let whole =
                    buffer.len() == words && buffer.iter().all(|&word| word == number as u64);
                assert!(
                    whole,
                    "instead of {words} x {number}: {} words, {:?} ...",
                    buffer.len(),
                    buffer.first()
                );
            })
        };
        match done {
            Ok(()) => number += 1,
            Err(error) => break error.to_string(),
        }
    };
    println!("PE {} had {number} blocks: {ended}", job.pe());
    Ok(())
}

/// Sends to a multicast address, until it is killed, all that it hears there once more, some of
/// that damaged, and datagrams of any bytes.
fn flood(address: &str) -> Result<()> {
    let to: std::net::SocketAddrV4 = address.parse().expect("a multicast address");
    let socket = std::net::UdpSocket::bind(("0.0.0.0", to.port())).expect("a socket");
    socket.join_multicast_v4(to.ip(), &std::net::Ipv4Addr::UNSPECIFIED).expect("a group");
    socket.set_read_timeout(Some(Duration::from_micros(50))).expect("a socket");
    let (mut bytes, mut chance) = (vec![0; 1 << 16], 1u64);
    loop {
        let heard = socket.recv(&mut bytes).unwrap_or(0);
        chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let any = (chance >> 33) as usize;
        let len = match any % 4 {
            0 => any % 1400,
            _ => heard,
        };
        if any % 4 < 2 && len > 0 {
            bytes[any / 4 % len] ^= 1 << (any % 8);
        }
        // One that is not sent is none.
        let _sent = socket.send_to(&bytes[..len], to);
    }
}

/// Tells its neighbour, says who told it, and waits for all; the PE named by the argument ends
/// instead, with status 3.
fn ring(fails: &str) -> Result<()> {
    let job = memonet::init()?;
    let window = job.window::<u64>(1)?;
    window.remote((job.pe() + 1) % job.npes(), 0)?.store(job.pe() as u64 + 1);
    println!("{} of {} after {}", job.pe(), job.npes(), window.wait_until(0, Cmp::Ne, 0)? - 1);
    if fails == job.pe().to_string() {
        std::process::exit(3);
    }
    job.barrier()
}

/// Communicates until something goes wrong.
fn work() -> Result<()> {
    let job = memonet::init()?;
    let window = job.window::<u64>(1024)?;
    let block = [job.pe() as u64; 1024];
    let next = (job.pe() + 1) % job.npes();
    loop {
        window.put(next, 0, &block)?;
        window.remote(0, 7)?.fetch_add(1)?;
        job.barrier()?;
    }
}

/// Uses shared data a known number of times.
fn use_shared() -> Result<()> {
    let job = memonet::init()?;
    let (mutex, table) = (Mutex::new(&job, &0u64)?, RwLock::new(&job, &0u64)?);
    for _ in 0..10 * (job.pe() + 1) {
        *mutex.lock()? += 1;
    }
    let seen = *table.read()?;
    *table.write()? += seen;
    job.barrier()
}

/// Operations of each kind on each PE, as many as `tests/stats.rs` says. `how` says what comes
/// then: `threads` and a child of `fork` that make more, or the PE's own death.
fn count(how: &str) -> Result<()> {
    let job = memonet::init()?;
    let (me, npes) = (job.pe(), job.npes());
    let (to, from) = (job.window::<u64>(64)?, job.window::<u64>(64)?);
    let signals = job.window::<u64>(1)?;
    for pe in 0..npes {
        (0..3).try_for_each(|_| to.put(pe, 0, &[me as u64; 8]))?;
        to.put_strided(pe, 0, 2, &[1; 4], 1, 4)?;
        to.put_nbi(pe, 0, &from, 0..16)?;
        to.get(pe, 0, &mut [0; 32])?;
        to.get_one(pe, 0)?;
        to.put_signal(pe, 0, &[5; 4], &signals, 0, SignalOp::Add, 1)?;
        (0..2).try_for_each(|_| signals.signal(pe, 0, SignalOp::Add, 1))?;
        let word = to.remote(pe, 63)?;
        (0..5).for_each(|value| word.store(value));
        job.quiet()?;
        (0..4).try_for_each(|_| word.load().map(drop))?;
        (0..3).try_for_each(|_| word.fetch_add(1).map(drop))?;
        word.compare_swap(u64::MAX, 0)?;
        let mut transfer = to.prepare(pe, 32, &from, 32..34)?;
        for _ in 0..2 {
            transfer.start()?;
            transfer.wait()?;
        }
        let mut transfer = transfer.with_signal(&signals, 0, SignalOp::Add, 1)?;
        transfer.start()?;
        transfer.wait()?;
    }
    job.barrier()?;
    signals.wait_until(0, Cmp::Eq, 4 * npes as u64)?;
    job.barrier()?;
    let next = (me + 1) % npes;
    match how {
        "die" if me == 1 => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .expect("a signal for itself")
        }
        "threads" => {
            let add = || (0..1000).try_for_each(|_| to.remote(next, 0)?.fetch_add(1).map(drop));
            std::thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(add));
                threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
            })?;
            // SAFETY: the child makes calls of the library, and ends without handlers.
            match unsafe { libc::fork() } {
                0 => {
                    let put = to.put(next, 0, &[7]);
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(i32::from(put.is_err())) }
                }
                // SAFETY: the status is not asked for.
                child => assert!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } == child),
            }
        }
        _ => {}
    }
    match job.barrier() {
        Err(Error::PeerFailed { .. }) if how == "die" => Ok(()),
        ended => ended,
    }
}

/// What a PE has in hand of shared data; its number is in a window of the others.
const ROLES: [&str; 5] = ["neither", "owner", "holder", "reader", "writer"];
/// Words of each of the shared data.
const LEN: usize = 300;

/// Uses shared data until a PE dies, says what that one had in hand, and whether the data that were
/// to be kept are whole.
fn share() -> Result<()> {
    let job = memonet::init()?;
    let data = Shares::new(&job)?;
    let error =
        (0..).find_map(|number| data.turn(number).err()).expect("it goes on until somebody dies");
    let Error::PeerFailed { pe: dead, .. } = error else {
        return Err(error);
    };
    let role = ROLES[data.roles.get_one(dead, 0)? as usize];
    data.check(role);
    println!("PE {} has all, though PE {dead}, {role}, died: {error}", job.pe());
    Ok(())
}

fn add(data: &mut [u64]) {
    data.iter_mut().for_each(|word| *word += 1);
}

fn whole(data: &[u64]) {
    assert!(data.iter().all(|&word| word == data[0]), "torn: {data:?}");
}

/// Data that all PEs share.
struct Shares<'a> {
    job: &'a Job,
    /// What this PE has in hand.
    roles: Window<u64>,
    /// One for each PE.
    mutexes: Vec<Mutex<[u64]>>,
    /// One for each PE, with a shadow.
    tables: Vec<RwLock<[u64]>>,
    kept: Mutex<[u64]>,
    region: Region<u64>,
}

impl<'a> Shares<'a> {
    fn new(job: &'a Job) -> Result<Self> {
        let roles = job.window::<u64>(1)?;
        let mutex = |_| Mutex::<[u64]>::new(job, &[0; LEN]);
        let mutexes = (0..job.npes()).map(mutex).collect::<Result<Vec<_>>>()?;
        let table = |_| RwLock::<[u64]>::with_shadow(job, &[0; LEN]);
        let tables = (0..job.npes()).map(table).collect::<Result<Vec<_>>>()?;
        let kept = Mutex::<[u64]>::with_shadow(job, &[0; LEN])?;
        let region = Region::<u64>::new(job, 4 * LEN)?;
        Ok(Self { job, roles, mutexes, tables, kept, region })
    }

    /// In each turn all PEs do the same for a while, each with data of its own, which another PE
    /// had in the turn before.
    fn turn(&self, number: usize) -> Result<()> {
        let mine = (self.job.pe() + number / 5) % self.job.npes();
        match number % 5 {
            0 => {
                add(&mut self.mutexes[mine].lock()?);
                self.play("owner");
            }
            1 => self.add_halves(&mut self.mutexes[mine].lock()?, "holder"),
            2 => {
                let guard = self.tables[0].read()?;
                whole(&guard);
                self.play("reader");
            }
            3 => self.add_halves(&mut self.tables[mine].write()?, "writer"),
            _ => {
                add(&mut self.mutexes[0].lock()?);
                let mut guard = self.kept.lock()?;
                whole(&guard);
                add(&mut guard);
                drop(guard);
                add(&mut self.tables[1].write()?);
                whole(&self.tables[1].read()?);
            }
        }
        self.region.write(0..4 * LEN)?.set(number % LEN * 4 + self.job.pe(), number as u64);
        if number % 2 == 1 { self.region.release() } else { self.region.barrier() }
    }

    /// Lets the others see for a while what this PE has in hand.
    fn play(&self, role: &str) {
        let number = ROLES.iter().position(|&known| known == role).expect("a role");
        self.roles.write(0, number as u64);
        std::thread::sleep(Duration::from_millis(1));
        self.roles.write(0, 0);
    }

    /// Changes data in two steps, between which they are torn.
    fn add_halves(&self, data: &mut [u64], role: &str) {
        whole(data);
        let (first, second) = data.split_at_mut(LEN / 2);
        add(first);
        self.play(role);
        add(second);
    }

    /// Checks what is left after the death of a PE with this role.
    fn check(self, role: &str) {
        let far = self.job.fabric().is_some();
        // The dead PE may have done more since it wrote its role; but it has not come out of the
        // guard.
        let mut torn = 0;
        for mutex in self.mutexes {
            let data = mutex.into_torn().expect("what is left of it");
            if far {
                whole(&data);
            }
            torn += usize::from(data.iter().any(|&word| word != data[0]));
        }
        assert!(
            torn == usize::from(!far && role == "holder") || torn <= 1 && role == "neither",
            "{torn} are torn, the dead was {role}"
        );
        // An error would look like that of a PE that was still making them.
        whole(&self.kept.into_released().expect("it was kept"));
        for table in self.tables {
            whole(&table.into_released().expect("it was kept"));
        }
    }
}

/// The last PE goes, in the way that is asked for, while the others wait, each in another way; they
/// tell what they see.
fn die(how: &str) -> Result<()> {
    let job = memonet::init()?;
    let window = job.window::<u64>(2)?;
    let lock = window.lock(1)?;
    let last = job.pe() + 1 == job.npes();
    if last {
        // However it goes, it goes with the lock.
        std::mem::forget(lock.lock()?);
    }
    job.barrier()?;
    if !last {
        return wait(&job, &window, &lock);
    }
    println!("last words");
    if std::env::var_os("LATER").is_some() {
        std::thread::sleep(Duration::from_millis(200));
    }
    match how {
        // SAFETY: sends a signal to this process; no pointers.
        "kill" => drop(unsafe { libc::raise(libc::SIGKILL) }),
        // SAFETY: it is not, on purpose: the test wants the kernel's answer to a stray store.
        "segv" => unsafe { std::ptr::without_provenance_mut::<u8>(64).write_volatile(1) },
        "abort" => std::process::abort(),
        // SAFETY: ends the process; nothing runs after it.
        "_exit" => unsafe { libc::_exit(0) },
        "exit" => std::process::exit(3),
        "panic" => panic!("on purpose"),
        "return" => return Ok(()),
        other => panic!("there is no way {other:?}"),
    }
    Ok(())
}

/// Tells how a wait has failed, without the call: all PEs say the same, wherever they wait.
fn seen(job: &Job, error: Error) -> Error {
    let error = error.of_call(None);
    println!("PE {} saw: {error}", job.pe());
    error
}

fn wait(job: &Job, window: &Window<u64>, lock: &Lock) -> Result<()> {
    let error = match job.pe() % 3 {
        0 => job.barrier().unwrap_err(),
        1 => window.wait_until(0, Cmp::Eq, 1).unwrap_err(),
        _ => lock.lock().map(drop).unwrap_err(),
    };
    let error = seen(job, error);
    if std::env::var_os("LINGER").is_some() {
        std::thread::sleep(Duration::from_millis(500));
    }
    Err(error)
}

/// Waits, odd PEs for a word and even ones in a barrier, until a PE dies, and tells which one. A
/// file of the given name and the PE's number says that all PEs have come, and then which one died.
fn mourn(file: &str) -> Result<()> {
    let job = memonet::init()?;
    let window = job.window::<u64>(1)?;
    let note = |text: &str| {
        if !file.is_empty() {
            std::fs::write(format!("{file}{}", job.pe()), text).expect("a file");
        }
    };
    let error = loop {
        // Odd PEs do not come to the second one.
        if let Err(error) = job.barrier() {
            break error;
        }
        note("");
        if job.pe() % 2 == 1 {
            break window.wait_until(0, Cmp::Ne, 0).unwrap_err();
        }
    };
    let error = seen(&job, error);
    note(&error.to_string());
    Err(error)
}

/// Words that a PE has of each PE, behind one that all add to.
const SLICE: usize = 4000;

/// For some seconds, all PEs draw the same operations. Each does its own ones, and compares what
/// its memory and its gets say with a model, in which the operations were done one after the other.
fn soak(seconds: u64) -> Result<()> {
    let job = memonet::init()?;
    let (me, n) = (job.pe(), job.npes());
    // A sum, whether to stop, and for each PE the words that it alone writes.
    let window = job.window::<u64>(2 + n * SLICE)?;
    let mut model = vec![vec![0u64; 2 + n * SLICE]; n];
    let (began, mut chance, mut rounds) = (Instant::now(), 1u64, 0u64);
    let mut draw = |below: usize| {
        chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (chance >> 33) as usize % below
    };
    // Read between the two barriers of a round: after them, PE 0 may say it of the next round.
    let mut stops = 0;
    job.barrier()?;
    // A test waits for this file.
    if let Some(begun) = std::env::args().nth(3) {
        std::fs::write(begun, "").expect("a file");
    }
    while stops == 0 {
        for _ in 0..8 * n {
            let (from, to, value) = (draw(n), draw(n), draw(1 << 30) as u64);
            let at = draw(SLICE);
            let len = 1 + draw(SLICE - at).min(if draw(4) == 0 { SLICE } else { 8 });
            let begin = 2 + from * SLICE + at;
            let block: Vec<u64> = (value..value + len as u64).collect();
            model[to][0] = model[to][0].wrapping_add(value);
            model[to][begin..begin + len].copy_from_slice(&block);
            if from == me {
                window.put(to, begin, &block)?;
                window.remote(to, 0)?.fetch_add(value)?;
            }
        }
        rounds += 1;
        if me == 0 && began.elapsed() > Duration::from_secs(seconds) {
            (0..n).try_for_each(|pe| window.put_one(pe, 1, 1))?;
        }
        job.barrier()?;
        stops = window.read(1);
        model.iter_mut().for_each(|words| words[1] = stops);
        assert!(window.to_vec() == model[me], "PE {me}, round {rounds}: not what was written");
        let (other, mut got) = (draw(n), vec![0; SLICE]);
        window.get(other, 2 + me * SLICE, &mut got)?;
        let right = &model[other][2 + me * SLICE..][..SLICE];
        assert!(got == right, "PE {me}, round {rounds}: PE {other} does not have what was put");
        job.barrier()?;
    }
    println!("PE {me} has done {rounds} rounds");
    Ok(())
}

/// PE `victim` is killed while all others sleep in a barrier that it has not come to.
fn bereave(victim: usize) -> Result<()> {
    let job = memonet::init()?;
    let processes = job.window::<u32>(job.npes())?;
    job.barrier()?;
    if job.pe() != victim {
        processes.put_one(victim, job.pe(), std::process::id())?;
        seen(&job, job.barrier().unwrap_err());
        return Ok(());
    }
    let mut others = Vec::new();
    for pe in (0..job.npes()).filter(|&pe| pe != victim) {
        processes.wait_until(pe, Cmp::Ne, 0)?;
        others.push(processes.read(pe));
    }
    // From here on, nothing but that barrier lets them sleep.
    let sleeps = |process: &u32| {
        let stat =
            std::fs::read_to_string(format!("/proc/{process}/stat")).expect("nobody has ended yet");
        stat.rsplit_once(") ").expect("a name in brackets").1.starts_with('S')
    };
    while !others.iter().all(sleeps) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: sends a signal to this process; no pointers.
    unsafe { libc::raise(libc::SIGKILL) };
    unreachable!("nobody survives that")
}

/// The last PE finalises and then fails; the others have work that does not need it, and takes
/// longer than a failed job lasts.
fn leave(how: &str) -> Result<()> {
    let job = memonet::init()?;
    job.barrier()?;
    if job.pe() + 1 < job.npes() {
        std::thread::sleep(Duration::from_millis(600));
        println!("PE {} went on", job.pe());
        return Ok(());
    }
    job.finalize()?;
    match how {
        "abort" => std::process::abort(),
        status => std::process::exit(status.parse().expect("an exit status")),
    }
}

/// The last PE ends the job, and has something to do until the others are gone, who do not look.
fn end() -> Result<()> {
    static OTHERS: OnceLock<Vec<u32>> = OnceLock::new();
    extern "C" fn say_who_is_left() {
        let others = OTHERS.get().expect("set before");
        let is_there = |pid: &u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        let began = Instant::now();
        while others.iter().any(is_there) && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("{} others are left", others.iter().filter(|pid| is_there(pid)).count());
    }
    let job = memonet::init()?;
    let window = job.window::<u32>(job.npes())?;
    let last = job.npes() - 1;
    window.put_one(last, job.pe(), std::process::id())?;
    job.barrier()?;
    if job.pe() < last {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    OTHERS.set((0..last).map(|pe| window.read(pe)).collect()).expect("set once");
    // SAFETY: a function of the type that libc calls.
    assert_eq!(unsafe { libc::atexit(say_who_is_left) }, 0);
    job.exit(7)
}

/// Counts the interrupts that arrive: not as a shell would, for which two at once are one.
fn interrupts() -> Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_: libc::c_int) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    for signal in [nix::sys::signal::SIGINT, nix::sys::signal::SIGTERM] {
        let handler = nix::sys::signal::SigHandler::Handler(count);
        // SAFETY: the handler only adds to an atomic, which may be done at any moment.
        unsafe { nix::sys::signal::signal(signal, handler) }.expect("a handler");
    }
    let job = memonet::init()?;
    let pe = job.pe();
    std::fs::write(format!("ready{pe}"), "").expect("a file");
    while COUNT.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Time for a second one, if there were one.
    std::thread::sleep(Duration::from_millis(200));
    println!("PE {pe}: {} interrupt", COUNT.load(Ordering::Relaxed));
    job.finalize()
}

/// The last PE goes, or ends the job, while all others wait for it. They need not reach it.
fn orphan(how: &str) -> Result<()> {
    let job = memonet::init()?;
    if job.pe() + 1 < job.npes() {
        // The launcher ends PEs soon after a death; on a busy machine they tell it later than that.
        // SAFETY: ignores a signal; no handler runs.
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
        return Err(seen(&job, job.barrier().unwrap_err()));
    }
    std::thread::sleep(Duration::from_millis(200));
    match how {
        // SAFETY: sends a signal to this process; no pointers.
        "kill" => drop(unsafe { libc::raise(libc::SIGKILL) }),
        "exit" => job.exit(9),
        "return" => {}
        "forever" => std::thread::sleep(Duration::from_secs(1000)),
        other => panic!("there is no way {other:?}"),
    }
    Ok(())
}

/// PE 1 goes before it has joined, and PE 0 finds out.
fn late() -> Result<()> {
    if std::env::var("MEMONET_PE").as_deref() == Ok("1") {
        std::process::exit(0);
    }
    let job = memonet::init()?;
    job.barrier()
}
