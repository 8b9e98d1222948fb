//! tcp as a provider that requires all memory to be registered (`FI_MR_LOCAL`): the tables of its
//! objects are replaced by functions that check whether each segment of memory is within the open
//! region of its descriptor, with the required access rights, and then call tcp's functions.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock};

use fabric_abi::*;
use libc::iovec;

#[derive(Clone)]
struct Registered {
    pieces: Vec<(usize, usize)>,
    access: u64,
}

/// Open regions by descriptor.
static REGIONS: Mutex<Option<HashMap<usize, Registered>>> = Mutex::new(None);

/// tcp's original tables.
static FABRIC: OnceLock<fi_ops_fabric> = OnceLock::new();
static DOMAIN: OnceLock<fi_ops_domain> = OnceLock::new();
static MEMORY: OnceLock<fi_ops_mr> = OnceLock::new();
static REGION: OnceLock<fi_ops> = OnceLock::new();
static MSG: OnceLock<fi_ops_msg> = OnceLock::new();
static RECEIVES: OnceLock<fi_ops_msg> = OnceLock::new();
static RMA: OnceLock<fi_ops_rma> = OnceLock::new();

/// Replaces a table by a changed copy; the original is kept for the calls.
///
/// # Safety
/// The place holds a valid table.
unsafe fn replace<T: Copy>(place: &mut *mut T, own: &OnceLock<T>, change: impl FnOnce(&mut T)) {
    // SAFETY: the caller's promise.
    let mut table = unsafe { **place };
    own.get_or_init(|| table);
    change(&mut table);
    *place = Box::leak(Box::new(table));
}

/// Intercepts what is opened from a fabric.
///
/// # Safety
/// It is an open fabric of tcp.
pub unsafe fn watch(fabric: *mut fid_fabric) {
    // SAFETY: the caller's promise.
    unsafe {
        replace(&mut (*fabric).ops, &FABRIC, |ops| ops.domain = Some(domain));
    }
}

unsafe extern "C" fn domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments are passed on; what is opened is tcp's.
    unsafe {
        let status = FABRIC.get().unwrap().domain.unwrap()(fabric, info, domain, context);
        if status == 0 {
            let opened = &mut **domain;
            replace(&mut opened.ops, &DOMAIN, |ops| {
                ops.endpoint = Some(endpoint);
                ops.srx_ctx = Some(srx_ctx);
            });
            replace(&mut opened.mr, &MEMORY, |ops| ops.regattr = Some(regattr));
        }
        status
    }
}

unsafe extern "C" fn regattr(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    region: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: as above; the attributes are valid.
    unsafe {
        let status = MEMORY.get().unwrap().regattr.unwrap()(domain, attr, flags, region);
        if status != 0 {
            return status;
        }
        let made = &mut **region;
        made.mem_desc = std::ptr::from_mut(made).cast();
        replace(&mut made.fid.ops, &REGION, |ops| ops.close = Some(close));
        let pieces = std::slice::from_raw_parts((*attr).mr_iov, (*attr).iov_count);
        let registered = Registered {
            pieces: pieces
                .iter()
                .map(|piece| (piece.iov_base.addr(), piece.iov_len))
                .collect(),
            access: (*attr).access,
        };
        let mut regions = REGIONS.lock().unwrap();
        let regions = regions.get_or_insert_default();
        regions.insert(made.mem_desc.addr(), registered);
    }
    0
}

unsafe extern "C" fn close(region: *mut fid) -> c_int {
    let mut regions = REGIONS.lock().unwrap();
    let gone = regions.get_or_insert_default().remove(&region.addr());
    assert!(gone.is_some(), "a region is closed once");
    drop(regions);
    // SAFETY: as above.
    unsafe { REGION.get().unwrap().close.unwrap()(region) }
}

unsafe extern "C" fn endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let status = DOMAIN.get().unwrap().endpoint.unwrap()(domain, info, ep, context);
        if status == 0 {
            let opened = &mut **ep;
            replace(&mut opened.msg, &MSG, |ops| {
                ops.recv = Some(recv::<false>);
                ops.send = Some(send);
                ops.sendmsg = Some(sendmsg);
            });
            replace(&mut opened.rma, &RMA, |ops| {
                ops.readmsg = Some(readmsg);
                ops.writemsg = Some(writemsg);
            });
        }
        status
    }
}

unsafe extern "C" fn srx_ctx(
    domain: *mut fid_domain,
    attr: *mut fi_rx_attr,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let status = DOMAIN.get().unwrap().srx_ctx.unwrap()(domain, attr, ep, context);
        if status == 0 {
            replace(&mut (**ep).msg, &RECEIVES, |ops| {
                ops.recv = Some(recv::<true>);
            });
        }
        status
    }
}

fn check(start: usize, len: usize, desc: *mut c_void, access: u64) {
    if len == 0 {
        return;
    }
    let regions = REGIONS.lock().unwrap();
    let region = regions.as_ref().and_then(|all| all.get(&desc.addr()));
    let region = region.expect("a descriptor of an open region");
    assert_eq!(region.access & access, access, "what it was registered for");
    let mut pieces = region.pieces.iter();
    assert!(
        pieces.any(|&(first, all)| start >= first && start + len <= first + all),
        "memory outside of its region"
    );
}

/// # Safety
/// The lists have as many entries.
unsafe fn check_all(iov: *const iovec, descs: *mut *mut c_void, count: usize, access: u64) {
    for at in 0..count {
        // SAFETY: the caller's promise.
        let (piece, desc) = unsafe { (*iov.add(at), *descs.add(at)) };
        check(piece.iov_base.addr(), piece.iov_len, desc, access);
    }
}

unsafe extern "C" fn recv<const SHARED: bool>(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    check(buf.addr(), len, desc, FI_RECV);
    let own = if SHARED { &RECEIVES } else { &MSG };
    // SAFETY: the caller's arguments are passed on.
    unsafe { own.get().unwrap().recv.unwrap()(ep, buf, len, desc, from, context) }
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    check(buf.addr(), len, desc, FI_SEND);
    // SAFETY: as above.
    unsafe { MSG.get().unwrap().send.unwrap()(ep, buf, len, desc, to, context) }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: as above; the message is valid.
    unsafe {
        check_all((*msg).msg_iov, (*msg).desc, (*msg).iov_count, FI_SEND);
        MSG.get().unwrap().sendmsg.unwrap()(ep, msg, flags)
    }
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as above.
    unsafe {
        check_all((*msg).msg_iov, (*msg).desc, (*msg).iov_count, FI_READ);
        RMA.get().unwrap().readmsg.unwrap()(ep, msg, flags)
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as above.
    unsafe {
        check_all((*msg).msg_iov, (*msg).desc, (*msg).iov_count, FI_WRITE);
        RMA.get().unwrap().writemsg.unwrap()(ep, msg, flags)
    }
}
