//! The buffers of operations on endpoints with `FI_HMEM`: whose memory they are.

use fabric_abi::{FI_INJECT, FI_PEER_TRANSFER};

use super::Request;
use crate::hmem::Hmem;
use crate::request::{Access, AtomicKind};
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};

/// Bytes of a device that are sent from the host's memory instead. They are kept until the operation
/// is posted, which copies them.
pub(super) struct Staged(#[expect(dead_code, reason = "it is kept")] Vec<u8>);

impl Request {
    /// Finds out whose memory all buffers are.
    ///
    /// # Errors
    /// Those of [`Hmem::resolve`].
    #[cold]
    pub(in crate::ffi) fn resolve(&mut self, hmem: &Hmem) -> Result {
        match self {
            // Of a peer provider that does a part of this endpoint's work.
            Request::Transmit(it) if it.flags & FI_PEER_TRANSFER != 0 => {
                hmem.resolve_unregistered(&mut it.buffers)
            }
            Request::Receive(it) if it.flags & FI_PEER_TRANSFER != 0 => {
                hmem.resolve_unregistered(&mut it.buffers)
            }
            Request::Transmit(it) => hmem.resolve(&mut it.buffers, &it.desc),
            Request::Receive(it) => {
                hmem.resolve(&mut it.buffers, &it.desc)?;
                it.buffers.defer();
                Ok(())
            }
            Request::Access(it) => {
                hmem.resolve(&mut it.local, &it.desc)?;
                if it.access == Access::Read {
                    it.local.defer();
                }
                Ok(())
            }
            Request::Atomic(it) => {
                hmem.resolve(&mut it.operand, &it.desc)?;
                match &mut it.kind {
                    AtomicKind::Base => Ok(()),
                    AtomicKind::Fetch {
                        result,
                        result_desc,
                    } => hmem.resolve(result, result_desc),
                    AtomicKind::Compare {
                        compare,
                        compare_desc,
                        result,
                        result_desc,
                    } => {
                        hmem.resolve(compare, compare_desc)?;
                        hmem.resolve(result, result_desc)
                    }
                }
            }
            Request::Collective(it) => {
                if hmem.has_functions() {
                    // The provider that carries them out could not tell which memory is theirs.
                    return Err(Errno::EOPNOTSUPP);
                }
                hmem.resolve_unregistered(&mut it.input)?;
                hmem.resolve_unregistered(&mut it.output)
            }
        }
    }

    /// Reads what is short and a device's before it is posted, so that a failure is that of the call;
    /// up to `limit` bytes are then sent from a buffer of the host. Only for a request that is posted
    /// next.
    ///
    /// # Errors
    /// `-FI_EIO` if a device's memory cannot be read.
    #[cold]
    pub(super) fn stage(&mut self, limit: usize) -> Result<Option<Staged>> {
        let (memory, flags) = match self {
            Request::Transmit(it) => (&mut it.buffers, &mut it.flags),
            Request::Access(it) if it.access == Access::Write => (&mut it.local, &mut it.flags),
            Request::Atomic(it) => {
                try_read(&it.operand)?;
                return try_read(it.kind.compare()).map(|()| None);
            }
            Request::Receive(_) | Request::Access(_) | Request::Collective(_) => return Ok(None),
        };
        if !memory.has_device() || memory.len() > limit {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        memory.append_to(&mut bytes);
        memory.take_failure()?;
        // SAFETY: the bytes are kept until the operation is posted, and `FI_INJECT` has it not use
        // them afterwards.
        *memory = unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) };
        *flags |= FI_INJECT;
        Ok(Some(Staged(bytes)))
    }
}

/// Reads operands, which the operation then reads again.
fn try_read(memory: &AppIov) -> Result {
    if !memory.has_device() {
        return Ok(());
    }
    let mut bytes = Vec::new();
    memory.append_to(&mut bytes);
    memory.take_failure()
}
