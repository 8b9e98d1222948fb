//! The calls of a vector that concern authorization keys and the application's identifiers (fi_av(3)).

use fabric_abi::fi_addr_t;
use prov_base::errno::{Errno, Result};

use super::Av;

impl Av {
    /// Sets the identifier that is reported for an address.
    ///
    /// # Errors `-FI_EINVAL` for a vector opened without `FI_AV_USER_ID`.
    pub fn set_user_id(&self, fi_addr: fi_addr_t, id: fi_addr_t) -> Result {
        if !self.user_ids_required || self.with_address(fi_addr, |_| ()).is_none() {
            return Err(Errno::EINVAL);
        }
        let index = self.index(fi_addr).ok_or(Errno::EINVAL)?;
        self.write().ids.set(index, id);
        Ok(())
    }

    /// Adds an authorization key and returns its handle.
    ///
    /// # Errors `-FI_EINVAL` for a key of the wrong size, `-FI_ENOSYS` if keys do not come from
    /// vectors.
    pub fn insert_auth_key(&self, key: &[u8]) -> Result<fi_addr_t> {
        let size = self.auth_key_size.ok_or(Errno::ENOSYS)?;
        if key.is_empty() || size != 0 && key.len() != size {
            return Err(Errno::EINVAL);
        }
        self.write().keys.insert(key).map(fi_addr_t::from)
    }

    /// Calls `read` with the key of a handle, or with the key that an address was inserted with.
    ///
    /// # Errors `-FI_EINVAL` if there is none.
    pub fn lookup_auth_key<R>(
        &self,
        fi_addr: fi_addr_t,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let state = self.read();
        let index = u32::try_from(fi_addr).map_err(|_| Errno::EINVAL)?;
        let handle = state.keys.of_address(index).unwrap_or(index);
        state.keys.get(handle).map(read).ok_or(Errno::EINVAL)
    }

    /// Calls `each` with every authorization key and its handle, for an endpoint that is enabled.
    pub fn auth_keys(&self, mut each: impl FnMut(fi_addr_t, &[u8])) {
        self.read()
            .keys
            .all()
            .for_each(|(handle, key)| each(handle.into(), key));
    }

    /// Removes authorization keys.
    ///
    /// # Errors `-FI_EBUSY` for a key that addresses use.
    pub fn remove_auth_keys(&self, handles: &[fi_addr_t]) -> Result {
        let mut state = self.write();
        handles.iter().try_for_each(|&handle| {
            let handle = u32::try_from(handle).map_err(|_| Errno::EINVAL)?;
            state.keys.remove(handle)
        })
    }

    /// Sets the identifier that errors report for an authorization key.
    pub fn set_auth_key_user_id(&self, handle: fi_addr_t, id: fi_addr_t) -> Result {
        if !self.user_ids_required {
            return Err(Errno::EINVAL);
        }
        let handle = u32::try_from(handle).map_err(|_| Errno::EINVAL)?;
        self.write().keys.set_user_id(handle, id)
    }

    /// Returns what errors report for an authorization key.
    pub fn reported_auth_key(&self, handle: fi_addr_t) -> fi_addr_t {
        let id = u32::try_from(handle)
            .ok()
            .and_then(|handle| self.read().keys.user_id(handle));
        match id {
            Some(id) if self.user_ids_required => id,
            _ => handle,
        }
    }
}
