//! What reductions and scans combine elements with.

use crate::base::shm::Plain;
use crate::endpoint::fabric::WordOperator;

/// A way to combine two elements into one. It must be associative, because a collective combines in
/// the order of ranks but in groups.
///
/// OpenSHMEM: the `sum`, `max`, ... in a reduction's name; MPI: `MPI_Op`.
pub trait Operator<T>: Copy {
    /// Combines `lower`, the combination of lower ranks, with `higher`, an element of a higher
    /// rank.
    fn combine(self, lower: T, higher: T) -> T;

    /// The operation on integers that this is, for networks that make it by themselves. `None`
    /// where elements are no integers or networks do not know it.
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

/// The sum; of integers, wrapping. MPI: `MPI_SUM`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum;
/// The product; of integers, wrapping. MPI: `MPI_PROD`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Product;
/// The smallest; if one of two floating-point numbers is NaN, the other. MPI: `MPI_MIN`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Min;
/// The largest; if one of two floating-point numbers is NaN, the other. MPI: `MPI_MAX`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Max;
/// Bitwise and. MPI: `MPI_BAND`.
#[derive(Debug, Clone, Copy, Default)]
pub struct And;
/// Bitwise or. MPI: `MPI_BOR`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Or;
/// Bitwise exclusive or. MPI: `MPI_BXOR`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Xor;
/// An associative function of the program's own. MPI: `MPI_Op_create`.
///
/// ```
/// # use memonet_core::{By, Job};
/// # Job::threads(3, |job| -> memonet_core::Result<()> {
/// let window = job.window::<[i32; 2]>(1)?;
/// window.write(0, [job.pe() as i32, -(job.pe() as i32)]);
/// let all = window.span(0..1)?;
/// let range = By(|a: [i32; 2], b: [i32; 2]| [a[0].max(b[0]), a[1].min(b[1])]);
/// job.world().all_reduce(range, all, all)?;
/// assert_eq!(window.read(0), [2, -2]);
/// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct By<F>(pub F);

impl<T, F: Fn(T, T) -> T + Copy> Operator<T> for By<F> {
    #[inline]
    fn combine(self, lower: T, higher: T) -> T {
        (self.0)(lower, higher)
    }
}

/// A number whose zero is all zero bytes. Exclusive scans begin with it.
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
