//! Messages from PE 1 to PE 0, and the time of one: `messages [BYTES [COUNT [thread [TICK_MS]]]]`.
//! With `thread`, a detection thread of PE 0 looks for messages and wakes the one that waits for
//! them. With `TICK_MS`, that one gets the CPU at the next tick of a scheduler with such ticks.
//!
//! ```sh
//! cargo build --release --examples -p memonet
//! memonet run -n 2 target/release/examples/messages
//! memonet run -n 2 --machine dimmnet-1/fagus target/release/examples/messages        # by LLCM
//! memonet run -n 2 --machine dimmnet-1/fagus-banks target/release/examples/messages  # by banks
//! memonet run -n 2 --machine dimmnet-1/fagus-banks target/release/examples/messages \
//!     1000 100 thread 10
//! ```

use memonet::{Error, Job, Messages, Result};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Messages that may be under way.
const DEPTH: usize = 1;

fn contents(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|byte| (byte ^ number) as u8).collect()
}

/// Receives by itself: it looks for messages in the call.
fn receive(messages: &Messages, count: usize, bytes: usize) -> Result<bool> {
    let (mut message, mut right) = (Vec::new(), true);
    for number in 0..count {
        messages.recv(&mut message)?;
        right &= message == contents(number, bytes);
    }
    Ok(right)
}

/// How long the scheduler lets the receiver of a message wait: until its next tick, which is at any
/// moment after the message.
fn until_next_tick(tick: Duration, number: usize) -> Duration {
    /// Its multiples are spread evenly between whole numbers.
    const GOLDEN_RATIO: f64 = 1.618_034;
    tick.mul_f64((GOLDEN_RATIO * number as f64).fract())
}

/// Receives what a detection thread hands over.
fn receive_by_thread(
    messages: &Messages,
    count: usize,
    bytes: usize,
    tick: Duration,
) -> Result<bool> {
    let (hand_over, handed_over) = mpsc::channel();
    thread::scope(|scope| {
        let detection = scope.spawn(move || -> Result<()> {
            for number in 0..count {
                let mut message = Vec::new();
                messages.recv(&mut message)?;
                thread::sleep(until_next_tick(tick, number));
                if hand_over.send(message).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let came = |number| handed_over.recv().is_ok_and(|got| got == contents(number, bytes));
        let right = (0..count).all(came);
        drop(handed_over);
        detection.join().expect("the detection thread does not panic")?;
        Ok(right)
    })
}

fn run(job: &Job, bytes: usize, count: usize, by_thread: Option<Duration>) -> Result<()> {
    let messages = Messages::new(job, bytes, DEPTH)?;
    job.barrier()?;
    let start = Instant::now();
    match job.pe() {
        0 => {
            let right = match by_thread {
                Some(tick) => receive_by_thread(&messages, count, bytes, tick)?,
                None => receive(&messages, count, bytes)?,
            };
            let micros = start.elapsed().as_secs_f64() * 1e6 / count as f64;
            let verdict = if right { "right" } else { "wrong" };
            let rate = 8.0 * bytes as f64 / micros;
            println!("{verdict}: {bytes} bytes take {micros:.1} us, {rate:.3} Mbit/s");
        }
        1 => (0..count).try_for_each(|number| messages.send(0, &contents(number, bytes)))?,
        _ => {}
    }
    job.barrier()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, otherwise: usize| {
        let given = arguments.get(place).map(|text| text.parse());
        given.unwrap_or(Ok(otherwise)).ok().filter(|&number| number > 0)
    };
    let tick = arguments.get(3).map_or(Ok(0), |text| text.parse());
    let (Some(bytes), Some(count), Ok(tick)) = (number(0, 1000), number(1, 100), tick) else {
        let usage = "messages [BYTES [COUNT [thread [TICK_MS]]]]: BYTES and COUNT from 1 on";
        return Err(Error::misuse(usage));
    };
    let by_thread = arguments.get(2).is_some_and(|word| word == "thread");
    let job = memonet::init()?;
    if job.npes() < 2 {
        return Err(Error::misuse("messages go from PE 1 to PE 0: start it with -n 2"));
    }
    run(&job, bytes, count, by_thread.then(|| Duration::from_millis(tick)))
}
