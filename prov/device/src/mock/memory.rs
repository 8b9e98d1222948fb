//! Registered memory, and the memory of requests.

use std::fmt;
use std::sync::Arc;

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_util::desc::Descs;
use prov_util::mr::{self, Request};

use super::Adapter;
use crate::device::{Keys, Local};
use crate::local_key::LocalKey;
use crate::registrar::{Access, Memory, Region};

/// The memory of a request, which the device has until the request completes.
#[derive(Default)]
pub struct Lent {
    pub(super) memory: AppIov,
    /// The keys of its segments.
    pub(super) keys: [Option<u32>; IOV_LIMIT],
}

impl Local for Lent {
    fn empty() -> Self {
        Lent::default()
    }

    fn fill(&mut self, memory: &mut AppIov, descs: &Descs) -> Result<Keys> {
        if !self.memory.pieces().is_empty() {
            return Err(Errno::EINVAL);
        }
        let mut keys = Keys::NONE;
        for (position, (piece, place)) in memory.pieces().iter().zip(&mut self.keys).enumerate() {
            u32::try_from(piece.iov_len).map_err(|_| Errno::EMSGSIZE)?;
            let key = descs.of_piece(position).map(LocalKey::of_desc);
            *place = key.map(|key| key.key);
            keys = keys.and(Keys {
                are_complete: key.is_some(),
                is_readable: key.is_none_or(|key| key.is_readable),
            });
        }
        self.memory = memory.take();
        Ok(keys)
    }

    fn give_back(&mut self, memory: &mut AppIov) {
        *memory = self.memory.take();
    }
}

/// Registers memory with an adapter.
pub struct Registering(pub Arc<Adapter>);

impl fmt::Debug for Registering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a mock device")
    }
}

/// Registered memory.
pub struct RegisteredRegion {
    adapter: Arc<Adapter>,
    local: u32,
    /// What peers find, if they can access it.
    remote: Option<Arc<mr::Region>>,
}

/// Memory that requests of this process can name by its key.
pub(super) struct Known {
    pub(super) address: usize,
    pub(super) len: usize,
    /// Whether the device may write to it.
    pub(super) is_written: bool,
}

impl Memory for Registering {
    type Region = RegisteredRegion;

    fn register(&self, request: &Request, access: Access) -> Result<RegisteredRegion> {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let remote =
            bit(access.remote_read, FI_REMOTE_READ) | bit(access.remote_write, FI_REMOTE_WRITE);
        let adapter = self.0.clone();
        let remote = access.is_remote().then(|| {
            adapter
                .table
                .register(Request::new(request.memory, remote, 0))
        });
        let known = Known {
            address: request.memory.address(),
            len: request.memory.len(),
            is_written: access.is_written(),
        };
        let remote = remote.transpose()?;
        let local = adapter.engine().add_region(known);
        Ok(RegisteredRegion {
            adapter,
            local,
            remote,
        })
    }
}

impl Region for RegisteredRegion {
    fn local_key(&self) -> u32 {
        self.local
    }

    fn remote_key(&self) -> u32 {
        self.remote.as_ref().map_or(0, |region| region.key() as u32)
    }
}

impl Drop for RegisteredRegion {
    fn drop(&mut self) {
        self.adapter.engine().remove_region(self.local);
        if let Some(region) = &self.remote {
            // The table has no device that could refuse it.
            let _ = self.adapter.table.close(region);
        }
    }
}
