//! What the waits of a PE remember from one to the next.

use super::polling::Polling;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

pub(crate) struct Waits {
    /// Tests that have failed in a row.
    pub(super) failed_tests: AtomicU32,
    /// Recognises a program that polls, where this PE shares its CPU and waits yield.
    pub(super) polling: Option<Box<Polling>>,
    /// Which member a wait last found missing among those who share its CPU.
    pub(super) missed: AtomicUsize,
    /// Whether it has just heard from a PE of its CPU, and told nothing in return.
    pub(super) follows: AtomicBool,
}

impl Layer for Waits {
    fn new(pe: &Pe) -> Self {
        Waits {
            failed_tests: AtomicU32::new(0),
            polling: pe.polls().then(Default::default),
            missed: AtomicUsize::new(0),
            follows: AtomicBool::new(false),
        }
    }
}

impl Pe {
    #[inline]
    pub(super) fn waits(&self) -> &Waits {
        self.layer()
    }
}
