//! A simulated device that supports XRC, and a simulated RDMA CM, which only records calls: the
//! test carries requests to the other side.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use super::{Context, Plain, create_qp, create_srq, device_named, zeroed};
use crate::address::SocketAddress;
use crate::sys::ibverbs::*;
use crate::sys::library::Rdmacm;
use crate::sys::rdmacm::*;
use crate::sys::xrc::*;

impl Plain for verbs_context {}
impl Plain for rdma_cm_id {}
impl Plain for rdma_event_channel {}
impl Plain for rdma_cm_event {}

/// A call of RDMA CM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub kind: Kind,
    /// The number with which the identifier was created.
    pub key: u64,
    pub is_datagram: bool,
    pub data: Vec<u8>,
    pub pair: u32,
    /// The identifier's own address.
    pub own: Option<SocketAddress>,
    pub peer: Option<SocketAddress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Resolve,
    Route,
    Listen,
    Connect,
    Accept,
    Establish,
    Reject,
    Disconnect,
    Destroy,
}

/// A posted request: the number of the queue pair and that of the receive queue.
pub type Post = (u32, u32);

thread_local! {
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    static POSTS: RefCell<Vec<Post>> = const { RefCell::new(Vec::new()) };
    static RECEIVES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// The device of identifiers that are bound or resolved.
    static HERE: Cell<*mut ibv_context> = const { Cell::new(null_mut()) };
    /// The events that RDMA CM is to return.
    static EVENTS: RefCell<VecDeque<Box<rdma_cm_event>>> = const { RefCell::new(VecDeque::new()) };
    /// The open queue pairs.
    static PAIRS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Takes the list of calls of RDMA CM in this thread.
pub fn calls() -> Vec<Call> {
    CALLS.take()
}

/// Takes the list of requests posted in this thread.
pub fn posts() -> Vec<Post> {
    POSTS.take()
}

/// Takes the list of ids of the receives posted in this thread.
pub fn receives() -> Vec<u64> {
    RECEIVES.take()
}

/// Makes RDMA CM report to the listener with this number, in this thread, that `peer` requests a
/// connection with this message.
pub fn ask(listener: u64, peer: &SocketAddress, message: &'static [u8]) {
    let mut id: rdma_cm_id = zeroed();
    id.route.addr.dst = peer.to_storage();
    id.ps = RDMA_PS_TCP;
    let mut asked: rdma_cm_id = zeroed();
    asked.context = std::ptr::without_provenance_mut(listener as usize);
    let mut event = Box::new(rdma_cm_event {
        id: Box::into_raw(Box::new(id)),
        listen_id: Box::into_raw(Box::new(asked)),
        event: RDMA_CM_EVENT_CONNECT_REQUEST,
        ..zeroed()
    });
    event.conn.private_data = message.as_ptr().cast();
    event.conn.private_data_len = message.len().try_into().expect("a short message");
    EVENTS.with_borrow_mut(|events| events.push_back(event));
}

/// Returns the number of RDMA CM's events in this thread.
pub fn events() -> usize {
    EVENTS.with_borrow(VecDeque::len)
}

/// Returns the numbers of the targets that are open in this thread.
pub fn targets() -> Vec<u32> {
    PAIRS.with_borrow(Vec::clone)
}

/// Sets the device of identifiers in this thread.
pub fn be_at(context: Context) {
    HERE.set(context.as_ptr());
}

/// Creates a device with this name that supports XRC.
pub fn context(name: &str) -> Context {
    device_named(name, |table| {
        table.sz = size_of::<verbs_context>();
        table.open_xrcd = Some(open_xrcd);
        table.close_xrcd = Some(close_xrcd);
        table.create_srq_ex = Some(create_srq_ex);
        table.get_srq_num = Some(get_srq_num);
        table.create_qp_ex = Some(create_qp_ex);
        table.open_qp = Some(open_qp);
        table.context.abi_compat = std::ptr::without_provenance_mut(EXTENDED);
        table.context.ops.post_send = Some(post_send);
        table.context.ops.post_srq_recv = Some(post_shared_receive);
    })
}

/// Returns the simulated RDMA CM.
pub(super) fn cm() -> Rdmacm {
    let mut cm = Rdmacm::absent();
    cm.rdma_destroy_event_channel = destroy_event_channel;
    cm.rdma_get_cm_event = get_cm_event;
    cm.rdma_ack_cm_event = ack_cm_event;
    cm.rdma_create_id = create_id;
    cm.rdma_destroy_id = destroy_id;
    cm.rdma_bind_addr = bind_addr;
    cm.rdma_resolve_addr = resolve_addr;
    cm.rdma_resolve_route = resolve_route;
    cm.rdma_connect = connect;
    cm.rdma_establish = establish;
    cm.rdma_listen = listen;
    cm.rdma_accept = accept;
    cm.rdma_reject = reject;
    cm.rdma_disconnect = disconnect;
    cm.rdma_migrate_id = migrate_id;
    cm.rdma_init_qp_attr = init_qp_attr;
    cm
}

/// Implements `rdma_create_event_channel`.
pub fn event_channel() -> *mut rdma_event_channel {
    let events = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    Box::into_raw(Box::new(rdma_event_channel {
        fd: events.expect("a descriptor").into_raw_fd(),
    }))
}

unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the channel is a Box from `event_channel` and owns its descriptor; both are freed
    // once.
    drop(unsafe { OwnedFd::from_raw_fd(Box::from_raw(channel).fd) });
}

