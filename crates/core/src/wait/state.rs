//! What the waits of a PE remember from one to the next.

use super::answer::Born;
use super::attention::Hook;
use super::polling::Polling;
use super::pulse::Writes;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};

pub(crate) struct Waits {
    /// Tests that have failed in a row.
    pub(super) failed_tests: AtomicU32,
    /// Recognises a program that polls, where this PE shares its CPU and waits yield.
    pub(super) polling: Option<Box<Polling>>,
    /// How quickly it writes, where PEs share CPUs.
    pub(super) writes: Writes,
    /// Index of the member that a wait last found missing among those of its CPU.
    pub(super) missed: AtomicUsize,
    /// Whether the next wait had better yield first (`yield_hint.rs`).
    pub(super) yield_hint: AtomicBool,
    /// What the front end has waits run when it calls for their attention.
    pub(super) hook: Mutex<Option<Arc<Hook>>>,
    /// When the PE began to live.
    pub(super) born: Born,
}

impl Layer for Waits {
    fn new(pe: &Pe) -> Self {
        Waits {
            failed_tests: AtomicU32::new(0),
            polling: pe.polls().then(Default::default),
            writes: Writes::default(),
            missed: AtomicUsize::new(0),
            yield_hint: AtomicBool::new(false),
            hook: Mutex::new(None),
            born: Born::now(pe),
        }
    }
}

/// Makes what waits remember, before any other layer leaves its state: so it is found first.
pub(crate) fn begin(pe: &Pe) {
    pe.waits();
}

impl Pe {
    #[inline]
    pub(super) fn waits(&self) -> &Waits {
        self.layer()
    }
}
