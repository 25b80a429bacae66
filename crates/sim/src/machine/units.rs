//! Units that machine files may use.

use crate::time::Ps;

pub(super) const TIMES: &str = "ps, ns, us, ms, s, or \"cycles of\" a clock";
pub(super) const SIZES: &str = "B, KiB, MiB, GiB, and comes to whole bytes";
pub(super) const RATES: &str =
    "MB/s, GB/s, Mbit/s, Gbit/s or ns/B, from 1 kB/s to a byte in a femtosecond, or 0 ns/B";
/// The longest time of a machine file, 1000 s. Sums of many such times do not overflow [`Ps`].
pub(super) const LONGEST: Ps = Ps(1_000_000_000_000_000);
/// A byte's time at 1 kB/s, in femtoseconds.
const SLOWEST_FS: f64 = 1e12;

/// A rate of bytes by time, kept as the time of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    femtoseconds_per_byte: u64,
}

impl Rate {
    /// The rate at which bytes take no time.
    pub const INFINITE: Rate = Rate { femtoseconds_per_byte: 0 };

    /// The time that this many bytes take.
    pub fn time(self, bytes: u64) -> Ps {
        // Nearly always fits into a word, whose division takes a tenth of the time.
        match bytes.checked_mul(self.femtoseconds_per_byte) {
            Some(femtoseconds) => Ps(femtoseconds / 1000),
            None => Ps((u128::from(bytes) * u128::from(self.femtoseconds_per_byte) / 1000) as u64),
        }
    }

    /// Whether bytes take time at all.
    pub fn takes_time(self) -> bool {
        self != Rate::INFINITE
    }

    /// The rate of `n` lines side by side.
    pub fn times(self, n: u64) -> Rate {
        let all = self.femtoseconds_per_byte / n.max(1);
        Rate { femtoseconds_per_byte: all.max(u64::from(self.takes_time())) }
    }
}

fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && number < 2f64.powi(53)).then_some(number as u64)
}

pub(super) fn time(number: f64, unit: &str) -> Option<Ps> {
    let ps = match unit {
        "ps" => 1.0,
        "ns" => 1e3,
        "us" => 1e6,
        "ms" => 1e9,
        "s" => 1e12,
        _ => return None,
    };
    Some(Ps((number * ps).round() as u64))
}

pub(super) fn bytes(number: f64, unit: &str) -> Option<u64> {
    let shift = match unit {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    whole(number * f64::from(1u32 << shift))
}

pub(super) fn rate(number: f64, unit: &str) -> Option<Rate> {
    // Femtoseconds of a byte at a rate of 1 in this unit.
    let one = match unit {
        "MB/s" => 1e9,
        "GB/s" => 1e6,
        "Mbit/s" => 8e9,
        "Gbit/s" => 8e6,
        "ns/B" => 1e6,
        _ => return None,
    };
    if unit == "ns/B" && number == 0.0 && number.is_sign_positive() {
        return Some(Rate::INFINITE);
    }
    let femtoseconds = match unit {
        "ns/B" => number * one,
        _ => one / number,
    };
    (0.5..=SLOWEST_FS)
        .contains(&femtoseconds)
        .then(|| Rate { femtoseconds_per_byte: femtoseconds.round() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(time(22.5, "ns"), Some(Ps(22_500)));
        assert_eq!(time(1.0, "h"), None);
        assert_eq!(bytes(1.5, "KiB"), Some(1536));
        assert_eq!(bytes(0.3, "B"), None);
        assert_eq!(rate(500.0, "MB/s").unwrap().time(10), Ps::ns(20));
        assert_eq!(rate(100.0, "Gbit/s").unwrap().time(1 << 20), Ps(83_886_080));
        for no_rate in [0.0, -0.0] {
            assert_eq!(rate(no_rate, "GB/s"), None);
        }
        assert_eq!((rate(0.0, "ns/B"), rate(-0.0, "ns/B")), (Some(Rate::INFINITE), None));
        assert_eq!(rate(1e13, "Gbit/s"), None);
        assert_eq!(rate(1e6, "GB/s").unwrap().times(1 << 40).time(1000), Ps(1));
        assert_eq!(rate(1e-9, "MB/s"), None);
        assert_eq!(rate(0.02, "ns/B").unwrap().time(1000), Ps::ns(20));
        // The product in femtoseconds fits into a word, or does not.
        let slow = rate(1e-3, "MB/s").unwrap();
        for bytes in [18_446_744, 18_446_745, 1 << 32] {
            assert_eq!(slow.time(bytes), Ps(bytes * 1_000_000_000));
        }
    }
}
