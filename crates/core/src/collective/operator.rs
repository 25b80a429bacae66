//! What reductions and scans combine elements with.

use crate::base::shm::Plain;
use crate::endpoint::fabric::WordOperator;

/// A way to combine two elements into one: associative, as every collective combines in the order
/// of ranks but in groups.
pub trait Operator<T>: Copy {
    /// Combines what comes from lower ranks with what comes from a higher one.
    fn combine(self, lower: T, higher: T) -> T;

    /// What this is to elements that are integers, where a network may know it, too. `None` for all
    /// others.
    fn integers(self) -> Option<Integers> {
        None
    }
}

/// Elements that are integers of 1, 2, 4 or 8 bytes, and how they are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Integers {
    /// What is done to them, widened to 64 bits.
    pub operator: WordOperator,
    /// Whether they have a sign.
    pub signed: bool,
}

/// The sum; of integers, wrapping.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum;
/// The product; of integers, wrapping.
#[derive(Debug, Clone, Copy, Default)]
pub struct Product;
/// The smallest; of floating-point numbers, the one that is a number.
#[derive(Debug, Clone, Copy, Default)]
pub struct Min;
/// The largest; of floating-point numbers, the one that is a number.
#[derive(Debug, Clone, Copy, Default)]
pub struct Max;
/// Bitwise and.
#[derive(Debug, Clone, Copy, Default)]
pub struct And;
/// Bitwise or.
#[derive(Debug, Clone, Copy, Default)]
pub struct Or;
/// Bitwise exclusive or.
#[derive(Debug, Clone, Copy, Default)]
pub struct Xor;
/// An associative function of one's own.
#[derive(Debug, Clone, Copy)]
pub struct By<F>(pub F);

impl<T, F: Fn(T, T) -> T + Copy> Operator<T> for By<F> {
    #[inline]
    fn combine(self, lower: T, higher: T) -> T {
        (self.0)(lower, higher)
    }
}

/// A number whose zero is all zero bytes: what exclusive scans begin with.
pub trait Number: Plain {}

macro_rules! operators {
    ($($operator:ident $a:ident $b:ident $combined:expr, $words:expr, for $types:tt;)*) => {
        $(operators!(@ $operator $a $b $combined; $words; $types);)*
    };
    (@ $operator:ident $a:ident $b:ident $combined:expr; $words:expr; ($($t:ty)*)) => {$(
        impl Operator<$t> for $operator {
            #[inline]
            fn combine(self, $a: $t, $b: $t) -> $t {
                $combined
            }

            #[inline]
            fn integers(self) -> Option<Integers> {
                let operator: Option<WordOperator> = $words;
                operator.map(|operator| Integers { operator, signed: <$t>::MIN != <$t>::default() })
            }
        }
    )*};
}

operators! {
    Sum a b a.wrapping_add(b), Some(WordOperator::Add), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Product a b a.wrapping_mul(b), None, for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Min a b a.min(b), Some(WordOperator::Min), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Max a b a.max(b), Some(WordOperator::Max), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Min a b a.min(b), None, for (f32 f64);
    Max a b a.max(b), None, for (f32 f64);
    And a b a & b, Some(WordOperator::And), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Or a b a | b, Some(WordOperator::Or), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Xor a b a ^ b, None, for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Sum a b a + b, None, for (f32 f64);
    Product a b a * b, None, for (f32 f64);
}

macro_rules! numbers {
    ($($t:ty)*) => {$(impl Number for $t {})*};
}
numbers!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64);
