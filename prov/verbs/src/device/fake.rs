//! A simulated device for tests: its objects can be created and requests posted, which never
//! complete by themselves.

pub mod xrc;

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use prov_base::errno::Errno;
use prov_util::attr::Opaque;
use prov_util::eq::{Event, EventBody};

use super::{CompletionQueue, Context};
use crate::sys::ibverbs::*;
use crate::sys::library::{Ibverbs, Libraries};
use crate::sys::xrc::{EXTENDED, IBV_DEVICE_XRC, verbs_context};

thread_local! {
    static ANSWER: Cell<c_int> = const { Cell::new(0) };
    static STATES: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    /// Completions that were not polled, with the address of their queue.
    static COMPLETIONS: RefCell<Vec<(usize, ibv_wc)>> = const { RefCell::new(Vec::new()) };
    static HANDLES: Cell<usize> = const { Cell::new(0) };
}

/// Takes the list of states into which queue pairs were moved in this thread.
pub fn states() -> Vec<u32> {
    STATES.take()
}

/// Adds a completion to a queue, which the next poll of this thread returns.
pub fn complete(queue: &CompletionQueue, completion: ibv_wc) {
    let queue = queue.as_ptr().addr();
    COMPLETIONS.with_borrow_mut(|all| all.push((queue, completion)));
}

/// Returns the number of address handles that are open in this thread.
pub fn handles() -> usize {
    HANDLES.get()
}

/// Returns the handle of the request that an event reports.
pub fn handle_of(event: &Event) -> Opaque {
    match &event.body {
        EventBody::Connection {
            info: Some(info), ..
        } => {
            // SAFETY: the event owns the structure, which is valid.
            Opaque(unsafe { (*info.as_ptr()).handle.cast() })
        }
        _ => Opaque::NULL,
    }
}

/// Sets the result of state changes of queue pairs in this thread.
pub fn answer(outcome: Result<(), Errno>) {
    ANSWER.set(outcome.map_or_else(|error| error.number(), |()| 0));
}

/// Creates a device with this name.
pub fn context(name: &str) -> Context {
    device_named(name, |_| ())
}

/// Creates an iWARP device with this name.
pub fn iwarp(name: &str) -> Context {
    device_named(name, |table| {
        // SAFETY: the device is from `device_named`, which leaks it, and has no other users yet.
        unsafe { (*table.context.device).transport_type = IBV_TRANSPORT_IWARP };
    })
}

/// Creates a device, with the additions of `adorn`.
fn device_named(name: &str, adorn: impl FnOnce(&mut verbs_context)) -> Context {
    let mut verbs = Ibverbs::absent();
    verbs.ibv_query_device = query_device;
    verbs.ibv_query_gid = query_gid;
    verbs.ibv_alloc_pd = alloc_pd;
    verbs.ibv_dealloc_pd = dealloc_pd;
    verbs.ibv_create_comp_channel = create_comp_channel;
    verbs.ibv_destroy_comp_channel = destroy_comp_channel;
    verbs.ibv_create_cq = create_cq;
    verbs.ibv_destroy_cq = destroy_cq;
    verbs.ibv_get_cq_event = get_cq_event;
    verbs.ibv_create_qp = create_qp;
    verbs.ibv_modify_qp = modify_qp;
    verbs.ibv_destroy_qp = destroy_qp;
    verbs.ibv_create_ah = create_ah;
    verbs.ibv_destroy_ah = destroy_ah;
    verbs.ibv_create_srq = create_srq;
    verbs.ibv_destroy_srq = destroy_srq;
    let libraries = Box::leak(Box::new(Libraries::new(verbs, xrc::cm())));
    let mut device = Box::new(zeroed::<ibv_device>());
    assert!(name.len() < NAME_MAX);
    for (to, &from) in device.name.iter_mut().zip(name.as_bytes()) {
        *to = from as c_char;
    }
    let mut table = Box::new(zeroed::<verbs_context>());
    let context = &mut table.context;
    context.device = Box::into_raw(device);
    context.ops.poll_cq = Some(poll_cq);
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_receive);
    context.ops.post_srq_recv = Some(post_shared_receive);
    context.ops.req_notify_cq = Some(arm);
    let (events, far) = UnixStream::pair().expect("a channel");
    // It stays open, as the device does.
    context.async_fd = events.into_raw_fd();
    let async_fd = context.async_fd;
    adorn(&mut table);
    let table = Box::into_raw(table);
    // SAFETY: the table was just allocated, so that the pointer is not null; it is derived from the
    // whole table, so that a pointer to the table's beginning can be derived from it.
    let context = unsafe { NonNull::new_unchecked(&raw mut (*table).context) };
    let known = (context.as_ptr().addr(), async_fd, far);
    CHANNELS.lock().push(known);
    Context { context, libraries }
}

/// Structures of the library, of numbers and pointers.
trait Plain {}
impl Plain for ibv_device {}
impl Plain for ibv_context {}
impl Plain for ibv_device_attr {}
impl Plain for ibv_pd {}
impl Plain for ibv_comp_channel {}
impl Plain for ibv_cq {}
impl Plain for ibv_qp {}
impl Plain for ibv_srq {}
impl Plain for ibv_ah {}

