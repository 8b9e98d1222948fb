//! Connected endpoints of the provider below, and their shared receive contexts (fi_endpoint(3),
//! fi_cm(3), fi_msg(3), fi_rma(3)).

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use fabric_abi::*;
use libc::iovec;

use super::counter::Counter;
use super::events::{Asking, Eq};
use super::lending::{Posted, inject, next_owner, post, receive};
use super::queue::Cq;
use super::slots::{Memory, Slot, Slots};
use super::{Domain, Made, Object, Region, done};
use crate::marshal::info;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_objects::attr::Info;
use prov_objects::desc::Descs;
use prov_objects::request::RemotePiece;

/// The descriptors of local memory, one per segment.
#[derive(Clone, Copy)]
pub struct Local([*mut c_void; IOV_LIMIT]);

// SAFETY: this library does not dereference the pointers; the provider below does, in any thread.
unsafe impl Send for Local {}

impl Local {
    /// No descriptors: the provider below does not require registration.
    pub const NONE: Local = Local([null_mut(); IOV_LIMIT]);

    /// The list, as C takes it.
    pub(super) fn as_mut_ptr(&mut self) -> *mut *mut c_void {
        self.0.as_mut_ptr()
    }

    /// The descriptors that the application has passed, which belong to the provider below.
    pub fn given(descs: &Descs) -> Self {
        let mut local = Local::NONE;
        for (at, place) in local.0.iter_mut().enumerate() {
            *place = descs.of_piece(at).map_or(null_mut(), |desc| desc.0);
        }
        local
    }

    /// Returns the descriptors of the segments of this memory from an offset on.
    pub fn from(&self, offset: usize, memory: &AppIov) -> Self {
        let mut end = 0;
        let mut pieces = memory.pieces().iter();
        let first = pieces.position(|piece| {
            end += piece.iov_len;
            offset < end
        });
        let behind = first.and_then(|first| self.0.get(first..));
        let mut local = Local::NONE;
        for (place, desc) in local.0.iter_mut().zip(behind.unwrap_or_default()) {
            *place = *desc;
        }
        local
    }

    /// Returns the descriptors of regions, each of which is a segment.
    pub fn of(regions: &[Region]) -> Self {
        let mut local = Local::NONE;
        for (place, region) in local.0.iter_mut().zip(regions) {
            *place = region.desc();
        }
        local
    }
}

/// A shared receive context, and what has to stay open as long as it is.
pub struct SharedReceive {
    object: Object<fid_ep>,
    owner: u32,
    _memory: Arc<Memory>,
    _domain: Arc<Domain>,
}

impl SharedReceive {
    /// Opens a context for the number of receives in `entry` (fi_srx_context(3)).
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open<T>(domain: &Arc<Domain>, entry: &Info, slots: &Slots<T>) -> Result<Arc<Self>> {
        let entry = Made(info::to_c(std::slice::from_ref(entry))?);
        let mut ep = null_mut();
        // SAFETY: the domain is open, and the entry has all of its attributes.
        let object = unsafe {
            let open = (*(*domain.as_c()).ops).srx_ctx.ok_or(Errno::ENOSYS)?;
            let status = open(domain.as_c(), (*entry.0).rx_attr, &mut ep, null_mut());
            Object::opened(status, ep)?
        };
        Ok(Arc::new(SharedReceive {
            object,
            owner: next_owner(),
            _memory: slots.memory(),
            _domain: domain.clone(),
        }))
    }

    /// Posts a slot as a receive buffer.
    #[inline(always)]
    pub fn receive<T>(&self, slots: &mut Slots<T>, slot: Slot) -> Posted {
        receive(&self.object, self.owner, slots, slot)
    }
}

/// Endpoint option, a `bool`, between providers of this library: peers access memory of the
/// endpoint's process only for announced messages, whose owner makes progress until they have ended:
/// a provider need not prepare for accesses while the owner makes none, which costs memory for each
/// peer. Other providers do not know it (`-FI_ENOPROTOOPT`), and need not.
pub const OPT_ONLY_RENDEZVOUS: c_int = -FI_PROV_SPECIFIC_TCP + 0xff00;

