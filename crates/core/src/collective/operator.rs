//! Operators: how reductions and scans combine elements.

use crate::base::error::Result;
use crate::base::shm::Plain;
use crate::base::shows;
use crate::endpoint::fabric::WordOperator;
use std::ops::Range;

/// Which ranks get which combination of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// All ranks get the total.
    All,
    /// This rank gets the total.
    Root(usize),
    /// Each rank gets the total of the lower ranks and itself.
    Inclusive,
    /// Each rank gets the total of the lower ranks; the first rank gets zeros.
    Exclusive,
}

/// Elements as bytes: the size of one, and how a run of elements is combined into another.
pub struct Elements<'a> {
    /// Bytes of an element.
    pub size: usize,
    /// Combines `count` elements at the second address into those at the first; both are aligned
    /// private memory.
    pub combine: &'a dyn Fn(*mut u8, *const u8, usize),
    /// The operation, where the elements are numbers and a network may know it.
    pub numbers: Option<Numbers>,
}

shows!([] Elements<'_> as "Elements", |it| size = it.size, numbers = it.numbers);

impl Elements<'_> {
    /// Combines the blocks of `ranks`, in this order, and gives the address of the total. `load`
    /// copies the block of a rank to private memory; `each` then gets what a scan gives that rank.
    /// Without ranks, the total of an exclusive scan is zeros. A rank's block is loaded before its
    /// result is given, as both may be the same memory.
    ///
    /// # Safety
    /// Both of `scratch` are aligned private memory of `bytes` bytes, and `load` fills it.
    #[inline]
    pub(super) unsafe fn combine_ranks(
        &self,
        goal: Goal,
        ranks: Range<usize>,
        bytes: usize,
        [mut sum, mut next]: [*mut u8; 2],
        mut load: impl FnMut(usize, *mut u8) -> Result<()>,
        mut each: impl FnMut(usize, *const u8) -> Result<()>,
    ) -> Result<*const u8> {
        if goal == Goal::Exclusive {
            // SAFETY: as the caller promises.
            unsafe { sum.write_bytes(0, bytes) };
        }
        for rank in ranks.clone() {
            load(rank, next)?;
            if goal == Goal::Exclusive {
                each(rank, sum)?;
            }
            if rank == ranks.start {
                std::mem::swap(&mut sum, &mut next);
            } else {
                (self.combine)(sum, next, bytes / self.size);
            }
            if goal == Goal::Inclusive {
                each(rank, sum)?;
            }
        }
        Ok(sum)
    }
}

/// A way to combine two elements into one. It must be associative: a collective combines elements
/// in the order of ranks, but in groups.
///
/// OpenSHMEM: the `sum`, `max`, ... in a reduction's name; MPI: `MPI_Op`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not combine `{T}`",
    label = "no operator for `{T}`",
    note = "sums, products, minima and maxima are of numbers, `And`, `Or` and `Xor` of integers; for other types write `By(|lower, higher| ...)`, and for several numbers the function of the same name with `_slice`"
)]
pub trait Operator<T>: Copy {
    /// Combines `lower`, the combination of lower ranks, with `higher`, an element of a higher
    /// rank.
    fn combine(self, lower: T, higher: T) -> T;

    /// The operation on numbers that this is, for networks that make collectives. `None` where
    /// elements are no numbers or networks do not know the operation.
    fn numbers(self) -> Option<Numbers> {
        None
    }
}

/// Elements that are integers of 1, 2, 4 or 8 bytes or floating-point numbers of 4 or 8, and how
/// they are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The operation on the numbers, widened to 64 bits.
    pub operator: WordOperator,
    /// What their bits mean.
    pub kind: NumberKind,
}

/// What the bits of a number mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberKind {
    /// An integer without a sign.
    Unsigned,
    /// An integer with a sign, in two's complement.
    Signed,
    /// A floating-point number (IEEE 754).
    Float,
}

impl NumberKind {
    const fn of_integer(signed: bool) -> NumberKind {
        if signed { NumberKind::Signed } else { NumberKind::Unsigned }
    }
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
/// job.world().all_reduce_into(range, all, all)?;
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

/// A number whose zero is all zero bytes. Exclusive scans begin with this zero.
pub trait Number: Plain {}

macro_rules! kind_of {
    (f32) => {
        NumberKind::Float
    };
    (f64) => {
        NumberKind::Float
    };
    ($t:tt) => {
        NumberKind::of_integer(<$t>::MIN != 0)
    };
}

macro_rules! operators {
    ($($operator:ident $a:ident $b:ident $combined:expr, $words:expr, for $types:tt;)*) => {
        $(operators!(@ $operator $a $b $combined; $words; $types);)*
    };
    (@ $operator:ident $a:ident $b:ident $combined:expr; $words:expr; ($($t:tt)*)) => {$(
        impl Operator<$t> for $operator {
            #[inline]
            fn combine(self, $a: $t, $b: $t) -> $t {
                $combined
            }

            #[inline]
            fn numbers(self) -> Option<Numbers> {
                let operator: Option<WordOperator> = $words;
                operator.map(|operator| Numbers { operator, kind: kind_of!($t) })
            }
        }
    )*};
}

operators! {
    Sum a b a.wrapping_add(b), Some(WordOperator::Add), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Product a b a.wrapping_mul(b), None, for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Min a b a.min(b), Some(WordOperator::Min), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Max a b a.max(b), Some(WordOperator::Max), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Min a b a.min(b), Some(WordOperator::Min), for (f32 f64);
    Max a b a.max(b), Some(WordOperator::Max), for (f32 f64);
    And a b a & b, Some(WordOperator::And), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Or a b a | b, Some(WordOperator::Or), for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Xor a b a ^ b, None, for (u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
    Sum a b a + b, Some(WordOperator::AddSingle), for (f32);
    Sum a b a + b, Some(WordOperator::AddDouble), for (f64);
    Product a b a * b, None, for (f32 f64);
}

macro_rules! numbers {
    ($($t:ty)*) => {$(impl Number for $t {})*};
}
numbers!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64);
