//! SR2201's remote DMA, call by call: `memonet run --machine sr2201 -n 2
//! target/release/examples/command_words [BYTES]`. `sr2201/system-call` and `sr2201/interrupts` show
//! what its direct start and its spinning receiver save; command_words.c is the same in C.
//!
//! Two PEs allow each other a receive area, and pass its key on. Each builds one command word for it
//! and starts the word again and again, to and fro. At the end PE 0 takes its area back.

use memonet::{Access, Cmp, Error, Job, Key, Result, SignalOp, Window};
use std::time::Instant;

const ROUNDS: u64 = 100;
const USUAL_BYTES: usize = 8;

/// A receive area that this PE allows the others to write: data, and the flag in its last word.
/// Gives the own area, and the other PE's by the key that this has passed on.
fn areas(job: &Job, words: usize) -> Result<(Window<u64>, Window<u64>)> {
    let own = job.restricted::<u64>(words + 1, |_, _| Access::ReadWrite)?;
    let keys = job.window::<Key>(1)?;
    let other = 1 - job.pe();
    keys.put_one(other, 0, own.key()?)?;
    job.barrier()?;
    let to = job.attach(&keys.read(0))?;
    Ok((own, to))
}

/// Starts one command word again and again. Gives the time of one way, in microseconds.
fn to_and_fro(job: &Job, own: &Window<u64>, to: &Window<u64>, words: usize) -> Result<f64> {
    let (me, other) = (job.pe() as u64, 1 - job.pe());
    let source = job.window::<u64>(words)?;
    let mut word =
        to.prepare(other, 0, &source, 0..words)?.with_signal(to, words, SignalOp::Set, 1)?;
    job.barrier()?;
    let begin = Instant::now();
    for round in 1..=2 * ROUNDS {
        if round % 2 == me {
            source.fill(0..words, round);
            word.start()?;
            while !word.test()? {}
        } else {
            own.wait_until(words, Cmp::Eq, 1)?;
            own.write(words, 0);
            assert_eq!(own.read(words - 1), round, "the flag came before the data");
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / (2 * ROUNDS) as f64)
}

/// PE 0 takes its area back: what PE 1 then tries is refused, and changes nothing.
fn take_back(job: &Job, own: &Window<u64>, to: &Window<u64>) -> Result<()> {
    let before = own.to_vec();
    if job.pe() == 0 {
        own.revoke()?;
        own.revoke_wait(None)?;
    }
    job.barrier()?;
    if job.pe() == 1 {
        let refused = to.put_one(0, 0, u64::MAX);
        assert!(matches!(refused, Err(Error::Revoked { .. })), "{refused:?}");
        println!("refused: {}", refused.unwrap_err());
    }
    job.barrier()?;
    assert_eq!(own.to_vec(), before);
    Ok(())
}

fn main() -> Result<()> {
    let bytes = std::env::args().nth(1).map(|text| text.parse().expect("a number of bytes"));
    let words = bytes.unwrap_or(USUAL_BYTES).div_ceil(8).max(1);
    let job = memonet::init()?;
    if job.npes() != 2 {
        eprintln!("command_words needs two PEs: memonet run -n 2");
        std::process::exit(2);
    }
    let (own, to) = areas(&job, words)?;
    let one_way = to_and_fro(&job, &own, &to, words)?;
    if job.pe() == 0 {
        println!("one way of {} bytes: {one_way:.2} us", 8 * words);
    }
    take_back(&job, &own, &to)
}