unsafe extern "C" fn get_cm_event(
    _: *mut rdma_event_channel,
    found: *mut *mut rdma_cm_event,
) -> c_int {
    let Some(event) = EVENTS.with_borrow_mut(VecDeque::pop_front) else {
        return -1;
    };
    // SAFETY: the callers pass a writable location for a pointer.
    unsafe { found.write(Box::into_raw(event)) };
    0
}

unsafe extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: the event is a Box from `get_cm_event`, and the listener's identifier in it a Box
    // from `ask`; both are freed once.
    drop(unsafe { Box::from_raw(Box::from_raw(event).listen_id) });
    0
}

unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    _: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    Box::into_raw(Box::new(ibv_xrcd { context }))
}

unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the object is a Box from `open_xrcd`, and is freed once.
    drop(unsafe { Box::from_raw(xrcd) });
    0
}

unsafe extern "C" fn create_srq_ex(
    _: *mut ibv_context,
    _: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    static NUMBERS: AtomicU32 = AtomicU32::new(1000);
    // SAFETY: the function does not use its arguments.
    let srq = unsafe { create_srq(null_mut(), null_mut()) };
    // SAFETY: the object was just created, and has no other users.
    unsafe { (*srq).handle = NUMBERS.fetch_add(1, Ordering::Relaxed) };
    srq
}

unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: the queue is from `create_srq_ex`, and the callers pass a writable number.
    unsafe { number.write((*srq).handle) };
    0
}

unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the callers pass a valid structure of attributes.
    assert_eq!(unsafe { (*attr).qp_type }, IBV_QPT_XRC_RECV);
    // SAFETY: the function does not use its arguments.
    let qp = unsafe { create_qp(null_mut(), null_mut()) };
    // SAFETY: the object was just created, and has no other users.
    unsafe { (*qp).context = context };
    // SAFETY: the queue pair was just created, and has no other users.
    PAIRS.with_borrow_mut(|pairs| pairs.push(unsafe { (*qp).qp_num }));
    qp
}

unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    // SAFETY: the callers pass a valid structure of attributes.
    let number = unsafe { (*attr).qp_num };
    if !targets().contains(&number) {
        return null_mut();
    }
    PAIRS.with_borrow_mut(|pairs| pairs.push(number));
    Box::into_raw(Box::new(ibv_qp {
        context,
        qp_num: number,
        qp_type: IBV_QPT_XRC_RECV,
        ..zeroed()
    }))
}

/// Handles the destruction of a queue pair.
pub(super) fn destroyed(number: u32) {
    PAIRS.with_borrow_mut(|pairs| {
        if let Some(at) = pairs.iter().position(|known| *known == number) {
            pairs.remove(at);
        }
    });
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    request: *mut ibv_send_wr,
    _: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the callers pass a valid queue pair and request, in which they set the receive queue
    // of XRC.
    let post = unsafe {
        (
            (*qp).qp_num,
            (*request).qp_type_xrc_remote_srqn.assume_init(),
        )
    };
    POSTS.with_borrow_mut(|posts| posts.push(post));
    0
}

unsafe extern "C" fn post_shared_receive(
    _: *mut ibv_srq,
    request: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the callers pass a valid request.
    let id = unsafe { (*request).wr_id };
    RECEIVES.with_borrow_mut(|receives| receives.push(id));
    0
}

