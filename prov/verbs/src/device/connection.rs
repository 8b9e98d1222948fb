//! Connections (rdma_cm(7)).
//!
//! Queue pairs are the caller's own: an identifier never has one, so that the caller creates them
//! when it wants, and changes their states itself.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::Context;
use super::queue_pair::{States, attributes};
use crate::address::{PortSpace, SocketAddress};
use crate::sys::ibverbs::*;
use crate::sys::library::{Libraries, libraries};
use crate::sys::rdmacm::*;

/// The channel on which events of identifiers arrive.
pub struct Channel {
    channel: NonNull<rdma_event_channel>,
    libraries: &'static Libraries,
    /// Only the process that created the object destroys it.
    process: Process,
}

impl AsFd for Channel {
    /// Readable when [`Channel::next_event`] has an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open until it is dropped, and so is its descriptor.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }
}

// SAFETY: libibverbs and librdmacm permit calls for one object from several threads.
unsafe impl Send for Channel {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for Channel {}

/// One end of a connection, or a listener.
pub struct Id {
    id: NonNull<rdma_cm_id>,
    libraries: &'static Libraries,
    /// Only the process that created the object destroys it.
    process: Process,
    /// Outlives the identifier; `None` if its calls are synchronous.
    channel: Option<Arc<Channel>>,
}

// SAFETY: librdmacm permits calls from several threads, one at a time; functions that change the
// identifier borrow it mutably.
unsafe impl Send for Id {}
// SAFETY: a shared reference only permits to read members that events do not change.
unsafe impl Sync for Id {}

/// The status of [`EventKind::Rejected`] if the peer itself has rejected the connection.
pub const REJECTED_BY_PEER: c_int = 28;

/// The same for iWARP, also if the peer does not listen.
pub const REJECTED_BY_IWARP_PEER: c_int = -libc::ECONNREFUSED;

/// The kind of an event of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventKind {
    AddressResolved,
    RouteResolved,
    /// An address or a route was not found.
    NotResolved,
    Requested,
    Answered,
    Rejected,
    /// The connection could not be established.
    Failed,
    Established,
    Disconnected,
    DeviceRemoved,
    Other,
}

/// An event that has been acknowledged to the library.
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// The number with which the identifier was created; for a connection request, that of the
    /// listener.
    pub key: u64,
    /// A negated error number, or a number of the protocol.
    pub status: c_int,
    /// The private data of the peer.
    pub data: Vec<u8>,
    /// The peer's queue pair, in a connection request or an answer.
    pub pair: u32,
    /// The new identifier of a connection request.
    pub incoming: Option<Id>,
}

/// The parameters of a connection.
pub struct ConnectionParam<'a> {
    /// Private data for the peer.
    pub data: &'a [u8],
    /// The queue pair.
    pub pair: u32,
    /// Whether its receives are shared with others.
    pub is_shared: bool,
}

/// `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`.
const AS_MANY_AS_THERE_ARE: u8 = 0xff;

/// The limits of this end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Largest number of reads and atomic operations of the peer that are in progress at the same
    /// time.
    pub reads_as_target: u8,
    /// The same for this end's own reads and atomic operations.
    pub reads_as_initiator: u8,
    /// How long a peer waits before it retries a message for which there is no receive
    /// (`min_rnr_timer`, 0 to 31).
    pub receiver_timer: u8,
}

impl ConnectionParam<'_> {
    fn to_c(&self) -> Result<rdma_conn_param> {
        Ok(rdma_conn_param {
            private_data: match self.data {
                [] => std::ptr::null(),
                data => data.as_ptr().cast::<c_void>(),
            },
            private_data_len: u8::try_from(self.data.len()).map_err(|_| Errno::EINVAL)?,
            // As many as both devices support; `Id::ready` is given the number.
            responder_resources: AS_MANY_AS_THERE_ARE,
            initiator_depth: AS_MANY_AS_THERE_ARE,
            flow_control: 1,
            // The largest value of three bits; for retries because of missing receives it means no
            // limit.
            retry_count: 7,
            rnr_retry_count: 7,
            srq: self.is_shared.into(),
            qp_num: self.pair,
        })
    }
}

