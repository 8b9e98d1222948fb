//! Endpoints of a provider below that share this side's objects (fi_peer(3)): receives, completions
//! and counters belong to this side, and operations are passed on as the application has posted
//! them.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use fabric_abi::*;
use libc::iovec;

use super::endpoint::access;
use super::{Addresses, Counter, Domain, Local, Made, Object, done, name_of};
use crate::marshal::info;
use prov_base::atomic_ops::Datatype;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_objects::attr::Info;
use prov_objects::peer_ends::{NAME, PeerEndsOps};
use prov_objects::request::{
    Access, Atomic, AtomicKind, RemoteAccess, RemoteIov, RemotePiece, Tag, Transmit,
};

/// An endpoint whose receives and completions belong to this side; closed when it is dropped.
pub struct LinkedEndpoint {
    object: Object<fid_ep>,
    // Declared after the endpoint, so that what it is bound to is closed after it.
    parts: OnceLock<Parts>,
    /// The provider's function for [`LinkedEndpoint::awaits`], if it has one.
    awaits: OnceLock<Awaits>,
    addresses: Arc<Addresses>,
    domain: Arc<Domain>,
}

/// What an enabled endpoint is bound to.
struct Parts {
    _srx: Object<fid_ep>,
    cq: Object<fid_cq>,
    has_fd: bool,
    _counters: Vec<Arc<Counter>>,
}

/// See [`PeerEndsOps::awaits`].
struct Awaits {
    endpoint: *mut c_void,
    call: unsafe extern "C" fn(*mut c_void, fi_addr_t, u64),
}

// SAFETY: the provider's function may be called from any thread that has entered the owner's lock.
unsafe impl Send for Awaits {}
// SAFETY: as above.
unsafe impl Sync for Awaits {}

/// A function that is told of peers that are gone: [`PeerEndsOps::ended`].
pub type Ended = unsafe extern "C" fn(*mut c_void, fi_addr_t, u64, c_int);

/// This side's objects that an endpoint shares.
pub struct Owners<'a> {
    /// Where its operations complete.
    pub cq: *mut fid_peer_cq,
    /// Where its messages find receives.
    pub srx: *mut fid_peer_srx,
    /// What counts the accesses of peers, with their kinds (`FI_REMOTE_*`).
    pub counters: &'a [(u64, Arc<Counter>)],
    /// Whether threads sleep until it has work.
    pub sleeps: bool,
}

