//! Endpoints, fi_endpoint(3), and the transfers of fi_pingpong.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use fabric_abi::{
    FI_EAGAIN, FI_EINVAL, FI_ENABLE, FI_ETOOSMALL, FI_MR_LOCAL, FI_RECV, FI_SEND, FI_TRANSMIT,
    FI_TRANSMIT_COMPLETE, fi_context2, fi_msg, fi_msg_tagged, fi_ops_cm, fid, fid_ep, fid_mr,
};
use libc::iovec;

use super::error::check;
use super::object::Object;
use super::{AddressVector, CompletionQueue, Domain, EventQueue, Failure, Info, Memory, Result};

/// Registration key, if the application chooses it.
const KEY: u64 = 0xc0de;

/// The objects to which an endpoint is bound.
pub struct Binding {
    pub transmit: Rc<CompletionQueue>,
    pub receive: Rc<CompletionQueue>,
    /// For connectionless endpoints.
    pub addresses: Option<Rc<AddressVector>>,
    /// For connected endpoints.
    pub events: Option<Rc<EventQueue>>,
}

/// One of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    Transmit,
    Receive,
}

/// An endpoint with one buffer for each direction. The caller waits for completions before it
/// reuses a buffer.
pub struct Endpoint {
    object: Object<fid_ep>,
    /// Registration of the buffers, where the provider wants one; closed after the endpoint.
    registration: Option<Object<fid_mr>>,
    binding: Binding,
    /// Freed after the endpoint is closed.
    memory: Memory,
    /// The operations in flight, by direction.
    flights: Box<[Flights; 2]>,
    /// Messages carry this tag.
    tag: Option<u64>,
    /// Closed after the endpoint.
    _domain: Rc<Domain>,
}

impl Endpoint {
    /// Opens, binds and enables an endpoint.
    pub fn open(
        domain: &Rc<Domain>,
        info: &Info,
        binding: Binding,
        memory: Memory,
        tag: Option<u64>,
    ) -> Result<Endpoint> {
        let parent = domain.as_ptr();
        // SAFETY: the domain is open, the info is a result of fi_getinfo, and the location of the
        // object is writable.
        let object = unsafe {
            Object::open("fi_endpoint", |place| {
                call_slot!(
                    parent,
                    ops,
                    endpoint,
                    parent,
                    info.as_ptr(),
                    place,
                    ptr::null_mut()
                )
            })
        }?;
        let mut endpoint = Endpoint {
            object,
            binding,
            registration: None,
            memory,
            flights: Box::default(),
            tag,
            _domain: Rc::clone(domain),
        };
        if info.mr_mode() & FI_MR_LOCAL != 0 {
            endpoint.register(domain)?;
        }
        endpoint.bind_all()?;
        let fid = endpoint.fid();
        // SAFETY: the endpoint is open, and the command takes no argument.
        let returned = unsafe { call_slot!(fid, ops, control, fid, FI_ENABLE, ptr::null_mut()) };
        check("fi_enable", returned)?;
        Ok(endpoint)
    }

    fn register(&mut self, domain: &Domain) -> Result<()> {
        let parent = domain.as_ptr();
        let (base, length) = (self.memory.receive_at().cast(), self.memory.len());
        // SAFETY: the domain is open, the memory lives until the registration is closed, and the
        // location of the object is writable.
        let object = unsafe {
            Object::open("fi_mr_reg", |place| {
                call_slot!(
                    parent,
                    mr,
                    reg,
                    &raw mut (*parent).fid,
                    base,
                    length,
                    FI_SEND | FI_RECV,
                    0,
                    KEY,
                    0,
                    place,
                    ptr::null_mut(),
                )
            })
        }?;
        self.registration = Some(object);
        Ok(())
    }

    fn bind_all(&self) -> Result<()> {
        if let Some(events) = &self.binding.events {
            // SAFETY: the other object is open, and this endpoint keeps it open.
            unsafe { self.bind(&raw mut (*events.as_ptr()).fid, 0) }?;
        }
        if let Some(addresses) = &self.binding.addresses {
            // SAFETY: the other object is open, and this endpoint keeps it open.
            unsafe { self.bind(&raw mut (*addresses.as_ptr()).fid, 0) }?;
        }
        let (transmit, receive) = (
            self.binding.transmit.as_ptr(),
            self.binding.receive.as_ptr(),
        );
        // SAFETY: the other object is open, and this endpoint keeps it open.
        unsafe { self.bind(&raw mut (*transmit).fid, FI_TRANSMIT) }?;
        // SAFETY: the other object is open, and this endpoint keeps it open.
        unsafe { self.bind(&raw mut (*receive).fid, FI_RECV) }
    }

