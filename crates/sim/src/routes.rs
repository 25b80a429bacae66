//! A switch's table of routes: the port for each destination.

use std::ops::Range;

/// A table of routes. Destinations ("places") are numbers. The table keeps one entry for a run of
/// places with one port, so that it stays small in a network of very many nodes.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// Runs in order: the first place of each, and its port, if it has one.
    runs: Vec<(u32, Option<u16>)>,
}

impl Routes {
    /// The port for a place, if there is an entry.
    pub fn port(&self, place: u32) -> Option<u16> {
        let run = self.runs.partition_point(|&(first, _)| first <= place).checked_sub(1)?;
        self.runs[run].1
    }

    /// Sets the port for all of these places, or removes their entries.
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