impl LinkedEndpoint {
    /// Opens an endpoint, with an address vector of its own. Calls without a flags argument have the
    /// flag `FI_COMPLETION` alone, whatever the entry says.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open(domain: &Arc<Domain>, entry: &Info) -> Result<Self> {
        let addresses = Addresses::open(domain)?;
        let mut entry = entry.clone();
        entry.tx.op_flags = FI_COMPLETION;
        entry.rx.op_flags = 0;
        let entry = Made(info::to_c(std::slice::from_ref(&entry))?);
        let mut ep = null_mut();
        // SAFETY: the domain is open, and the entry has all of its attributes.
        let object = unsafe {
            let open = (*(*domain.as_c()).ops).endpoint.ok_or(Errno::ENOSYS)?;
            let status = open(domain.as_c(), entry.as_c(), &mut ep, null_mut());
            Object::opened(status, ep)?
        };
        object.bind(addresses.fid(), 0)?;
        Ok(LinkedEndpoint {
            object,
            parts: OnceLock::new(),
            awaits: OnceLock::new(),
            addresses,
            domain: domain.clone(),
        })
    }

    /// Shares this side's objects with the endpoint, and enables it. Only operations with
    /// `FI_COMPLETION` complete at the queue, and those that fail.
    ///
    /// # Errors
    /// What the provider returns, `-FI_EOPBADSTATE` for a second call.
    ///
    /// # Safety
    /// The objects of `owners` stay open as long as the endpoint.
    pub unsafe fn enable(&self, owners: Owners<'_>) -> Result {
        // SAFETY: the caller guarantees that the owner's objects stay open as long as the parts.
        let (srx, (cq, has_fd)) = unsafe { (self.srx(owners.srx)?, self.cq(&owners)?) };
        self.object.bind(srx.fid(), 0)?;
        let both = FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION;
        self.object.bind(cq.fid(), both)?;
        for (kinds, counter) in owners.counters {
            self.object.bind(counter.fid(), *kinds)?;
        }
        self.object.control(FI_ENABLE, null_mut())?;
        let counters = owners.counters.iter().map(|(_, counter)| counter.clone());
        let parts = Parts {
            _srx: srx,
            cq,
            has_fd,
            _counters: counters.collect(),
        };
        self.parts.set(parts).map_err(|_| Errno::EOPBADSTATE)
    }

    /// Has the enabled endpoint call `ended` with this argument when a peer is gone.
    ///
    /// # Errors
    /// What the provider returns: only providers of this library do.
    ///
    /// # Safety
    /// The argument is valid as long as the endpoint is open, from any thread.
    pub unsafe fn listen(&self, argument: *mut c_void, ended: Ended) -> Result {
        let mut table = PeerEndsOps {
            size: size_of::<PeerEndsOps>(),
            owner: argument,
            ended: Some(ended),
            endpoint: null_mut(),
            awaits: None,
        };
        // SAFETY: the endpoint is open, and the name and the table are valid during the call.
        let status = unsafe {
            let ops = (*self.object.fid()).ops;
            let has = std::mem::offset_of!(fi_ops, ops_set) + size_of::<usize>();
            let set = (*ops).ops_set.filter(|_| (*ops).size >= has);
            let set = set.ok_or(Errno::ENOSYS)?;
            let ops = (&raw mut table).cast();
            set(self.object.fid(), NAME.as_ptr(), 0, ops, null_mut())
        };
        done(status)?;
        if let Some(call) = table.awaits {
            let endpoint = table.endpoint;
            let _ = self.awaits.set(Awaits { endpoint, call });
        }
        Ok(())
    }

    /// Tells the provider that a receive was posted that only messages of this peer can match. See
    /// [`PeerEndsOps::awaits`].
    pub fn awaits(&self, peer: fi_addr_t, transfers: bool) {
        if let Some(awaits) = self.awaits.get() {
            let flags = if transfers { FI_PEER_TRANSFER } else { 0 };
            // SAFETY: the endpoint is open, and the function is the one that it has given.
            unsafe { (awaits.call)(awaits.endpoint, peer, flags) }
        }
    }

    /// # Safety
    /// The owner stays open as long as the result.
    unsafe fn srx(&self, owner: *mut fid_peer_srx) -> Result<Object<fid_ep>> {
        let mut context = fi_peer_srx_context {
            size: size_of::<fi_peer_srx_context>(),
            srx: owner,
        };
        let mut srx = null_mut();
        // SAFETY: the domain is open, zero is a valid value of the attributes, and the caller
        // guarantees that the owner is open.
        unsafe {
            let mut attr: fi_rx_attr = std::mem::zeroed();
            attr.op_flags = FI_PEER;
            let domain = self.domain.as_c();
            let open = (*(*domain).ops).srx_ctx.ok_or(Errno::ENOSYS)?;
            let context = (&raw mut context).cast();
            let status = open(domain, &raw mut attr, &mut srx, context);
            Object::opened(status, srx)
        }
    }

    /// Opens the queue; with a descriptor, if that is wanted and the provider has one.
    ///
    /// # Safety
    /// The owner stays open as long as the result.
    unsafe fn cq(&self, owners: &Owners<'_>) -> Result<(Object<fid_cq>, bool)> {
        let open = |wait_obj| {
            let mut context = fi_peer_cq_context {
                size: size_of::<fi_peer_cq_context>(),
                cq: owners.cq,
            };
            let mut cq = null_mut();
            // SAFETY: the domain is open, zero is a valid value of the attributes, and the caller
            // guarantees that the owner is open.
            unsafe {
                let mut attr: fi_cq_attr = std::mem::zeroed();
                attr.flags = FI_PEER;
                attr.wait_obj = wait_obj;
                let domain = self.domain.as_c();
                let open = (*(*domain).ops).cq_open.ok_or(Errno::ENOSYS)?;
                let context = (&raw mut context).cast();
                let status = open(domain, &raw mut attr, &mut cq, context);
                Object::opened(status, cq)
            }
        };
        if owners.sleeps
            && let Ok(cq) = open(FI_WAIT_FD)
            && cq.wait_fd().is_ok()
        {
            return Ok((cq, true));
        }
        Ok((open(FI_WAIT_NONE)?, false))
    }

    /// Returns its own address.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn address(&self) -> Result<Vec<u8>> {
        // SAFETY: the endpoint is open, and the table is its own.
        unsafe { name_of((*self.object.as_ptr()).cm, self.object.fid()) }
    }

    /// Returns its address vector.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Lets the provider make progress. The owner of the receives has entered them.
    #[inline]
    pub fn drive(&self) {
        let Some(parts) = self.parts.get() else {
            return;
        };
        // SAFETY: the queue is open, and the call reads no entries, so that the buffer may be null.
        unsafe {
            let cq = parts.cq.as_ptr();
            if let Some(read) = (*(*cq).ops).read {
                read(cq, null_mut(), 0);
            }
        }
    }

    /// Returns the descriptor that polls readable when the provider has work, if it has one.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let parts = self.parts.get().filter(|parts| parts.has_fd)?;
        parts.cq.wait_fd().ok()
    }

    /// Returns whether a thread may sleep on [`LinkedEndpoint::wait_fd`] (fi_trywait(3)).
    pub fn may_sleep(&self) -> bool {
        let Some(parts) = self.parts.get().filter(|parts| parts.has_fd) else {
            return false;
        };
        let fabric = self.domain.fabric().as_c();
        let mut fids = [parts.cq.fid()];
        // SAFETY: the objects are open during the call, and there is one.
        unsafe {
            match (*(*fabric).ops).trywait {
                Some(trywait) => trywait(fabric, fids.as_mut_ptr(), 1) == 0,
                None => false,
            }
        }
    }

    /// Sets an option (fi_setopt(3)) to a value of its type.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn set_option<T: Copy>(&self, name: c_int, value: T) -> Result {
        self.object.set_option(name, value)
    }

    /// Ends an operation with a context of this address of which nothing has left, if there is one
    /// (fi_cancel(3)).
    pub fn cancel(&self, context: usize) {
        let context = std::ptr::with_exposed_provenance_mut(context);
        // SAFETY: the endpoint is open.
        unsafe {
            if let Some(cancel) = (*(*self.object.as_ptr()).ops).cancel {
                cancel(self.object.fid(), context);
            }
        }
    }

    /// Sends a message to a number of the address vector, with this context and these flags in
    /// place of the request's.
    ///
    /// # Errors
    /// What the provider returns; `-FI_EAGAIN` if it should be retried later.
    #[inline]
    pub fn transmit(
        &self,
        message: &Transmit,
        to: fi_addr_t,
        context: *mut c_void,
        flags: u64,
    ) -> Result {
        let ep = self.object.as_ptr();
        let pieces = message.buffers.pieces();
        // The most frequent messages, as the application has mostly posted them.
        if let ([_], Tag::Value(tag), FI_COMPLETION | FI_INJECT) = (pieces, message.tag, flags)
            && let Some(posted) =
                self.transmit_plain(message, (to, tag), context, flags == FI_INJECT)
        {
            return posted;
        }
        let mut local = Local::given(&message.desc);
        // SAFETY: the endpoint is open, and the application's memory belongs to the operation until
        // it completes (see `AppIov`).
        let status = unsafe {
            match message.tag {
                Tag::Value(tag) => {
                    let call = fi_msg_tagged {
                        msg_iov: pieces.as_ptr(),
                        desc: local.as_mut_ptr(),
                        iov_count: pieces.len(),
                        addr: to,
                        tag,
                        ignore: 0,
                        context,
                        data: message.data,
                    };
                    let send = (*(*ep).tagged).sendmsg.ok_or(Errno::ENOSYS)?;
                    send(ep, &call, flags)
                }
                Tag::None => {
                    let call = fi_msg {
                        msg_iov: pieces.as_ptr(),
                        desc: local.as_mut_ptr(),
                        iov_count: pieces.len(),
                        addr: to,
                        context,
                        data: message.data,
                    };
                    let send = (*(*ep).msg).sendmsg.ok_or(Errno::ENOSYS)?;
                    send(ep, &call, flags)
                }
            }
        };
        done(status as c_int)
    }

    /// Sends a tagged message of one piece by a call without a flags argument; `None` if the provider
    /// has only the one with flags.
    #[inline(always)]
    fn transmit_plain(
        &self,
        message: &Transmit,
        (to, tag): (fi_addr_t, u64),
        context: *mut c_void,
        is_inject: bool,
    ) -> Option<Result> {
        let ep = self.object.as_ptr();
        let [piece] = message.buffers.pieces() else {
            return None;
        };
        let (buf, len) = (piece.iov_base, piece.iov_len);
        let desc = message.desc.of_piece(0).map_or(null_mut(), |desc| desc.0);
        // SAFETY: the endpoint is open, and the application's memory belongs to the operation until
        // it completes (see `AppIov`).
        let status = unsafe {
            let table = &*(*ep).tagged;
            match is_inject {
                true => table.inject?(ep, buf, len, to, tag),
                false => table.send?(ep, buf, len, desc, to, tag, context),
            }
        };
        Some(done(status as c_int))
    }

    /// Reads or writes memory of a peer, likewise.
    ///
    /// # Errors
    /// Those of [`LinkedEndpoint::transmit`].
    pub fn access(
        &self,
        request: &RemoteAccess,
        to: fi_addr_t,
        context: *mut c_void,
        flags: u64,
    ) -> Result {
        let ep = self.object.as_ptr();
        let mut local = Local::given(&request.desc);
        let mut pieces = [super::endpoint::EMPTY; IOV_LIMIT];
        let call = fi_msg_rma {
            addr: to,
            ..access(
                request.local.pieces(),
                &mut local,
                request.remote.pieces(),
                &mut pieces,
                context,
                request.data,
            )
        };
        // SAFETY: the endpoint is open, and the application's memory belongs to the operation until
        // it completes (see `AppIov`).
        let status = unsafe {
            let function = match request.access {
                Access::Read => (*(*ep).rma).readmsg,
                Access::Write => (*(*ep).rma).writemsg,
            };
            function.ok_or(Errno::ENOSYS)?(ep, &call, flags)
        };
        done(status as c_int)
    }

    /// Performs an atomic operation on memory of a peer, likewise.
    ///
    /// # Errors
    /// Those of [`LinkedEndpoint::transmit`]; `-FI_EINVAL` for an unknown datatype.
    pub fn atomic(
        &self,
        request: &Atomic,
        to: fi_addr_t,
        context: *mut c_void,
        flags: u64,
    ) -> Result {
        let ep = self.object.as_ptr();
        let datatype = Datatype::from_number(request.datatype).ok_or(Errno::EINVAL)?;
        let operand = Elements::of(&request.operand, datatype.size());
        let mut local = Local::given(&request.desc);
        let (remote, remote_count) = remote_elements(&request.remote, datatype.size());
        let call = fi_msg_atomic {
            msg_iov: operand.pieces.as_ptr(),
            desc: local.as_mut_ptr(),
            iov_count: operand.count,
            addr: to,
            rma_iov: remote.as_ptr(),
            rma_iov_count: remote_count,
            datatype: request.datatype,
            op: request.op,
            context,
            data: request.data,
        };
        // SAFETY: the endpoint is open, and the application's memory belongs to the operation until
        // it completes (see `AppIov`); lists have as many elements as they are said to have.
        let status = unsafe {
            let table = (*ep).atomic;
            match &request.kind {
                AtomicKind::Base => (*table).writemsg.ok_or(Errno::ENOSYS)?(ep, &call, flags),
                AtomicKind::Fetch {
                    result,
                    result_desc,
                } => {
                    let mut result = Elements::of(result, datatype.size());
                    let mut desc = Local::given(result_desc);
                    (*table).readwritemsg.ok_or(Errno::ENOSYS)?(
                        ep,
                        &call,
                        result.pieces.as_mut_ptr(),
                        desc.as_mut_ptr(),
                        result.count,
                        flags,
                    )
                }
                AtomicKind::Compare {
                    compare,
                    compare_desc,
                    result,
                    result_desc,
                } => {
                    let compare = Elements::of(compare, datatype.size());
                    let mut compare_desc = Local::given(compare_desc);
                    let mut result = Elements::of(result, datatype.size());
                    let mut desc = Local::given(result_desc);
                    (*table).compwritemsg.ok_or(Errno::ENOSYS)?(
                        ep,
                        &call,
                        compare.pieces.as_ptr(),
                        compare_desc.as_mut_ptr(),
                        compare.count,
                        result.pieces.as_mut_ptr(),
                        desc.as_mut_ptr(),
                        result.count,
                        flags,
                    )
                }
            }
        };
        done(status as c_int)
    }
}

/// Memory in elements of a datatype.
struct Elements {
    pieces: [fi_ioc; IOV_LIMIT],
    count: usize,
}

impl Elements {
    fn of(memory: &AppIov, size: usize) -> Self {
        let mut pieces = [fi_ioc {
            addr: null_mut(),
            count: 0,
        }; IOV_LIMIT];
        let from: &[iovec] = memory.pieces();
        for (to, from) in pieces.iter_mut().zip(from) {
            *to = fi_ioc {
                addr: from.iov_base,
                count: from.iov_len / size,
            };
        }
        let count = from.len();
        Elements { pieces, count }
    }
}

fn remote_elements(remote: &RemoteIov, size: usize) -> ([fi_rma_ioc; IOV_LIMIT], usize) {
    let mut pieces = [fi_rma_ioc {
        addr: 0,
        count: 0,
        key: 0,
    }; IOV_LIMIT];
    let from: &[RemotePiece] = remote.pieces();
    for (to, from) in pieces.iter_mut().zip(from) {
        *to = fi_rma_ioc {
            addr: from.addr,
            count: from.len as usize / size,
            key: from.key,
        };
    }
    (pieces, from.len())
}