    /// # Safety
    /// `object` is open and stays so as long as the endpoint.
    unsafe fn bind(&self, object: *mut fid, flags: u64) -> Result<()> {
        let fid = self.fid();
        // SAFETY: the endpoint is open, and the caller guarantees that the other object is open as
        // long as the endpoint.
        let returned = unsafe { call_slot!(fid, ops, bind, fid, object, flags) };
        check("fi_ep_bind", returned).map(drop)
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The endpoint's own address.
    pub fn name(&self) -> Result<Vec<u8>> {
        // SAFETY: the endpoint is open, and the table is its own.
        unsafe { name_of(self.fid(), (*self.object.as_ptr()).cm) }
    }

    /// Whether an event concerns this endpoint.
    pub fn is(&self, object: *mut fid) -> bool {
        self.fid() == object
    }

    /// Requests a connection to an address, without data.
    pub fn connect(&self, address: &[u8]) -> Result<()> {
        let (ep, to) = (self.object.as_ptr(), address.as_ptr().cast());
        // SAFETY: the endpoint is open, and the address has its format.
        let returned = unsafe { call_slot!(ep, cm, connect, ep, to, ptr::null(), 0) };
        check("fi_connect", returned).map(drop)
    }

    /// Accepts the request that the endpoint was opened for, without data.
    pub fn accept(&self) -> Result<()> {
        let ep = self.object.as_ptr();
        // SAFETY: the endpoint is open until it is dropped.
        let returned = unsafe { call_slot!(ep, cm, accept, ep, ptr::null(), 0) };
        check("fi_accept", returned).map(drop)
    }

    /// Ends the connection.
    pub fn shut_down(&self) -> Result<()> {
        let ep = self.object.as_ptr();
        // SAFETY: the endpoint is open until it is dropped.
        let returned = unsafe { call_slot!(ep, cm, shutdown, ep, 0) };
        check("fi_shutdown", returned).map(drop)
    }

    /// Returns whether an operation of this direction has completed since the last call.
    pub fn poll(&self, queue: Queue) -> Result<bool> {
        let polled = match queue {
            Queue::Transmit => self.binding.transmit.poll(),
            Queue::Receive => self.binding.receive.poll(),
        };
        if !matches!(polled, Ok(false)) {
            self.flights[queue as usize].landed();
        }
        polled
    }

    /// Receives into the whole receive buffer.
    pub fn post_receive(&self) -> Result<()> {
        let ep = self.object.as_ptr();
        let (buf, len) = (self.memory.receive_at().cast(), self.memory.receive_len());
        let desc = self.descriptor();
        self.fly(Queue::Receive, "receive", |context| {
            // SAFETY: the endpoint is open, and buffer and context live until it is closed.
            unsafe {
                match self.tag {
                    None => call_slot!(ep, msg, recv, ep, buf, len, desc, 0, context),
                    Some(tag) => {
                        call_slot!(ep, tagged, recv, ep, buf, len, desc, 0, tag, 0, context)
                    }
                }
            }
        })
    }

    /// Sends the first bytes of the transmit buffer; a completion follows.
    pub fn send(&self, length: usize, to: u64) -> Result<()> {
        let ep = self.object.as_ptr();
        let (buf, len) = self.outgoing(length)?;
        let desc = self.descriptor();
        self.fly(Queue::Transmit, "transmit", |context| {
            // SAFETY: the endpoint is open, and buffer and context live until it is closed.
            unsafe {
                match self.tag {
                    None => call_slot!(ep, msg, send, ep, buf, len, desc, to, context),
                    Some(tag) => {
                        call_slot!(ep, tagged, send, ep, buf, len, desc, to, tag, context)
                    }
                }
            }
        })
    }

    /// Sends the first bytes of the transmit buffer, which may be reused immediately; no completion
    /// follows.
    pub fn inject(&self, length: usize, to: u64) -> Result<()> {
        let ep = self.object.as_ptr();
        let (buf, len) = self.outgoing(length)?;
        // SAFETY: the endpoint is open, and the buffer has the stated length.
        let returned = unsafe {
            match self.tag {
                None => call_slot!(ep, msg, inject, ep, buf, len, to),
                Some(tag) => call_slot!(ep, tagged, inject, ep, buf, len, to, tag),
            }
        };
        check("inject", returned).map(drop)
    }

    /// As [`Endpoint::send`]; the completion means that the message has been transmitted.
    pub fn send_to_completion(&self, length: usize, to: u64) -> Result<()> {
        let ep = self.object.as_ptr();
        let (buf, len) = self.outgoing(length)?;
        let part = iovec {
            iov_base: buf.cast_mut(),
            iov_len: len,
        };
        let mut desc = [self.descriptor()];
        self.fly(Queue::Transmit, "transmit", |context| {
            let plain = fi_msg {
                msg_iov: &part,
                desc: desc.as_mut_ptr(),
                iov_count: 1,
                addr: to,
                context,
                data: 0,
            };
            let tagged = fi_msg_tagged {
                msg_iov: &part,
                desc: desc.as_mut_ptr(),
                iov_count: 1,
                addr: to,
                tag: self.tag.unwrap_or(0),
                ignore: 0,
                context,
                data: 0,
            };
            // SAFETY: the endpoint is open; buffer and context live until it is closed, the message
            // and its vectors until the call returns.
            unsafe {
                match self.tag {
                    None => call_slot!(ep, msg, sendmsg, ep, &plain, FI_TRANSMIT_COMPLETE),
                    Some(_) => call_slot!(ep, tagged, sendmsg, ep, &tagged, FI_TRANSMIT_COMPLETE),
                }
            }
        })
    }

    /// Posts an operation with a context of its own; `-FI_EAGAIN` while too many are in flight.
    fn fly(
        &self,
        queue: Queue,
        call: &'static str,
        post: impl FnOnce(*mut c_void) -> isize,
    ) -> Result<()> {
        let flights = &self.flights[queue as usize];
        let context = flights.free().ok_or(Failure {
            call,
            code: FI_EAGAIN,
        })?;
        check(call, post(context))?;
        flights.started();
        Ok(())
    }

    fn outgoing(&self, length: usize) -> Result<(*const c_void, usize)> {
        if length > self.memory.transmit_len() {
            return Err(Failure {
                call: "transmit",
                code: FI_EINVAL,
            });
        }
        Ok((self.memory.transmit_at().cast_const().cast(), length))
    }

    fn descriptor(&self) -> *mut c_void {
        let registration = self.registration.as_ref();
        // SAFETY: the registration is open until the endpoint is closed.
        registration.map_or(ptr::null_mut(), |mr| unsafe { (*mr.as_ptr()).mem_desc })
    }

    fn fid(&self) -> *mut fid {
        self.object.fid()
    }
}

/// Largest number of operations in flight in one direction.
pub const CONTEXTS: usize = 64;

/// The operations of one direction that are in flight. They complete in the order in which they
/// were posted, so that the scratch space of the oldest is free first.
struct Flights {
    /// Scratch space of operations, for modes that require it; used in turn.
    contexts: [UnsafeCell<fi_context2>; CONTEXTS],
    /// Number of operations ever posted.
    started: Cell<usize>,
    /// Number of operations ever completed.
    landed: Cell<usize>,
}

impl Default for Flights {
    fn default() -> Flights {
        Flights {
            contexts: std::array::from_fn(|_| UnsafeCell::default()),
            started: Cell::default(),
            landed: Cell::default(),
        }
    }
}

impl Flights {
    /// Returns scratch space for one more operation.
    fn free(&self) -> Option<*mut c_void> {
        let in_flight = self.started.get() - self.landed.get();
        let next = self.started.get() % self.contexts.len();
        (in_flight < self.contexts.len()).then(|| self.contexts[next].get().cast())
    }

