//! Virtual time, in picoseconds. A cycle of any clock here is a whole number of picoseconds, to a
//! part in a thousand or better. A count of 64 bits lasts for 213 days.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::time::Duration;

/// A moment since the start of the run, or a length of time, in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ps(pub u64);

impl Ps {
    /// The start of the run; no time at all.
    pub const ZERO: Ps = Ps(0);
    /// Later than any other time.
    pub const NEVER: Ps = Ps(u64::MAX);
    /// No run lasts longer. It is half of what 64 bits can count, so that the sum of two times of a
    /// run is a time.
    pub const END_OF_TIME: Ps = Ps(1 << 63);

    /// A time in nanoseconds.
    pub const fn ns(ns: u64) -> Ps {
        Ps(ns * 1000)
    }

    /// A time in microseconds.
    pub const fn us(us: u64) -> Ps {
        Ps(us * 1_000_000)
    }

    /// A duration in picoseconds; [`NEVER`](Self::NEVER) when 64 bits cannot count it.
    pub fn from_duration(duration: Duration) -> Ps {
        u64::try_from(duration.as_nanos().saturating_mul(1000)).map_or(Ps::NEVER, Ps)
    }

    /// As a `Duration`, cut to nanoseconds.
    pub fn to_duration(self) -> Duration {
        Duration::from_nanos(self.0 / 1000)
    }

    /// Refuses a time that no run reaches.
    pub(crate) fn in_time(self) -> Result<(), &'static str> {
        match self < Ps::END_OF_TIME {
            true => Ok(()),
            false => Err("simulated time ends after 106 days"),
        }
    }

    /// In nanoseconds, for reports.
    pub fn as_ns(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// The time from `earlier` to this one; zero when `earlier` is later.
    pub fn since(self, earlier: Ps) -> Ps {
        Ps(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Ps {
    type Output = Ps;
    /// Saturates at [`NEVER`](Ps::NEVER).
    fn add(self, other: Ps) -> Ps {
        Ps(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Ps {
    fn add_assign(&mut self, other: Ps) {
        *self = *self + other;
    }
}

impl Sub for Ps {
    type Output = Ps;
    /// # Panics
    /// When the result would be negative.
    fn sub(self, other: Ps) -> Ps {
        Ps(self.0.checked_sub(other.0).expect("time does not run backwards"))
    }
}

impl Mul<u64> for Ps {
    type Output = Ps;
    fn mul(self, n: u64) -> Ps {
        Ps(self.0.saturating_mul(n))
    }
}

/// In nanoseconds, with as many decimals as there are.
impl fmt::Display for Ps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{} ns", self.0 / 1000),
            rest => {
                let text = format!("{}.{rest:03}", self.0 / 1000);
                write!(f, "{} ns", text.trim_end_matches('0'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_exactly() {
        assert_eq!(Ps(1_500).to_string(), "1.5 ns");
        assert_eq!(Ps(2_000_000).to_string(), "2000 ns");
        assert_eq!(Ps(7).to_string(), "0.007 ns");
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        assert_eq!(Ps::NEVER + Ps(1), Ps::NEVER);
        assert_eq!(Ps::from_duration(Duration::MAX), Ps::NEVER);
        assert_eq!(Ps::from_duration(Duration::from_nanos(3)), Ps::ns(3));
    }
}
