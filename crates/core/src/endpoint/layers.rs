//! State that the layers above keep for each PE.
//!
//! The endpoint is the lowest layer and knows none above it, but lives as long as everything that
//! belongs to the PE. So each layer above keeps its own state here, by type, and is the only one
//! that names that type.

pub(crate) use super::typed::Layers;

use super::pe::Pe;
use std::any::Any;

/// The state of one layer.
pub(crate) trait Layer: Any + Send + Sync {
    /// The initial state. Two threads may both make one at first; one of them is dropped.
    fn new(pe: &Pe) -> Self;
}

impl Pe {
    /// The state that a layer keeps for this PE.
    #[inline]
    pub(crate) fn layer<T: Layer>(&self) -> &T {
        self.layers().get(|| T::new(self))
    }
}