fn note(kind: Kind, id: *mut rdma_cm_id, data: &[u8], pair: u32) -> c_int {
    // SAFETY: the identifier is from `create_id`, and was not destroyed.
    let id = unsafe { &*id };
    let call = Call {
        kind,
        key: id.context.addr() as u64,
        is_datagram: id.ps == RDMA_PS_UDP,
        data: data.to_vec(),
        pair,
        own: SocketAddress::of_storage(&id.route.addr.src),
        peer: SocketAddress::of_storage(&id.route.addr.dst),
    };
    CALLS.with_borrow_mut(|calls| calls.push(call));
    0
}

unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    made: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_uint,
) -> c_int {
    let id = rdma_cm_id {
        channel,
        context,
        ps,
        ..zeroed()
    };
    // SAFETY: the callers pass a writable location for a pointer.
    unsafe { made.write(Box::into_raw(Box::new(id))) };
    0
}

unsafe extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    note(Kind::Destroy, id, &[], 0);
    // SAFETY: the identifier is a Box from `create_id`, and is freed once.
    drop(unsafe { Box::from_raw(id) });
    0
}

/// Reads an address of the caller.
fn address(at: *const libc::sockaddr) -> Option<SocketAddress> {
    // SAFETY: the callers pass a complete sockaddr_storage or null.
    let storage = unsafe { at.cast::<storage>().as_ref() }?;
    SocketAddress::of_storage(storage)
}

/// The port for callers that name none.
static PORTS: AtomicU16 = AtomicU16::new(20000);

unsafe extern "C" fn bind_addr(id: *mut rdma_cm_id, own: *mut libc::sockaddr) -> c_int {
    let Some(SocketAddress::Internet(mut own)) = address(own) else {
        return -1;
    };
    if own.port() == 0 {
        own.set_port(PORTS.fetch_add(1, Ordering::Relaxed));
    }
    // SAFETY: the identifier is from `create_id`, and was not destroyed.
    let id = unsafe { &mut *id };
    id.route.addr.src = SocketAddress::Internet(own).to_storage();
    id.verbs = HERE.get();
    0
}

unsafe extern "C" fn resolve_addr(
    id: *mut rdma_cm_id,
    own: *mut libc::sockaddr,
    peer: *mut libc::sockaddr,
    _: c_int,
) -> c_int {
    // SAFETY: the identifier is from `create_id`, and was not destroyed.
    let place = unsafe { &mut *id };
    if let Some(SocketAddress::Internet(mut own)) = address(own) {
        if own.port() == 0 {
            own.set_port(PORTS.fetch_add(1, Ordering::Relaxed));
        }
        place.route.addr.src = SocketAddress::Internet(own).to_storage();
    }
    if let Some(peer) = address(peer) {
        place.route.addr.dst = peer.to_storage();
    }
    place.verbs = HERE.get();
    note(Kind::Resolve, id, &[], 0)
}

unsafe extern "C" fn resolve_route(id: *mut rdma_cm_id, _: c_int) -> c_int {
    note(Kind::Route, id, &[], 0)
}

/// Returns the connection data and the queue pair of a call.
fn told(param: *const rdma_conn_param) -> (Vec<u8>, u32) {
    // SAFETY: the callers pass valid parameters, whose data has the length that they contain.
    unsafe {
        let param = &*param;
        let len = param.private_data_len.into();
        let data = slice::from_raw_parts(param.private_data.cast::<u8>(), len);
        (data.to_vec(), param.qp_num)
    }
}

unsafe extern "C" fn connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let (data, pair) = told(param);
    note(Kind::Connect, id, &data, pair)
}

unsafe extern "C" fn accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let (data, pair) = told(param);
    note(Kind::Accept, id, &data, pair)
}

unsafe extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    note(Kind::Establish, id, &[], 0)
}

unsafe extern "C" fn listen(id: *mut rdma_cm_id, _: c_int) -> c_int {
    note(Kind::Listen, id, &[], 0)
}

unsafe extern "C" fn reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int {
    // SAFETY: the callers pass data of this length.
    let data = unsafe { slice::from_raw_parts(data.cast::<u8>(), len.into()) };
    note(Kind::Reject, id, data, 0)
}

unsafe extern "C" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    note(Kind::Disconnect, id, &[], 0)
}

unsafe extern "C" fn migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    // SAFETY: the identifier is from `create_id`, and was not destroyed.
    unsafe { (*id).channel = channel };
    0
}

unsafe extern "C" fn init_qp_attr(
    _: *mut rdma_cm_id,
    _: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: the callers pass a writable mask.
    unsafe { mask.write(IBV_QP_STATE) };
    0
}
