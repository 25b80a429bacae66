//! What shared data cost on a machine, in its own time.

use memonet_core::dsm::{Mutex, Region};
use memonet_core::{Cmp, Job, Messages, Result, SignalOp};
use memonet_sim::{Machine, Options, now, sleep};
use std::time::Duration;

/// Words of the value that is handed over: 1 KiB.
const WORDS: usize = 128;

/// What two PEs on a network with remote DMA saw.
#[derive(Debug, Default, Clone, Copy)]
struct Times {
    /// Of a put with signal of so many bytes, there and back.
    round_trip: Duration,
    released: Duration,
    acquired: Duration,
    /// Of a lock by the PE that does not have the data, while the other one does something else.
    from_idle: Duration,
    /// Messages of the PE that has them, for locks that it repeats.
    repeated: u64,
}

fn round_trip(job: &Job) -> Result<Duration> {
    const TURNS: u32 = 10;
    let (w, signals, peer) = (job.window::<u64>(WORDS)?, job.window::<u64>(1)?, 1 - job.pe());
    let block = [1; WORDS];
    job.barrier()?;
    let start = now();
    for turn in 1..=u64::from(TURNS) {
        if job.pe() == 0 {
            w.put_signal(peer, 0, &block, &signals, 0, SignalOp::Set, turn)?;
        }
        signals.wait_until(0, Cmp::Ge, turn)?;
        if job.pe() == 1 {
            w.put_signal(peer, 0, &block, &signals, 0, SignalOp::Set, turn)?;
        }
    }
    job.barrier()?;
    Ok((now() - start) / TURNS)
}

fn measure(job: &Job) -> Result<Times> {
    let long = Duration::from_millis(1);
    let mut times = Times { round_trip: round_trip(job)?, ..Times::default() };
    let mutex = Mutex::<[u64]>::new(job, &[0; WORDS])?;
    for holder in 0..2 {
        let guard = if job.pe() == holder { Some(mutex.lock()?) } else { None };
        job.barrier()?;
        match guard {
            Some(mut guard) => {
                guard.fill(1);
                sleep(long);
                times.released = now();
                drop(guard);
            }
            None => {
                assert_eq!(mutex.lock()?[..], [1; WORDS]);
                times.acquired = now();
            }
        }
        job.barrier()?;
        if job.pe() == holder {
            let start = now();
            mutex.lock()?.fill(1);
            times.from_idle = now() - start;
            let before = mutex.stats().messages;
            (0..100).try_for_each(|i| mutex.lock().map(|mut guard| guard[0] = i))?;
            mutex.lock()?[0] = 1;
            times.repeated = mutex.stats().messages - before;
        } else {
            sleep(long);
        }
        job.barrier()?;
    }
    Ok(times)
}

#[test]
fn a_far_mutex_is_handed_over_in_one_and_a_half_round_trips_and_kept_for_nothing() {
    let machine = Machine::load("rdma-100g").unwrap();
    let done = memonet_sim::run(&machine, 2, &Options::default(), |job| measure(&job)).unwrap();
    let times: Vec<Times> = done.results.into_iter().collect::<Result<_>>().unwrap();
    println!("{times:?}");
    let round_trip = times[0].round_trip;
    // In the last turn PE 1 released, and PE 0 acquired.
    let hand_over = times[0].acquired - times[1].released;
    assert!(
        hand_over * 2 <= round_trip * 3,
        "{hand_over:?} for a hand-over, {round_trip:?} for a round trip"
    );
    for times in times {
        assert_eq!(times.repeated, 0);
        assert!(times.from_idle <= round_trip * 4, "{times:?}");
    }
}

/// Of a release of so many pages, each changed in one place, whose home is the other PE; and pages
/// that had to be got again for a look at them all after it.
fn release(job: &Job, pages: usize) -> Result<(Duration, u64)> {
    let region = Region::<u64>::new(job, 2 * pages * 512)?;
    let theirs = (1 - job.pe()) * pages;
    let mut guard = region.write(theirs * 512..(theirs + pages) * 512)?;
    (theirs..theirs + pages).for_each(|page| guard.set(page * 512, 7));
    drop(guard);
    job.barrier()?;
    let start = now();
    region.release()?;
    let time = now() - start;
    let before = region.stats().handovers;
    region.acquire()?;
    assert_eq!(region.read(theirs * 512..(theirs + pages) * 512)?.get(theirs * 512), 7);
    let again = region.stats().handovers - before;
    job.barrier()?;
    Ok((time, again))
}

