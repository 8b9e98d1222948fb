//! The 80-bit extended precision numbers of the x87, which no Rust type holds.

use std::arch::asm;

use super::compute::Value;

/// A `long double` as C stores it on x86-64: 80 bits, and 48 bits of padding that the arithmetic
/// ignores and sets to zero.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct LongDouble(pub u128);

const ONE: LongDouble = LongDouble(0x3fff_8000_0000_0000_0000);
const ZERO: LongDouble = LongDouble(0);

macro_rules! arithmetic {
    ($name:ident, $instruction:literal) => {
        fn $name(self, other: Self) -> Self {
            let mut result = 0u128;
            // SAFETY: the code reads 10 bytes of each operand and writes 10 bytes to `result`, and
            // all of these values have 16 bytes. The x87 stack, which is empty between Rust
            // instructions, is empty again at the end, and all of its registers are declared as
            // clobbered.
            unsafe {
                asm!(
                    "fld tbyte ptr [{left}]",
                    "fld tbyte ptr [{right}]",
                    concat!($instruction, " st(1), st"),
                    "fstp tbyte ptr [{result}]",
                    left = in(reg) &raw const self.0,
                    right = in(reg) &raw const other.0,
                    result = in(reg) &raw mut result,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack),
                );
            }
            LongDouble(result)
        }
    };
}

/// The result of comparing two numbers; all fields are false if one of them is a NaN.
struct Comparison {
    less: bool,
    equal: bool,
}

impl LongDouble {
    fn compare(self, other: Self) -> Comparison {
        let (less, unequal, unordered): (u8, u8, u8);
        // SAFETY: the code reads 10 bytes of each operand, which have 16 bytes; it leaves the x87
        // stack empty, as in the arithmetic above.
        unsafe {
            asm!(
                "fld tbyte ptr [{left}]",
                "fld tbyte ptr [{right}]",
                "fucomip st, st(1)",
                "seta {less}",
                "setne {unequal}",
                "setp {unordered}",
                "fstp st(0)",
                left = in(reg) &raw const self.0,
                right = in(reg) &raw const other.0,
                less = lateout(reg_byte) less,
                unequal = lateout(reg_byte) unequal,
                unordered = lateout(reg_byte) unordered,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack, readonly),
            );
        }
        Comparison {
            less: less != 0,
            equal: unequal == 0 && unordered == 0,
        }
    }
}

impl Value for LongDouble {
    type Raw = u128;

    fn from_raw(raw: u128) -> Self {
        LongDouble(raw)
    }

    fn to_raw(self) -> u128 {
        self.0
    }

    arithmetic!(add, "faddp");
    arithmetic!(subtract, "fsubp");
    arithmetic!(multiply, "fmulp");

    fn from_truth(truth: bool) -> Self {
        if truth { ONE } else { ZERO }
    }

    fn is_true(self) -> bool {
        !self.equals(ZERO)
    }

    fn equals(self, other: Self) -> bool {
        self.compare(other).equal
    }

    fn is_less(self, other: Self) -> bool {
        self.compare(other).less
    }
}

#[cfg(test)]
impl From<f64> for LongDouble {
    fn from(value: f64) -> Self {
        let mut result = 0u128;
        // SAFETY: the code reads 8 bytes of `value` and writes 10 bytes to `result`, which has 16;
        // it leaves the x87 stack empty, as in the arithmetic above.
        unsafe {
            asm!(
                "fld qword ptr [{value}]",
                "fstp tbyte ptr [{result}]",
                value = in(reg) &raw const value,
                result = in(reg) &raw mut result,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        LongDouble(result)
    }
}

#[cfg(test)]
impl LongDouble {
    /// Returns the nearest `f64`.
    pub fn to_f64(self) -> f64 {
        let mut result = 0f64;
        // SAFETY: the code reads 10 bytes of a number of 16 bytes and writes 8 bytes to `result`;
        // it leaves the x87 stack empty, as in the arithmetic above.
        unsafe {
            asm!(
                "fld tbyte ptr [{value}]",
                "fstp qword ptr [{result}]",
                value = in(reg) &raw const self.0,
                result = in(reg) &raw mut result,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(value: f64) -> LongDouble {
        LongDouble::from(value)
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no inline assembly")]
    fn arithmetic_has_64_bits_of_mantissa() {
        let tiny = long(2f64.powi(-63));
        let sum = ONE.add(tiny);
        assert_eq!(sum.0, 0x3fff_8000_0000_0000_0001);
        assert_eq!(sum.subtract(ONE).0, tiny.0);
        assert_eq!(long(3.0).multiply(long(-0.5)).0, long(-1.5).0);
        assert_eq!(long(7.0).subtract(long(10.0)).0, long(-3.0).0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no inline assembly")]
    fn comparisons_follow_ieee_754() {
        assert!(long(1.0).is_less(long(2.0)));
        assert!(!long(2.0).is_less(long(1.0)));
        assert!(!long(2.0).is_less(long(2.0)));
        assert!(long(2.0).equals(long(2.0)));
        assert!(long(0.0).equals(long(-0.0)));
        assert!(!long(-0.0).is_true());
        assert!(long(f64::NAN).is_true());
        for other in [0.0, f64::NAN, f64::INFINITY] {
            assert!(!long(f64::NAN).equals(long(other)));
            assert!(!long(f64::NAN).is_less(long(other)));
            assert!(!long(other).is_less(long(f64::NAN)));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no inline assembly")]
    fn bit_patterns_that_are_no_numbers_are_harmless() {
        // An exponent without the leading bit: the x87 treats it as invalid.
        let unnormal = LongDouble(0x3fff_0000_0000_0000_0001);
        assert!(!unnormal.add(ONE).equals(ONE));
        assert!(!unnormal.equals(unnormal));
    }
}
