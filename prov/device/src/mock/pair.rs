//! Queue pairs, and receive queues that they share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prov_base::errno::{Errno, Result};

use super::engine::{Pairing, Payload, Posted, SendWork};
use super::{Adapter, Lent, Mock, Queue, Status};
use crate::device::{QueuePair, ReceiveRequest, SendRequest, SharedQueue, Verb};

/// The parameters of a new queue pair.
pub struct PairConfig<'a> {
    /// The queue of send completions.
    pub send_queue: &'a Arc<Queue>,
    /// The queue of receive completions.
    pub receive_queue: &'a Arc<Queue>,
    /// The shared receive queue, if receives are not posted to the pair itself.
    pub shared: Option<&'a Arc<SharedReceives>>,
    /// Largest number of outstanding send requests.
    pub sends: usize,
    /// Largest number of outstanding receive requests.
    pub receives: usize,
}

/// A queue pair.
pub struct Pair {
    adapter: Arc<Adapter>,
    number: u32,
    has_failed: AtomicBool,
    /// These must exist as long as it does.
    _queues: [Arc<Queue>; 2],
    _shared: Option<Arc<SharedReceives>>,
}

impl Pair {
    /// Creates a queue pair, which accepts receives.
    pub fn new(adapter: &Arc<Adapter>, config: &PairConfig<'_>) -> Arc<Self> {
        let pairing = Pairing::new(
            [config.send_queue.number(), config.receive_queue.number()],
            config.shared.map(|shared| shared.number),
            [config.sends, config.receives],
        );
        Arc::new(Pair {
            number: adapter.engine().add_pair(pairing),
            adapter: adapter.clone(),
            has_failed: AtomicBool::new(false),
            _queues: [config.send_queue.clone(), config.receive_queue.clone()],
            _shared: config.shared.cloned(),
        })
    }

    /// Connects it with the queue pair with this number, which has to do the same.
    pub fn connect(&self, peer: u32) {
        self.adapter.engine().connect(self.number, peer);
    }

    /// Ends its connection: all its requests complete as flushed, and later ones.
    pub fn end(&self) {
        self.adapter.engine().fail(self.number);
    }

    /// Makes the next request of its send queue that is carried out fail.
    pub fn fail_next(&self, status: Status) {
        self.adapter.engine().fail_next(self.number, status);
    }

    /// Whether a request has failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

impl QueuePair<Mock> for Pair {
    fn post_send(&self, request: SendRequest<'_, Mock>) -> Result {
        let mut engine = self.adapter.engine();
        engine.has_room(self.number)?;
        let remote = match request.verb {
            Verb::Send => None,
            Verb::SendTo { .. } => return Err(Errno::EINVAL),
            Verb::Remote(remote) => Some(remote),
        };
        let payload = match request.is_inline {
            true => {
                let mut bytes = Vec::new();
                request.local.memory.append_to(&mut bytes);
                Payload::Inline(bytes)
            }
            false => Payload::Memory(std::mem::take(request.local)),
        };
        engine.send(
            self.number,
            SendWork {
                id: request.id,
                remote,
                payload,
                immediate: request.immediate,
                is_signalled: request.is_signalled,
            },
        );
        Ok(())
    }

    fn post_receive(&self, request: ReceiveRequest<'_, Mock>) -> Result {
        let mut engine = self.adapter.engine();
        let posted = Posted::of(request.id, request.local);
        engine.receive(self.number, posted).map_err(|refused| {
            *request.local = refused.lent;
            Errno::EAGAIN
        })
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.adapter.engine().remove_pair(self.number);
    }
}

/// A receive queue that several queue pairs share.
pub struct SharedReceives {
    adapter: Arc<Adapter>,
    number: u32,
}

impl SharedReceives {
    /// Creates a queue for so many receives.
    pub fn new(adapter: &Arc<Adapter>, size: usize) -> Arc<Self> {
        Arc::new(SharedReceives {
            number: adapter.engine().add_shared(size),
            adapter: adapter.clone(),
        })
    }
}

impl SharedQueue<Mock> for SharedReceives {
    fn post(&self, request: ReceiveRequest<'_, Mock>) -> Result {
        let mut engine = self.adapter.engine();
        let posted = Posted::of(request.id, request.local);
        engine
            .receive_shared(self.number, posted)
            .map_err(|refused| {
                *request.local = refused.lent;
                Errno::EAGAIN
            })
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        self.adapter.engine().remove_shared(self.number);
    }
}

impl Posted {
    fn of(id: u64, lent: &mut Lent) -> Self {
        Posted {
            id,
            lent: std::mem::take(lent),
        }
    }
}
