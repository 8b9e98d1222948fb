//! The buffers of operations on endpoints with `FI_HMEM`: whose memory they are.

use fabric_abi::{FI_INJECT, FI_PEER_TRANSFER};

use super::Request;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_objects::hmem::Hmem;
use prov_objects::request::{Access, AtomicKind};

/// Bytes of a device that are sent from the host's memory instead. They are kept until the operation
/// is posted, which copies them.
pub(super) struct Staged(#[expect(dead_code, reason = "they are kept")] [Vec<u8>; 2]);

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
                    } => {
                        hmem.resolve(result, result_desc)?;
                        result.defer();
                        Ok(())
                    }
                    AtomicKind::Compare {
                        compare,
                        compare_desc,
                        result,
                        result_desc,
                    } => {
                        hmem.resolve(compare, compare_desc)?;
                        hmem.resolve(result, result_desc)?;
                        result.defer();
                        Ok(())
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

    /// Reads what is short and a device's before it is posted, so that a failure is that of the call,
    /// and nothing waits for the device while it posts; up to `limit` bytes, and the operands of an
    /// atomic operation, are then sent from a buffer of the host. Only for a request that is posted
    /// next.
    ///
    /// # Errors
    /// `-FI_EIO` if a device's memory cannot be read.
    #[cold]
    pub(super) fn stage(&mut self, limit: usize) -> Result<Option<Staged>> {
        let (memory, other, flags, limit) = match self {
            Request::Transmit(it) => (&mut it.buffers, None, &mut it.flags, limit),
            Request::Access(it) if it.access == Access::Write => {
                (&mut it.local, None, &mut it.flags, limit)
            }
            Request::Atomic(it) => {
                let compare = it.kind.compare_mut();
                (&mut it.operand, compare, &mut it.flags, usize::MAX)
            }
            Request::Receive(_) | Request::Access(_) | Request::Collective(_) => return Ok(None),
        };
        let has_device = memory.has_device() || other.as_ref().is_some_and(|it| it.has_device());
        if !has_device || memory.len() > limit {
            return Ok(None);
        }
        // SAFETY: the bytes are kept until the operation is posted, and `FI_INJECT` has it not use
        // them afterwards.
        let staged = unsafe {
            let other = other.map_or(Ok(Vec::new()), |other| to_host(other));
            [to_host(memory)?, other?]
        };
        *flags |= FI_INJECT;
        Ok(Some(Staged(staged)))
    }
}

/// Reads what is a device's; the loan is of the returned bytes then.
///
/// # Safety
/// These are kept as long as the loan is used.
unsafe fn to_host(memory: &mut AppIov) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    memory.append_to(&mut bytes);
    memory.take_failure()?;
    // SAFETY: the caller keeps the bytes.
    *memory = unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) };
    Ok(bytes)
}