/// The objects that an endpoint is bound to.
#[derive(Clone)]
pub struct Wiring {
    /// The queue of its sends, reads and writes.
    pub tx_cq: Arc<Cq>,
    /// The queue of its receives, and of operations that peers initiate.
    pub rx_cq: Arc<Cq>,
    /// The queue of its events.
    pub eq: Arc<Eq>,
    /// The shared receive context, if it has no receives of its own.
    pub shared: Option<Arc<SharedReceive>>,
    /// Whether peers access memory only for announced messages ([`OPT_ONLY_RENDEZVOUS`]).
    pub only_rendezvous: bool,
    /// Counters, with the directions (`FI_REMOTE_*`) that they count.
    pub counters: Vec<(u64, Arc<Counter>)>,
}

/// A connected endpoint of the provider below; closed when it is dropped.
pub struct Endpoint {
    object: Object<fid_ep>,
    owner: u32,
    _memory: Arc<Memory>,
    // Declared last, so that what the endpoint is bound to is closed after it.
    _wiring: Wiring,
    _domain: Arc<Domain>,
}

impl Endpoint {
    /// Opens an endpoint that will connect.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open<T>(
        domain: &Arc<Domain>,
        entry: &Info,
        wiring: &Wiring,
        slots: &Slots<T>,
    ) -> Result<Self> {
        let entry = Made(info::to_c(std::slice::from_ref(entry))?);
        // SAFETY: the entry has all of its attributes, in the library's layout.
        unsafe { Self::open_as(domain, entry.0, wiring, slots) }
    }

    /// Opens an endpoint that will accept a peer's connection. Without a shared receive context in
    /// the wiring, it has receives of its own, whatever the passive endpoint was opened with.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open_for<T>(
        domain: &Arc<Domain>,
        asking: &Asking,
        wiring: &Wiring,
        slots: &Slots<T>,
    ) -> Result<Self> {
        let entry = asking.as_c();
        if wiring.shared.is_none() {
            // SAFETY: the structure has the library's layout, and this side has owned it since the
            // event was read, so that there are no other users.
            unsafe {
                if let Some(attr) = (*entry).ep_attr.as_mut()
                    && attr.rx_ctx_cnt == FI_SHARED_CONTEXT
                {
                    attr.rx_ctx_cnt = 1;
                }
            }
        }
        // SAFETY: the structure was made by the library, in its layout.
        unsafe { Self::open_as(domain, entry, wiring, slots) }
    }

    /// # Safety
    /// The structure has the library's layout.
    unsafe fn open_as<T>(
        domain: &Arc<Domain>,
        entry: *mut fi_info,
        wiring: &Wiring,
        slots: &Slots<T>,
    ) -> Result<Self> {
        let mut ep = null_mut();
        // SAFETY: the domain is open, and the caller guarantees that the structure has the
        // library's layout.
        let object = unsafe {
            let open = (*(*domain.as_c()).ops).endpoint.ok_or(Errno::ENOSYS)?;
            let status = open(domain.as_c(), entry, &mut ep, null_mut());
            Object::opened(status, ep)?
        };
        object.bind(wiring.eq.fid(), 0)?;
        if let Some(shared) = &wiring.shared {
            object.bind(shared.object.fid(), 0)?;
        }
        object.bind(wiring.tx_cq.fid(), FI_TRANSMIT)?;
        object.bind(wiring.rx_cq.fid(), FI_RECV)?;
        for (directions, counter) in &wiring.counters {
            object.bind(counter.fid(), *directions)?;
        }
        if wiring.only_rendezvous {
            // Providers that do not know it prepare for all accesses.
            let _unknown = object.set_option(OPT_ONLY_RENDEZVOUS, true);
        }
        object.control(FI_ENABLE, null_mut())?;
        Ok(Endpoint {
            object,
            owner: next_owner(),
            _memory: slots.memory(),
            _wiring: wiring.clone(),
            _domain: domain.clone(),
        })
    }

    /// Returns the identifier of the endpoint in events.
    pub fn name(&self) -> usize {
        self.object.as_ptr().addr()
    }

    /// Closes the endpoint. Returns the data of its operations that have not completed, and never
    /// will.
    pub fn close<T>(self, slots: &mut Slots<T>) -> Vec<T> {
        let owner = self.owner;
        drop(self);
        slots.orphan(owner)
    }

    /// Returns the data of its operations that have not completed, or whose completion was not
    /// read.
    pub fn outstanding<'a, T>(
        &self,
        slots: &'a Slots<T>,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        slots.lent_to(self.owner)
    }

    /// Connects to the peer at an address, with connection data.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn connect(&self, address: &[u8], data: &[u8]) -> Result {
        // SAFETY: the endpoint is open, and address and data are valid during the call.
        let status = unsafe {
            let connect = (*(*self.object.as_ptr()).cm).connect;
            connect.ok_or(Errno::ENOSYS)?(
                self.object.as_ptr(),
                address.as_ptr().cast(),
                data.as_ptr().cast(),
                data.len(),
            )
        };
        done(status)
    }

    /// Accepts the connection that it was opened for, with connection data.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn accept(&self, data: &[u8]) -> Result {
        // SAFETY: the endpoint is open, and the data is valid during the call.
        let status = unsafe {
            let accept = (*(*self.object.as_ptr()).cm).accept;
            let param = data.as_ptr().cast();
            accept.ok_or(Errno::ENOSYS)?(self.object.as_ptr(), param, data.len())
        };
        done(status)
    }

    /// Posts a slot as a receive buffer of the endpoint, if it has no shared receive context.
    #[inline]
    pub fn receive<T>(&self, slots: &mut Slots<T>, slot: Slot) -> Posted {
        receive(&self.object, self.owner, slots, slot)
    }

    /// Sends a packet that is copied by the call and whose completion is not reported.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room for it.
    #[inline(always)]
    pub fn inject(&self, packet: &[u8]) -> Result {
        inject(&self.object, packet, FI_ADDR_UNSPEC)
    }

    /// Sends this many bytes of a slot.
    #[inline]
    pub fn send_slot<T>(&self, slots: &mut Slots<T>, slot: Slot, len: usize) -> Posted {
        post(slots, slot, self.owner, |lent| {
            let (ep, len) = (self.object.as_ptr(), len.min(lent.len));
            // SAFETY: the endpoint is open, and the slot's bytes are lent to this operation until it
            // completes.
            unsafe {
                match (*(*ep).msg).send {
                    Some(send) => {
                        send(ep, lent.bytes, len, lent.desc, FI_ADDR_UNSPEC, lent.context)
                    }
                    None => Errno::ENOSYS.to_c() as isize,
                }
            }
        })
    }

    /// Sends this many bytes of a slot followed by the application's memory, which has at most
    /// [`IOV_LIMIT`] segments, with these flags.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "a message has at most `IOV_LIMIT` pieces, and there is one place more"
    )]
    pub fn send<T>(
        &self,
        slots: &mut Slots<T>,
        slot: Slot,
        len: usize,
        behind: &AppIov,
        local: &Local,
        flags: u64,
    ) -> Posted {
        let object = &self.object;
        post(slots, slot, self.owner, |lent| {
            const NOTHING: iovec = iovec {
                iov_base: null_mut(),
                iov_len: 0,
            };
            let mut iov = [NOTHING; IOV_LIMIT + 1];
            let mut desc = [null_mut(); IOV_LIMIT + 1];
            iov[0] = iovec {
                iov_base: lent.bytes,
                iov_len: len.min(lent.len),
            };
            desc[0] = lent.desc;
            let mut count = 1;
            for (piece, own) in behind.pieces().iter().zip(local.0) {
                (iov[count], desc[count]) = (*piece, own);
                count += 1;
            }
            let message = fi_msg {
                msg_iov: iov.as_ptr(),
                desc: desc.as_mut_ptr(),
                iov_count: count,
                addr: FI_ADDR_UNSPEC,
                context: lent.context,
                data: 0,
            };
            // SAFETY: the endpoint is open. The slot's bytes are lent to this operation until it
            // completes, and the application's memory belongs to it as long (see `AppIov`).
            unsafe {
                match (*(*object.as_ptr()).msg).sendmsg {
                    Some(send) => send(object.as_ptr(), &message, FI_COMPLETION | flags),
                    None => Errno::ENOSYS.to_c() as isize,
                }
            }
        })
    }

    /// Reads remote memory.
    pub fn read<T>(
        &self,
        slots: &mut Slots<T>,
        slot: Slot,
        to: &AppIov,
        local: &Local,
        remote: &[RemotePiece],
        flags: u64,
    ) -> Posted {
        let object = &self.object;
        post(slots, slot, self.owner, |lent| {
            let mut local = *local;
            let mut pieces = [EMPTY; IOV_LIMIT];
            let call = access(
                to.pieces(),
                &mut local,
                remote,
                &mut pieces,
                lent.context,
                0,
            );
            // SAFETY: the endpoint is open, and the application's memory belongs to the operation
            // until it completes (see `AppIov`).
            unsafe {
                match (*(*object.as_ptr()).rma).readmsg {
                    Some(read) => read(object.as_ptr(), &call, FI_COMPLETION | flags),
                    None => Errno::ENOSYS.to_c() as isize,
                }
            }
        })
    }

    /// Writes to remote memory the application's bytes or this many bytes of the slot, with
    /// immediate data if the flags say so.
    pub fn write<T>(
        &self,
        slots: &mut Slots<T>,
        slot: Slot,
        from: Written<'_>,
        remote: &[RemotePiece],
        data: u64,
        flags: u64,
    ) -> Posted {
        let object = &self.object;
        post(slots, slot, self.owner, |lent| {
            let own;
            let (from, mut local) = match from {
                Written::App(memory, local) => (memory.pieces(), *local),
                Written::Slot(len) => {
                    own = [iovec {
                        iov_base: lent.bytes,
                        iov_len: len.min(lent.len),
                    }];
                    let mut local = Local::NONE;
                    local.0[0] = lent.desc;
                    (&own[..], local)
                }
            };
            let mut pieces = [EMPTY; IOV_LIMIT];
            let call = access(from, &mut local, remote, &mut pieces, lent.context, data);
            // SAFETY: the endpoint is open, and the application's memory belongs to the operation
            // until it completes (see `AppIov`).
            unsafe {
                match (*(*object.as_ptr()).rma).writemsg {
                    Some(write) => write(object.as_ptr(), &call, FI_COMPLETION | flags),
                    None => Errno::ENOSYS.to_c() as isize,
                }
            }
        })
    }
}

/// The source of a write to remote memory.
pub enum Written<'a> {
    /// The application's bytes.
    App(&'a AppIov, &'a Local),
    /// This many bytes of the slot.
    Slot(usize),
}

pub(super) const EMPTY: fi_rma_iov = fi_rma_iov {
    addr: 0,
    len: 0,
    key: 0,
};

pub(super) fn access(
    local: &[iovec],
    desc: &mut Local,
    remote: &[RemotePiece],
    pieces: &mut [fi_rma_iov; IOV_LIMIT],
    context: *mut c_void,
    data: u64,
) -> fi_msg_rma {
    let count = remote.len().min(IOV_LIMIT);
    for (to, from) in pieces.iter_mut().zip(remote) {
        *to = fi_rma_iov {
            addr: from.addr,
            len: from.len as usize,
            key: from.key,
        };
    }
    fi_msg_rma {
        msg_iov: local.as_ptr(),
        desc: desc.as_mut_ptr(),
        iov_count: local.len().min(IOV_LIMIT),
        addr: FI_ADDR_UNSPEC,
        rma_iov: pieces.as_ptr(),
        rma_iov_count: count,
        context,
        data,
    }
}
