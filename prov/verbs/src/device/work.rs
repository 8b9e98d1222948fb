//! Work requests.

use std::mem::MaybeUninit;

use libc::iovec;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_device::{Keys, Local, LocalKey, Remote, RemoteKind};
use prov_util::desc::Descs;

use super::{Rdma, Scratch};
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

/// Returns the properties of memory with this key.
#[inline(always)]
fn keys_of(key: Option<LocalKey>) -> Keys {
    Keys {
        are_complete: key.is_some(),
        is_readable: key.is_none_or(|key| key.is_readable),
    }
}

impl Gather {
    /// Creates a list of the only segment of application memory.
    ///
    /// # Errors
    /// Those of [`Local::fill`].
    #[inline(always)]
    pub fn of_piece(piece: &iovec, descs: &Descs) -> Result<(Self, Keys)> {
        let mut local = Gather::empty();
        let key = descs.of_piece(0).map(LocalKey::of_desc);
        local.pieces[0].write(element(piece, key)?);
        local.count = 1;
        Ok((local, keys_of(key)))
    }

    /// Adds the last segments of memory to which `descs` belongs; the first `gone` segments have
    /// been left out.
    ///
    /// # Errors
    /// Those of [`Local::fill`].
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
        Ok(keys_of(key))
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

impl Local for Gather {
    #[inline(always)]
    fn empty() -> Self {
        Gather {
            pieces: [const { MaybeUninit::uninit() }; IOV_LIMIT],
            count: 0,
        }
    }

    /// Modifies the list in place, since every message begins with this call.
    #[inline(always)]
    fn fill(&mut self, memory: &mut AppIov, descs: &Descs) -> Result<Keys> {
        if memory.pieces().len() != 1 {
            return self.fill_behind(0, memory, descs);
        }
        self.add(memory, descs, 0, 0)
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
pub type Verb<'a> = prov_device::Verb<'a, Rdma>;
/// A request for the send queue.
pub type SendRequest<'a> = prov_device::SendRequest<'a, Rdma>;
/// A request for a receive queue.
pub type ReceiveRequest<'a> = prov_device::ReceiveRequest<'a, Rdma>;

/// Returns the request in the library's representation.
#[inline(always)]
pub(super) fn send_request(request: &SendRequest<'_>) -> ibv_send_wr {
    let (sg_list, num_sge) = request.local.list();
    let rdma = |remote: Remote| send_wr_target {
        rdma: send_wr_rdma {
            remote_addr: remote.address,
            rkey: remote.key,
        },
    };
    let atomic = |remote: Remote, compare_add, swap| send_wr_target {
        atomic: send_wr_atomic {
            remote_addr: remote.address,
            compare_add,
            swap,
            rkey: remote.key,
        },
    };
    let with = |plain, immediate| match request.immediate {
        None => plain,
        Some(_) => immediate,
    };
    let (opcode, wr) = match request.verb {
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
        Verb::Remote(remote) => match remote.kind {
            RemoteKind::Write => (
                with(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM),
                rdma(remote),
            ),
            RemoteKind::Read => (IBV_WR_RDMA_READ, rdma(remote)),
            RemoteKind::FetchAdd { add } => (IBV_WR_ATOMIC_FETCH_AND_ADD, atomic(remote, add, 0)),
            RemoteKind::CompareSwap { compare, swap } => {
                (IBV_WR_ATOMIC_CMP_AND_SWP, atomic(remote, compare, swap))
            }
        },
    };
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    ibv_send_wr {
        wr_id: request.id,
        next: std::ptr::null_mut(),
        sg_list,
        num_sge,
        opcode,
        send_flags: flag(request.is_signalled, IBV_SEND_SIGNALED)
            | flag(request.is_inline, IBV_SEND_INLINE),
        imm_data: request.immediate.unwrap_or(0).to_be(),
        wr,
        qp_type_xrc_remote_srqn: MaybeUninit::uninit(),
        _bind_mw: MaybeUninit::uninit(),
    }
}

/// Returns the request in the library's representation.
#[inline(always)]
pub(super) fn receive_request(request: &ReceiveRequest<'_>) -> ibv_recv_wr {
    let (sg_list, num_sge) = request.local.list();
    ibv_recv_wr {
        wr_id: request.id,
        next: std::ptr::null_mut(),
        sg_list,
        num_sge,
    }
}
