//! Distributed shared memory: data that all PEs use as if they lay in one memory, with explicit
//! calls and no page faults.
//!
//! | | consistency | who sees what |
//! |---|---|---|
//! | [`Mutex`] | entry: the lock owns its data | a guard is the only way to the data, and whoever has one sees what all earlier ones wrote |
//! | [`RwLock`] | entry | the same; readers are in together |
//! | [`Region`] | release | whoever has [acquired](Region::acquire) sees what others [released](Region::release) before |
//!
//! All are made of windows, waits and, where PEs are far, the fabric's atomics; they know no
//! fabric.
//!
//! **Near**, the data lie in shared memory beside the lock; guards refer to them in place, and
//! nothing is copied or sent. **Far**, each PE has a copy. Those of a [`Mutex`] move to who locks
//! it, and stay there: until somebody else wants them, locking again costs no message. Those of a
//! [`RwLock`], and of a mutex [with a shadow](Mutex::with_shadow), have a home: a lock brings what
//! others have changed since; a release takes home what it has changed. In both cases only what has
//! changed travels, but for small data.
//!
//! # What a death does
//!
//! | who died | others | the data |
//! |---|---|---|
//! | somebody else | locks that need not wait go on; those that wait get [`PeerFailed`](Error::PeerFailed), as every wait does | as they were |
//! | who waited | who stands behind it gets `PeerFailed`, for ever | [`Mutex::into_released`] |
//! | who read, of a reader-writer lock | those who write get `PeerFailed`, for ever; those who read go on | as they were |
//! | who held it, or their far home | all get `PeerFailed`, for ever | near: perhaps half changed, to be had by [`Mutex::into_torn`]; near with a shadow, and with a far home: the last released version, where the memory of that home can be read |
//! | who had a far mutex without a shadow, in use or not | in use: all get `PeerFailed`, for ever; otherwise they go on while its memory can be read | the last released version, if the memory of the dead can be read (it can in a simulation, and on one node); else the last one that somebody else has got |
//! | who panicked with it and lives on | near: all get `PeerFailed` with [`Cause::Panic`], for ever; far, they go on | near: the same; far, nobody has seen what was not released |
//!
//! A guard gives `&T` and `&mut T` into memory that other processes have mapped. That is sound as
//! the lock excludes them: whoever else goes through this library touches the data only with a
//! guard of its own.

mod chain;
mod checked;
mod data;
mod diff;
mod mutex;
mod near;
mod owned;
pub mod region;
mod rwlock;
mod shared;
pub(crate) mod stats;
mod way;

pub use crate::base::settings::ENV_STATS_FD;
pub use data::Data;
pub use mutex::{Guard, Mutex};
pub use region::{Placement, Reading, Region, RegionOptions, Writing};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use stats::Stats;

use crate::base::error::{Cause, Error, Result};
use crate::endpoint::pe::Pe;
use crate::job::Job;
use crate::job::agree::KIND_SHARED;
use crate::window::{Window, WindowOptions, WindowTerms};
use data::{LINE, Line};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The PE in whose part words at `offset` are that exist once: those of objects that lie together
/// are spread.
fn home_of(offset: u64, npes: usize) -> usize {
    let spread = (offset / 128).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((spread * npes as u64) >> 32) as usize
}

/// The memory of something shared, zeros but for what `start` writes, given its offset, before any
/// PE can use it. All PEs make the same `kind` on the same `terms`, of which the first is a length
/// and the second an alignment or a size, or all hear of it. *Collective.*
fn window(
    job: &Job,
    kind: &str,
    bytes: usize,
    terms: &[usize],
    start: impl FnOnce(u64),
) -> Result<Window<Line>> {
    let mut hasher = DefaultHasher::new();
    (kind, terms).hash(&mut hasher);
    // The first two say where references may point.
    let terms = WindowTerms {
        kind: KIND_SHARED,
        shape: (terms[0] as u64) << 8 | u64::from(terms[1].ilog2()),
        digest: hasher.finish(),
    };
    job.window_of(terms, bytes.div_ceil(LINE), WindowOptions::new(), start)
}

/// The error of those who come after a panic; `number` as in the word that tells of it.
fn panicked(number: u32) -> Error {
    Error::PeerFailed { pe: number as usize - 1, cause: Cause::Panic }
}

/// The error of who wants to rescue what it has itself.
fn held_here() -> Error {
    Error::Misuse("this PE holds the data: drop its guard first")
}

/// Data are rescued only where a PE has gone, or has panicked with them.
fn check_broken(pe: &Pe, poisoned: bool) -> Result<()> {
    if poisoned || (0..pe.npes()).any(|other| pe.control().state(other).departed().is_some()) {
        return Ok(());
    }
    Err(Error::Misuse(
        "all PEs that may have these data live: lock them; into_torn and into_released are for after a death",
    ))
}
