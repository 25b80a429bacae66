//! Distributed shared memory: data that all PEs use as if they lay in one memory. Access is by
//! guards, never by page faults.
//!
//! | | consistency | what a PE sees |
//! |---|---|---|
//! | [`Mutex`] | entry: the lock owns its data | a guard is the only way to the data; its holder sees what all earlier holders wrote |
//! | [`RwLock`] | entry | as for a [`Mutex`]; several readers hold it at once |
//! | [`Region`] | release | a PE that has [acquired](Region::acquire) sees what other PEs [released](Region::release) before |
//!
//! All three are made of windows, waits and, where PEs are far, the fabric's atomics; they know no
//! fabric.
//!
//! **Near**, the data lie in shared memory beside the lock. Guards refer to them in place, and
//! nothing is copied or sent.
//!
//! **Far**, each PE has a copy. The data of a [`Mutex`] move to the PE that locks it, and stay
//! there: until another PE wants them, locking again costs no message. The data of a [`RwLock`],
//! and of a mutex [with a shadow](Mutex::with_shadow), have a home: a lock brings what other PEs
//! have changed since, and a release takes home what this PE has changed. In both cases only
//! changed parts travel, except for small data.
//!
//! # What a death does
//!
//! | which PE died | the other PEs | the data |
//! |---|---|---|
//! | a PE that neither held nor waited | locks that need not wait go on; locks that wait get [`PeerFailed`](Error::PeerFailed), as every wait does | as they were |
//! | a PE that waited | the PE behind it in the queue gets `PeerFailed`, for ever | [`Mutex::into_released`] |
//! | a PE that read, of a reader-writer lock | writers get `PeerFailed`, for ever; readers go on | as they were |
//! | the holder, or the far home of the data | all get `PeerFailed`, for ever | near: perhaps half changed, to be had by [`Mutex::into_torn`]; near with a shadow, and with a far home: the last released version, where the memory of that home can be read |
//! | the PE that had a far mutex without a shadow, in use or not | in use: all get `PeerFailed`, for ever; otherwise they go on while its memory can be read | the last released version, if the memory of the dead PE can be read (it can in a simulation, and on one node); else the last version that another PE has got |
//! | a PE that panicked while it held the guard, and lives on | near: all get `PeerFailed` with [`Cause::Panic`], for ever; far: they go on | near: as after the death of the holder; far: no PE has seen what was not released |
//!
//! A guard gives `&T` and `&mut T` into memory that other processes have mapped. That is sound
//! because the lock excludes them: another PE that goes through this library touches the data only
//! with a guard of its own.

mod data;
mod diff;
mod homed;
mod migratory;
mod mutex;
mod near;
mod protocol;
pub mod region;
mod rwlock;

pub use crate::endpoint::recorder::objects::Stats;
pub use data::Data;
pub use mutex::{Guard, Mutex};
pub use region::{Placement, Reading, Region, RegionOptions, Writing};
pub use rwlock::{LockOptions, ReadGuard, RwLock, WriteGuard};

use crate::base::digest::Digest;
use crate::base::element::ElementName;
use crate::base::error::{Cause, Error, Result};
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder::objects::ObjectKind;
use crate::job::Job;
use crate::job::agree::KIND_SHARED;
use crate::window::{Window, WindowOptions, WindowTerms};
use data::{CacheLine, LINE};

/// The home of the object at `offset`: the PE whose part has the words that exist once.
/// Neighbouring objects get different homes.
fn home_of(offset: u64, npes: usize) -> usize {
    let spread = (offset / 128).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((spread * npes as u64) >> 32) as usize
}

/// Makes the window of a shared object. `start` gets its offset and may write to it before any PE
/// can use it; all else is zero. `terms` begin with a length, and an alignment or a size. PEs that
/// give different kinds or terms all get an error. *Collective.*
fn window(
    job: &Job,
    kind: ObjectKind,
    bytes: usize,
    terms: &[usize],
    name: ElementName,
    start: impl FnOnce(u64),
) -> Result<Window<CacheLine>> {
    let terms = WindowTerms {
        kind: KIND_SHARED,
        shape: (kind as u64) << 56 | (terms[0] as u64) << 16 >> 8 | u64::from(terms[1].ilog2()),
        more: 0,
        digest: Digest::new().word(kind as u64).words(terms).pair(),
        made: std::panic::Location::caller(),
    };
    job.window_of(terms, bytes.div_ceil(LINE), WindowOptions::new().elements(name), start)
}

/// The error of calls after a panic; `number` is the poison word: number + 1 of the PE.
fn panicked(number: u32) -> Error {
    Error::PeerFailed { pe: number as usize - 1, cause: Cause::Panic, host: None, call: None }
}

/// The error of a rescue by the holder itself.
fn held_here() -> Error {
    Error::misuse("this PE holds the data: drop its guard first")
}

/// Refuses a rescue where no PE has gone or panicked.
fn check_broken(pe: &Pe, poisoned: bool) -> Result<()> {
    if poisoned || (0..pe.npes()).any(|other| pe.control().state(other).departed().is_some()) {
        return Ok(());
    }
    Err(Error::misuse(
        "all PEs that may have these data live: lock them; into_torn and into_released are for after a death",
    ))
}
