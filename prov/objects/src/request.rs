//! Data transfer requests: about forty data calls of fi_msg(3), fi_tagged(3), fi_rma(3) and
//! fi_atomic(3) are converted into these types.

use std::ffi::c_void;

use fabric_abi::{
    FI_ADDR_UNSPEC, FI_COMPLETION, FI_INJECT, FI_MSG, FI_ORDER_RAS, FI_ORDER_WAS, FI_RECV,
    FI_REMOTE_CQ_DATA, FI_TAGGED, fi_addr_t, fi_datatype, fi_op,
};

use crate::desc::Descs;
use prov_base::atomic_ops::Form;
use prov_base::buffer::{AppIov, IOV_LIMIT};

/// The tag of a message, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// fi_msg(3)
    None,
    /// fi_tagged(3)
    Value(u64),
}

impl Tag {
    /// Returns the tag, if there is one.
    #[inline(always)]
    pub fn value(self) -> Option<u64> {
        match self {
            Tag::None => None,
            Tag::Value(tag) => Some(tag),
        }
    }
}

/// A request of fi_send(3), fi_tsend(3) and their variants.
#[derive(Debug)]
pub struct Transmit {
    /// The message's tag.
    pub tag: Tag,
    /// The memory of the message.
    pub buffers: AppIov,
    /// Descriptors of `buffers`.
    pub desc: Descs,
    /// The receiver; ignored by connected endpoints.
    pub peer: fi_addr_t,
    /// Immediate data; meaningful with [`flags::REMOTE_CQ_DATA`](Self::flags).
    pub data: u64,
    /// All flags of the operation: `FI_COMPLETION` requests a completion for success, `FI_INJECT`
    /// means that the application may reuse the buffers after the call, `FI_REMOTE_CQ_DATA` that
    /// `data` is sent; also completion levels, `FI_FENCE`, `FI_MORE` and others.
    pub flags: u64,
    /// The context of the completion.
    pub context: *mut c_void,
}

/// The messages that a receive matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// Messages without a tag.
    Untagged,
    /// Messages whose tag equals `tag`, apart from the bits in `ignore`.
    Tagged {
        /// The tag.
        tag: u64,
        /// The bits that are not compared.
        ignore: u64,
    },
}

impl Select {
    /// Returns the flags of the completion.
    pub fn completion_flags(self) -> u64 {
        match self {
            Select::Untagged => FI_MSG | FI_RECV,
            Select::Tagged { .. } => FI_TAGGED | FI_RECV,
        }
    }
}

/// An internal flag of a [`Receive`] with `FI_MULTI_RECV`: its buffer is for one message, and is
/// released to the application with it.
pub const ONE_MESSAGE: u64 = 1 << 63;

/// A request of fi_recv(3), fi_trecv(3) and their variants, including `FI_PEEK` and `FI_CLAIM`.
#[derive(Debug)]
pub struct Receive {
    /// The messages that match.
    pub select: Select,
    /// The destination buffer.
    pub buffers: AppIov,
    /// Descriptors of `buffers`.
    pub desc: Descs,
    /// The sender, or `FI_ADDR_UNSPEC` for any; meaningful for endpoints with `FI_DIRECTED_RECV`.
    pub peer: fi_addr_t,
    /// All flags, as in [`Transmit::flags`].
    pub flags: u64,
    /// The context of the completion.
    pub context: *mut c_void,
}

/// The direction of a remote memory access, seen from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// From remote memory to local buffers.
    Read,
    /// From local buffers to remote memory.
    Write,
}

impl Access {
    /// Returns the ordering bit (`fi_tx_attr::msg_order`) that keeps such accesses behind messages
    /// which were posted earlier.
    pub const fn behind_messages(self) -> u64 {
        match self {
            Access::Read => FI_ORDER_RAS,
            Access::Write => FI_ORDER_WAS,
        }
    }
}

/// A segment of a peer's memory: `fi_rma_iov` with the length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemotePiece {
    /// A virtual address or an offset, depending on `mr_mode`.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The key of the peer's region.
    pub key: u64,
}

/// Up to [`IOV_LIMIT`] segments of a peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteIov {
    pieces: [RemotePiece; IOV_LIMIT],
    count: usize,
}

