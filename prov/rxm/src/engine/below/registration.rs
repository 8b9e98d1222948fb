//! Memory of the application in operations below: its descriptors, its registration where the
//! provider below requires one, and the names by which peers access it.

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::buffer::AppIov;
use prov_base::errno::Result;
use prov_util::below::{Local, Region};
use prov_util::desc::Descs;
use prov_util::request::{RemoteIov, RemotePiece};

use super::Below;
use crate::engine::link::Registered;

impl Below {
    /// Returns the descriptors of the application's memory, and the regions that were registered
    /// for it.
    ///
    /// # Errors
    /// Those of the registration.
    pub fn local(
        &self,
        memory: &AppIov,
        descs: &Descs,
        access: u64,
    ) -> Result<(Local, Registered)> {
        if !self.setting.is_local && !memory.has_device() {
            return Ok((Local::NONE, None));
        }
        if self.setting.has_descs || !self.setting.is_local {
            return Ok((Local::given(descs), None));
        }
        let regions = self.register(memory, access)?;
        Ok((Local::of(&regions), Some(Box::new(regions))))
    }

    /// Registers memory, each segment as a region.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn register(&self, memory: &AppIov, access: u64) -> Result<Vec<Region>> {
        let pieces = memory.pieces().iter().enumerate();
        pieces
            .map(|(position, piece)| {
                let kind = memory.kind(position);
                let piece = (piece.iov_base.expose_provenance(), piece.iov_len);
                let region = self
                    .setting
                    .memory
                    .register(std::iter::once(piece), access, kind)?;
                if let Some(accesses) = &self.setting.accesses
                    && access & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0
                {
                    accesses.exclude(&region)?;
                }
                Ok(region)
            })
            .collect()
    }

    /// Returns the addresses and keys by which peers access memory that was registered for them.
    pub fn remote(&self, memory: &AppIov, regions: &[Region]) -> RemoteIov {
        let mut list = RemoteIov::default();
        for (piece, region) in memory.pieces().iter().zip(regions) {
            list.push(RemotePiece {
                addr: match self.has_addresses {
                    true => piece.iov_base.expose_provenance() as u64,
                    false => 0,
                },
                len: piece.iov_len as u64,
                key: region.key(),
            });
        }
        list
    }

    /// Returns whether a packet can be sent from the application's memory, after its header.
    #[inline]
    pub fn sends_directly(&self, memory: &AppIov) -> bool {
        self.sends_directly && memory.pieces().len() < self.setting.core.tx.iov_limit
    }
}
