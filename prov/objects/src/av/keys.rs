//! What an address vector stores about its addresses in addition: authorization keys and the
//! application's identifiers (fi_av(3)).

use prov_base::bounded;
use prov_base::bounds::{OBJECTS, PEERS};
use std::collections::HashMap;

use prov_base::errno::{Errno, Result};

/// `FI_ADDR_NOTAVAIL`.
const NOT_AVAILABLE: u64 = u64::MAX;

/// The application's identifiers, reported in place of addresses.
#[derive(Default)]
pub struct UserIds {
    /// Whether the vector was opened with `FI_AV_USER_ID`: an address without an identifier is then
    /// reported as `FI_ADDR_NOTAVAIL`, otherwise as itself.
    required: bool,
    /// By the number of the address: looked up for each message of providers that are linked.
    by_index: Vec<Option<u64>>,
}

impl UserIds {
    /// Creates an empty table.
    pub fn new(required: bool) -> Self {
        UserIds {
            required,
            by_index: Vec::new(),
        }
    }

    /// Sets the identifier of an address.
    pub fn set(&mut self, index: u32, id: u64) {
        let room = index as usize + 1;
        if self.by_index.len() < room {
            self.by_index.resize(room, None);
            bounded!(self.by_index, PEERS);
        }
        if let Some(place) = self.by_index.get_mut(index as usize) {
            *place = Some(id);
        }
    }

    /// Removes the identifier of an address that is removed.
    pub fn remove(&mut self, index: u32) {
        if let Some(place) = self.by_index.get_mut(index as usize) {
            *place = None;
        }
    }

    /// Returns what completions report for an address.
    #[inline]
    pub fn reported(&self, index: u32) -> u64 {
        match self.by_index.get(index as usize).copied().flatten() {
            Some(id) => id,
            None if self.required => NOT_AVAILABLE,
            None => index.into(),
        }
    }
}

/// One authorization key.
struct AuthKey {
    bytes: Box<[u8]>,
    /// Number of insertions.
    count: usize,
    user_id: u64,
}

/// The authorization keys of a vector, and the key of each address that was inserted with one.
#[derive(Default)]
pub struct AuthKeys {
    /// A removed key leaves a gap, which the next one fills.
    keys: Vec<Option<AuthKey>>,
    of_address: HashMap<u32, u32>,
}

impl AuthKeys {
    /// Adds a key; the same key gets the same handle again.
    #[allow(clippy::indexing_slicing, reason = "the position is in the list")]
    pub fn insert(&mut self, bytes: &[u8]) -> Result<u32> {
        let known = self.keys.iter_mut().enumerate().find_map(|(at, key)| {
            let key = key.as_mut().filter(|key| *key.bytes == *bytes)?;
            key.count += 1;
            Some(at)
        });
        let at = match known {
            Some(at) => at,
            None => {
                let key = Some(AuthKey {
                    bytes: bytes.into(),
                    count: 1,
                    user_id: NOT_AVAILABLE,
                });
                match self.keys.iter().position(Option::is_none) {
                    Some(gap) => {
                        self.keys[gap] = key;
                        gap
                    }
                    None => {
                        self.keys.push(key);
                        bounded!(self.keys, OBJECTS);
                        self.keys.len() - 1
                    }
                }
            }
        };
        u32::try_from(at).map_err(|_| Errno::ENOMEM)
    }

    fn key(&self, handle: u32) -> Option<&AuthKey> {
        self.keys.get(handle as usize)?.as_ref()
    }

    /// Returns the bytes of a key.
    pub fn get(&self, handle: u32) -> Option<&[u8]> {
        self.key(handle).map(|key| &*key.bytes)
    }

    /// Iterates over all keys.
    pub fn all(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let keys = self.keys.iter().enumerate();
        keys.filter_map(|(at, key)| Some((at as u32, &*key.as_ref()?.bytes)))
    }

    /// Undoes one insertion of a key; `-FI_EBUSY` while addresses use it.
    pub fn remove(&mut self, handle: u32) -> Result {
        let key = self.keys.get_mut(handle as usize).ok_or(Errno::EINVAL)?;
        let known = key.as_mut().ok_or(Errno::EINVAL)?;
        if known.count > 1 {
            known.count -= 1;
            return Ok(());
        }
        if self.of_address.values().any(|&used| used == handle) {
            return Err(Errno::EBUSY);
        }
        *key = None;
        Ok(())
    }

    /// Sets the identifier that error events report for a key.
    pub fn set_user_id(&mut self, handle: u32, id: u64) -> Result {
        let key = self.keys.get_mut(handle as usize).and_then(Option::as_mut);
        key.ok_or(Errno::EINVAL)?.user_id = id;
        Ok(())
    }

    /// Returns the identifier of a key, `FI_ADDR_NOTAVAIL` if none was set.
    pub fn user_id(&self, handle: u32) -> Option<u64> {
        self.key(handle).map(|key| key.user_id)
    }

    /// Returns the key that an address was inserted with.
    pub fn of_address(&self, index: u32) -> Option<u32> {
        self.of_address.get(&index).copied()
    }

    /// Records the key of an address.
    pub fn assign(&mut self, index: u32, handle: Option<u32>) {
        match handle {
            Some(handle) => self.of_address.insert(index, handle),
            None => self.of_address.remove(&index),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_has_one_handle_and_leaves_with_its_last_insertion() {
        let mut keys = AuthKeys::default();
        assert_eq!(keys.insert(b"one"), Ok(0));
        assert_eq!(keys.insert(b"two"), Ok(1));
        assert_eq!(keys.insert(b"one"), Ok(0));
        assert_eq!(keys.remove(0), Ok(()));
        assert_eq!(keys.get(0), Some(&b"one"[..]));
        assert_eq!(keys.remove(0), Ok(()));
        assert_eq!(keys.get(0), None);
        assert_eq!(keys.remove(0), Err(Errno::EINVAL));
        assert_eq!(keys.insert(b"three"), Ok(0));
        assert_eq!(keys.all().count(), 2);
    }

    #[test]
    fn a_key_stays_while_addresses_use_it() {
        let mut keys = AuthKeys::default();
        keys.insert(b"one").unwrap();
        keys.assign(7, Some(0));
        assert_eq!(keys.remove(0), Err(Errno::EBUSY));
        keys.assign(7, None);
        assert_eq!(keys.remove(0), Ok(()));
    }

    #[test]
    fn addresses_are_reported_as_themselves_unless_ids_are_required() {
        let mut ids = UserIds::new(false);
        assert_eq!(ids.reported(3), 3);
        ids.set(3, 77);
        assert_eq!(ids.reported(3), 77);
        ids.remove(3);
        assert_eq!(ids.reported(3), 3);
        assert_eq!(UserIds::new(true).reported(3), NOT_AVAILABLE);
    }
}
