//! Address vectors that providers share (fi_peer(3)): the owner's side, and the side of the peer
//! that imports one.
//!
//! A peer can ask the owner for little: the number of addresses, and the number of a local
//! endpoint's address. A peer that moves data itself gets addresses by fi_av_insert(3) on its own
//! vector, with `FI_AV_USER_ID` and the owner's number in `fi_addr`.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use fabric_abi::*;

use crate::ffi::object::{AnyFid, Class, Handle, Header, Use};
use prov_base::errno::{Errno, Result};
use prov_objects::av::{Av, AvOwner};

/// Another provider's vector, which owns this one.
struct Imported {
    av: NonNull<fid_peer_av>,
    query: unsafe extern "C" fn(*mut fid_peer_av, *mut fi_av_attr) -> c_int,
    ep_addr: unsafe extern "C" fn(*mut fid_peer_av, *mut fid_ep) -> fi_addr_t,
}

// SAFETY: the interface makes the owner responsible for locking, so that its functions may be
// called from any thread (fi_peer(3)).
unsafe impl Send for Imported {}
// SAFETY: a shared reference permits the same calls, which the owner locks.
unsafe impl Sync for Imported {}

/// Returns the owner in the context of fi_av_open(3) with `FI_PEER`; `-FI_EINVAL` if it lacks the
/// functions of an owner.
///
/// # Safety
/// `context` is null or a `fi_peer_av_context` whose vector stays valid until
/// the peer's is closed.
pub(super) unsafe fn import(context: *mut c_void) -> Result<Box<dyn AvOwner>> {
    let whole = size_of::<fi_peer_av_context>();
    // SAFETY: the caller guarantees that the context is null or valid.
    let context = unsafe { context.cast::<fi_peer_av_context>().as_ref() };
    let context = context.filter(|context| context.size >= whole);
    let av = context.and_then(|context| NonNull::new(context.av));
    let av = av.ok_or(Errno::EINVAL)?;
    // SAFETY: the caller guarantees that the vector is valid as long as the result.
    let ops = unsafe { av.as_ref().owner_ops.as_ref() }.ok_or(Errno::EINVAL)?;
    Ok(Box::new(Imported {
        av,
        query: ops.query.ok_or(Errno::EINVAL)?,
        ep_addr: ops.ep_addr.ok_or(Errno::EINVAL)?,
    }))
}

impl AvOwner for Imported {
    fn count(&self) -> Result<usize> {
        let mut attr = NOTHING;
        // SAFETY: the owner's vector is valid while this one is open.
        Errno::check(unsafe { (self.query)(self.av.as_ptr(), &mut attr) })?;
        Ok(attr.count)
    }

    fn endpoint_number(&self, ep: AnyFid<'_>) -> fi_addr_t {
        // SAFETY: the owner's vector is valid while this one is open, and the caller's reference
        // keeps the endpoint open.
        unsafe { (self.ep_addr)(self.av.as_ptr(), ep.as_ptr().cast()) }
    }
}

const NOTHING: fi_av_attr = fi_av_attr {
    type_: FI_AV_UNSPEC,
    rx_ctx_bits: 0,
    count: 0,
    ep_per_node: 0,
    name: ptr::null(),
    map_addr: ptr::null_mut(),
    flags: 0,
};

/// A vector of this library that another provider may import: the target of
/// `fi_peer_av_context::av`. One for each peer.
pub struct SharedAv(Use<Av>);

// SAFETY: the interface specifies that `fid_peer_av` begins with a `fid`.
unsafe impl Header for fid_peer_av {}

impl SharedAv {
    /// Shares `av`, which stays open until the result is closed or dropped.
    pub fn of(av: &Handle<Av>) -> Handle<SharedAv> {
        Handle::new(SharedAv(Use::of(av)), ptr::null_mut(), Vec::new())
    }
}

impl Class for SharedAv {
    type Header = fid_peer_av;

    fn class(&self) -> usize {
        FI_CLASS_PEER_AV
    }

    fn header(&self, fid: fid) -> fid_peer_av {
        static OPS: fi_ops_av_owner = fi_ops_av_owner {
            size: size_of::<fi_ops_av_owner>(),
            query: Some(query),
            ep_addr: Some(ep_addr),
        };
        fid_peer_av {
            fid,
            owner_ops: (&raw const OPS).cast_mut(),
        }
    }
}

unsafe extern "C" fn query(av: *mut fid_peer_av, attr: *mut fi_av_attr) -> c_int {
    // SAFETY: this function is only in the tables of shared vectors; the peer passes an open one,
    // and null or a writable location for the attributes.
    unsafe {
        let this = Handle::<SharedAv>::borrow(av);
        if attr.is_null() {
            return Errno::EINVAL.to_c();
        }
        attr.write(fi_av_attr {
            type_: FI_AV_TABLE,
            rx_ctx_bits: this.0.rx_ctx_bits() as c_int,
            count: this.0.len(),
            map_addr: ptr::without_provenance_mut(this.0.map_addr()),
            ..NOTHING
        });
    }
    0
}

unsafe extern "C" fn ep_addr(av: *mut fid_peer_av, ep: *mut fid_ep) -> fi_addr_t {
    // SAFETY: this function is only in the tables of shared vectors; the peer passes an open one,
    // and an open endpoint.
    unsafe {
        let this = Handle::<SharedAv>::borrow(av);
        let name = name_of(ep);
        let number = name.and_then(|name| {
            // Text ends with a zero.
            let text = name.strip_suffix(b"\0").unwrap_or(&name);
            let format = this.0.format();
            let is_text = format.number() == FI_ADDR_STR;
            let addr = format.read(if is_text { text } else { &name });
            this.0.find_address(addr.ok()?)
        });
        number.unwrap_or(FI_ADDR_NOTAVAIL as fi_addr_t)
    }
}

/// Returns the address of an endpoint of any provider; `None` if it has none.
///
/// # Safety
/// `ep` is null or an open endpoint.
unsafe fn name_of(ep: *mut fid_ep) -> Option<Vec<u8>> {
    // SAFETY: the caller guarantees that the endpoint is null or open; the provider writes at most
    // as many bytes as `len` says.
    unsafe {
        let getname = ep.as_ref()?.cm.as_ref()?.getname?;
        let mut name = vec![0; 256];
        for _ in 0..2 {
            let mut len = name.len();
            let status = getname(ep.cast(), name.as_mut_ptr().cast(), &mut len);
            if status == 0 && len <= name.len() {
                name.truncate(len);
                return Some(name);
            }
            name.resize(len, 0);
        }
        None
    }
}