impl Channel {
    /// Creates a non-blocking channel.
    pub fn new() -> Result<Arc<Self>> {
        let libraries = libraries().ok_or(Errno::ENODEV)?;
        // SAFETY: the function takes no arguments, and its result is checked.
        let channel = unsafe { (libraries.cm().rdma_create_event_channel)() };
        let channel = NonNull::new(channel).ok_or_else(Errno::last_os_error)?;
        let this = Channel {
            channel,
            libraries,
            process: Process::current(),
        };
        let fd = this.as_fd();
        fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        Ok(Arc::new(this))
    }

    /// Creates a channel of a simulated RDMA CM.
    #[cfg(test)]
    pub fn fake(context: Context) -> Arc<Self> {
        let channel = NonNull::new(super::fake::xrc::event_channel());
        Arc::new(Channel {
            channel: channel.expect("a box"),
            libraries: context.libraries,
            process: Process::current(),
        })
    }

    /// Returns the next event, if there is one.
    pub fn next_event(self: &Arc<Self>) -> Option<Event> {
        let mut event = null_mut();
        // SAFETY: the channel is open and does not block, and `event` is writable.
        let outcome =
            unsafe { (self.libraries.cm().rdma_get_cm_event)(self.channel.as_ptr(), &mut event) };
        let event = NonNull::new(event).filter(|_| outcome == 0)?;
        // SAFETY: the event is valid until it is acknowledged, which happens once, after its last
        // use. Its identifiers are open, since destroying one waits for the acknowledgement. The
        // private data has the length that the event contains.
        unsafe {
            let (seen, is_request) = {
                let event = event.as_ref();
                (event, event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
            };
            let told = if is_request { seen.listen_id } else { seen.id };
            let context = AtomicPtr::from_ptr(&raw mut (*told).context);
            let data = match has_data(seen.event) && !seen.conn.private_data.is_null() {
                true => std::slice::from_raw_parts(
                    seen.conn.private_data.cast::<u8>(),
                    seen.conn.private_data_len.into(),
                )
                .to_vec(),
                false => Vec::new(),
            };
            let incoming = NonNull::new(seen.id).filter(|_| is_request).map(|id| Id {
                id,
                process: Process::current(),
                libraries: self.libraries,
                channel: Some(self.clone()),
            });
            let taken = Event {
                kind: kind_of(seen.event),
                key: context.load(Ordering::Relaxed).addr() as u64,
                status: seen.status,
                data,
                pair: seen.conn.qp_num,
                incoming,
            };
            (self.libraries.cm().rdma_ack_cm_event)(event.as_ptr());
            Some(taken)
        }
    }
}

/// Whether events of this kind have parameters of a connection. Others have none, or those of
/// datagrams.
fn has_data(event: u32) -> bool {
    matches!(
        event,
        RDMA_CM_EVENT_CONNECT_REQUEST
            | RDMA_CM_EVENT_CONNECT_RESPONSE
            | RDMA_CM_EVENT_REJECTED
            | RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_ESTABLISHED
            | RDMA_CM_EVENT_DISCONNECTED
    )
}

fn kind_of(event: u32) -> EventKind {
    match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => EventKind::AddressResolved,
        RDMA_CM_EVENT_ROUTE_RESOLVED => EventKind::RouteResolved,
        RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR => EventKind::NotResolved,
        RDMA_CM_EVENT_CONNECT_REQUEST => EventKind::Requested,
        RDMA_CM_EVENT_CONNECT_RESPONSE => EventKind::Answered,
        RDMA_CM_EVENT_REJECTED => EventKind::Rejected,
        RDMA_CM_EVENT_CONNECT_ERROR | RDMA_CM_EVENT_UNREACHABLE => EventKind::Failed,
        RDMA_CM_EVENT_ESTABLISHED => EventKind::Established,
        RDMA_CM_EVENT_DISCONNECTED => EventKind::Disconnected,
        RDMA_CM_EVENT_DEVICE_REMOVAL => EventKind::DeviceRemoved,
        _ => EventKind::Other,
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        // SAFETY: the channel is open, and all of its identifiers are destroyed, since each held a
        // reference.
        unsafe { (self.libraries.cm().rdma_destroy_event_channel)(self.channel.as_ptr()) }
    }
}

impl Id {
    /// Creates an identifier whose events have the number `key`.
    pub fn new(channel: &Arc<Channel>, space: PortSpace, key: u64) -> Result<Self> {
        Self::made(channel.libraries, Some(channel), space, key)
    }

