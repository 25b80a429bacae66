//! A program for tests of timelines, which makes each call a known number of times: so many rounds
//! as its argument says. The last argument, if there is one, is how it ends.

use memonet::{Cmp, SignalOp, Sum};

fn main() -> memonet::Result<()> {
    let job = memonet::init()?;
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(3);
    let how = arguments.next();
    let (me, n) = (job.pe(), job.npes());
    let next = (me + 1) % n;
    let words = job.window::<u64>(4)?;
    let block = job.window::<u8>(4096)?;
    let ready = job.window::<u64>(1)?;
    let right = words.remote(next, 0)?;
    let bytes = vec![me as u8; 4096];
    for round in 1..=rounds {
        // Computing, which is a gap.
        std::hint::black_box((0..20_000 * (me as u64 + 1)).fold(0, |sum, k| sum ^ k));
        block.put_signal(next, 0, &bytes, &ready, 0, SignalOp::Set, round)?;
        ready.wait_until(0, Cmp::Ge, round)?;
        right.store(round);
        words.wait_until(0, Cmp::Ge, round)?;
        words.remote(0, 1)?.fetch_add(1)?;
        job.barrier()?;
        job.world().all_reduce(Sum, round)?;
    }
    match how.as_deref() {
        // One is killed while the others wait for it.
        Some("kill") if me == 0 => std::process::abort(),
        Some("kill") => drop(job.barrier()),
        Some("hang") if me == 0 => std::thread::sleep(std::time::Duration::from_secs(3600)),
        Some("hang") => job.barrier()?,
        Some("threads") => std::thread::scope(|scope| {
            for thread in 0..2 {
                let put = || words.put(next, 2, &[7]).unwrap();
                let builder = std::thread::Builder::new().name(format!("worker {thread}"));
                builder.spawn_scoped(scope, put).unwrap();
            }
        }),
        _ => {}
    }
    job.barrier()
}
