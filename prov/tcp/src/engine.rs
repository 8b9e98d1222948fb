//! What moves data: the sockets of a domain, driven from the calls that read
//! its queues.
//!
//! An [`Engine`] is one lock around a [`Core`], one poller and all connections
//! of a domain, or the listeners of a fabric. Operations are posted to it and
//! it reports to completion queues and event queues under its lock. It does no
//! work of its own unless [`Progress::progress`] calls it, but for the
//! [`flusher`] that ends bursts of messages which were held back to leave
//! together.

mod arrival;
mod atomics;
mod closing;
mod connect;
pub mod connection;
mod direct;
pub mod endpoint;
mod far_end;
mod flusher;
mod handshake;
mod incoming;
pub mod keys;
pub mod listener;
mod lost;
mod msg;
mod negotiated;
mod neighbour;
pub mod op;
mod outbox;
mod place;
mod poller;
mod posting;
mod progress;
mod proving;
pub mod rdm;
mod receiving;
mod rendezvous;
mod request;
mod rma;
mod sending;
mod silence;
pub mod socket;
#[cfg(test)]
mod tests;
mod timers;
mod zerocopy;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use prov_util::errno::{Errno, Result};
use prov_util::progress::Progress;
use slotmap::SlotMap;

pub use self::atomics::MAX_BYTES as ATOMIC_LIMIT;
use self::connection::Connection;
use self::endpoint::{EndpointState, Receiver};
use self::flusher::Flusher;
use self::keys::{ConnKey, EpKey, ListenerKey, ReceiverKey};
use self::listener::Listener;
use self::op::Op;
use self::poller::{Event, Poller};
use self::timers::Timers;
use crate::params::Params;
use prov_util::mr::MrTable;

/// See the module description.
pub struct Engine {
    core: parking_lot::Mutex<Core>,
    shared: Arc<Shared>,
    wait_fd: RawFd,
}

/// What is looked at without the engine's lock.
#[derive(Default)]
struct Shared {
    /// Whether messages are held back.
    due: AtomicBool,
    /// Counts, about, the application's calls that read queues.
    calls: AtomicU64,
}

impl Shared {
    /// The application reads a queue. An approximation will do.
    #[inline]
    fn called(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
    }
}

/// The state of an engine.
pub struct Core {
    pub params: Arc<Params>,
    pub conns: SlotMap<ConnKey, Connection>,
    pub eps: SlotMap<EpKey, EndpointState>,
    pub receivers: SlotMap<ReceiverKey, Receiver>,
    pub listeners: SlotMap<ListenerKey, Listener>,
    /// The domain's registered memory; none in a fabric's engine.
    memory: Option<Arc<MrTable>>,
    poller: Poller,
    timers: Timers,
    flusher: Flusher,
    /// Connections that are read without asking the poller.
    hot: Vec<Hot>,
    /// Connections that may have more to read.
    ready: VecDeque<ConnKey>,
    /// Connections whose outboxes wait for the end of a burst.
    held: Vec<ConnKey>,
    shared: Arc<Shared>,
    /// Progress calls until the poller is asked.
    polls_left: u32,
    /// How many progress calls there are between two questions to the poller.
    poll_interval: u32,
    events: Vec<Event>,
    /// Where a read from a socket lands; empty while one is taken apart.
    staging: Vec<u8>,
    /// Where a message is put together that leaves in one call.
    scratch: Box<[u8; SCRATCH]>,
    /// Messages shorter than this may take the short way; 0 where each message
    /// is logged.
    quick_end: usize,
    /// Progress calls since the last one in which something came.
    idle_calls: u32,
    /// Outbox buffers of connections that have nothing to send.
    spare_buffers: Vec<Vec<u8>>,
    /// Whether the poller had something to say the last time.
    had_events: bool,
    /// Whether a thread was ever told that it may sleep at the poller.
    has_sleepers: bool,
    /// Whether connections are looked at from time to time.
    is_watching: bool,
    /// Bytes of unexpected messages that are kept, with an allowance for the
    /// keeping.
    unexpected_bytes: usize,
    /// Connections whose peers were asked to announce their messages.
    throttled: Vec<ConnKey>,
    /// Connections that are held back, in the order in which it happened.
    held_back: VecDeque<ConnKey>,
}

/// A connection on the list of those that are read without asking the poller.
struct Hot {
    conn: ConnKey,
    /// Fruitless reads since the last one that brought something.
    misses: u32,
}

/// Progress calls in vain after which other processes have their turn, where
/// there are more of them than processors.
const YIELD_AFTER: u32 = 512;
/// Longest message, header included, that is copied to leave in one piece.
const SCRATCH: usize = 4096 + crate::wire::header::MAX_HEADER;

/// An engine in the hands of who made it. When this goes, the engine's thread
/// has ended; what else refers to the engine keeps only its state.
pub struct Running(Arc<Engine>);

