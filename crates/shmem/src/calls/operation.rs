//! Element types that Rust does not have, and the operators of reductions.

pub use memonet_core::{And, Max, Min, Operator, Or, Product as Prod, Sum, Xor};

/// `long double` in memory.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub struct LongDouble([u8; 16]);

/// A complex number in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    re: T,
    im: T,
}

macro_rules! complex {
    ($($t:ty)*) => {$(
        impl Operator<Complex<$t>> for Sum {
            #[inline]
            fn combine(self, a: Complex<$t>, b: Complex<$t>) -> Complex<$t> {
                Complex { re: a.re + b.re, im: a.im + b.im }
            }
        }

        impl Operator<Complex<$t>> for Prod {
            #[inline]
            fn combine(self, a: Complex<$t>, b: Complex<$t>) -> Complex<$t> {
                Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
            }
        }
    )*};
}
complex!(f32 f64);

/// Operators on two numbers of 80 bits, which the x87 unit computes.
#[cfg(target_arch = "x86_64")]
macro_rules! x87 {
    ($($operator:ident $instructions:tt;)*) => {$(
        impl Operator<LongDouble> for $operator {
            #[inline]
            fn combine(self, a: LongDouble, b: LongDouble) -> LongDouble {
                let mut result = LongDouble([0; 16]);
                x87!(@ $instructions, a, b, result);
                result
            }
        }
    )*};
    (@ ($($instruction:literal)*), $a:ident, $b:ident, $result:ident) => {
        // SAFETY: the instructions read 10 of the 16 bytes of `a` and of `b`, write 10 of `result`,
        // and leave the x87 stack empty. All x87 registers are declared as clobbered.
        unsafe {
            std::arch::asm!(
                "fld tbyte ptr [{a}]",
                "fld tbyte ptr [{b}]",
                $($instruction,)*
                "fstp tbyte ptr [{r}]",
                a = in(reg) &raw const $a, b = in(reg) &raw const $b, r = in(reg) &raw mut $result,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
x87! {
    Sum ("faddp");
    Prod ("fmulp");
    // st(0) is b, st(1) is a. A comparison with a NaN is unordered and sets all flags. If the
    // choice is a NaN, the other number replaces it, as with the other types.
    Max ("fcomi st, st(1)" "fcmovb st, st(1)" "fstp st(1)" "fld tbyte ptr [{b}]" "fxch" "fucomi st, st(0)" "fcmovu st, st(1)" "fstp st(1)");
    Min ("fcomi st, st(1)" "fcmovnbe st, st(1)" "fstp st(1)" "fld tbyte ptr [{a}]" "fxch" "fucomi st, st(0)" "fcmovu st, st(1)" "fstp st(1)");
}

/// Operators on two numbers of 128 bits. No instruction computes them, but the compiler's library
/// does.
#[cfg(target_arch = "aarch64")]
mod quad {
    use super::{LongDouble, Max, Min, Operator, Prod, Sum};
    use std::arch::aarch64::uint8x16_t;

    unsafe extern "C" {
        fn __addtf3();
        fn __multf3();
    }

    macro_rules! computed {
        ($($operator:ident $function:ident;)*) => {$(
            impl Operator<LongDouble> for $operator {
                #[inline]
                fn combine(self, a: LongDouble, b: LongDouble) -> LongDouble {
                    // SAFETY: both types have 16 bytes, and any bytes are a value of either.
                    let (mut a, b): (uint8x16_t, uint8x16_t) = unsafe { (std::mem::transmute(a), std::mem::transmute(b)) };
                    // SAFETY: the function takes numbers of 128 bits in v0 and v1, returns one in
                    // v0, and otherwise follows the C ABI, whose clobbers are declared.
                    unsafe {
                        std::arch::asm!("bl {f}", f = sym $function, inout("v0") a, in("v1") b, clobber_abi("C"));
                        std::mem::transmute(a)
                    }
                }
            }
        )*};
    }
    computed! {
        Sum __addtf3;
        Prod __multf3;
    }

    /// An integer that orders numbers as their values do; `None` for a NaN.
    fn rank(LongDouble(bytes): LongDouble) -> Option<i128> {
        const INFINITY: u128 = 0x7FFF << 112;
        let bits = u128::from_le_bytes(bytes);
        let (sign, size) = (bits >> 127, bits & !(1 << 127));
        let rank = size as i128;
        (size <= INFINITY).then_some(if sign == 0 { rank } else { -rank })
    }

    // The other number replaces a NaN, as with the other types.
    impl Operator<LongDouble> for Max {
        #[inline]
        fn combine(self, a: LongDouble, b: LongDouble) -> LongDouble {
            if rank(b).is_none() || rank(a) >= rank(b) { a } else { b }
        }
    }

    impl Operator<LongDouble> for Min {
        #[inline]
        fn combine(self, a: LongDouble, b: LongDouble) -> LongDouble {
            if rank(b).is_none() || rank(a).is_some() && rank(a) <= rank(b) { a } else { b }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    fn from(value: f64) -> LongDouble {
        let mut result = LongDouble([0; 16]);
        // SAFETY: loads a number of 64 bits, and stores it as 80 bits in the 16 bytes of `result`.
        unsafe {
            std::arch::asm!("fld qword ptr [{v}]", "fstp tbyte ptr [{r}]", v = in(reg) &raw const value, r = in(reg) &raw mut result, out("st(0)") _)
        };
        result
    }

    #[cfg(target_arch = "x86_64")]
    fn to(value: LongDouble) -> f64 {
        let mut result = 0.0;
        // SAFETY: loads 80 bits from the 16 bytes of `value`, and stores 64 bits in `result`.
        unsafe {
            std::arch::asm!("fld tbyte ptr [{v}]", "fstp qword ptr [{r}]", v = in(reg) &raw const value, r = in(reg) &raw mut result, out("st(0)") _)
        };
        result
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn long_doubles() {
        for (a, b) in
            [(1.5, 2.25), (-3.0, 7.0), (7.0, -3.0), (0.0, 0.0), (1e300, 2e-300), (5.0, 5.0)]
        {
            let of = |f: fn(LongDouble, LongDouble) -> LongDouble| to(f(from(a), from(b)));
            assert_eq!(of(|a, b| Sum.combine(a, b)), a + b);
            assert_eq!(of(|a, b| Prod.combine(a, b)), a * b);
            assert_eq!(of(|a, b| Max.combine(a, b)), a.max(b), "max of {a} and {b}");
            assert_eq!(of(|a, b| Min.combine(a, b)), a.min(b), "min of {a} and {b}");
        }
        // As with the other types, the other number replaces a NaN.
        for (a, b) in [
            (f64::NAN, 5.0),
            (5.0, f64::NAN),
            (-f64::NAN, f64::INFINITY),
            (f64::NEG_INFINITY, f64::NAN),
        ] {
            let of = |f: fn(LongDouble, LongDouble) -> LongDouble| to(f(from(a), from(b)));
            assert_eq!(of(|a, b| Max.combine(a, b)), a.max(b), "max of {a} and {b}");
            assert_eq!(of(|a, b| Min.combine(a, b)), a.min(b), "min of {a} and {b}");
        }
        assert!(
            to(Max.combine(from(f64::NAN), from(f64::NAN))).is_nan()
                && to(Min.combine(from(f64::NAN), from(f64::NAN))).is_nan()
        );
        // More bits than a double has.
        let tiny = from(f64::powi(2.0, -60));
        let sum = Sum.combine(Sum.combine(from(1.0), tiny), from(-1.0));
        assert_eq!(to(sum), f64::powi(2.0, -60));
    }

    #[test]
    fn complex_numbers() {
        let (a, b) = (Complex { re: 1.0, im: 2.0 }, Complex { re: 3.0, im: -4.0 });
        assert_eq!(Sum.combine(a, b), Complex { re: 4.0, im: -2.0 });
        assert_eq!(Prod.combine(a, b), Complex { re: 11.0, im: 2.0 });
    }
}
