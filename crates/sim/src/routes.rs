//! A switch's table: by which port a packet leaves, by where it goes.

use std::ops::Range;

/// The table. Places are numbers; of those that lie side by side and leave by one port only the
/// first is written down, so that tables of networks of very many nodes stay small.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// From which place on, up to the next of them, it is this port, or none. In order.
    runs: Vec<(u32, Option<u16>)>,
}

impl Routes {
    /// The port for a place, if there is an entry.
    pub fn port(&self, place: u32) -> Option<u16> {
        let run = self.runs.partition_point(|&(first, _)| first <= place).checked_sub(1)?;
        self.runs[run].1
    }

    /// Makes it this port for all of these places, or takes their entries away.
    pub fn set(&mut self, places: Range<u32>, port: Option<u16>) {
        if places.is_empty() {
            return;
        }
        let after = self.port(places.end);
        let from = self.runs.partition_point(|&(first, _)| first < places.start);
        let to = self.runs.partition_point(|&(first, _)| first <= places.end);
        self.runs.splice(from..to, [(places.start, port), (places.end, after)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn against_a_plain_array(steps in proptest::collection::vec((0u32..40, 0u32..40, proptest::option::of(0u16..4)), 0..30)) {
            let mut routes = Routes::default();
            let mut plain = [None; 50];
            for (start, end, port) in steps {
                routes.set(start..end, port);
                (start..end).for_each(|place| plain[place as usize] = port);
                let all: Vec<_> = (0..50).map(|place| routes.port(place)).collect();
                prop_assert_eq!(&all, &plain);
            }
        }
    }
}
