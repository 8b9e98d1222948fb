//! What linked endpoints report, and how it gets to the application's queues and counters.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fabric_abi::{
    FI_COMPLETION, FI_MULTI_RECV, FI_PEER_TRANSFER, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE,
    fi_addr_t,
};
use parking_lot::Mutex;
use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::errno::Errno;
use prov_base::sync::LockKind;
use prov_message::{Op, OpClass, Reports};
use prov_util::cq::{Completion, ErrorCompletion};
use prov_util::ffi::linked::LinkOwner;
use prov_util::ffi::srx::{QueueOwner, WholeReceive};
use prov_util::wait::snapshot::Snapshot;

use super::tracked::{Operations, PostedReceive, Tracked};

/// The application's queues and counters of an endpoint, and its tracked operations.
pub struct Reporting {
    reports: Snapshot<Reports>,
    /// The kinds of operations that are counted (`FI_SEND`, `FI_RECV`, `FI_READ`, `FI_WRITE`).
    counted: AtomicU64,
    /// The number of operations that have failed below.
    failures: AtomicU64,
    pub operations: Operations,
    pub ended: EndedPeers,
}

/// The peers that have ended since the endpoint was last driven.
#[derive(Default)]
pub struct EndedPeers {
    any: AtomicBool,
    all: Mutex<Vec<EndedPeer>>,
}

/// A peer that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedPeer {
    /// Its number.
    pub number: fi_addr_t,
    /// Whether it only has closed its endpoint, which ends receives of other providers.
    pub transfers: bool,
    pub error: Errno,
}

impl EndedPeers {
    fn add(&self, peer: EndedPeer) {
        let mut all = self.all.lock();
        all.push(peer);
        bounded!(all, PEERS);
        self.any.store(true, Ordering::Release);
    }

    /// Returns whether there are any.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes all.
    pub fn take(&self) -> Vec<EndedPeer> {
        let mut all = self.all.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *all)
    }
}

/// The flags of completions at the queue for receives.
const RECEIVING: u64 = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;

impl Reporting {
    /// Reports nothing. `kind` tells whether threads usually report concurrently.
    pub fn new(kind: LockKind) -> Arc<Self> {
        Arc::new(Reporting {
            reports: Snapshot::new(kind, Reports::default()),
            counted: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            operations: Operations::default(),
            ended: EndedPeers::default(),
        })
    }

    /// Reports to other queues and counters from now on.
    pub fn to(&self, mut reports: Reports) {
        let places = reports.counters.places().into_iter();
        let bound = places.filter(|(_, place)| place.is_some());
        let counted = bound.fold(0, |all, (kind, _)| all | kind);
        self.counted.store(counted, Ordering::Relaxed);
        self.reports.replace(|_| reports);
    }

    /// Calls `report` with the queues and counters.
    #[inline]
    pub fn with<R>(&self, report: impl FnOnce(&Reports) -> R) -> R {
        self.reports.read(report)
    }

    /// Whether operations of this kind are counted.
    #[inline]
    pub fn counts(&self, kind: u64) -> bool {
        self.counted.load(Ordering::Relaxed) & kind != 0
    }

    /// Returns the number of operations that have failed below.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether the application counts operations of this class.
    #[inline]
    pub fn tracks(&self, class: OpClass) -> bool {
        class == OpClass::Transfer || self.counts(class.completion_flags())
    }

    /// Reports the end of a tracked operation that has no completion below, since it was copied.
    pub fn injected(&self, op: &Op) {
        self.with(|reports| reports.operation(op, Ok(())));
    }

    #[cold]
    #[inline(never)]
    fn received_otherwise(&self, received: &WholeReceive) {
        let mut completion = received.completion;
        let excess = completion.len.saturating_sub(received.room);
        if excess != 0 {
            completion.len -= excess;
            self.failed(ErrorCompletion {
                olen: excess,
                ..ErrorCompletion::new(completion, Errno::ETRUNC)
            });
        } else if received.flags & FI_COMPLETION != 0 {
            self.completed(&completion);
        }
    }

    fn ended(&self, tracked: Tracked, completion: &Completion) {
        match tracked {
            Tracked::Sent(op) => self.with(|reports| reports.operation(&op, Ok(()))),
            Tracked::Posted(posted) => self.received(posted, completion),
        }
    }

    fn received(&self, posted: PostedReceive, completion: &Completion) {
        self.with(|reports| Self::report_received(reports, posted, completion));
    }

    fn report_received(reports: &Reports, posted: PostedReceive, completion: &Completion) {
        let number = completion.src;
        let own = Completion {
            context: context_of(&posted),
            src: reports.source(number),
            ..*completion
        };
        if posted.flags & FI_PEER_TRANSFER != 0 {
            let own = Completion {
                flags: own.flags | FI_PEER_TRANSFER,
                ..own
            };
            if let Some(transfers) = &reports.transfers {
                transfers.done(own, number, reports.rx_cq.as_deref());
            }
            return;
        }
        let releases = completion.flags & FI_MULTI_RECV != 0;
        // The release of a buffer is no message.
        if completion.flags & FI_RECV != 0
            && let Some(counter) = &reports.counters.recv
        {
            counter.count(own.len);
        }
        if (posted.flags & FI_COMPLETION != 0 || releases)
            && let Some(cq) = &reports.rx_cq
        {
            cq.write(&own);
        }
    }