#[test]
fn a_release_waits_for_all_its_pages_at_once_and_they_stay_good() {
    let machine = Machine::load("rdma-100g").unwrap();
    let act = |job: &Job| Ok((round_trip(job)?, release(job, 1)?, release(job, 100)?));
    let done = memonet_sim::run(&machine, 2, &Options::default(), |job| act(&job)).unwrap();
    for times in done.results.into_iter().collect::<Result<Vec<_>>>().unwrap() {
        println!("{times:?}");
        let (round_trip, (one, _), (hundred, again)) = times;
        assert!(hundred - one < round_trip * 25, "{times:?}");
        assert_eq!(again, 0);
    }
}

/// On Fagus's machine a switch of the banks takes 20 ms. What fits into LLCM needs none: not a
/// region's pages, nor a lock's data.
#[test]
fn shared_data_in_memory_on_the_chip_need_no_bank_switch() {
    let machine = Machine::load("dimmnet-1/fagus").unwrap();
    for bytes in [8, 464, 465, 1000, 4096, 10_000, 65_536] {
        let done = memonet_sim::run(&machine, 2, &Options::default(), |job| -> Result<_> {
            let region = Region::<u8>::new(&job, bytes)?;
            job.barrier()?;
            let start = now();
            for turn in 0..4 {
                if job.pe() == turn % 2 {
                    region.write(0..bytes)?.write_from(0, &vec![turn as u8; bytes]);
                }
                region.barrier()?;
                assert!(region.read(0..bytes)?.to_vec().iter().all(|&byte| byte == turn as u8));
                // A home shows what is written there at once.
                job.barrier()?;
            }
            let mutex = Mutex::<[u8]>::new(&job, &vec![0; bytes])?;
            for turn in 0..4 {
                if job.pe() == turn % 2 {
                    mutex.lock()?.iter_mut().for_each(|byte| *byte += 1);
                }
                job.barrier()?;
            }
            assert!(mutex.lock()?.iter().all(|&byte| byte == 4));
            Ok(now() - start)
        });
        let took = done.unwrap().results.into_iter().map(Result::unwrap).max().unwrap();
        println!("{bytes} B: {took:?}");
        let most = Duration::from_micros(1000 + bytes as u64);
        assert!(took < most, "{bytes} bytes, eight turns: {took:?}");
    }
}

/// The time of one of `count` messages from PE 1 to PE 0, of which `depth` may be under way.
fn message(machine: &str, bytes: usize, depth: usize, count: u32) -> Duration {
    let machine = Machine::load(machine).unwrap();
    let done = memonet_sim::run(&machine, 2, &Options::default(), |job| -> Result<_> {
        let messages = Messages::new(&job, bytes, depth)?;
        let mut message = Vec::new();
        job.barrier()?;
        let start = now();
        for number in 0..count as u8 {
            if job.pe() == 1 {
                messages.send(0, &vec![number; bytes])?;
            } else {
                messages.recv(&mut message)?;
                assert_eq!(message, vec![number; bytes]);
            }
        }
        Ok(now() - start)
    });
    done.unwrap().results.remove(0).unwrap() / count
}

/// As `memonet reproduce fagus` has them, but by the library: through the banks a message takes a
/// switch of 20 ms, unless several come before it; through LLCM it takes none.
#[test]
fn messages_go_through_the_banks_or_through_memory_on_the_chip() {
    let micros = |machine, bytes, depth| {
        let time = message(machine, bytes, depth, 32).as_nanos() as f64 / 1e3;
        println!("{machine}, {bytes} bytes, {depth} under way: {time} us");
        time
    };
    for bytes in [1000, 10_000] {
        let one = micros("dimmnet-1/fagus-banks", bytes, 1);
        assert!((20_000.0..20_000.0 + bytes as f64).contains(&one), "{bytes} bytes: {one} us");
        let by_llcm = micros("dimmnet-1/fagus", bytes, 1);
        assert!(by_llcm < one / 15.0, "{bytes} bytes: {by_llcm} us");
    }
    let one = micros("dimmnet-1/fagus-banks", 1000, 1);
    let many = micros("dimmnet-1/fagus-banks", 1000, 16);
    assert!(many < one / 7.0, "one switch for many messages: {many} us");
    // A message of a packet is not of those that lie in the banks.
    let short = micros("dimmnet-1/fagus-banks", 400, 1);
    assert!(short < 1000.0, "400 bytes: {short} us");
}
