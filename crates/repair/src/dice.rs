//! Random numbers that a test can repeat.

use crate::config::Config;

/// A generator of random numbers (splitmix64). The seed determines all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(config: &Config, number: u16) -> Self {
        Dice(
            config.job
                ^ u64::from(config.channel) << 32
                ^ u64::from(config.epoch) << 16
                ^ u64::from(number),
        )
    }

    /// A number from `least` to `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        if least >= most {
            return least;
        }
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        least + (z ^ z >> 31) % (most - least + 1)
    }
}
