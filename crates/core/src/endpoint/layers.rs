//! State that the layers above keep for each PE.
//!
//! The endpoint is at the bottom and knows nobody above it, but lives as long as everything that
//! belongs to the PE. So each layer above leaves its own state here, by type, and is the only one
//! that names that type.

use super::pe::Pe;
use std::any::{Any, TypeId};
use std::sync::OnceLock;

/// The state of one layer.
pub(crate) trait Layer: Any + Send + Sync {
    /// Its beginning. Two threads may both make one at first; one of them is dropped.
    fn new(pe: &Pe) -> Self;
}

/// More layers than there are.
const PLACES: usize = 16;

/// What layers have left: filled from the first place on, and nothing is ever taken away. The first
/// to come is found with one look, and none by a virtual call: waits of PEs that share a CPU find
/// theirs here, and each further page that they touch is read anew at every change of processes.
#[derive(Default)]
pub(crate) struct Layers([OnceLock<State>; PLACES]);

/// A layer's state, and its type.
struct State(TypeId, Box<dyn Any + Send + Sync>);

impl State {
    #[inline]
    fn get<T: Any>(&self) -> Option<&T> {
        let known = std::ptr::from_ref(&*self.1).cast::<T>();
        // SAFETY: the box holds a value of the type beside it, as `add` has put both there.
        (self.0 == TypeId::of::<T>()).then(|| unsafe { &*known })
    }
}

impl Layers {
    /// The state of this type, made now if there is none.
    #[inline]
    pub(crate) fn get<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let known = self.0.iter().map_while(OnceLock::get).find_map(State::get);
        known.unwrap_or_else(|| self.add(Box::new(make())))
    }

    #[cold]
    fn add<T: Any + Send + Sync>(&self, state: Box<T>) -> &T {
        let mut state = Some(State(TypeId::of::<T>(), state));
        for place in &self.0 {
            let taken = place.get_or_init(|| state.take().expect("initialised once"));
            // Another thread may have been first, with a state of this or of another type.
            if let Some(found) = taken.get() {
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
