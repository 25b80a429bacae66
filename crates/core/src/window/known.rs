//! The restricted windows that a PE has, by key slot.

use super::Inner;
use crate::base::lock;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use std::sync::{Arc, Mutex, Weak};

/// For keys to find.
#[derive(Default)]
struct Known(Mutex<Vec<Weak<Inner>>>);

impl Layer for Known {
    fn new(_pe: &Pe) -> Self {
        Self::default()
    }
}

impl Pe {
    pub(crate) fn register_restricted(&self, window: &Arc<Inner>) {
        let slot = window.restricted().expect("the caller made a restricted window").slot();
        let mut all = lock(&self.layer::<Known>().0);
        if all.len() <= slot {
            all.resize(slot + 1, Weak::new());
        }
        all[slot] = Arc::downgrade(window);
    }

    pub(crate) fn find_restricted(&self, slot: usize) -> Option<Arc<Inner>> {
        lock(&self.layer::<Known>().0).get(slot)?.upgrade()
    }
}