    fn started(&self) {
        self.started.set(self.started.get() + 1);
    }

    fn landed(&self) {
        self.landed
            .set((self.landed.get() + 1).min(self.started.get()));
    }
}

/// Returns the address of an endpoint.
///
/// # Safety
/// `object` belongs to an open endpoint with that table.
pub(super) unsafe fn name_of(object: *mut fid, cm: *mut fi_ops_cm) -> Result<Vec<u8>> {
    let table = Table { cm };
    let mut length = 0;
    // SAFETY: the caller guarantees that the endpoint is open and that the table is its own; the
    // buffer has no bytes, and the call returns the length.
    let returned = unsafe {
        call_slot!(
            &raw const table,
            cm,
            getname,
            object,
            ptr::null_mut(),
            &mut length
        )
    };
    match check("fi_getname", returned) {
        Err(failure) if failure.code != FI_ETOOSMALL => return Err(failure),
        _ => {}
    }
    let mut name = vec![0u8; length];
    // SAFETY: the caller guarantees that the endpoint is open and that the table is its own; the
    // buffer has `length` bytes.
    let returned = unsafe {
        call_slot!(
            &raw const table,
            cm,
            getname,
            object,
            name.as_mut_ptr().cast(),
            &mut length
        )
    };
    check("fi_getname", returned)?;
    name.truncate(length);
    Ok(name)
}

/// The object for the slot macro.
struct Table {
    cm: *mut fi_ops_cm,
}
