//! Updates of words that PEs have asked core processors for.

use crate::host::{Answer, Atomic};
use crate::op::Op;
use crate::time::Ps;
use memonet_core::unstable::fabric::FarAddress;
use std::collections::BTreeMap;

/// An update that a PE has asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub at: FarAddress,
    pub size: u8,
    pub what: Atomic,
    /// The answer, for a call that waits for it.
    pub answer: Option<Answer>,
}

/// The updates of one PE that nobody waits for and that are not carried out yet, and the fences
/// that wait for them.
#[derive(Debug, Clone, Default)]
pub struct Owed {
    pub updates: u64,
    /// When the PE has heard of all that are carried out.
    pub heard: Ps,
    pub fences: Vec<Op>,
}

/// All updates under way.
#[derive(Debug, Default)]
pub struct Updates {
    /// By their calls.
    pub asked: BTreeMap<Op, Update>,
    /// By PE.
    pub owed: BTreeMap<u32, Owed>,
}