    fn receive_failed(&self, posted: PostedReceive, error: ErrorCompletion) {
        self.with(|reports| Self::report_failed(reports, posted, error));
    }

    fn report_failed(reports: &Reports, posted: PostedReceive, mut error: ErrorCompletion) {
        let completion = &mut error.completion;
        completion.context = context_of(&posted);
        completion.src = reports.source(completion.src);
        if posted.flags & FI_PEER_TRANSFER != 0 {
            completion.flags |= FI_PEER_TRANSFER;
            if let Some(transfers) = &reports.transfers {
                transfers.failed(error, reports.rx_cq.as_deref());
            }
            return;
        }
        if let Some(counter) = &reports.counters.recv {
            counter.count_error();
        }
        if let Some(cq) = &reports.rx_cq {
            cq.write_error(error);
        }
    }
}

fn context_of(posted: &PostedReceive) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(posted.context)
}

impl LinkOwner for Reporting {
    #[inline]
    fn completed(&self, completion: &Completion) {
        if Operations::is_name(completion.context)
            && let Some(tracked) = self.operations.end(completion.context, false)
        {
            return self.ended(tracked, completion);
        }
        self.with(|reports| {
            let (cq, src) = match completion.flags & RECEIVING {
                0 => (&reports.tx_cq, completion.src),
                _ => (&reports.rx_cq, reports.source(completion.src)),
            };
            if let Some(cq) = cq {
                cq.write_with(|| Completion { src, ..*completion });
            }
        });
    }

    fn failed(&self, mut error: ErrorCompletion) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let context = error.completion.context;
        match self.operations.end(context, false) {
            Some(Tracked::Sent(op)) => self.with(|reports| {
                let (prov_errno, data) = (error.prov_errno, error.err_data);
                reports.failed_on_device(&op, error.err, prov_errno, data);
            }),
            Some(Tracked::Posted(posted)) => self.receive_failed(posted, error),
            None => self.with(|reports| {
                error.completion.src = reports.source(error.completion.src);
                let cq = match error.completion.flags & RECEIVING {
                    0 => &reports.tx_cq,
                    _ => &reports.rx_cq,
                };
                if let Some(cq) = cq {
                    cq.write_error(error);
                }
            }),
        }
    }

    fn accessed(&self, kind: u64) {
        self.with(|reports| {
            let counter = match kind {
                FI_REMOTE_READ => &reports.counters.remote_read,
                _ => &reports.counters.remote_write,
            };
            if let Some(counter) = counter {
                counter.count(0);
            }
        });
    }

    fn peer_ended(&self, number: fi_addr_t, transfers: bool, error: Errno) {
        self.ended.add(EndedPeer {
            number,
            transfers,
            error,
        });
    }
}

/// Learns of the ends of buffers for several messages.
pub struct Releases(pub Arc<Reporting>);

impl QueueOwner for Releases {
    #[inline]
    fn received(&self, received: &WholeReceive) {
        let WholeReceive {
            completion,
            flags,
            room,
        } = received;
        if completion.len > *room || Operations::is_name(completion.context) {
            return self.0.received_otherwise(received);
        }
        if flags & FI_COMPLETION == 0 {
            return;
        }
        self.0.with(|reports| {
            if let Some(cq) = &reports.rx_cq {
                let src = reports.source(completion.src);
                cq.write_with(|| Completion { src, ..*completion });
            }
        });
    }

    fn buffer_released(&self, context: *mut c_void) {
        let completion = Completion::new(context, FI_MULTI_RECV);
        match self.0.operations.end(context, true) {
            Some(Tracked::Posted(posted)) => self.0.received(posted, &completion),
            Some(Tracked::Sent(_)) => {}
            None => self.0.with(|reports| {
                if let Some(cq) = &reports.rx_cq {
                    cq.write(&completion);
                }
            }),
        }
    }
}

impl Reporting {
    /// Reports a receive that the application has cancelled, or that ends for this cause.
    pub fn cancelled(
        &self,
        tagged: bool,
        mut cancelled: prov_util::matching::Cancelled<prov_base::buffer::AppIov>,
        cause: Errno,
    ) {
        let name = std::ptr::without_provenance_mut(cancelled.context);
        if let Some(Tracked::Posted(posted)) = self.operations.end(name, cancelled.buf.is_some()) {
            cancelled.context = posted.context;
            cancelled.flags = posted.flags;
        }
        if cancelled.buf.is_some() {
            self.with(|reports| {
                reports.cancelled_receive(tagged, &cancelled, cause);
            });
        }
    }
}
