//! What an operation must fulfil, whatever its transport (fi_msg(3), fi_rma(3),
//! fi_atomic(3)).

use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::request::{Atomic, AtomicKind, RemoteAccess, Transmit};

/// Sizes that a provider takes, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Of a message or a write with `FI_INJECT` (`inject_size`).
    pub inject: usize,
    /// Of the operands of an atomic operation.
    pub atomic: usize,
    /// Of a message, a read or a write (`max_msg_size`): [`Sizes::LONGEST`], unless what
    /// carries them takes less.
    pub message: usize,
}

impl Sizes {
    /// Bytes of the longest message that there can be: memory is no longer.
    pub const LONGEST: usize = isize::MAX as usize;

    /// `-FI_EINVAL` for an injected message that is too long, `-FI_EMSGSIZE` for
    /// any other that is.
    #[inline]
    pub fn check_message(&self, message: &Transmit) -> Result {
        self.check_length(message.is_inject(), &message.buffers)
    }

    /// `-FI_EINVAL` for memory of different lengths here and there, and as
    /// [`Sizes::check_message`].
    #[inline]
    pub fn check_access(&self, access: &RemoteAccess) -> Result {
        if access.local.len() as u64 != access.remote.len() {
            return Err(Errno::EINVAL);
        }
        self.check_length(access.is_inject(), &access.local)
    }

    /// `-FI_EINVAL` for buffers that are not as long as the remote memory,
    /// `-FI_EMSGSIZE` for more than one operation takes.
    pub fn check_atomic(&self, atomic: &Atomic) -> Result {
        let total = atomic.remote.len();
        let fits = |memory: &AppIov| memory.len() as u64 == total;
        let operand = atomic.operand.is_empty() || fits(&atomic.operand);
        let rest = match &atomic.kind {
            AtomicKind::Base => true,
            AtomicKind::Fetch { result, .. } => fits(result),
            AtomicKind::Compare {
                compare, result, ..
            } => fits(compare) && fits(result),
        };
        if !operand || !rest {
            Err(Errno::EINVAL)
        } else if total > self.atomic as u64 {
            Err(Errno::EMSGSIZE)
        } else {
            Ok(())
        }
    }

    #[inline]
    fn check_length(&self, is_inject: bool, bytes: &AppIov) -> Result {
        if is_inject && bytes.len() > self.inject {
            return Err(Errno::EINVAL);
        }
        if bytes.len() > self.message {
            return Err(Errno::EMSGSIZE);
        }
        Ok(())
    }
}
