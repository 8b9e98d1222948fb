//! The bits of an element, as they are stored in memory.

use super::cell::Cell;

/// A memory image of 1 to 32 bytes.
pub(super) trait Raw: Cell + Copy + Eq {
    /// All bits zero.
    const ZERO: Self;

    fn from_bytes(bytes: &[u8]) -> Option<Self>;
    fn to_bytes(self, bytes: &mut [u8]);

    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;

    /// Returns the element at `offset` of an array; zero if the array ends before.
    #[inline]
    fn at(array: &[u8], offset: usize) -> Self {
        array
            .get(offset..offset + size_of::<Self>())
            .and_then(Self::from_bytes)
            .unwrap_or(Self::ZERO)
    }

    /// Stores the element at `offset` of an array, if it fits.
    #[inline]
    fn put(self, array: &mut [u8], offset: usize) {
        if let Some(bytes) = array.get_mut(offset..offset + size_of::<Self>()) {
            self.to_bytes(bytes);
        }
    }
}

macro_rules! raw_integers {
    ($($type:ty)*) => { $(
        impl Raw for $type {
            const ZERO: Self = 0;

            #[inline]
            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_ne_bytes(bytes.try_into().ok()?))
            }

            #[inline]
            fn to_bytes(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }

            #[inline]
            fn and(self, other: Self) -> Self {
                self & other
            }

            #[inline]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            #[inline]
            fn not(self) -> Self {
                !self
            }
        }
    )* };
}

raw_integers!(u8 u16 u32 u64 u128);

/// 32 bytes, for a complex number of two `long double`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Wide(pub u128, pub u128);

impl Raw for Wide {
    const ZERO: Self = Wide(0, 0);

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (first, second) = bytes.split_at_checked(16)?;
        Some(Wide(u128::from_bytes(first)?, u128::from_bytes(second)?))
    }

    fn to_bytes(self, bytes: &mut [u8]) {
        let (first, second) = bytes.split_at_mut(16);
        self.0.to_bytes(first);
        self.1.to_bytes(second);
    }

    fn and(self, other: Self) -> Self {
        Wide(self.0 & other.0, self.1 & other.1)
    }

    fn or(self, other: Self) -> Self {
        Wide(self.0 | other.0, self.1 | other.1)
    }

    fn xor(self, other: Self) -> Self {
        Wide(self.0 ^ other.0, self.1 ^ other.1)
    }

    fn not(self) -> Self {
        Wide(!self.0, !self.1)
    }
}
