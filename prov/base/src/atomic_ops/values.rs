//! Integers, the floating point types that Rust has, and complex numbers.

use super::compute::Value;
#[cfg(target_arch = "x86_64")]
use super::{long_double::LongDouble, raw::Wide};

macro_rules! integers {
    ($($type:ty as $raw:ty),*) => { $(
        impl Value for $type {
            type Raw = $raw;

            #[inline]
            fn from_raw(raw: $raw) -> Self {
                raw as $type
            }

            #[inline]
            fn to_raw(self) -> $raw {
                self as $raw
            }

            #[inline]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline]
            fn subtract(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline]
            fn from_truth(truth: bool) -> Self {
                truth as $type
            }

            #[inline]
            fn is_true(self) -> bool {
                self != 0
            }

            #[inline]
            fn equals(self, other: Self) -> bool {
                self == other
            }

            #[inline]
            fn is_less(self, other: Self) -> bool {
                self < other
            }
        }
    )* };
}

integers!(
    i8 as u8,
    u8 as u8,
    i16 as u16,
    u16 as u16,
    i32 as u32,
    u32 as u32,
    i64 as u64,
    u64 as u64,
    i128 as u128,
    u128 as u128
);

macro_rules! floats {
    ($($type:ty as $raw:ty),*) => { $(
        impl Value for $type {
            type Raw = $raw;

            #[inline]
            fn from_raw(raw: $raw) -> Self {
                Self::from_bits(raw)
            }

            #[inline]
            fn to_raw(self) -> $raw {
                self.to_bits()
            }

            #[inline]
            fn add(self, other: Self) -> Self {
                self + other
            }

            #[inline]
            fn subtract(self, other: Self) -> Self {
                self - other
            }

            #[inline]
            fn multiply(self, other: Self) -> Self {
                self * other
            }

            #[inline]
            fn from_truth(truth: bool) -> Self {
                if truth { 1.0 } else { 0.0 }
            }

            #[inline]
            fn is_true(self) -> bool {
                self != 0.0
            }

            #[inline]
            fn equals(self, other: Self) -> bool {
                self == other
            }

            #[inline]
            fn is_less(self, other: Self) -> bool {
                self < other
            }
        }
    )* };
}

floats!(f32 as u32, f64 as u64);

/// Real and imaginary part, in this order in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Complex<T> {
    pub re: T,
    pub im: T,
}

/// A real number of which two fit into one memory image.
pub(super) trait ComplexPart: Value {
    type Pair: super::raw::Raw;

    fn split(pair: Self::Pair) -> (Self::Raw, Self::Raw);
    fn join(first: Self::Raw, second: Self::Raw) -> Self::Pair;
}

macro_rules! parts {
    ($($type:ty as $raw:ty, $pair:ty);*) => { $(
        impl ComplexPart for $type {
            type Pair = $pair;

            #[inline]
            fn split(pair: $pair) -> ($raw, $raw) {
                let (low, high) = (pair as $raw, (pair >> <$raw>::BITS) as $raw);
                if cfg!(target_endian = "little") { (low, high) } else { (high, low) }
            }

            #[inline]
            fn join(first: $raw, second: $raw) -> $pair {
                let (low, high) = match cfg!(target_endian = "little") {
                    true => (first, second),
                    false => (second, first),
                };
                low as $pair | (high as $pair) << <$raw>::BITS
            }
        }
    )* };
}

parts!(f32 as u32, u64; f64 as u64, u128);

#[cfg(target_arch = "x86_64")]
impl ComplexPart for LongDouble {
    type Pair = Wide;

    fn split(pair: Wide) -> (u128, u128) {
        (pair.0, pair.1)
    }

    fn join(first: u128, second: u128) -> Wide {
        Wide(first, second)
    }
}

impl<T: ComplexPart> Value for Complex<T> {
    type Raw = T::Pair;

    #[inline]
    fn from_raw(raw: T::Pair) -> Self {
        let (re, im) = T::split(raw);
        Complex {
            re: T::from_raw(re),
            im: T::from_raw(im),
        }
    }

    #[inline]
    fn to_raw(self) -> T::Pair {
        T::join(self.re.to_raw(), self.im.to_raw())
    }

    #[inline]
    fn add(self, other: Self) -> Self {
        Complex {
            re: self.re.add(other.re),
            im: self.im.add(other.im),
        }
    }

    #[inline]
    fn subtract(self, other: Self) -> Self {
        Complex {
            re: self.re.subtract(other.re),
            im: self.im.subtract(other.im),
        }
    }

    #[inline]
    fn multiply(self, other: Self) -> Self {
        let (a, b, c, d) = (self.re, self.im, other.re, other.im);
        Complex {
            re: a.multiply(c).subtract(b.multiply(d)),
            im: a.multiply(d).add(b.multiply(c)),
        }
    }

    #[inline]
    fn from_truth(truth: bool) -> Self {
        Complex {
            re: T::from_truth(truth),
            im: T::from_truth(false),
        }
    }

    #[inline]
    fn is_true(self) -> bool {
        self.re.is_true() || self.im.is_true()
    }

    #[inline]
    fn equals(self, other: Self) -> bool {
        self.re.equals(other.re) && self.im.equals(other.im)
    }

    #[inline]
    fn is_less(self, _: Self) -> bool {
        false
    }
}
