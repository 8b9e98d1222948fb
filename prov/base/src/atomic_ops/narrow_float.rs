//! Floating point numbers of 8 and 16 bits. Each operation is done in `f64`,
//! which holds sums and products of these formats well enough that rounding its
//! result to the nearest, ties to even, gives the correctly rounded one.

use super::compute::Value;

/// A binary format with a sign bit, `EXPONENT` and `MANTISSA` bits.
trait Format: Copy {
    const EXPONENT: u32;
    const MANTISSA: u32;
    /// Whether the highest exponent encodes infinities and NaNs, as in IEEE 754. If not, it encodes
    /// numbers, except that all ones are the NaN.
    const HAS_INFINITY: bool;

    fn bits(self) -> u32;
    fn from_bits(bits: u32) -> Self;
}

const fn bias<F: Format>() -> i32 {
    (1 << (F::EXPONENT - 1)) - 1
}

/// 2 to the power of `exponent`, which must be that of a normal `f64`.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

fn decode<F: Format>(number: F) -> f64 {
    let bits = number.bits();
    let fraction = bits & ((1 << F::MANTISSA) - 1);
    let top = (1 << F::EXPONENT) - 1;
    let exponent = bits >> F::MANTISSA & top;
    let all_ones = fraction == (1 << F::MANTISSA) - 1;
    let magnitude = if exponent == top && F::HAS_INFINITY {
        if fraction == 0 {
            f64::INFINITY
        } else {
            f64::NAN
        }
    } else if exponent == top && all_ones {
        f64::NAN
    } else if exponent == 0 {
        fraction as f64 * power_of_two(1 - bias::<F>() - F::MANTISSA as i32)
    } else {
        let mantissa = fraction | 1 << F::MANTISSA;
        mantissa as f64 * power_of_two(exponent as i32 - bias::<F>() - F::MANTISSA as i32)
    };
    let negative = bits >> (F::EXPONENT + F::MANTISSA) & 1 == 1;
    if negative { -magnitude } else { magnitude }
}

fn encode<F: Format>(value: f64) -> F {
    let width = F::EXPONENT + F::MANTISSA;
    let sign = (value.is_sign_negative() as u32) << width;
    let infinity = ((1 << F::EXPONENT) - 1) << F::MANTISSA;
    let nan = match F::HAS_INFINITY {
        true => infinity | 1 << (F::MANTISSA - 1),
        false => (1 << width) - 1,
    };
    let overflow = if F::HAS_INFINITY { infinity } else { nan };
    if value.is_nan() {
        return F::from_bits(sign | nan);
    }
    if value.is_infinite() {
        return F::from_bits(sign | overflow);
    }
    let lowest = 1 - bias::<F>();
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(lowest);
    // Exact, since only the exponent changes; at most `MANTISSA + 1` bits are
    // left of the point.
    let scaled = value.abs() * power_of_two(F::MANTISSA as i32 - exponent);
    let mantissa = scaled.round_ties_even() as u64;
    // The leading bit of a normal number, and a carry out of rounding, add one
    // to the exponent field.
    let magnitude = (((exponent - lowest) as u64) << F::MANTISSA) + mantissa;
    let magnitude = magnitude.min(overflow as u64) as u32;
    F::from_bits(sign | magnitude)
}

