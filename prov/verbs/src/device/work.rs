//! Work requests.

use std::mem::MaybeUninit;

use libc::iovec;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_util::desc::Descs;

use super::LocalKey;
use super::{AddressHandle, Scratch};
use crate::sys::ibverbs::*;

/// Number of bytes before a datagram, where the device stores the network header
/// (`fi_ep_attr::msg_prefix_size`).
pub const PREFIX: usize = 40;

/// The local memory of a work request: application memory that lasts as long as the operation, with
/// the keys of its regions.
#[derive(Clone, Copy)]
pub struct Gather {
    /// The first `count` entries are initialized.
    pieces: [MaybeUninit<ibv_sge>; IOV_LIMIT],
    count: usize,
}

/// The properties of local memory that follow from its keys.
#[derive(Clone, Copy)]
pub struct Keys {
    /// Whether a request with this memory need not be inline: there is a key for each segment.
    pub are_complete: bool,
    /// Whether the library may read the memory itself, to send it inline.
    pub is_readable: bool,
}

impl Keys {
    /// The properties of no memory.
    pub const NONE: Keys = Keys {
        are_complete: true,
        is_readable: true,
    };

    /// Combines the properties of two parts.
    #[inline(always)]
    fn and(self, other: Keys) -> Keys {
        Keys {
            are_complete: self.are_complete && other.are_complete,
            is_readable: self.is_readable && other.is_readable,
        }
    }

    /// Returns the properties of memory with this key.
    #[inline(always)]
    fn of(key: Option<LocalKey>) -> Self {
        Keys {
            are_complete: key.is_some(),
            is_readable: key.is_none_or(|key| key.is_readable),
        }
    }
}

impl Gather {
    /// Creates an empty list.
    #[inline(always)]
    pub fn empty() -> Self {
        Gather {
            pieces: [const { MaybeUninit::uninit() }; IOV_LIMIT],
            count: 0,
        }
    }

    /// Creates a list of the only segment of application memory.
    ///
    /// # Errors
    /// Those of [`Gather::fill`].
    #[inline(always)]
    pub fn of_piece(piece: &iovec, descs: &Descs) -> Result<(Self, Keys)> {
        let mut local = Gather::empty();
        let key = descs.of_piece(0).map(LocalKey::of_desc);
        local.pieces[0].write(element(piece, key)?);
        local.count = 1;
        Ok((local, Keys::of(key)))
    }

    /// Adds application memory, with the descriptors of its regions. Modifies the list in place,
    /// since every message begins with this call.
    ///
    /// # Errors
    /// `-FI_EMSGSIZE` for a segment that is too long for a request.
    #[inline(always)]
    pub fn fill(&mut self, memory: &AppIov, descs: &Descs) -> Result<Keys> {
        if memory.pieces().len() != 1 {
            return self.fill_behind(0, memory, descs);
        }
        self.add(memory, descs, 0, 0)
    }

    /// Adds the last segments of memory to which `descs` belongs; the first `gone` segments have
    /// been left out.
    ///
    /// # Errors
    /// Those of [`Gather::fill`].
    #[inline(never)]
    pub fn fill_behind(&mut self, gone: usize, memory: &AppIov, descs: &Descs) -> Result<Keys> {
        let mut keys = Keys::NONE;
        for position in 0..memory.pieces().len() {
            keys = keys.and(self.add(memory, descs, position, gone + position)?);
        }
        Ok(keys)
    }

    /// Adds a segment of memory, with the descriptor with index `desc`.
    #[inline(always)]
    fn add(
        &mut self,
        memory: &AppIov,
        descs: &Descs,
        position: usize,
        desc: usize,
    ) -> Result<Keys> {
        let (Some(piece), Some(place)) = (
            memory.pieces().get(position),
            self.pieces.get_mut(self.count),
        ) else {
            return Err(Errno::EINVAL);
        };
        let key = descs.of_piece(desc).map(LocalKey::of_desc);
        place.write(element(piece, key)?);
        self.count += 1;
        Ok(Keys::of(key))
    }

    /// Prepends so many bytes that are ignored.
    ///
    /// # Errors
    /// `-FI_EINVAL` for too many segments.
    pub fn lead_by(&mut self, scratch: &Scratch, len: usize) -> Result {
        if self.count == self.pieces.len() {
            return Err(Errno::EINVAL);
        }
        self.pieces.rotate_right(1);
        self.pieces[0].write(scratch.piece(len));
        self.count += 1;
        Ok(())
    }

    /// Returns the number of segments.
    pub fn pieces(&self) -> usize {
        self.count
    }

    /// Returns the list for a work request of the library, which is read during the call, as far as
    /// there are segments.
    #[inline]
    pub(super) fn list(&self) -> (*mut ibv_sge, i32) {
        (self.pieces.as_ptr().cast_mut().cast(), self.count as i32)
    }
}

