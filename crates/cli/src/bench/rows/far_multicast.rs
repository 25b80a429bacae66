//! The row of a multicast channel from PE 0 to all PEs of all other hosts.

use std::time::Instant;

use anyhow::{Result, ensure};
use memonet::MulticastOptions;

use crate::bench::raw::group::RawGroup;
use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender};

/// Bytes of a sample: many times those of a ring.
const BYTES: usize = 16 << 20;
const SAMPLES: usize = 3;
const LIMIT: &str = "bare datagrams that nobody repairs";

/// Bytes in a second of a channel to all other PEs, by PE 0's clock: until the last has come.
pub fn bandwidth(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    let readers: Vec<usize> = (1..job.npes()).collect();
    let mut channel = job.multicast::<u64>(0, &readers, MulticastOptions::new())?;
    let raw = RawGroup::meet(bench)?;
    let bytes = bench.effort.of(BYTES);
    for row in rows {
        let (block, mut buffer) = (vec![1u64; row.size / size_of::<u64>()], Vec::new());
        let blocks = bytes.div_ceil(row.size);
        let library = || {
            let mut samples = Vec::new();
            for _ in 0..SAMPLES {
                job.barrier()?;
                let begun = Instant::now();
                for _ in 0..blocks {
                    if job.pe() == 0 {
                        channel.publish(&block)?;
                        continue;
                    }
                    channel.recv(&mut buffer)?;
                    ensure!(buffer.len() == block.len(), "{} words arrived", buffer.len());
                }
                job.barrier()?;
                samples.push((blocks * row.size) as f64 / begun.elapsed().as_secs_f64() / 1e6);
            }
            Ok(if job.pe() == 0 { samples } else { Vec::new() })
        };
        let limit = || {
            let mut samples = Vec::new();
            for _ in 0..SAMPLES {
                job.barrier()?;
                if let Some(raw) = &raw {
                    samples.extend(raw.stream(bytes)?.map(|rate| rate / 1e6));
                }
            }
            job.barrier()?;
            Ok(samples)
        };
        bench
            .interleave(row, &mut [Contender::library(library), Contender::limit(LIMIT, limit)])?;
    }
    Ok(())
}
