//! `ucp_worker_h`: a progress engine with its endpoints to peers, and operations in progress.

mod requests;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use libc::iovec;
use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};

use super::Context;
use super::memory::RemoteKey;
use crate::status::{Failure, outcome, result};
use crate::sys::*;

/// Length in bytes of the buffer from which UCX unpacks a key, which has no length for it: UCX reads
/// at most a map of 64 memory domains with 255 bytes for each, and a header.
const KEY_ROOM: usize = 32 << 10;

/// Length of a received message, or of one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub tag: u64,
    /// The message's bytes, of which the buffer may have taken fewer.
    pub len: usize,
}

/// What has become of an operation.
pub struct Done {
    pub outcome: Outcome,
    /// The message, for a receive.
    pub arrived: Arrived,
    /// The operation's memory, which UCP does not access any more.
    pub memory: AppIov,
}

/// What has become of an operation by the time that it is posted.
pub enum Posted<T> {
    /// It is complete.
    Done(T, Done),
    /// [`Worker::next_done`] returns it.
    Pending,
}

/// How an operation treats its memory and its peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Whether the memory belongs to the application when the call returns (`FI_INJECT`).
    pub is_inject: bool,
    /// Whether a message is complete only once the peer has a receive for it.
    pub is_matched: bool,
}

/// A message that was taken from those that wait. A worker keeps it until it is received.
pub struct Message {
    raw: NonNull<ucp_recv_desc>,
    /// The worker, for comparison.
    worker: NonNull<ucp_worker>,
}

// SAFETY: a message is used by who has its worker.
unsafe impl Send for Message {}

type Outcome = std::result::Result<(), Failure>;

/// The outcomes of operations that ended in a callback, by their places.
type Sink = VecDeque<(usize, Outcome, Arrived)>;

/// What the callback of an operation gets. It stays where it is as long as the worker exists.
struct Slot {
    sink: NonNull<Sink>,
    /// Index of the operation's place.
    place: usize,
    /// `ucp_request_free`
    release: unsafe extern "C" fn(*mut c_void),
}

/// An operation, or room for one.
struct Place<T> {
    slot: NonNull<Slot>,
    /// `None` if it is free.
    operation: Option<T>,
    /// UCP's request.
    request: *mut c_void,
    /// The key that UCP uses for it.
    key: Option<Arc<RemoteKey>>,
    /// The application's memory that UCP accesses.
    loan: AppIov,
    memory: NonNull<OperationMemory>,
}

/// Memory that UCP accesses as long as the operation is in progress.
struct OperationMemory {
    /// The bytes of an operation with [`Mode::is_inject`].
    copy: Vec<u8>,
    segments: [iovec; IOV_LIMIT],
}

/// The memory of an operation as UCP takes it.
struct Buffer {
    address: *mut c_void,
    count: usize,
    is_vector: bool,
}

/// See the [module](self) description.
pub struct Worker<T> {
    raw: NonNull<ucp_worker>,
    context: Arc<Context>,
    sink: NonNull<Sink>,
    places: Vec<Place<T>>,
    free: Vec<usize>,
    /// The endpoints, by the numbers of peers.
    peers: Vec<Option<NonNull<ucp_ep>>>,
    /// The keys that were used, by the numbers of peers and of keys.
    keys: HashMap<(usize, u64), Arc<RemoteKey>>,
    /// Endpoints that are being closed.
    closing: Vec<NonNull<c_void>>,
}

// SAFETY: the worker was opened for threads that use it one after the other, and so are its
// endpoints and requests.
unsafe impl<T: Send> Send for Worker<T> {}

/// Ends an operation of which a callback tells.
///
/// # Safety
/// `slot` is that of an operation in progress, and this thread is inside a function of its worker.
unsafe fn end(request: *mut c_void, slot: *mut c_void, outcome: Outcome, arrived: Arrived) {
    // SAFETY: the caller guarantees that the slot exists. The sink is used by nobody else meanwhile:
    // functions of the worker have no reference to it while they call UCP.
    // The request has ended, and a callback may release it.
    unsafe {
        let slot = &*slot.cast::<Slot>();
        (*slot.sink.as_ptr()).push_back((slot.place, outcome, arrived));
        (slot.release)(request);
    }
}