    /// Creates an identifier whose calls are synchronous.
    pub fn waiting(space: PortSpace) -> Result<Self> {
        let libraries = libraries().ok_or(Errno::ENODEV)?;
        Self::made(libraries, None, space, 0)
    }

    fn made(
        libraries: &'static Libraries,
        channel: Option<&Arc<Channel>>,
        space: PortSpace,
        key: u64,
    ) -> Result<Self> {
        let space = match space {
            PortSpace::Tcp => RDMA_PS_TCP,
            PortSpace::Udp => RDMA_PS_UDP,
            PortSpace::Infiniband => RDMA_PS_IB,
        };
        let events = channel.map_or(null_mut(), |channel| channel.channel.as_ptr());
        let mut id = null_mut();
        // SAFETY: the channel is open or null, and the library does not dereference the context.
        done(unsafe { (libraries.cm().rdma_create_id)(events, &mut id, key_pointer(key), space) })?;
        let id = NonNull::new(id).ok_or(Errno::ENOMEM)?;
        Ok(Id {
            id,
            libraries,
            process: Process::current(),
            channel: channel.cloned(),
        })
    }

    /// Makes its events arrive with the number `key` on `channel` from now on.
    pub fn move_to(&mut self, channel: &Arc<Channel>, key: u64) -> Result {
        // SAFETY: the identifier and the channel are open, and all events of the identifier are
        // acknowledged. Only this module reads the context, in `next_event`, and both accesses are
        // atomic.
        unsafe {
            if (*self.id.as_ptr()).channel != channel.channel.as_ptr() {
                done((self.libraries.cm().rdma_migrate_id)(
                    self.id.as_ptr(),
                    channel.channel.as_ptr(),
                ))?;
            }
            let context = AtomicPtr::from_ptr(&raw mut (*self.id.as_ptr()).context);
            context.store(key_pointer(key), Ordering::Relaxed);
        }
        self.channel = Some(channel.clone());
        Ok(())
    }

    /// Returns its device, once it has an address.
    pub fn context(&self) -> Option<Context> {
        // SAFETY: the identifier is open until it is dropped.
        Context::find(unsafe { (*self.id.as_ptr()).verbs })
    }

    /// Whether it is on this device.
    pub fn is_on(&self, context: Context) -> bool {
        // SAFETY: the identifier is open until it is dropped.
        unsafe { (*self.id.as_ptr()).verbs == context.as_ptr() }
    }

    /// Returns the number of its port on the device, once it has an address.
    pub fn port(&self) -> u8 {
        // SAFETY: the identifier is open until it is dropped.
        unsafe { (*self.id.as_ptr()).port_num }
    }

    /// Returns its own address, if it has one.
    pub fn local_address(&self) -> Option<SocketAddress> {
        // SAFETY: the identifier is open until it is dropped.
        SocketAddress::of_storage(unsafe { &(*self.id.as_ptr()).route.addr.src })
    }

    /// Returns the peer's address, if it has one.
    pub fn peer_address(&self) -> Option<SocketAddress> {
        // SAFETY: the identifier is open until it is dropped.
        SocketAddress::of_storage(unsafe { &(*self.id.as_ptr()).route.addr.dst })
    }

    /// Binds it to an address of this host.
    pub fn bind(&mut self, address: &SocketAddress) -> Result {
        let mut storage = address.to_storage();
        // SAFETY: the identifier is open until it is dropped, and the address is a complete
        // sockaddr.
        done(unsafe {
            (self.libraries.cm().rdma_bind_addr)(self.id.as_ptr(), (&raw mut storage).cast())
        })
    }

    /// Finds the device that leads to an address, within so many milliseconds.
    pub fn resolve(
        &mut self,
        own: Option<&SocketAddress>,
        peer: &SocketAddress,
        milliseconds: c_int,
    ) -> Result {
        let mut own = own.map(SocketAddress::to_storage);
        let mut peer = peer.to_storage();
        let own = own.as_mut().map_or(null_mut(), std::ptr::from_mut);
        // SAFETY: the identifier is open until it is dropped, and the addresses are null or
        // complete sockaddrs.
        done(unsafe {
            (self.libraries.cm().rdma_resolve_addr)(
                self.id.as_ptr(),
                own.cast(),
                (&raw mut peer).cast(),
                milliseconds,
            )
        })
    }

