//! The raw keys of peers that the application has mapped (fi_mr_map_raw(3)).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prov_base::errno::{Errno, Result};

use crate::offer::KEY_LEN;

/// See the [module](self) description.
#[derive(Debug, Default)]
pub struct Keys {
    known: Mutex<Known>,
    /// How often a key was unmapped, by which endpoints find out that theirs are out of date.
    unmapped: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    by_number: HashMap<u64, Arc<[u8]>>,
    /// The last number that was given.
    last: u64,
}

impl Keys {
    /// Adds a raw key, and returns its number.
    ///
    /// # Errors
    /// `-FI_EINVAL` for an empty one, and one that is too long.
    pub fn map(&self, raw: &[u8]) -> Result<u64> {
        if raw.is_empty() || raw.len() > KEY_LEN {
            return Err(Errno::EINVAL);
        }
        let mut known = self.known.lock();
        known.last += 1;
        let number = known.last;
        known.by_number.insert(number, raw.into());
        Ok(number)
    }

    /// Removes a key; 0 is none.
    ///
    /// # Errors
    /// `-FI_EINVAL` for a number that no key has.
    pub fn unmap(&self, number: u64) -> Result {
        if number == 0 {
            return Ok(());
        }
        let removed = self.known.lock().by_number.remove(&number);
        self.unmapped.fetch_add(1, Ordering::Release);
        removed.map(drop).ok_or(Errno::EINVAL)
    }

    /// Returns the raw key with a number.
    pub fn get(&self, number: u64) -> Option<Arc<[u8]>> {
        self.known.lock().by_number.get(&number).cloned()
    }

    /// Returns how often a key was unmapped.
    pub fn unmapped(&self) -> u64 {
        self.unmapped.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_number_of_its_own_until_it_is_unmapped() {
        let keys = Keys::default();
        let (one, other) = (keys.map(b"one").unwrap(), keys.map(b"one").unwrap());
        assert_ne!(one, other);
        assert_eq!(keys.unmap(one), Ok(()));
        assert!(keys.get(one).is_none());
        assert_eq!(keys.get(other).as_deref(), Some(b"one".as_slice()));
        assert_eq!((keys.unmapped(), keys.unmap(one)), (1, Err(Errno::EINVAL)));
        assert_eq!(keys.unmap(0), Ok(()));
        for raw in [&[][..], &[0; KEY_LEN + 1]] {
            assert_eq!(keys.map(raw), Err(Errno::EINVAL));
        }
    }
}
