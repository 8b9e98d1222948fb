//! Checks of an operation's arguments that do not depend on the transport (fi_msg(3), fi_rma(3),
//! fi_atomic(3)).

use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::request::{Atomic, AtomicKind, RemoteAccess, Transmit};

/// The largest sizes that a provider supports, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// A message or a write with `FI_INJECT` (`inject_size`).
    pub inject: usize,
    /// The operands of an atomic operation.
    pub atomic: usize,
    /// A message, a read or a write (`max_msg_size`): [`Sizes::LONGEST`], unless the layer that
    /// carries it has a lower limit.
    pub message: usize,
}

impl Sizes {
    /// The longest possible message in bytes: no memory object exceeds `isize::MAX`.
    pub const LONGEST: usize = isize::MAX as usize;

    /// Checks the length of a message.
    ///
    /// # Errors `-FI_EINVAL` for an injected message that is too long, `-FI_EMSGSIZE` for any other
    /// message that is too long.
    #[inline]
    pub fn check_message(&self, message: &Transmit) -> Result {
        self.check_length(message.is_inject(), &message.buffers)
    }

    /// Checks the lengths of a read or a write.
    ///
    /// # Errors `-FI_EINVAL` if local and remote length differ, and those of
    /// [`Sizes::check_message`].
    #[inline]
    pub fn check_access(&self, access: &RemoteAccess) -> Result {
        if access.local.len() as u64 != access.remote.len() {
            return Err(Errno::EINVAL);
        }
        self.check_length(access.is_inject(), &access.local)
    }

    /// Checks the lengths of an atomic operation.
    ///
    /// # Errors `-FI_EINVAL` if a buffer's length differs from that of the remote memory,
    /// `-FI_EMSGSIZE` if the operands exceed the limit of one operation.
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
