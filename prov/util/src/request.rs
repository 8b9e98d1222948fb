//! Data transfer requests. The forty-odd data calls of fi_msg(3),
//! fi_tagged(3), fi_rma(3) and fi_atomic(3) arrive as one of these.

use std::ffi::c_void;

use fabric_abi::{
    FI_ADDR_UNSPEC, FI_COMPLETION, FI_INJECT, FI_ORDER_RAS, FI_ORDER_WAS, FI_REMOTE_CQ_DATA,
    fi_addr_t, fi_datatype, fi_op,
};

use crate::atomic_ops::Form;
use crate::buffer::{AppIov, IOV_LIMIT};
use crate::desc::Descs;

/// Whether a message carries a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// fi_msg(3)
    None,
    /// fi_tagged(3)
    Value(u64),
}

impl Tag {
    /// The tag, if there is one.
    #[inline(always)]
    pub fn value(self) -> Option<u64> {
        match self {
            Tag::None => None,
            Tag::Value(tag) => Some(tag),
        }
    }
}

/// `fi_send`, `fi_tsend` and their variants.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// The message's tag.
    pub tag: Tag,
    /// The message.
    pub buffers: AppIov,
    /// Descriptors of `buffers`.
    pub desc: Descs,
    /// The receiver; ignored by connected endpoints.
    pub peer: fi_addr_t,
    /// Immediate data; meaningful with [`flags::REMOTE_CQ_DATA`](Self::flags).
    pub data: u64,
    /// The operation's complete flags: `FI_COMPLETION` says whether success
    /// is reported, `FI_INJECT` whether the buffers are the application's
    /// again when the call returns, `FI_REMOTE_CQ_DATA` whether `data` goes
    /// along, beside completion levels, `FI_FENCE`, `FI_MORE` and the like.
    pub flags: u64,
    /// Reported with the completion.
    pub context: *mut c_void,
}

/// What a receive matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// Messages without a tag.
    Untagged,
    /// Messages whose tag equals `tag` in the bits that `ignore` leaves.
    Tagged {
        /// The tag asked for.
        tag: u64,
        /// Bits that may differ.
        ignore: u64,
    },
}

/// A flag of this library's own, of a [`Receive`] with `FI_MULTI_RECV`: its buffer is for
/// one message, and the application's again with that.
pub const ONE_MESSAGE: u64 = 1 << 63;

/// `fi_recv`, `fi_trecv` and their variants, `FI_PEEK` and `FI_CLAIM` among
/// them.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    /// What is received.
    pub select: Select,
    /// Where to.
    pub buffers: AppIov,
    /// Descriptors of `buffers`.
    pub desc: Descs,
    /// The sender, or `FI_ADDR_UNSPEC` for any; meaningful on endpoints with
    /// `FI_DIRECTED_RECV`.
    pub peer: fi_addr_t,
    /// Complete flags, as in [`Transmit::flags`].
    pub flags: u64,
    /// Reported with the completion.
    pub context: *mut c_void,
}

/// The direction of a remote memory access, seen from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Remote memory into local buffers.
    Read,
    /// Local buffers into remote memory.
    Write,
}

impl Access {
    /// What of the order of operations (`msg_order` in `struct fi_tx_attr`) keeps such accesses
    /// behind messages that were posted before.
    pub const fn behind_messages(self) -> u64 {
        match self {
            Access::Read => FI_ORDER_RAS,
            Access::Write => FI_ORDER_WAS,
        }
    }
}

/// A piece of a peer's memory: `fi_rma_iov` with the length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemotePiece {
    /// A virtual address or an offset, as the `mr_mode` says.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// The key that the peer gave out.
    pub key: u64,
}

/// Up to [`IOV_LIMIT`] pieces of a peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteIov {
    pieces: [RemotePiece; IOV_LIMIT],
    count: usize,
}

impl RemoteIov {
    /// The pieces, in order.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "no list has more pieces than there are places"
    )]
    pub fn pieces(&self) -> &[RemotePiece] {
        &self.pieces[..self.count]
    }

    /// Bytes in all pieces; saturates.
    #[inline]
    pub fn len(&self) -> u64 {
        self.pieces()
            .iter()
            .fold(0, |sum, piece| sum.saturating_add(piece.len))
    }

    /// Whether there is not one byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts the pieces to the first `len` bytes. One piece stays even then, if there is any,
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

    /// Adds a piece; `false` where there are [`IOV_LIMIT`] already.
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

/// `fi_read`, `fi_write` and their variants.
#[derive(Clone, Copy, Debug)]
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
    /// Complete flags, as in [`Transmit::flags`].
    pub flags: u64,
    /// Reported with the completion.
    pub context: *mut c_void,
}

/// The three kinds of fi_atomic(3).
#[derive(Clone, Copy, Debug)]
pub enum AtomicKind {
    /// `fi_atomic`
    Base,
    /// `fi_fetch_atomic`: the former values land in `result`.
    Fetch {
        /// Local memory for the target's former values.
        result: AppIov,
        /// Descriptors of `result`.
        result_desc: Descs,
    },
    /// `fi_compare_atomic`
    Compare {
        /// What the target is compared to.
        compare: AppIov,
        /// Descriptors of `compare`.
        compare_desc: Descs,
        /// Local memory for the target's former values.
        result: AppIov,
        /// Descriptors of `result`.
        result_desc: Descs,
    },
}

impl AtomicKind {
    /// What the target is compared to; empty where it is not.
    pub fn compare(&self) -> AppIov {
        match self {
            AtomicKind::Compare { compare, .. } => *compare,
            AtomicKind::Base | AtomicKind::Fetch { .. } => AppIov::EMPTY,
        }
    }

    /// Where the target's former values go; `None` where nobody wants them.
    pub fn result(&self) -> Option<AppIov> {
        match self {
            AtomicKind::Fetch { result, .. } | AtomicKind::Compare { result, .. } => Some(*result),
            AtomicKind::Base => None,
        }
    }

    /// As the tables of operations call it.
    pub fn form(&self) -> Form {
        match self {
            AtomicKind::Base => Form::Base,
            AtomicKind::Fetch { .. } => Form::Fetch,
            AtomicKind::Compare { .. } => Form::Compare,
        }
    }
}

/// An atomic operation. All lengths are in bytes and whole elements.
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    /// Base, fetch or compare, with the buffers it has of its own.
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
    /// Complete flags, as in [`Transmit::flags`].
    pub flags: u64,
    /// Reported with the completion.
    pub context: *mut c_void,
}

macro_rules! flag_questions {
    ($($request:ident),*) => {
        $(impl $request {
            /// Whether success is reported on the completion queue.
            #[inline]
            pub fn wants_completion(&self) -> bool {
                self.flags & FI_COMPLETION != 0
            }

            /// Whether the buffers are the application's again when the call
            /// returns.
            #[inline]
            pub fn is_inject(&self) -> bool {
                self.flags & FI_INJECT != 0
            }

            /// The immediate data, where there is any.
            #[inline]
            pub fn immediate(&self) -> Option<u64> {
                (self.flags & FI_REMOTE_CQ_DATA != 0).then_some(self.data)
            }
        })*
    };
}

flag_questions!(Transmit, RemoteAccess, Atomic);

impl Receive {
    /// Whether success is reported on the completion queue.
    #[inline]
    pub fn wants_completion(&self) -> bool {
        self.flags & FI_COMPLETION != 0
    }

    /// The sender asked for, `None` for any.
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
