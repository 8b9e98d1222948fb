//! Bytes that are kept until a peer has them: short ones without an allocation.

use prov_base::buffer::AppIov;

/// Limit in bytes of what is kept without an allocation.
const SHORT: usize = 63;

/// See the [module](self) description.
pub enum Copied {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl Copied {
    /// Copies the content of `first`, followed by that of `second`.
    #[inline]
    pub fn of_both(first: &AppIov, second: &AppIov) -> Self {
        let (middle, len) = (first.len(), first.len() + second.len());
        let mut short = [0; SHORT];
        if let Some(place) = short.get_mut(..len) {
            let (front, back) = place.split_at_mut(middle);
            first.read_at(0, front);
            second.read_at(0, back);
            return Copied::Short(len as u8, short);
        }
        let mut bytes = Vec::with_capacity(len);
        first.append_to(&mut bytes);
        second.append_to(&mut bytes);
        Copied::Long(bytes.into())
    }

    /// Copies these bytes.
    #[inline]
    pub fn of_slice(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Copied::Short(bytes.len() as u8, short)
            }
            None => Copied::Long(bytes.into()),
        }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Copied::Short(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Copied::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(bytes: &mut [u8]) -> AppIov {
        // SAFETY: the test keeps the bytes while they are copied.
        unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
    }

    #[test]
    fn bytes_of_any_length_are_kept_as_they_were() {
        let mut bytes: Vec<u8> = (0..200).collect();
        for len in [0, 1, SHORT - 1, SHORT, SHORT + 1, 200] {
            let bytes = &mut bytes[..len];
            assert_eq!(Copied::of_slice(bytes).bytes(), bytes);
            let (first, second) = bytes.split_at_mut(len / 3);
            let both = Copied::of_both(&lent(first), &lent(second));
            assert_eq!(both.bytes(), bytes);
        }
    }
}