fn zeroed<T: Plain>() -> T {
    // SAFETY: the type is `Plain`: it consists of integers, pointers and optional functions, for
    // which zero is a valid value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

unsafe extern "C" fn query_device(context: *mut ibv_context, found: *mut ibv_device_attr) -> c_int {
    // SAFETY: the device is from `device_named`, which leaks it.
    let has_table = unsafe { (*context).abi_compat }.addr() == EXTENDED;
    let attr = ibv_device_attr {
        phys_port_cnt: 2,
        max_cqe: 1 << 16,
        max_qp_wr: 1 << 10,
        max_srq: 1 << 10,
        max_srq_wr: 1 << 10,
        max_sge: 4,
        device_cap_flags: match has_table {
            true => IBV_DEVICE_XRC,
            false => 0,
        },
        ..zeroed()
    };
    // SAFETY: the callers pass a writable structure.
    unsafe { found.write(attr) };
    0
}

unsafe extern "C" fn query_gid(_: *mut ibv_context, _: u8, _: c_int, found: *mut ibv_gid) -> c_int {
    // SAFETY: the callers pass a writable structure.
    unsafe { found.write(ibv_gid::default()) };
    0
}

unsafe extern "C" fn alloc_pd(_: *mut ibv_context) -> *mut ibv_pd {
    Box::into_raw(Box::new(zeroed()))
}

unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the object is a Box from `alloc_pd`, and is freed once.
    drop(unsafe { Box::from_raw(pd) });
    0
}

/// The other ends of the channels and of the asynchronous events of devices, with their device and
/// their descriptor.
static CHANNELS: Mutex<Vec<(usize, RawFd, UnixStream)>> = Mutex::new(Vec::new());

/// Removes a device, and its channels with it.
pub fn remove(context: Context) {
    let context = context.as_ptr().addr();
    let mut channels = CHANNELS.lock();
    channels.retain(|(known, ..)| *known != context);
}

unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let (end, far) = UnixStream::pair().expect("a channel");
    let mut channels = CHANNELS.lock();
    channels.push((context.addr(), end.as_raw_fd(), far));
    let channel = ibv_comp_channel {
        fd: end.into_raw_fd(),
        ..zeroed()
    };
    Box::into_raw(Box::new(channel))
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the channel is a Box from `create_comp_channel`, and was not freed.
    let fd = unsafe { (*channel).fd };
    CHANNELS.lock().retain(|(_, known, _)| *known != fd);
    // SAFETY: the channel is a Box from `create_comp_channel` and owns its descriptor; both are
    // freed once.
    drop(unsafe { OwnedFd::from_raw_fd(Box::from_raw(channel).fd) });
    0
}

unsafe extern "C" fn create_cq(
    _: *mut ibv_context,
    cqe: c_int,
    _: *mut c_void,
    _: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    Box::into_raw(Box::new(ibv_cq { cqe, ..zeroed() }))
}

unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the object is a Box from `create_cq`, and is freed once.
    drop(unsafe { Box::from_raw(cq) });
    0
}

unsafe extern "C" fn get_cq_event(
    _: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    -1
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, found: *mut ibv_wc) -> c_int {
    COMPLETIONS.with_borrow_mut(|all| {
        let Some(at) = all.iter().position(|(queue, _)| *queue == cq.addr()) else {
            return 0;
        };
        assert!(room > 0);
        // SAFETY: the callers pass memory for `room` entries.
        unsafe { found.write(all.remove(at).1) };
        1
    })
}

unsafe extern "C" fn arm(_: *mut ibv_cq, _: c_int) -> c_int {
    0
}

unsafe extern "C" fn create_ah(_: *mut ibv_pd, _: *mut ibv_ah_attr) -> *mut ibv_ah {
    HANDLES.set(HANDLES.get() + 1);
    Box::into_raw(Box::new(zeroed()))
}

unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    HANDLES.set(HANDLES.get() - 1);
    // SAFETY: the object is a Box from `create_ah`, and is freed once.
    drop(unsafe { Box::from_raw(ah) });
    0
}

unsafe extern "C" fn create_srq(_: *mut ibv_pd, _: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    Box::into_raw(Box::new(zeroed()))
}

unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the object is a Box from `create_srq`, and is freed once.
    drop(unsafe { Box::from_raw(srq) });
    0
}

unsafe extern "C" fn create_qp(_: *mut ibv_pd, _: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    static NUMBERS: AtomicU32 = AtomicU32::new(1);
    Box::into_raw(Box::new(ibv_qp {
        qp_num: NUMBERS.fetch_add(1, Ordering::Relaxed),
        ..zeroed()
    }))
}

unsafe extern "C" fn modify_qp(_: *mut ibv_qp, attr: *mut ibv_qp_attr, _: c_int) -> c_int {
    // SAFETY: the callers pass a valid structure of attributes.
    let state = unsafe { (*attr).qp_state };
    STATES.with_borrow_mut(|states| states.push(state));
    ANSWER.get()
}

unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the object is a Box from `create_qp` or `open_qp`, and is freed once.
    let qp = unsafe { Box::from_raw(qp) };
    xrc::destroyed(qp.qp_num);
    0
}

unsafe extern "C" fn post_send(
    _: *mut ibv_qp,
    _: *mut ibv_send_wr,
    refused: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the callers pass a writable location for a pointer.
    unsafe { refused.write(null_mut()) };
    0
}

unsafe extern "C" fn post_receive(
    _: *mut ibv_qp,
    _: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the callers pass a writable location for a pointer.
    unsafe { refused.write(null_mut()) };
    0
}

unsafe extern "C" fn post_shared_receive(
    _: *mut ibv_srq,
    _: *mut ibv_recv_wr,
    refused: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the callers pass a writable location for a pointer.
    unsafe { refused.write(null_mut()) };
    0
}
