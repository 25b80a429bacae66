//! What `Remote::store` compiles to; `tests/disassembly.rs` reads the machine code of these
//! functions.

use memonet::Remote;

/// Stores eight bytes.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn store_probe_u64(remote: &Remote<u64>, value: u64) {
    remote.store(value);
}

/// Stores one byte.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn store_probe_u8(remote: &Remote<u8>, value: u8) {
    remote.store(value);
}

fn main() -> memonet::Result<()> {
    let job = memonet::init()?;
    let words = job.window::<u64>(1)?;
    let bytes = job.window::<u8>(1)?;
    store_probe_u64(&words.remote(job.pe(), 0)?, 42);
    store_probe_u8(&bytes.remote(job.pe(), 0)?, 7);
    assert_eq!((words.read(0), bytes.read(0)), (42, 7));
    Ok(())
}
