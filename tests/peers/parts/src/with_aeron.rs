//! Aeron: a stream of its IPC channel, with the log buffers that it has by default.

use crate::channels::{Read, Write};
use anyhow::{Result, anyhow};
use rusteron_media_driver::*;
use std::ffi::CString;
use std::fmt::Debug;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
/// As Aeron's own throughput samples have it.
const FRAGMENTS: u64 = 10;

/// The most words of a message that is one frame, in the largest unit that a channel may have,
/// 65,504 bytes with a header of 32. Longer messages could not be claimed.
pub const MOST_WORDS: usize = (65_504 - 32) / 8;

pub struct Sender(AeronExclusivePublication);

pub struct Receiver(AeronSubscription);

fn plain(error: impl Debug) -> anyhow::Error {
    anyhow!("Aeron: {error:?}")
}

/// The driver, in a process of its own, until that is killed. One thread: it has no network to
/// serve, and no CPU of its own.
pub fn driver(directory: &str) -> Result<()> {
    let context = AeronDriverContext::new().map_err(plain)?;
    context.set_dir(&CString::new(directory)?).map_err(plain)?;
    context.set_dir_delete_on_start(true).map_err(plain)?;
    let shared = bindings::aeron_threading_mode_t::AERON_THREADING_MODE_SHARED;
    context.set_threading_mode(shared).map_err(plain)?;
    let driver = AeronDriver::new(&context).map_err(plain)?;
    driver.start(true).map_err(plain)?;
    loop {
        driver.main_idle_strategy(driver.main_do_work().map_err(plain)?);
    }
}

pub fn client(directory: &str) -> Result<Aeron> {
    let context = AeronContext::new().map_err(plain)?;
    context.set_dir(&CString::new(directory)?).map_err(plain)?;
    let aeron = Aeron::new(&context).map_err(plain)?;
    aeron.start().map_err(plain)?;
    Ok(aeron)
}

/// Large messages have a unit in which they are one frame.
fn channel(len: usize) -> CString {
    let channel = if len > 100 { "aeron:ipc?mtu=65504" } else { "aeron:ipc" };
    CString::new(channel).expect("no zero byte")
}

pub fn sender(aeron: &Aeron, stream: i32, len: usize) -> Result<Sender> {
    let publication = aeron.async_add_exclusive_publication(&channel(len), stream);
    Ok(Sender(publication.map_err(plain)?.poll_blocking(PATIENCE).map_err(plain)?))
}

pub fn receiver(aeron: &Aeron, stream: i32, len: usize) -> Result<Receiver> {
    let none = (Handlers::NONE, Handlers::NONE);
    let subscription = aeron.async_add_subscription(&channel(len), stream, none.0, none.1);
    Ok(Receiver(subscription.map_err(plain)?.poll_blocking(PATIENCE).map_err(plain)?))
}

/// What the writer does until there is room.
fn until_taken<T>(mut offer: impl FnMut() -> Result<T, AeronOfferError>) -> Result<T> {
    loop {
        match offer() {
            Ok(done) => return Ok(done),
            Err(error) if error.is_retryable() => std::hint::spin_loop(),
            Err(error) => return Err(plain(error)),
        }
    }
}

impl Write for Sender {
    fn copied(&mut self, message: &[u64]) -> Result<()> {
        // SAFETY: any words are bytes, eight times as many.
        let bytes =
            unsafe { std::slice::from_raw_parts(message.as_ptr().cast(), size_of_val(message)) };
        until_taken(|| self.0.offer(bytes)).map(|_| ())
    }

    fn in_place(&mut self, len: usize, word: u64) -> Result<()> {
        let mut claim = until_taken(|| self.0.try_claim_owned(8 * len))?;
        let bytes = claim.data();
        assert!(bytes.as_ptr().cast::<u64>().is_aligned() && bytes.len() == 8 * len);
        // SAFETY: memory of so many words, aligned; any bytes are words.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<u64>(), len) }.fill(word);
        claim.commit().map_err(plain)?;
        Ok(())
    }
}

impl Read for Receiver {
    fn messages(&mut self, most: u64, see: &mut impl FnMut(&[u64])) -> Result<u64> {
        let look = |bytes: &[u8], _: AeronHeader| {
            assert!(bytes.as_ptr().cast::<u64>().is_aligned());
            // SAFETY: aligned, and any bytes are words.
            see(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 8) });
        };
        Ok(self.0.poll_fn(look, most.min(FRAGMENTS) as usize).map_err(plain)? as u64)
    }
}
