//! What reductions and scans combine elements with.

use crate::shm::Plain;

/// A way to combine two elements into one: associative, as every collective combines in the order of ranks but in groups.
pub trait Operator<T>: Copy {
    /// Combines what comes from lower ranks with what comes from a higher one.
    fn combine(self, lower: T, higher: T) -> T;
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
    ($($operator:ident $a:ident $b:ident $combined:expr, for $types:tt;)*) => {
        $(operators!(@ $operator $a $b $combined; $types);)*
    };
    (@ $operator:ident $a:ident $b:ident $combined:expr; ($($t:ty)*)) => {$(
        impl Operator<$t> for $operator {
            #[inline]
            fn combine(self, $a: $t, $b: $t) -> $t {
                $combined
            }
        }
    )*};
}

operators! {
    Sum a b a.wrapping_add(b), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Product a b a.wrapping_mul(b), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Min a b a.min(b), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64);
    Max a b a.max(b), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64);
    And a b a & b, for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Or a b a | b, for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Xor a b a ^ b, for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Sum a b a + b, for (f32 f64);
    Product a b a * b, for (f32 f64);
}

macro_rules! numbers {
    ($($t:ty)*) => {$(impl Number for $t {})*};
}
numbers!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64);