    /// Finds the route to the resolved address.
    pub fn resolve_route(&mut self, milliseconds: c_int) -> Result {
        // SAFETY: the identifier is open until it is dropped.
        done(unsafe { (self.libraries.cm().rdma_resolve_route)(self.id.as_ptr(), milliseconds) })
    }

    /// Listens for connections.
    pub fn listen(&mut self, backlog: c_int) -> Result {
        // SAFETY: the identifier is open until it is dropped.
        done(unsafe { (self.libraries.cm().rdma_listen)(self.id.as_ptr(), backlog) })
    }

    /// Requests a connection.
    pub fn connect(&mut self, param: &ConnectionParam<'_>) -> Result {
        let mut param = param.to_c()?;
        // SAFETY: the identifier is open until it is dropped, and the parameters are valid during
        // the call.
        done(unsafe { (self.libraries.cm().rdma_connect)(self.id.as_ptr(), &mut param) })
    }

    /// Accepts the request of a peer.
    pub fn accept(&mut self, param: &ConnectionParam<'_>) -> Result {
        let mut param = param.to_c()?;
        // SAFETY: the identifier is open until it is dropped, and the parameters are valid during
        // the call.
        done(unsafe { (self.libraries.cm().rdma_accept)(self.id.as_ptr(), &mut param) })
    }

    /// Rejects the request of a peer.
    pub fn reject(&mut self, data: &[u8]) -> Result {
        let len = u8::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the identifier is open until it is dropped, and `data` has `len` bytes.
        done(unsafe {
            (self.libraries.cm().rdma_reject)(self.id.as_ptr(), data.as_ptr().cast(), len)
        })
    }

    /// Confirms that the answer was received.
    pub fn establish(&mut self) -> Result {
        // SAFETY: the identifier is open until it is dropped.
        done(unsafe { (self.libraries.cm().rdma_establish)(self.id.as_ptr()) })
    }

    /// Ends the connection, or agrees that it ends.
    pub fn disconnect(&mut self) -> Result {
        // SAFETY: the identifier is open until it is dropped.
        done(unsafe { (self.libraries.cm().rdma_disconnect)(self.id.as_ptr()) })
    }

    /// Moves the queue pair of this end to the state in which it sends and receives, and peers may
    /// read and write.
    pub fn ready(&self, pair: &impl States, terms: &Terms) -> Result {
        self.prepare(pair, terms)?;
        self.step(pair, terms, IBV_QPS_RTR)?;
        self.step(pair, terms, IBV_QPS_RTS)
    }

    /// Moves it as far as possible before a peer answers. With iWARP the kernel does the rest if
    /// this end requests the connection.
    pub fn prepare(&self, pair: &impl States, terms: &Terms) -> Result {
        self.step(pair, terms, IBV_QPS_INIT)
    }

    fn step(&self, pair: &impl States, terms: &Terms, state: u32) -> Result {
        let mut attr = attributes(state);
        let mut mask: c_int = 0;
        // SAFETY: the identifier is open until it is dropped, and `attr` and `mask` are writable.
        done(unsafe {
            (self.libraries.cm().rdma_init_qp_attr)(self.id.as_ptr(), &mut attr, &mut mask)
        })?;
        mask &= !(IBV_QP_KERNEL_ONLY | pair.lacks());
        if mask & IBV_QP_ACCESS_FLAGS != 0 {
            attr.qp_access_flags |=
                IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        }
        if mask & IBV_QP_MIN_RNR_TIMER != 0 {
            attr.min_rnr_timer = terms.receiver_timer;
        }
        if mask & IBV_QP_MAX_DEST_RD_ATOMIC != 0 {
            attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(terms.reads_as_target);
        }
        if mask & IBV_QP_MAX_QP_RD_ATOMIC != 0 {
            attr.max_rd_atomic = attr.max_rd_atomic.min(terms.reads_as_initiator);
        }
        pair.modify(&mut attr, mask)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        // SAFETY: the identifier is open, and is destroyed once, by its owner.
        if let Err(error) = done(unsafe { (self.libraries.cm().rdma_destroy_id)(self.id.as_ptr()) })
        {
            log::warn!(target: crate::LOG.ep_ctrl, "rdma_destroy_id: {error}");
        }
    }
}

fn key_pointer(key: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(key as usize)
}

fn done(outcome: c_int) -> Result {
    match outcome {
        0 => Ok(()),
        _ => Err(Errno::last_os_error()),
    }
}
