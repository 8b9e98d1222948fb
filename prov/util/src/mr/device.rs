//! Devices that register memory themselves.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Memory, Place, RemoteEvents, Request};
use crate::errno::{Errno, Result};
use crate::object::AnyFid;

/// Who registers the memory of a domain.
#[derive(Clone, Debug, Default)]
pub enum Registrar {
    /// The software, which then moves all data.
    #[default]
    Software,
    /// A device, which moves all data.
    Device(Arc<dyn Device>),
    /// The device, and ordinary memory that peers may access the software, too.
    /// Keys are the device's.
    Both(Arc<dyn Device>),
}

impl Registrar {
    /// The device, where there is one.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        match self {
            Registrar::Software => None,
            Registrar::Device(device) | Registrar::Both(device) => Some(device),
        }
    }

    /// Whether peers are served by the software.
    pub fn is_software(&self) -> bool {
        !matches!(self, Registrar::Device(_))
    }
}

/// A domain's device, as far as it registers memory.
pub trait Device: Send + Sync + Debug {
    /// Whether the domain takes memory that is not ordinary, with
    /// [`Place::is_ordinary`]: not without `FI_HMEM`.
    fn reaches(&self, _place: &Place) -> bool {
        false
    }

    /// Registers memory, whose place is one that it reaches. Flags and key are
    /// in order: the key is to be the one asked for, unless `FI_MR_PROV_KEY`
    /// leaves it to the device.
    fn register(&self, request: &Request) -> Result<Box<dyn Registration>>;

    /// `fi_mr_map_raw`: the key that a peer's raw key stands for from now on.
    /// `-FI_EINVAL` for what is none.
    fn map_raw(&self, _base: u64, raw: &[u8]) -> Result<u64> {
        plain_key(raw)
    }

    /// `fi_mr_unmap_key`: a mapped key is not used any more.
    fn unmap(&self, _key: u64) -> Result {
        Ok(())
    }
}

/// What a device made of a request.
pub trait Registration: Send + Sync {
    /// What `fi_mr_desc` returns and requests bring along: a value of the
    /// device's choice, not 0. Applications may pass any other, too.
    fn desc(&self) -> usize;

    /// The key; [`super::NO_KEY`] where peers cannot access the memory.
    fn key(&self) -> u64;

    /// The raw key (`fi_mr_raw_attr`), as long as the domain's `mr_key_size`.
    fn raw_key(&self) -> Vec<u8> {
        self.key().to_le_bytes().to_vec()
    }

    /// `fi_mr_bind` to an endpoint of the domain, in an `FI_MR_ENDPOINT` domain
    /// and before it is enabled. The endpoint stays open until it is closed.
    fn bind(&self, _endpoint: AnyFid<'_>) -> Result {
        Ok(())
    }

    /// `fi_mr_bind` to a counter: the device's accesses of the kinds `access`
    /// (`FI_REMOTE_*`) count from now on.
    fn count_in(&self, _access: u64, _counter: Arc<dyn RemoteEvents>) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_mr_enable`, in domains where registrations are set up first.
    fn enable(&self) -> Result {
        Ok(())
    }

    /// `fi_mr_refresh`: other pages may be behind these parts of the memory, or
    /// behind all of it where none is named.
    fn refresh(&self, _parts: &[Memory]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_close`: when this returns, the device accesses the memory no more.
    /// An error leaves it registered.
    fn close(&self) -> Result;
}

/// The key that a raw key of 8 bytes is.
pub(super) fn plain_key(raw: &[u8]) -> Result<u64> {
    let bytes: [u8; 8] = raw.try_into().map_err(|_| Errno::EINVAL)?;
    Ok(u64::from_le_bytes(bytes))
}
