//! Devices that register memory.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Memory, MemoryKind, RemoteEvents, Request};
use crate::fid::AnyFid;
use prov_base::errno::{Errno, Result};

/// What registers the memory of a domain.
#[derive(Clone, Debug, Default)]
pub enum Registrar {
    /// The software, which moves all data.
    #[default]
    Software,
    /// A device, which moves all data.
    Device(Arc<dyn Device>),
    /// The device, and the software as well for ordinary memory that peers may access. Keys are the
    /// device's.
    Both(Arc<dyn Device>),
}

impl Registrar {
    /// Returns the device, if there is one.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        match self {
            Registrar::Software => None,
            Registrar::Device(device) | Registrar::Both(device) => Some(device),
        }
    }

    /// Returns whether the software serves peers.
    pub fn is_software(&self) -> bool {
        !matches!(self, Registrar::Device(_))
    }
}

/// The interface to a domain's device for registering memory.
pub trait Device: Send + Sync + Debug {
    /// Returns whether the domain accepts this kind of memory, if it is not ordinary
    /// ([`MemoryKind::is_ordinary`]); only with `FI_HMEM`.
    fn reaches(&self, _kind: &MemoryKind) -> bool {
        false
    }

    /// Registers memory of a kind that it accepts. Flags and key have been checked: the key must be
    /// the requested one, unless `FI_MR_PROV_KEY` leaves it to the device.
    fn register(&self, request: &Request) -> Result<Box<dyn Registration>>;

    /// Implements fi_mr_map_raw(3): returns the key for a peer's raw key; `-FI_EINVAL` if that is
    /// invalid.
    fn map_raw(&self, _base: u64, raw: &[u8]) -> Result<u64> {
        plain_key(raw)
    }

    /// Implements fi_mr_unmap_key(3).
    fn unmap(&self, _key: u64) -> Result {
        Ok(())
    }
}

/// A device's registration.
pub trait Registration: Send + Sync {
    /// Returns the value of fi_mr_desc(3), which requests contain: chosen by the device, not 0.
    /// Applications may also pass any other value.
    fn desc(&self) -> usize;

    /// Returns the key; [`super::NO_KEY`] if peers cannot access the memory.
    fn key(&self) -> u64;

    /// Returns the raw key (fi_mr_raw_attr(3)), of the length `mr_key_size`.
    fn raw_key(&self) -> Vec<u8> {
        self.key().to_le_bytes().to_vec()
    }

    /// Implements fi_mr_bind(3) to an endpoint of the domain, in an `FI_MR_ENDPOINT` domain and
    /// before the registration is enabled. The endpoint stays open until the registration is
    /// closed.
    fn bind(&self, _endpoint: AnyFid<'_>) -> Result {
        Ok(())
    }

    /// Implements fi_mr_bind(3) to a counter, which counts the device's accesses of the kinds
    /// `access` (`FI_REMOTE_*`).
    fn count_in(&self, _access: u64, _counter: Arc<dyn RemoteEvents>) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_mr_enable(3), in domains where registrations have to be enabled.
    fn enable(&self) -> Result {
        Ok(())
    }

    /// Implements fi_mr_refresh(3): the pages of these parts of the memory, or of all of it if
    /// there are none, may have changed.
    fn refresh(&self, _parts: &[Memory]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_close(3): after it returns, the device does not access the memory. After an
    /// error the memory stays registered.
    fn close(&self) -> Result;
}

/// Decodes a raw key of 8 bytes.
pub(super) fn plain_key(raw: &[u8]) -> Result<u64> {
    let bytes: [u8; 8] = raw.try_into().map_err(|_| Errno::EINVAL)?;
    Ok(u64::from_le_bytes(bytes))
}
