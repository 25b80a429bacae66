//! What a shared object has cost.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a PE has done with an object so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Times that it was locked, or that a range was asked for.
    pub uses: u64,
    /// Those of them that needed nothing from another PE.
    pub hits: u64,
    /// Times that it came here from another PE.
    pub handovers: u64,
    /// Operations on the fabric: stores, puts, gets, atomics.
    pub messages: u64,
    /// Bytes of data that these moved, from and to this PE.
    pub bytes: u64,
}

/// Counters of one object. Each is changed by threads that exclude each other, or loses a count now and then: no locked
/// instructions for what nobody relies on.
#[derive(Default)]
pub(super) struct Counters {
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
