//! Values of different types, one of each, found by type.

use std::any::{Any, TypeId};
use std::sync::OnceLock;

/// The most values: more than there are layers.
const PLACES: usize = 16;

/// The values, in the order in which they came. None is ever removed. The first is found with one
/// comparison, and no lookup makes a virtual call: waits of PEs that share a CPU use this, and each
/// page that they touch is a cache miss after every change of processes.
#[derive(Default)]
pub(crate) struct Layers([OnceLock<Value>; PLACES]);

/// A value and its type.
struct Value(TypeId, Box<dyn Any + Send + Sync>);

impl Value {
    #[inline]
    fn get<T: Any>(&self) -> Option<&T> {
        let known = std::ptr::from_ref(&*self.1).cast::<T>();
        // SAFETY: `add` has stored the box beside the id of its value's type, which is `T`.
        (self.0 == TypeId::of::<T>()).then(|| unsafe { &*known })
    }
}

impl Layers {
    /// The value of this type. Makes it if there is none.
    #[inline]
    pub(crate) fn get<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let known = self.0.iter().map_while(OnceLock::get).find_map(Value::get);
        known.unwrap_or_else(|| self.add(Box::new(make())))
    }

    #[cold]
    fn add<T: Any + Send + Sync>(&self, value: Box<T>) -> &T {
        let mut value = Some(Value(TypeId::of::<T>(), value));
        for place in &self.0 {
            let taken = place.get_or_init(|| value.take().expect("initialised once"));
            // Another thread may have come first, with a value of this or of another type.
            if let Some(found) = taken.get() {
                return found;
            }
        }
        unreachable!("there are at most {PLACES} values")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_type_has_one_value_for_all_threads() {
        for _ in 0..200 {
            let values = Layers::default();
            let (a, b) = std::thread::scope(|scope| {
                let ask = || {
                    values.get(|| AtomicU32::new(0)).fetch_add(1, Ordering::Relaxed);
                    values.get(|| "text");
                    std::ptr::from_ref(values.get(|| 5u8)) as usize
                };
                let other = scope.spawn(ask);
                (ask(), other.join().unwrap())
            });
            assert_eq!(a, b);
            assert_eq!(values.get(|| AtomicU32::new(9)).load(Ordering::Relaxed), 2);
            assert_eq!((*values.get(|| ""), *values.get(|| 7u8)), ("text", 5));
        }
    }
}
