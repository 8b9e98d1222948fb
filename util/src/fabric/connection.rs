//! Event queues and passive endpoints, fi_eq(3), fi_cm(3).

use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

use fabric_abi::{
    FI_CONNECTED, FI_CONNREQ, FI_EAGAIN, FI_EAVAIL, FI_EOTHER, FI_WAIT_UNSPEC, fi_eq_attr,
    fi_eq_cm_entry, fi_eq_err_entry, fid, fid_eq, fid_pep,
};

use super::endpoint::name_of;
use super::error::{check, explain};
use super::object::Object;
use super::{Fabric, Failure, Info, InfoList, Result};

/// An event queue.
pub struct EventQueue {
    object: Object<fid_eq>,
    /// Closed after the queue.
    _fabric: Rc<Fabric>,
}

/// An event of a connection.
pub enum Event {
    /// A peer requests a connection; the endpoint for it is opened from this entry.
    Request(InfoList),
    /// The connection of the endpoint with this fid is established.
    Connected(*mut fid),
    Other(u32),
}

impl EventQueue {
    pub fn open(fabric: &Rc<Fabric>) -> Result<Rc<EventQueue>> {
        let mut attr = fi_eq_attr {
            wait_obj: FI_WAIT_UNSPEC,
            ..Default::default()
        };
        let parent = fabric.as_ptr();
        // SAFETY: the fabric is open, the attributes are valid, and the location of the object is
        // writable.
        let object = unsafe {
            Object::open("fi_eq_open", |place| {
                call_slot!(
                    parent,
                    ops,
                    eq_open,
                    parent,
                    &mut attr,
                    place,
                    ptr::null_mut()
                )
            })
        }?;
        Ok(Rc::new(EventQueue {
            object,
            _fabric: Rc::clone(fabric),
        }))
    }

    /// Waits up to this many milliseconds for the next connection event.
    pub fn wait(&self, milliseconds: c_int) -> Result<Option<Event>> {
        let eq = self.object.as_ptr();
        let mut event = 0;
        let mut entry = fi_eq_cm_entry::default();
        let (place, room) = ((&raw mut entry).cast(), size_of_val(&entry));
        // SAFETY: the queue is open, and the buffer has the stated length.
        let returned =
            unsafe { call_slot!(eq, ops, sread, eq, &mut event, place, room, milliseconds, 0) };
        match check("fi_eq_sread", returned) {
            Err(failure) if failure.code == FI_EAGAIN => return Ok(None),
            Err(failure) if failure.code == FI_EAVAIL => return Err(self.read_error()),
            Err(failure) => return Err(failure),
            Ok(read) if read < room => {
                return Err(Failure {
                    call: "fi_eq_sread",
                    code: FI_EOTHER,
                });
            }
            Ok(_) => {}
        }
        Ok(Some(match event {
            // SAFETY: the reader of an event owns the entry of a request, and frees it once.
            FI_CONNREQ => Event::Request(unsafe { InfoList::from_raw(entry.info) }),
            FI_CONNECTED => Event::Connected(entry.fid),
            other => Event::Other(other),
        }))
    }

    fn read_error(&self) -> Failure {
        let eq = self.object.as_ptr();
        let mut entry = fi_eq_err_entry::default();
        // SAFETY: the queue is open, and `entry` is writable.
        let returned = unsafe { call_slot!(eq, ops, readerr, eq, &mut entry, 0) };
        if let Err(failure) = check("fi_eq_readerr", returned) {
            return failure;
        }
        // SAFETY: the queue is open, the error's data is what it returned, and the buffer may be
        // null.
        let text = unsafe {
            (*(*eq).ops).strerror.map_or(ptr::null(), |strerror| {
                strerror(eq, entry.prov_errno, entry.err_data, ptr::null_mut(), 0)
            })
        };
        // SAFETY: the text is null, or a terminated text of the provider.
        unsafe { explain("connection", text) };
        Failure {
            call: "connection",
            code: entry.err,
        }
    }

    pub(super) fn as_ptr(&self) -> *mut fid_eq {
        self.object.as_ptr()
    }
}

/// A listening passive endpoint.
pub struct PassiveEndpoint {
    object: Object<fid_pep>,
    /// Closed after the endpoint, as is its fabric.
    _eq: Rc<EventQueue>,
}

impl PassiveEndpoint {
    /// Listens at the address in `info`; requests arrive at the event queue.
    pub fn listen(fabric: &Fabric, info: &Info, eq: &Rc<EventQueue>) -> Result<PassiveEndpoint> {
        let parent = fabric.as_ptr();
        // SAFETY: the fabric is open, the info is a result of fi_getinfo, and the location of the
        // object is writable.
        let object = unsafe {
            Object::open("fi_passive_ep", |place| {
                call_slot!(
                    parent,
                    ops,
                    passive_ep,
                    parent,
                    info.as_ptr(),
                    place,
                    ptr::null_mut()
                )
            })
        }?;
        let endpoint = PassiveEndpoint {
            object,
            _eq: Rc::clone(eq),
        };
        let (pep, eq) = (endpoint.object.as_ptr(), eq.as_ptr());
        // SAFETY: the endpoint and the queue are open, and the endpoint keeps the queue open.
        let returned = unsafe {
            call_slot!(
                pep,
                fid.ops,
                bind,
                &raw mut (*pep).fid,
                &raw mut (*eq).fid,
                0
            )
        };
        check("fi_pep_bind", returned)?;
        // SAFETY: the endpoint is open until it is dropped.
        let returned = unsafe { call_slot!(pep, cm, listen, pep) };
        check("fi_listen", returned)?;
        Ok(endpoint)
    }

    /// Returns the address at which it listens.
    pub fn name(&self) -> Result<Vec<u8>> {
        let pep = self.object.as_ptr();
        // SAFETY: the endpoint is open, and the table is its own.
        unsafe { name_of(&raw mut (*pep).fid, (*pep).cm) }
    }

    /// Rejects a request.
    pub fn reject(&self, request: &Info) -> Result<()> {
        let pep = self.object.as_ptr();
        let handle = request.handle();
        // SAFETY: the endpoint is open, the handle is that of a request to it, and the data may be
        // null.
        let returned = unsafe { call_slot!(pep, cm, reject, pep, handle, ptr::null(), 0) };
        check("fi_reject", returned).map(drop)
    }
}
