//! State that the layers above keep for each PE.
//!
//! The endpoint is at the bottom and knows nobody above it, but lives as long as everything that
//! belongs to the PE. So each layer above leaves its own state here, by type, and is the only one
//! that names that type.

use super::pe::Pe;
use std::any::Any;
use std::sync::OnceLock;

/// The state of one layer.
pub(crate) trait Layer: Any + Send + Sync {
    /// Its beginning. Two threads may both make one at first; one of them is dropped.
    fn new(pe: &Pe) -> Self;
}

/// More layers than there are.
const PLACES: usize = 16;

/// What layers have left: filled from the first place on, and nothing is ever taken away.
#[derive(Default)]
pub(crate) struct Layers([OnceLock<Box<dyn Any + Send + Sync>>; PLACES]);

impl Layers {
    /// The state of this type, made now if there is none.
    #[inline]
    pub(crate) fn get<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let known = self.0.iter().map_while(OnceLock::get).find_map(|any| any.downcast_ref());
        known.unwrap_or_else(|| self.add(Box::new(make())))
    }

    #[cold]
    fn add<T: Any + Send + Sync>(&self, state: Box<T>) -> &T {
        let mut state: Option<Box<dyn Any + Send + Sync>> = Some(state);
        for place in &self.0 {
            let taken = place.get_or_init(|| state.take().expect("initialised once"));
            // Another thread may have been first, with a state of this or of another type.
            if let Some(found) = taken.downcast_ref() {
                return found;
            }
        }
        unreachable!("there are at most {PLACES} layers")
    }
}

impl Pe {
    /// What a layer keeps for this PE.
    #[inline]
    pub(crate) fn layer<T: Layer>(&self) -> &T {
        self.layers().get(|| T::new(self))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_type_has_one_state_whoever_asks() {
        for _ in 0..200 {
            let layers = Layers::default();
            let (a, b) = std::thread::scope(|scope| {
                let ask = || {
                    layers.get(|| AtomicU32::new(0)).fetch_add(1, Ordering::Relaxed);
                    layers.get(|| "text");
                    std::ptr::from_ref(layers.get(|| 5u8)) as usize
                };
                let other = scope.spawn(ask);
                (ask(), other.join().unwrap())
            });
            assert_eq!(a, b);
            assert_eq!(layers.get(|| AtomicU32::new(9)).load(Ordering::Relaxed), 2);
            assert_eq!((*layers.get(|| ""), *layers.get(|| 7u8)), ("text", 5));
        }
    }
}
