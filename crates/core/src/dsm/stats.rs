//! Counts the costs of shared objects.

use crate::base::error::{Error, Result};
use crate::base::lock;
use crate::base::settings::ENV_STATS_FD;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use rustix::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Kind and counters of each shared object that a PE has made, in that order.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Vec<(&'static str, Arc<Counters>)>>);

impl Registry {
    fn all(&self) -> MutexGuard<'_, Vec<(&'static str, Arc<Counters>)>> {
        lock(&self.0)
    }

    /// The counters of a new object.
    pub(super) fn count(&self, kind: &'static str) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        self.all().push((kind, counters.clone()));
        counters
    }
}

impl Layer for Registry {
    fn new(_pe: &Pe) -> Self {
        Self::default()
    }
}

/// Writes the counters to the launcher's descriptor, if the launcher has asked for them.
pub(crate) fn report(pe: &Pe) -> Result<()> {
    let Some(value) = std::env::var_os(ENV_STATS_FD) else {
        return Ok(());
    };
    let value = value.to_string_lossy().into_owned();
    let refused = |problem: String| Error::Environment {
        name: ENV_STATS_FD,
        value: value.clone(),
        problem,
        fix: "Unset it; `memonet run --stats` sets it for what it starts",
    };
    let fd: i32 = value
        .parse()
        .ok()
        .filter(|&fd| fd > 2)
        .ok_or_else(|| refused("is no descriptor of a launcher".into()))?;
    let mut lines = String::new();
    for (number, (kind, counters)) in pe.layer::<Registry>().all().iter().enumerate() {
        let Stats { uses, hits, handovers, messages, bytes } = counters.stats();
        lines +=
            &format!("{} {kind} {number} {uses} {hits} {handovers} {messages} {bytes}\n", pe.me());
    }
    // SAFETY: the launcher opened it for this, and nothing here closes it; a write to a closed
    // descriptor is refused by the kernel.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut rest = lines.as_bytes();
    while !rest.is_empty() {
        let written = rustix::io::write(fd, rest)
            .map_err(|error| refused(format!("cannot be written to: {error}")))?;
        rest = &rest[written..];
    }
    Ok(())
}

/// What a PE has done with a shared object so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Times that this PE locked it, or asked for a range.
    pub uses: u64,
    /// Uses that needed nothing from another PE.
    pub hits: u64,
    /// Times that it came to this PE from another one.
    pub handovers: u64,
    /// Operations on the fabric: stores, puts, gets, atomics.
    pub messages: u64,
    /// Bytes of data that these operations moved, from and to this PE.
    pub bytes: u64,
}

/// Counters of one object. They use no locked instructions: threads that do not exclude each other
/// lose a count now and then, and nothing relies on exact counts.
#[derive(Default)]
pub(crate) struct Counters {
    uses: AtomicU64,
    misses: AtomicU64,
    handovers: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
}

#[inline(always)]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Counters {
    #[inline(always)]
    pub(super) fn used(&self) {
        add(&self.uses, 1);
    }

    pub(super) fn missed(&self) {
        add(&self.misses, 1);
    }

    #[inline(always)]
    pub(super) fn handed_over(&self) {
        add(&self.handovers, 1);
    }

    pub(super) fn sent(&self, messages: usize, bytes: usize) {
        add(&self.messages, messages as u64);
        add(&self.bytes, bytes as u64);
    }

    pub(super) fn stats(&self) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let uses = of(&self.uses);
        Stats {
            uses,
            hits: uses.saturating_sub(of(&self.misses)),
            handovers: of(&self.handovers),
            messages: of(&self.messages),
            bytes: of(&self.bytes),
        }
    }
}