impl RemoteIov {
    /// Returns the segments, in order.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "no list has more pieces than there are places"
    )]
    pub fn pieces(&self) -> &[RemotePiece] {
        &self.pieces[..self.count]
    }

    /// Returns the total length in bytes; saturates.
    #[inline]
    pub fn len(&self) -> u64 {
        self.pieces()
            .iter()
            .fold(0, |sum, piece| sum.saturating_add(piece.len))
    }

    /// Returns whether the total length is zero.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Truncates the segments to the first `len` bytes. One segment always stays, if there is any,
    /// for its key.
    pub fn truncate(&mut self, len: u64) {
        let (mut left, mut count) = (len, 0);
        for piece in self.pieces.iter_mut().take(self.count) {
            if left == 0 && count != 0 {
                break;
            }
            piece.len = piece.len.min(left);
            left -= piece.len;
            count += 1;
        }
        self.count = count;
    }

    /// Adds a segment; returns `false` if there are already [`IOV_LIMIT`].
    #[inline]
    pub fn push(&mut self, piece: RemotePiece) -> bool {
        match self.pieces.get_mut(self.count) {
            Some(slot) => {
                *slot = piece;
                self.count += 1;
                true
            }
            None => false,
        }
    }
}

impl From<RemotePiece> for RemoteIov {
    #[inline]
    fn from(piece: RemotePiece) -> Self {
        let mut this = Self::default();
        this.push(piece);
        this
    }
}

/// A request of fi_read(3), fi_write(3) and their variants.
#[derive(Debug)]
pub struct RemoteAccess {
    /// Read or write.
    pub access: Access,
    /// Local memory.
    pub local: AppIov,
    /// Descriptors of `local`.
    pub desc: Descs,
    /// The peer's memory.
    pub remote: RemoteIov,
    /// The target; ignored by connected endpoints.
    pub peer: fi_addr_t,
    /// Immediate data of a write.
    pub data: u64,
    /// All flags, as in [`Transmit::flags`].
    pub flags: u64,
    /// The context of the completion.
    pub context: *mut c_void,
}

static NO_MEMORY: AppIov = AppIov::EMPTY;

/// The three forms of fi_atomic(3).
#[derive(Debug)]
pub enum AtomicKind {
    /// `fi_atomic`
    Base,
    /// `fi_fetch_atomic`: the old values are stored in `result`.
    Fetch {
        /// Local memory for the target's old values.
        result: AppIov,
        /// Descriptors of `result`.
        result_desc: Descs,
    },
    /// `fi_compare_atomic`
    Compare {
        /// The values that the target is compared with.
        compare: AppIov,
        /// Descriptors of `compare`.
        compare_desc: Descs,
        /// Local memory for the target's old values.
        result: AppIov,
        /// Descriptors of `result`.
        result_desc: Descs,
    },
}

impl AtomicKind {
    /// Returns the comparison values; empty if the operation does not compare.
    pub fn compare(&self) -> &AppIov {
        match self {
            AtomicKind::Compare { compare, .. } => compare,
            AtomicKind::Base | AtomicKind::Fetch { .. } => &NO_MEMORY,
        }
    }

    /// Returns the comparison values, to be changed; `None` if the operation does not compare.
    pub fn compare_mut(&mut self) -> Option<&mut AppIov> {
        match self {
            AtomicKind::Compare { compare, .. } => Some(compare),
            AtomicKind::Base | AtomicKind::Fetch { .. } => None,
        }
    }

    /// Returns the memory for the target's old values; `None` if the operation does not return
    /// them.
    pub fn result(&self) -> Option<&AppIov> {
        match self {
            AtomicKind::Fetch { result, .. } | AtomicKind::Compare { result, .. } => Some(result),
            AtomicKind::Base => None,
        }
    }

    /// Gives that memory back after [`AtomicKind::take_result`].
    pub fn give_result(&mut self, memory: AppIov) {
        if let AtomicKind::Fetch { result, .. } | AtomicKind::Compare { result, .. } = self {
            *result = memory;
        }
    }