unsafe extern "C" fn sent(request: *mut c_void, status: ucs_status_t, slot: *mut c_void) {
    let outcome = outcome(status);
    // SAFETY: UCP calls this for an operation in progress, from within a function of its worker.
    unsafe { end(request, slot, outcome, NONE) };
}

unsafe extern "C" fn received(
    request: *mut c_void,
    status: ucs_status_t,
    info: *const ucp_tag_recv_info_t,
    slot: *mut c_void,
) {
    // SAFETY: UCP passes null or a description of the message.
    let info = unsafe { info.as_ref() };
    let arrived = info.map_or(NONE, |info| Arrived {
        tag: info.sender_tag,
        len: info.length,
    });
    let outcome = outcome(status);
    // SAFETY: UCP calls this for an operation in progress, from within a function of its worker.
    unsafe { end(request, slot, outcome, arrived) };
}

/// Returns the error number of a pointer that is one.
fn failure(pointer: ucs_status_ptr_t) -> Option<Failure> {
    let number = pointer.addr() as isize;
    let first = isize::from(UCS_ERR_LAST);
    (first..0)
        .contains(&number)
        .then_some(Failure(number as ucs_status_t))
}

impl<T> Worker<T> {
    /// Opens a worker. UCX complains of requests that are in progress when it is closed if
    /// `reports_leaks`.
    ///
    /// # Errors
    /// Those of UCX.
    pub fn open(context: &Arc<Context>, reports_leaks: bool) -> Result<Self> {
        let params = ucp_worker_params_t {
            field_mask: UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
            thread_mode: UCS_THREAD_MODE_SERIALIZED,
            cpu_mask: [0; 16],
            events: 0,
            user_data: null_mut(),
            event_fd: 0,
            flags: match reports_leaks {
                true => 0,
                false => UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
            },
            name: null_mut(),
            am_alignment: 0,
            client_id: 0,
        };
        let mut raw = null_mut();
        // SAFETY: the parameters have the fields of the mask, and the place for the result is
        // writable.
        let opened = context.registering(|calls| unsafe {
            (calls.ucp_worker_create)(context.raw(), &raw const params, &raw mut raw)
        });
        result(opened)?;
        Ok(Worker {
            raw: NonNull::new(raw).ok_or(Errno::ENOMEM)?,
            context: context.clone(),
            sink: leak(Sink::new()),
            places: Vec::new(),
            free: Vec::new(),
            peers: Vec::new(),
            keys: HashMap::new(),
            closing: Vec::new(),
        })
    }

    fn calls(&self) -> Calls {
        self.context.ucp.functions()
    }

    /// Returns the worker's address.
    ///
    /// # Errors
    /// Those of UCX.
    pub fn address(&self) -> Result<Vec<u8>> {
        let calls = self.calls();
        let (mut address, mut len) = (null_mut(), 0);
        // SAFETY: the worker exists, and the places for the results are writable.
        result(unsafe {
            (calls.ucp_worker_get_address)(self.raw.as_ptr(), &raw mut address, &raw mut len)
        })?;
        // SAFETY: UCP has returned an address of this length.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) }.to_vec();
        // SAFETY: the address is the worker's, and not used any more.
        unsafe { (calls.ucp_worker_release_address)(self.raw.as_ptr(), address) };
        Ok(bytes)
    }

    /// Whether there is an endpoint for this peer.
    pub fn is_connected(&self, peer: usize) -> bool {
        self.peer(peer).is_some()
    }

    fn peer(&self, peer: usize) -> Option<NonNull<ucp_ep>> {
        self.peers.get(peer).copied().flatten()
    }

