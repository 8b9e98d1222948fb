//! The function tables of endpoints, of the contexts of scalable ones, and of shared receive
//! contexts: those of the data calls, which are above the objects that they are called on.

use std::ffi::{CStr, c_void};

use fabric_abi::*;

use super::ep::{Calls, EndpointObject, SharedReceiveObject, Tables};
use super::object::{Handle, without_calls};
use super::{atomic, cm, collective, ends, msg, rma, tagged};
use crate::endpoint::{Endpoint, SharedReceive, Side};
use prov_base::errno::Result;

impl<E: Endpoint> Calls for EndpointObject<E> {
    fn header(&self, fid: fid, caps: u64) -> fid_ep {
        let common = without_calls(fid, Tables::<Self>::EP);
        match self.side() {
            Some(Side::Transmit) => fid_ep {
                cm: cm::context::<E>().cast_mut(),
                msg: msg::send_table::<E>(caps).cast_mut(),
                rma: rma::table::<E>(caps).cast_mut(),
                tagged: tagged::send_table::<E>(caps).cast_mut(),
                atomic: atomic::table::<E>(caps).cast_mut(),
                ..common
            },
            Some(Side::Receive) => fid_ep {
                cm: cm::context::<E>().cast_mut(),
                msg: msg::receive_table::<Self>(caps).cast_mut(),
                tagged: tagged::receive_table::<Self>(caps).cast_mut(),
                ..common
            },
            None => fid_ep {
                cm: cm::active::<E>().cast_mut(),
                msg: msg::table::<E>(caps).cast_mut(),
                rma: rma::table::<E>(caps).cast_mut(),
                tagged: match self.has_collectives() {
                    true => collective::tagged_table::<E>(),
                    false => tagged::table::<E>(caps),
                }
                .cast_mut(),
                atomic: atomic::table::<E>(caps).cast_mut(),
                collective: collective::table::<E>(self.has_collectives()).cast_mut(),
                ..common
            },
        }
    }

    unsafe fn set_ops(this: &Handle<Self>, name: &CStr, ops: *mut c_void) -> Result {
        // SAFETY: the caller guarantees that it is the table of this name.
        unsafe { ends::set_ops(this, name, ops) }
    }
}

impl<S: SharedReceive> Calls for SharedReceiveObject<S> {
    fn header(&self, fid: fid, caps: u64) -> fid_ep {
        fid_ep {
            msg: msg::receive_table::<Self>(caps).cast_mut(),
            tagged: tagged::receive_table::<Self>(caps).cast_mut(),
            ..without_calls(fid, Tables::<Self>::EP)
        }
    }
}