    /// Returns the form with its buffers, of which nothing is left here.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, AtomicKind::Base)
    }

    /// Takes that memory.
    pub fn take_result(&mut self) -> Option<AppIov> {
        match self {
            AtomicKind::Fetch { result, .. } | AtomicKind::Compare { result, .. } => {
                Some(result.take())
            }
            AtomicKind::Base => None,
        }
    }

    /// Returns the same request once more.
    ///
    /// # Safety
    /// That of [`AppIov::duplicate`].
    unsafe fn duplicate(&self) -> Self {
        // SAFETY: the caller keeps the contract.
        unsafe {
            match self {
                AtomicKind::Base => AtomicKind::Base,
                AtomicKind::Fetch {
                    result,
                    result_desc,
                } => AtomicKind::Fetch {
                    result: result.duplicate(),
                    result_desc: *result_desc,
                },
                AtomicKind::Compare {
                    compare,
                    compare_desc,
                    result,
                    result_desc,
                } => AtomicKind::Compare {
                    compare: compare.duplicate(),
                    compare_desc: *compare_desc,
                    result: result.duplicate(),
                    result_desc: *result_desc,
                },
            }
        }
    }

    /// Returns the form as in the tables of operations.
    pub fn form(&self) -> Form {
        match self {
            AtomicKind::Base => Form::Base,
            AtomicKind::Fetch { .. } => Form::Fetch,
            AtomicKind::Compare { .. } => Form::Compare,
        }
    }
}

/// An atomic operation. All lengths are in bytes, and multiples of an element.
#[derive(Debug)]
pub struct Atomic {
    /// The form, with its additional buffers.
    pub kind: AtomicKind,
    /// Type of the elements.
    pub datatype: fi_datatype,
    /// The operation.
    pub op: fi_op,
    /// The operands; empty for `FI_ATOMIC_READ`.
    pub operand: AppIov,
    /// Descriptors of `operand`.
    pub desc: Descs,
    /// The peer's memory.
    pub remote: RemoteIov,
    /// The target; ignored by connected endpoints.
    pub peer: fi_addr_t,
    /// Immediate data.
    pub data: u64,
    /// All flags, as in [`Transmit::flags`].
    pub flags: u64,
    /// The context of the completion.
    pub context: *mut c_void,
}

macro_rules! flag_questions {
    ($($request:ident),*) => {
        $(impl $request {
            /// Returns whether success is reported to the completion queue.
            #[inline]
            pub fn wants_completion(&self) -> bool {
                self.flags & FI_COMPLETION != 0
            }

            /// Returns whether the application may reuse the buffers after the call.
            #[inline]
            pub fn is_inject(&self) -> bool {
                self.flags & FI_INJECT != 0
            }

            /// Returns the immediate data, if there is any.
            #[inline]
            pub fn immediate(&self) -> Option<u64> {
                (self.flags & FI_REMOTE_CQ_DATA != 0).then_some(self.data)
            }
        })*
    };
}

flag_questions!(Transmit, RemoteAccess, Atomic);

/// Requests that can be posted once more.
macro_rules! duplicates {
    ($($request:ident { $($memory:ident),* })*) => {
        $(impl $request {
            /// Returns the same request once more.
            ///
            /// # Safety
            /// That of [`AppIov::duplicate`].
            #[inline(always)]
            pub unsafe fn duplicate(&self) -> Self {
                $request {
                    // SAFETY: the caller keeps the contract.
                    $($memory: unsafe { self.$memory.duplicate() },)*
                    ..*self
                }
            }
        })*
    };
}

duplicates! {
    Transmit { buffers }
    Receive { buffers }
    RemoteAccess { local }
    Atomic { kind, operand }
}

impl Receive {
    /// Returns whether success is reported to the completion queue.
    #[inline]
    pub fn wants_completion(&self) -> bool {
        self.flags & FI_COMPLETION != 0
    }

    /// Returns the requested sender; `None` for any.
    #[inline]
    pub fn directed(&self) -> Option<fi_addr_t> {
        (self.peer != FI_ADDR_UNSPEC).then_some(self.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_to_its_first_bytes_and_keeps_a_key() {
        let cut = |lens: &[u64], len| {
            let mut list = RemoteIov::default();
            for (key, &len) in (1..).zip(lens) {
                assert!(list.push(RemotePiece { addr: 0, len, key }));
            }
            list.truncate(len);
            let pieces = list.pieces().iter().map(|piece| (piece.key, piece.len));
            pieces.collect::<Vec<_>>()
        };
        assert_eq!(cut(&[8, 8, 8], 24), [(1, 8), (2, 8), (3, 8)]);
        assert_eq!(cut(&[8, 8, 8], 17), [(1, 8), (2, 8), (3, 1)]);
        assert_eq!(cut(&[8, 8, 8], 16), [(1, 8), (2, 8)]);
        assert_eq!(cut(&[8, 8, 8], 0), [(1, 0)]);
        assert_eq!(cut(&[0, 8], 4), [(1, 0), (2, 4)]);
        assert_eq!(cut(&[u64::MAX, u64::MAX], 3), [(1, 3)]);
        assert_eq!(cut(&[], 3), []);
    }
}