    /// Opens an endpoint for a peer with the address of its worker, at least as long as that.
    ///
    /// # Errors
    /// Those of UCX, such as `-FI_ENETUNREACH`.
    pub fn connect(&mut self, peer: usize, address: &[u8]) -> Result {
        if self.is_connected(peer) {
            return Ok(());
        }
        let nowhere = || ucs_sock_addr_t {
            addr: null_mut(),
            addrlen: 0,
        };
        let params = ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
            address: address.as_ptr().cast(),
            err_mode: 0,
            err_handler: [null_mut(); 2],
            user_data: null_mut(),
            flags: 0,
            sockaddr: nowhere(),
            conn_request: null_mut(),
            name: null_mut(),
            local_sockaddr: nowhere(),
        };
        let mut raw = null_mut();
        // SAFETY: the parameters have the field of the mask, and the place for the result is
        // writable.
        result(unsafe {
            (self.calls().ucp_ep_create)(self.raw.as_ptr(), &raw const params, &raw mut raw)
        })?;
        while self.peers.len() <= peer {
            self.peers.push(None);
            bounded!(self.peers, PEERS);
        }
        let place = self.peers.get_mut(peer).ok_or(Errno::EINVAL)?;
        *place = NonNull::new(raw);
        Ok(())
    }

    /// Closes the endpoint for a peer, after what was sent through it.
    pub fn disconnect(&mut self, peer: usize) {
        self.keys.retain(|(of, _), _| *of != peer);
        let Some(ep) = self.peers.get_mut(peer).and_then(Option::take) else {
            return;
        };
        let params = self.params(None, false);
        // SAFETY: the endpoint is one of the worker, and not used any more. Without a callback the
        // caller checks and releases the request.
        let request = unsafe { (self.calls().ucp_ep_close_nbx)(ep.as_ptr(), &raw const params) };
        if failure(request).is_none() {
            self.closing.extend(NonNull::new(request));
        }
    }

    /// Forgets the keys with numbers for which `is_gone`.
    pub fn forget_keys(&mut self, is_gone: impl Fn(u64) -> bool) {
        self.keys.retain(|(_, key), _| !is_gone(*key));
    }

    /// Whether the key with this number was used with this peer.
    pub fn has_key(&self, peer: usize, key: u64) -> bool {
        self.keys.contains_key(&(peer, key))
    }

    /// Adds a peer's key under a number.
    ///
    /// # Errors
    /// Those of UCX, and `-FI_EINVAL` for a peer without an endpoint.
    pub fn add_key(&mut self, peer: usize, key: u64, packed: &[u8]) -> Result {
        let ep = self.peer(peer).ok_or(Errno::EINVAL)?;
        let mut bytes = packed.to_vec();
        bytes.resize(KEY_ROOM.max(packed.len()), 0);
        // SAFETY: the endpoint is one of this worker, which has the key and drops it before itself.
        let unpacked = unsafe { RemoteKey::unpack(self.context.ucp, ep, &bytes) }?;
        if let Entry::Vacant(place) = self.keys.entry((peer, key)) {
            place.insert(Arc::new(unpacked));
        }
        Ok(())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// `-FI_EINVAL` for a peer without an endpoint, and those of UCX, for an operation that was not
    /// begun.
    #[inline]
    pub fn send(
        &mut self,
        peer: usize,
        memory: &mut AppIov,
        tag: u64,
        mode: Mode,
        operation: T,
    ) -> Result<Posted<T>> {
        let ep = self.peer(peer).ok_or(Errno::EINVAL)?;
        let place = self.begin(operation);
        let buffer = self.buffer(place, memory, mode.is_inject);
        let params = self.params(Some(place), buffer.is_vector);
        let calls = self.calls();
        let send = match mode.is_matched {
            true => calls.ucp_tag_send_sync_nbx,
            false => calls.ucp_tag_send_nbx,
        };
        // SAFETY: the endpoint is one of the worker; the memory is valid until the operation ends,
        // as that of an `AppIov`, and so is that of the place.
        let request = unsafe {
            send(
                ep.as_ptr(),
                buffer.address,
                buffer.count,
                tag,
                &raw const params,
            )
        };
        self.posted_with(place, request, memory, mode.is_inject)
    }

    /// Posts a receive for messages whose tag equals `tag` in the bits of `mask`.
    ///
    /// # Errors
    /// Those of UCX.
    #[inline]
    pub fn receive(
        &mut self,
        memory: &mut AppIov,
        tag: u64,
        mask: u64,
        operation: T,
    ) -> Result<Posted<T>> {
        let place = self.begin(operation);
        let buffer = self.buffer(place, memory, false);
        let params = self.receive_params(place, &buffer);
        let worker = self.raw.as_ptr();
        // SAFETY: the memory is valid until the operation ends, as above.
        let request = unsafe {
            (self.calls().ucp_tag_recv_nbx)(
                worker,
                buffer.address,
                buffer.count,
                tag,
                mask,
                &raw const params,
            )
        };
        self.posted(place, request, memory)
    }

    /// Returns the oldest message that waits for a receive of this kind; with `takes`, it is for
    /// [`Worker::receive_message`] only.
    pub fn probe(&mut self, tag: u64, mask: u64, takes: bool) -> Option<(Arrived, Message)> {
        let mut info = ucp_tag_recv_info_t {
            sender_tag: 0,
            length: 0,
        };
        let worker = self.raw;
        // SAFETY: the worker exists, and the place for the description is writable.
        let found = unsafe {
            let calls = self.calls();
            (calls.ucp_tag_probe_nb)(
                worker.as_ptr(),
                tag,
                mask,
                c_int::from(takes),
                &raw mut info,
            )
        };
        let arrived = Arrived {
            tag: info.sender_tag,
            len: info.length,
        };
        // A message that stays where it is must not be received by its name.
        let worker = if takes { worker } else { NonNull::dangling() };
        NonNull::new(found).map(|raw| (arrived, Message { raw, worker }))
    }

    /// Receives a message that was taken.
    ///
    /// # Errors
    /// `-FI_EINVAL` for a message that this worker has not, and those of UCX.
    pub fn receive_message(
        &mut self,
        message: Message,
        memory: &mut AppIov,
        operation: T,
    ) -> Result<Posted<T>> {
        if message.worker != self.raw {
            return Err(Errno::EINVAL);
        }
        let place = self.begin(operation);
        let buffer = self.buffer(place, memory, false);
        let params = self.receive_params(place, &buffer);
        let (worker, message) = (self.raw.as_ptr(), message.raw.as_ptr());
        // SAFETY: the message is one that the worker has returned, and is received once, since it
        // was moved here; memory as above.
        let request = unsafe {
            (self.calls().ucp_tag_msg_recv_nbx)(
                worker,
                buffer.address,
                buffer.count,
                message,
                &raw const params,
            )
        };
        self.posted(place, request, memory)
    }

    /// Writes to a peer's memory, or reads from it (`reads`), with a key that was added.
    ///
    /// # Errors
    /// `-FI_EINVAL` for a peer or key that is not there and for several segments, and those of UCX.
    pub fn access(
        &mut self,
        (peer, key, address): (usize, u64, u64),
        reads: bool,
        memory: &mut AppIov,
        mode: Mode,
        operation: T,
    ) -> Result<Posted<T>> {
        let ep = self.peer(peer).ok_or(Errno::EINVAL)?;
        let key = self.keys.get(&(peer, key)).ok_or(Errno::EINVAL)?.clone();
        if memory.pieces().len() > 1 {
            return Err(Errno::EINVAL);
        }
        let place = self.begin(operation);
        let Buffer {
            address: local,
            count,
            ..
        } = self.buffer(place, memory, mode.is_inject && !reads);
        let params = self.params(Some(place), false);
        let (ep, raw) = (ep.as_ptr(), key.raw.as_ptr());
        if let Some(place) = self.places.get_mut(place) {
            place.key = Some(key);
        }
        let calls = self.calls();
        // SAFETY: endpoint and key are the worker's, and the place keeps the key; memory as above.
        let request = unsafe {
            match reads {
                true => (calls.ucp_get_nbx)(ep, local, count, address, raw, &raw const params),
                false => (calls.ucp_put_nbx)(ep, local, count, address, raw, &raw const params),
            }
        };
        self.posted_with(place, request, memory, mode.is_inject && !reads)
    }

    /// Completes when the operations with a peer that were posted before have reached it; with no
    /// peer, those with all of them.
    ///
    /// # Errors
    /// Those of UCX.
    pub fn flush(&mut self, peer: Option<usize>, operation: T) -> Result<Posted<T>> {
        let ep = match peer {
            Some(peer) => Some(self.peer(peer).ok_or(Errno::EINVAL)?),
            None => None,
        };
        let place = self.begin(operation);
        let params = self.params(Some(place), false);
        let calls = self.calls();
        // SAFETY: worker and endpoint exist.
        let request = unsafe {
            match ep {
                Some(ep) => (calls.ucp_ep_flush_nbx)(ep.as_ptr(), &raw const params),
                None => (calls.ucp_worker_flush_nbx)(self.raw.as_ptr(), &raw const params),
            }
        };
        self.posted(place, request, &mut AppIov::default())
    }

    /// Orders what is posted later behind what was posted before.
    ///
    /// # Errors
    /// Those of UCX.
    pub fn fence(&mut self) -> Result {
        // SAFETY: the worker exists.
        result(unsafe { (self.calls().ucp_worker_fence)(self.raw.as_ptr()) })
    }

    /// Makes progress. Returns whether there was anything to do.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let calls = self.calls();
        // SAFETY: the worker exists.
        let done = unsafe { (calls.ucp_worker_progress)(self.raw.as_ptr()) };
        if !self.closing.is_empty() {
            self.closing.retain(|request| {
                // SAFETY: the request of a close, which nobody has released.
                let status = unsafe { (calls.ucp_request_check_status)(request.as_ptr()) };
                if status != UCS_INPROGRESS {
                    // SAFETY: as above.
                    unsafe { (calls.ucp_request_free)(request.as_ptr()) };
                }
                status == UCS_INPROGRESS
            });
        }
        done != 0
    }

    /// Returns an operation that has ended since it was posted, in the order of their ends.
    #[inline]
    pub fn next_done(&mut self) -> Option<(T, Done)> {
        loop {
            // SAFETY: the sink lives as long as the worker, and no function of UCP is running.
            let (place, outcome, arrived) = unsafe { self.sink.as_mut() }.pop_front()?;
            if let Some((operation, memory)) = self.end(place) {
                let done = Done {
                    outcome,
                    arrived,
                    memory,
                };
                return Some((operation, done));
            }
        }
    }

    /// Cancels an operation. [`Worker::next_done`] returns it if that has an effect. Returns whether
    /// there is one for which `is_it`.
    pub fn cancel(&mut self, is_it: impl Fn(&T) -> bool) -> bool {
        let mut places = self.places.iter();
        let found = places.find(|place| place.operation.as_ref().is_some_and(&is_it));
        let Some(request) = found.map(|place| place.request) else {
            return false;
        };
        // An operation that has ended in a callback is cancelled too late.
        // SAFETY: the sink lives as long as the worker, and no function of UCP is running.
        let is_over = unsafe { self.sink.as_ref() }.iter().any(|(place, ..)| {
            self.places
                .get(*place)
                .is_some_and(|at| at.request == request)
        });
        if !is_over {
            // SAFETY: the request is in progress: its callback has not been called.
            unsafe { (self.calls().ucp_request_cancel)(self.raw.as_ptr(), request) };
        }
        true
    }
}

/// No message.
const NONE: Arrived = Arrived { tag: 0, len: 0 };

/// Puts a value where it stays, until it is [freed](free).
fn leak<V>(value: V) -> NonNull<V> {
    NonNull::from(Box::leak(Box::new(value)))
}

/// # Safety
/// The value is one that [`leak`] has returned, and is not used any more.
unsafe fn free<V>(value: NonNull<V>) {
    // SAFETY: the caller guarantees that this is the only use of the box that `leak` has made.
    drop(unsafe { Box::from_raw(value.as_ptr()) });
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        // Keys of operations in progress are left to UCX, which may still use them.
        for place in &mut self.places {
            std::mem::forget(place.key.take());
        }
        self.keys.clear();
        // SAFETY: nobody uses the worker any more, nor what belongs to it. Callbacks that run
        // meanwhile find their slots.
        unsafe { (self.calls().ucp_worker_destroy)(self.raw.as_ptr()) };
        for place in &self.places {
            // SAFETY: they were made for this worker, whose operations have ended with it.
            unsafe {
                free(place.slot);
                free(place.memory);
            }
        }
        // SAFETY: as above.
        unsafe { free(self.sink) };
    }
}
