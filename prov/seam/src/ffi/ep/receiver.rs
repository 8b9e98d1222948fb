//! What endpoints and shared receive contexts have in common: receives, and the table of calls
//! about options and free entries.

use std::ffi::{CStr, c_void};

use fabric_abi::*;

use super::super::object::{Class, Handle};
use super::super::options::{Options, getopt, setopt};
use super::super::{count, missing, posted};
use super::operations::OperationFlags;
use prov_base::errno::{Errno, Result};
use prov_objects::request::Receive;

/// An object to which receives are posted: an endpoint or a shared receive context.
pub(in crate::ffi) trait Receiver: Options + Class<Header = fid_ep> {
    fn receive_fast(&self, receive: &mut Receive) -> bool;
    fn receive(&self, receive: &mut Receive) -> Result;
    fn flags(&self) -> &OperationFlags;
    fn caps(&self) -> u64;
    fn cancel(&self, context: *mut c_void) -> Result;
    fn room(&self) -> (Result<usize>, Result<usize>);
}

/// What is implemented where the calls are, above this module.
pub(in crate::ffi) trait Calls: Receiver {
    /// The object with the tables of its calls, of a provider with these capabilities.
    fn header(&self, fid: fid, caps: u64) -> fid_ep;

    /// Implements fi_set_ops(3).
    ///
    /// # Safety
    /// `ops` is the table that is known by this name.
    unsafe fn set_ops(_this: &Handle<Self>, _name: &CStr, _ops: *mut c_void) -> Result {
        Err(Errno::ENOSYS)
    }
}

pub(in crate::ffi) struct Tables<R>(std::marker::PhantomData<R>);

impl<R: Receiver> Tables<R> {
    pub(in crate::ffi) const EP: *const fi_ops_ep = &fi_ops_ep {
        cancel: Some(cancel::<R>),
        getopt: Some(getopt::<R>),
        setopt: Some(setopt::<R>),
        rx_size_left: Some(rx_size_left::<R>),
        tx_size_left: Some(tx_size_left::<R>),
        ..missing::EP
    };
}

unsafe extern "C" fn cancel<R: Receiver>(fid: fid_t, context: *mut c_void) -> isize {
    // SAFETY: the table belongs to objects of `R`.
    match unsafe { Handle::<R>::borrow(fid.cast()) }.cancel(context) {
        // An operation that has completed or is in progress cannot be cancelled, and reports a
        // completion. Programs treat an error of this call as fatal.
        Err(Errno::ENOENT) => 0,
        result => posted(result),
    }
}

unsafe extern "C" fn rx_size_left<R: Receiver>(ep: *mut fid_ep) -> isize {
    // SAFETY: as in `cancel`.
    count(unsafe { Handle::<R>::borrow(ep) }.room().1)
}

unsafe extern "C" fn tx_size_left<R: Receiver>(ep: *mut fid_ep) -> isize {
    // SAFETY: as in `cancel`.
    count(unsafe { Handle::<R>::borrow(ep) }.room().0)
}
