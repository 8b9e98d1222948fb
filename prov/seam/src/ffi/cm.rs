//! fi_cm(3): names and connections of active endpoints.

use std::ffi::{c_int, c_void};

use fabric_abi::*;

use super::ep::EndpointObject;
use super::names::{address, give_name};
use super::{Handle, bytes, missing, status};
use crate::endpoint::Endpoint;
use prov_base::errno::Errno;
use prov_base::logging::UTIL;

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const CM: &'static fi_ops_cm = &fi_ops_cm {
        size: size_of::<fi_ops_cm>(),
        setname: Some(setname::<E>),
        getname: Some(getname::<E>),
        getpeer: Some(getpeer::<E>),
        connect: Some(connect::<E>),
        listen: missing::slot(),
        accept: Some(accept::<E>),
        reject: missing::slot(),
        shutdown: Some(shutdown::<E>),
        join: Some(super::collective::join::<E>),
    };

    const CONTEXT: &'static fi_ops_cm = &fi_ops_cm {
        getname: Some(getname::<E>),
        join: Some(join_context),
        ..missing::CM
    };
}

/// The table of a context of a scalable endpoint.
pub(super) fn context<E: Endpoint>() -> *const fi_ops_cm {
    Table::<E>::CONTEXT
}

/// Contexts are in no group.
unsafe extern "C" fn join_context(
    _: *mut fid_ep,
    _: *const c_void,
    _: u64,
    _: *mut *mut fid_mc,
    _: *mut c_void,
) -> c_int {
    log::warn!(
        target: UTIL.ep_ctrl,
        "fi_join: contexts of a scalable endpoint have no collective operations and no multicast"
    );
    Errno::ENOSYS.to_c()
}

/// Returns the table of an active endpoint.
pub(super) fn active<E: Endpoint>() -> *const fi_ops_cm {
    Table::<E>::CM
}

unsafe extern "C" fn setname<E: Endpoint>(fid: fid_t, name: *mut c_void, len: usize) -> c_int {
    // SAFETY: this function is only in the tables of endpoints of `E`; the application passes an
    // open one, and a name of `len` bytes.
    status(unsafe { Handle::<EndpointObject<E>>::borrow(fid.cast()).set_name(bytes(name, len)) })
}

unsafe extern "C" fn getname<E: Endpoint>(fid: fid_t, name: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: this function is only in the tables of endpoints of `E`; the application passes an
    // open one, and a buffer of `*len` bytes.
    status(unsafe {
        let this = Handle::<EndpointObject<E>>::borrow(fid.cast());
        let mut own = this.own_name();
        if let (Ok(bytes), Some(room), false) = (&own, len.as_ref(), name.is_null())
            && bytes.len() > *room
            && let Some(short) = this.short_name(*room)
        {
            own = Ok(short);
        }
        give_name(own, name, len)
    })
}

unsafe extern "C" fn getpeer<E: Endpoint>(
    ep: *mut fid_ep,
    name: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: this function is only in the tables of endpoints of `E`; the application passes an
    // open one, and a buffer of `*len` bytes.
    status(unsafe {
        give_name(
            Handle::<EndpointObject<E>>::borrow(ep).peer_name(),
            name,
            len,
        )
    })
}

unsafe extern "C" fn connect<E: Endpoint>(
    ep: *mut fid_ep,
    addr: *const c_void,
    param: *const c_void,
    paramlen: usize,
) -> c_int {
    // SAFETY: this function is only in the tables of endpoints of `E`; the application passes an
    // open one, an address of the domain's format, and `paramlen` bytes of data.
    status(unsafe {
        let ep = Handle::<EndpointObject<E>>::from_c(ep);
        address(addr).and_then(|addr| {
            EndpointObject::enable_to_connect(&ep)?;
            ep.to_move()?.connect(addr, bytes(param, paramlen))
        })
    })
}

unsafe extern "C" fn accept<E: Endpoint>(
    ep: *mut fid_ep,
    param: *const c_void,
    paramlen: usize,
) -> c_int {
    // SAFETY: this function is only in the tables of endpoints of `E`; the application passes an
    // open one, and data of the stated length, if any.
    status(unsafe {
        let ep = Handle::<EndpointObject<E>>::from_c(ep);
        EndpointObject::enable_to_connect(&ep)
            .and_then(|()| ep.to_move()?.accept(bytes(param, paramlen)))
    })
}

/// No flags are defined (fi_cm(3)), so they are ignored.
unsafe extern "C" fn shutdown<E: Endpoint>(ep: *mut fid_ep, _: u64) -> c_int {
    // SAFETY: this function is only in the tables of endpoints of `E`; the application passes an
    // open one, and data of the stated length, if any.
    let ep = unsafe { Handle::<EndpointObject<E>>::borrow(ep) };
    status(ep.to_move().and_then(E::shutdown))
}
