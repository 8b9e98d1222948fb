//! Work requests.

use std::mem::MaybeUninit;

use libc::iovec;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_util::desc::Descs;

use super::LocalKey;
use super::{AddressHandle, Scratch};
use crate::sys::ibverbs::*;

/// Bytes in front of a datagram, where the device puts the header of its network
/// (`fi_ep_attr::msg_prefix_size`).
pub const PREFIX: usize = 40;

/// Local memory of a work request: application memory that lasts as long as the
/// operation, with the keys of its regions.
#[derive(Clone, Copy)]
pub struct Gather {
    /// The first `count` of them are there.
    pieces: [MaybeUninit<ibv_sge>; IOV_LIMIT],
    count: usize,
}

/// What is known of local memory by its keys.
#[derive(Clone, Copy)]
pub struct Keys {
    /// Whether a request with this memory needs not be inline: there is a key for
    /// each piece.
    pub are_complete: bool,
    /// Whether the library may read the memory itself, to send it inline.
    pub is_readable: bool,
}

impl Keys {
    /// Of no memory.
    pub const NONE: Keys = Keys {
        are_complete: true,
        is_readable: true,
    };

    /// Of both.
    #[inline(always)]
    fn and(self, other: Keys) -> Keys {
        Keys {
            are_complete: self.are_complete && other.are_complete,
            is_readable: self.is_readable && other.is_readable,
        }
    }

    /// Of memory with this key.
    #[inline(always)]
    fn of(key: Option<LocalKey>) -> Self {
        Keys {
            are_complete: key.is_some(),
            is_readable: key.is_none_or(|key| key.is_readable),
        }
    }
}

impl Gather {
    /// No memory.
    #[inline(always)]
    pub fn empty() -> Self {
        Gather {
            pieces: [const { MaybeUninit::uninit() }; IOV_LIMIT],
            count: 0,
        }
    }

    /// The first piece of application memory, which has no others.
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

    /// Adds application memory, with the descriptors of its regions. In place,
    /// since this is what each message begins with.
    ///
    /// # Errors
    /// `-FI_EMSGSIZE` for a piece that no request can name.
    #[inline(always)]
    pub fn fill(&mut self, memory: &AppIov, descs: &Descs) -> Result<Keys> {
        if memory.pieces().len() != 1 {
            return self.fill_behind(0, memory, descs);
        }
        self.add(memory, descs, 0, 0)
    }

    /// Adds the last pieces of memory that `descs` are for, of which the first
    /// `gone` have been left out.
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

    /// Adds a piece of memory, with the descriptor that stands at `desc`.
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

    /// The same behind so many bytes of which nobody wants to know.
    ///
    /// # Errors
    /// `-FI_EINVAL` for too many pieces.
    pub fn lead_by(&mut self, scratch: &Scratch, len: usize) -> Result {
        if self.count == self.pieces.len() {
            return Err(Errno::EINVAL);
        }
        self.pieces.rotate_right(1);
        self.pieces[0].write(scratch.piece(len));
        self.count += 1;
        Ok(())
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.count
    }

    /// What a work request of the library is given. The list is read during the
    /// call, as far as there are pieces.
    #[inline]
    pub(super) fn list(&self) -> (*mut ibv_sge, i32) {
        (self.pieces.as_ptr().cast_mut().cast(), self.count as i32)
    }
}

/// A piece of memory as the library has it.
#[inline(always)]
fn element(piece: &iovec, key: Option<LocalKey>) -> Result<ibv_sge> {
    Ok(ibv_sge {
        addr: piece.iov_base.expose_provenance() as u64,
        length: u32::try_from(piece.iov_len).map_err(|_| Errno::EMSGSIZE)?,
        lkey: key.map_or(0, |key| key.key),
    })
}

/// What a device is to do.
#[derive(Clone, Copy)]
pub enum Verb<'a> {
    /// A message to the connected peer.
    Send,
    /// A datagram.
    SendTo {
        /// Where to.
        handle: &'a AddressHandle,
        /// Whose queue pair there.
        pair: u32,
        /// What the receiver must have been opened with.
        key: u32,
    },
    /// Into the peer's memory.
    Write {
        /// The address there.
        address: u64,
        /// The key of the region there.
        key: u32,
    },
    /// Out of the peer's memory.
    Read {
        /// The address there.
        address: u64,
        /// The key of the region there.
        key: u32,
    },
    /// Adds to 8 bytes there; what was there comes back.
    FetchAdd {
        /// The address there.
        address: u64,
        /// The key of the region there.
        key: u32,
        /// What to add.
        add: u64,
    },
    /// Replaces 8 bytes there if they are as expected; what was there comes back.
    CompareSwap {
        /// The address there.
        address: u64,
        /// The key of the region there.
        key: u32,
        /// What is to be there.
        compare: u64,
        /// What is to come there.
        swap: u64,
    },
}

/// A request for the send queue.
pub struct SendRequest<'a> {
    /// Comes back with the completion.
    pub id: u64,
    /// What to do.
    pub verb: Verb<'a>,
    /// With what, or where to.
    pub local: &'a Gather,
    /// Immediate data of a message or write.
    pub immediate: Option<u32>,
    /// Whether there is a completion if nothing goes wrong.
    pub is_signalled: bool,
    /// Whether the memory is read at once.
    pub is_inline: bool,
}

impl SendRequest<'_> {
    /// As the library has it.
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
    /// Comes back with the completion.
    pub id: u64,
    /// Where to.
    pub local: &'a Gather,
}

impl ReceiveRequest<'_> {
    /// As the library has it.
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