/// Returns a segment of memory in the library's representation.
#[inline(always)]
fn element(piece: &iovec, key: Option<LocalKey>) -> Result<ibv_sge> {
    Ok(ibv_sge {
        addr: piece.iov_base.expose_provenance() as u64,
        length: u32::try_from(piece.iov_len).map_err(|_| Errno::EMSGSIZE)?,
        lkey: key.map_or(0, |key| key.key),
    })
}

/// The operation of a request.
#[derive(Clone, Copy)]
pub enum Verb<'a> {
    /// A message to the connected peer.
    Send,
    /// A datagram.
    SendTo {
        /// The destination.
        handle: &'a AddressHandle,
        /// The queue pair at the destination.
        pair: u32,
        /// The key with which the receiver must have been opened.
        key: u32,
    },
    /// A write to the peer's memory.
    Write {
        /// The address there.
        address: u64,
        /// The key of the region there.
        key: u32,
    },
    /// A read from the peer's memory.
    Read {
        /// The address there.
        address: u64,
        /// The key of the region there.
        key: u32,
    },
    /// Adds to 8 bytes there; returns the old value.
    FetchAdd {
        /// The address there.
        address: u64,
        /// The key of the region there.
        key: u32,
        /// The number to add.
        add: u64,
    },
    /// Replaces 8 bytes there if they have the expected value; returns the old value.
    CompareSwap {
        /// The address there.
        address: u64,
        /// The key of the region there.
        key: u32,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
}

/// A request for the send queue.
pub struct SendRequest<'a> {
    /// Returned with the completion.
    pub id: u64,
    /// The operation.
    pub verb: Verb<'a>,
    /// The local memory.
    pub local: &'a Gather,
    /// Immediate data of a message or write.
    pub immediate: Option<u32>,
    /// Whether there is a completion in case of success.
    pub is_signalled: bool,
    /// Whether the memory is read while the request is posted.
    pub is_inline: bool,
}

impl SendRequest<'_> {
    /// Returns the request in the library's representation.
    #[inline(always)]
    pub(super) fn to_c(&self) -> ibv_send_wr {
        let (sg_list, num_sge) = self.local.list();
        let rdma = |remote_addr, rkey| send_wr_target {
            rdma: send_wr_rdma { remote_addr, rkey },
        };
        let atomic = |remote_addr, rkey, compare_add, swap| send_wr_target {
            atomic: send_wr_atomic {
                remote_addr,
                compare_add,
                swap,
                rkey,
            },
        };
        let with = |plain, immediate| match self.immediate {
            None => plain,
            Some(_) => immediate,
        };
        let (opcode, wr) = match self.verb {
            Verb::Send => (
                with(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM),
                send_wr_target { none: () },
            ),
            Verb::SendTo { handle, pair, key } => (
                with(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM),
                send_wr_target {
                    ud: send_wr_ud {
                        ah: handle.as_ptr(),
                        remote_qpn: pair,
                        remote_qkey: key,
                    },
                },
            ),
            Verb::Write { address, key } => (
                with(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM),
                rdma(address, key),
            ),
            Verb::Read { address, key } => (IBV_WR_RDMA_READ, rdma(address, key)),
            Verb::FetchAdd { address, key, add } => {
                (IBV_WR_ATOMIC_FETCH_AND_ADD, atomic(address, key, add, 0))
            }
            Verb::CompareSwap {
                address,
                key,
                compare,
                swap,
            } => (
                IBV_WR_ATOMIC_CMP_AND_SWP,
                atomic(address, key, compare, swap),
            ),
        };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        ibv_send_wr {
            wr_id: self.id,
            next: std::ptr::null_mut(),
            sg_list,
            num_sge,
            opcode,
            send_flags: flag(self.is_signalled, IBV_SEND_SIGNALED)
                | flag(self.is_inline, IBV_SEND_INLINE),
            imm_data: self.immediate.unwrap_or(0).to_be(),
            wr,
            qp_type_xrc_remote_srqn: MaybeUninit::uninit(),
            _bind_mw: MaybeUninit::uninit(),
        }
    }
}

/// A request for a receive queue.
pub struct ReceiveRequest<'a> {
    /// Returned with the completion.
    pub id: u64,
    /// The local memory.
    pub local: &'a Gather,
}

impl ReceiveRequest<'_> {
    /// Returns the request in the library's representation.
    #[inline(always)]
    pub(super) fn to_c(&self) -> ibv_recv_wr {
        let (sg_list, num_sge) = self.local.list();
        ibv_recv_wr {
            wr_id: self.id,
            next: std::ptr::null_mut(),
            sg_list,
            num_sge,
        }
    }
}
