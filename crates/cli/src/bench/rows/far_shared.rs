//! Rows of data that PEs of different hosts share. Their limit is a round trip over a bare socket:
//! a message to the other host, and one back.

use anyhow::{Result, ensure};
use memonet::dsm::{Mutex, Region};

use crate::bench::raw::stream::RawStream;
use crate::bench::row::Row;
use crate::bench::rows::far::round_trips;
use crate::bench::rows::far_meetings::timed;
use crate::bench::toolkit::{Bench, Contender};

const LIMIT: &str = "bare round trip, spinning";

/// Each PE locks a mutex once, changes its data, and unlocks; then all meet. Without the meeting, a
/// PE would keep the data for most of its turns.
pub fn mutex(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    let stream = RawStream::meet(bench)?;
    for row in rows {
        let mutex = Mutex::<[u8]>::new(job, &vec![0; row.size])?;
        against_round_trips(bench, row, stream.as_ref(), |number| {
            mutex.lock()?.fill(number as u8);
            Ok(job.barrier()?)
        })?;
    }
    Ok(())
}

/// Each PE writes its own bytes of a region, all meet, and each reads the bytes of the next.
pub fn region(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    let stream = RawStream::meet(bench)?;
    for row in rows {
        let region = Region::<u8>::new(job, row.size * job.npes())?;
        let part = |pe: usize| row.size * pe..row.size * (pe + 1);
        let (mine, next) = (part(job.pe()), part((job.pe() + 1) % job.npes()));
        let mut got = vec![0; row.size];
        against_round_trips(bench, row, stream.as_ref(), |number| {
            let bytes = vec![number as u8; row.size];
            region.write(mine.clone())?.write_from(mine.start, &bytes);
            region.barrier()?;
            region.read(next.clone())?.read_into(next.start, &mut got);
            ensure!(got == bytes, "what the next PE has released is not here");
            // Nobody writes again before all have read.
            Ok(job.barrier()?)
        })?;
    }
    Ok(())
}

fn against_round_trips(
    bench: &mut Bench<'_>,
    row: &Row,
    stream: Option<&RawStream>,
    mut once: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let (job, effort) = (bench.job, bench.effort);
    let library = || timed(job, effort, &mut once);
    let limit = || round_trips(effort, stream, row.size);
    bench.interleave(row, &mut [Contender::library(library), Contender::limit(LIMIT, limit)])
}