impl std::ops::Deref for Running {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let thread = self.0.core().flusher.end();
        if let Some(thread) = thread {
            // It ends well or the process has been aborted.
            let _ = thread.join();
        }
    }
}

impl Engine {
    /// An engine without sockets.
    pub fn start(params: Arc<Params>, memory: Option<Arc<MrTable>>) -> Result<Running> {
        let poller = Poller::new()?;
        let wait_fd = poller.fd();
        let shared = Arc::new(Shared::default());
        let staging = vec![0; params.prefetch_rbuf_size];
        let quick_end = match params.trace_msg {
            true => 0,
            false => params.max_inject.min(posting::COPY_LIMIT) + 1,
        };
        let engine = Arc::new_cyclic(|weak| Engine {
            core: parking_lot::Mutex::new(Core {
                params,
                conns: SlotMap::with_key(),
                eps: SlotMap::with_key(),
                receivers: SlotMap::with_key(),
                listeners: SlotMap::with_key(),
                memory,
                poller,
                timers: Timers::default(),
                flusher: Flusher::new(weak.clone()),
                hot: Vec::new(),
                ready: VecDeque::new(),
                held: Vec::new(),
                shared: shared.clone(),
                polls_left: 0,
                poll_interval: 1,
                events: Vec::new(),
                staging,
                scratch: Box::new([0; SCRATCH]),
                quick_end,
                idle_calls: 0,
                spare_buffers: Vec::new(),
                had_events: false,
                has_sleepers: false,
                is_watching: false,
                unexpected_bytes: 0,
                throttled: Vec::new(),
                held_back: VecDeque::new(),
            }),
            shared,
            wait_fd,
        });
        Ok(Running(engine))
    }

    /// Enters the engine.
    #[inline(always)]
    pub fn core(&self) -> parking_lot::MutexGuard<'_, Core> {
        self.core.lock()
    }
}

impl Engine {
    /// About how many progress calls the application has made.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Makes progress for the application; whether there is nothing to do
    /// until the poller's descriptor is readable.
    pub fn drive(&self) -> bool {
        self.core().prepare_wait()
    }

    /// The poller's descriptor, to be waited on without the engine's lock.
    pub fn share_poller(&self) -> Result<OwnedFd> {
        self.core().poller.share()
    }
}

impl Progress for Engine {
    #[inline]
    fn progress(&self) {
        self.shared.called();
        let mut core = self.core();
        core.progress();
        core.idle_calls = core.idle_calls.wrapping_add(1);
        let idle_calls = core.idle_calls;
        drop(core);
        if idle_calls.is_multiple_of(YIELD_AFTER) {
            // Whoever is to send may be waiting for this processor.
            std::thread::yield_now();
        }
    }

    #[inline]
    fn is_due(&self) -> bool {
        self.shared.called();
        self.shared.due.load(Ordering::Relaxed)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.wait_fd)
    }

    fn prepare_wait(&self) -> bool {
        self.core().prepare_wait()
    }
}

impl Core {
    /// Tells the application how an operation ended that was never counted as
    /// outstanding.
    #[inline]
    fn report(&self, op: &Op, outcome: Result) {
        if let Some(ep) = self.eps.get(op.ep) {
            ep.queues.report_op(op, outcome);
        }
    }

    /// Tells the application how an outstanding operation ended.
    #[inline]
    fn finish(&mut self, op: &Op, outcome: Result) {
        if let Some(ep) = self.eps.get_mut(op.ep) {
            ep.outstanding -= 1;
            ep.queues.report_op(op, outcome);
        }
    }

    /// Adds a connection and watches its socket.
    fn add_connection(&mut self, conn: Connection) -> Result<ConnKey> {
        let key = self.conns.insert(conn);
        if self.params.zerocopy_size != usize::MAX {
            let conn = &mut self.conns[key];
            conn.lent.enabled = zerocopy::enable(conn.socket.as_fd());
        }
        let source = keys::Source::Conn(key);
        if let Some(deadline) = self.conns[key].deadline() {
            self.timers.set(deadline, timers::Target::Conn(key));
            self.poller.wake_at(deadline);
        }
        if let Err(error) = self.poller.watch(self.conns[key].socket.as_fd(), source) {
            self.conns.remove(key);
            return Err(error);
        }
        self.watch_for_silence();
        Ok(key)
    }

    /// A new endpoint.
    pub fn add_endpoint(&mut self, state: EndpointState) -> EpKey {
        self.eps.insert(state)
    }

    /// The endpoint, which stays known until it is closed.
    pub fn endpoint(&mut self, key: EpKey) -> Result<&mut EndpointState> {
        self.eps.get_mut(key).ok_or(Errno::EOPBADSTATE)
    }

    /// The descriptor of a connection's socket.
    fn socket(&self, key: ConnKey) -> Option<BorrowedFd<'_>> {
        self.conns.get(key).map(|conn| conn.socket.as_fd())
    }
}