macro_rules! narrow_floats {
    ($($(#[$doc:meta])* $name:ident($raw:ty), $exponent:literal, $mantissa:literal, $infinity:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name(pub $raw);

        impl Format for $name {
            const EXPONENT: u32 = $exponent;
            const MANTISSA: u32 = $mantissa;
            const HAS_INFINITY: bool = $infinity;

            fn bits(self) -> u32 {
                self.0 as u32
            }

            fn from_bits(bits: u32) -> Self {
                $name(bits as $raw)
            }
        }

        impl Value for $name {
            type Raw = $raw;

            fn from_raw(raw: $raw) -> Self {
                $name(raw)
            }

            fn to_raw(self) -> $raw {
                self.0
            }

            fn add(self, other: Self) -> Self {
                encode(decode(self) + decode(other))
            }

            fn subtract(self, other: Self) -> Self {
                encode(decode(self) - decode(other))
            }

            fn multiply(self, other: Self) -> Self {
                encode(decode(self) * decode(other))
            }

            fn from_truth(truth: bool) -> Self {
                encode(if truth { 1.0 } else { 0.0 })
            }

            fn is_true(self) -> bool {
                decode(self) != 0.0
            }

            fn equals(self, other: Self) -> bool {
                decode(self) == decode(other)
            }

            fn is_less(self, other: Self) -> bool {
                decode(self) < decode(other)
            }
        }
    )* };
}

narrow_floats! {
    /// IEEE 754 half precision.
    Float16(u16), 5, 10, true;
    /// The upper half of a single precision number.
    BFloat16(u16), 8, 7, true;
    /// Numbers up to 448 and no infinity: larger results become the NaN.
    Float8E4M3(u8), 4, 3, false;
    /// The upper half of a half precision number.
    Float8E5M2(u8), 5, 2, true;
}

/// Conversions, for tests of operations on these formats.
#[cfg(test)]
pub(super) trait Narrow: Value {
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
}

#[cfg(test)]
impl<F: Format + Value> Narrow for F {
    fn from_f64(value: f64) -> Self {
        encode(value)
    }

    fn to_f64(self) -> f64 {
        decode(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<F: Format>(bits: u32) {
        let number = decode(F::from_bits(bits));
        let back = encode::<F>(number);
        if number.is_nan() {
            assert!(decode(back).is_nan());
        } else {
            assert_eq!(back.bits(), bits);
        }
    }

    #[test]
    fn every_number_survives_decoding_and_encoding() {
        (0..=u16::MAX as u32).for_each(survives::<Float16>);
        (0..=u16::MAX as u32).for_each(survives::<BFloat16>);
        (0..=u8::MAX as u32).for_each(survives::<Float8E4M3>);
        (0..=u8::MAX as u32).for_each(survives::<Float8E5M2>);
    }

    #[test]
    fn a_bfloat16_is_the_upper_half_of_an_f32() {
        for bits in 0..=u16::MAX {
            let wide = f32::from_bits((bits as u32) << 16) as f64;
            let number = decode(BFloat16(bits));
            assert!(number == wide || (number.is_nan() && wide.is_nan()));
        }
    }

    /// Exactly, which powi(3) need not be.
    fn power_of_two(exponent: i64) -> f64 {
        f64::from_bits(((1023 + exponent) as u64) << 52)
    }

    #[test]
    fn known_numbers_are_read_and_written() {
        assert_eq!(decode(Float16(0x3555)), 0.333251953125);
        assert_eq!(decode(Float16(0x0001)), power_of_two(-24));
        assert_eq!(encode::<Float16>(65519.9).0, 0x7bff);
        assert_eq!(encode::<Float16>(65520.0).0, 0x7c00);
        assert_eq!(decode(Float8E4M3(0x7e)), 448.0);
        assert_eq!(encode::<Float8E4M3>(464.0).0, 0x7e, "the tie goes to even");
        assert_eq!(encode::<Float8E4M3>(-465.0).0, 0xff);
        assert_eq!(decode(Float8E5M2(0x7b)), 57344.0);
        assert_eq!(encode::<Float8E5M2>(1e6).0, 0x7c);
    }

    #[test]
    fn ties_round_to_even_and_numbers_below_the_least_to_zero() {
        // 2048 and 2050 are halves, the numbers between them are not.
        assert_eq!(decode(encode::<Float16>(2049.0)), 2048.0);
        assert_eq!(decode(encode::<Float16>(2051.0)), 2052.0);
        assert_eq!(encode::<Float16>(power_of_two(-25)).0, 0);
        assert_eq!(encode::<Float16>(-power_of_two(-26)).0, 0x8000);
        assert_eq!(encode::<Float16>(1.5 * power_of_two(-25)).0, 1);
        assert_eq!(encode::<Float16>(f64::MIN_POSITIVE / 4.0).0, 0);
    }
}
