//! What the engine knows of an endpoint, and how it tells the application
//! what happened to an operation.

use fabric_abi::{FI_COMPLETION, FI_MSG, FI_RECV, FI_REMOTE_CQ_DATA, FI_TAGGED};
use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::matching::ReceiveContext;
use prov_util::mr::Job;

use super::connection::UNKNOWN_SOURCE;
use super::incoming::{Receipt, Unexpected};
use super::keys::{ConnKey, ReceiverKey};
use super::op::{Op, OpClass};
use super::rdm::Rdm;
use crate::wire::authentication::Key;
use prov_util::av::Av;
use prov_util::cntr::Cntr;
use prov_util::cq::{Completion, Cq, ErrorCompletion};
use prov_util::ffi::Use;

/// An endpoint in the engine.
pub struct EndpointState {
    pub kind: Kind,
    pub queues: Queues,
    /// Where its receives are posted.
    pub receiver: ReceiverKey,
    /// Operations that were posted and are not done, without receives.
    pub outstanding: usize,
    /// How many of them there may be.
    pub tx_size: usize,
    pub enabled: bool,
    /// Whether receives name the peer they are for (`FI_DIRECTED_RECV`).
    pub directed: bool,
    /// What may be received, and what peers may do to memory.
    pub rx_caps: u64,
    /// What its peers must prove to know.
    pub auth_key: Option<Key>,
    /// To whom its peers therefore belong: the regions that they may access.
    pub job: Job,
}

/// How the endpoint finds its connection.
pub enum Kind {
    /// It has one.
    Msg(Msg),
    /// It has one per peer.
    Rdm(Box<Rdm>),
}

/// A connected endpoint.
pub struct Msg {
    pub conn: Option<ConnKey>,
    pub events: Option<Box<dyn EventSink>>,
    /// Whether it had a connection that has ended.
    pub ended: bool,
}

/// Where a connected endpoint reports the fate of its connection (fi_cm(3)).
pub trait EventSink: Send {
    /// `FI_CONNECTED`, with the peer's connection data.
    fn connected(&self, data: &[u8]);
    /// `FI_SHUTDOWN`
    fn shut_down(&self);
    /// The connection did not come about; `data` came with the refusal.
    fn failed(&self, error: Errno, data: &[u8]);
}

/// An endpoint's completion queues and counters.
#[derive(Default)]
pub struct Queues {
    pub tx_cq: Option<Use<Cq>>,
    pub rx_cq: Option<Use<Cq>>,
    pub send: Option<Use<Cntr>>,
    pub recv: Option<Use<Cntr>>,
    pub read: Option<Use<Cntr>>,
    pub write: Option<Use<Cntr>>,
    pub remote_read: Option<Use<Cntr>>,
    pub remote_write: Option<Use<Cntr>>,
    /// Says what completions report for a source.
    pub av: Option<Use<Av>>,
}

fn completion_of(op: &Op) -> Completion {
    Completion::new(op.context.pointer(), op.class.completion_flags())
}

impl Queues {
    /// `-FI_ENOCQ` unless there is a place where the application can see
    /// operations complete: a queue, or counters instead.
    pub fn check(&self) -> Result {
        let queues = self.tx_cq.is_some() || self.rx_cq.is_some();
        let counters = [&self.send, &self.recv, &self.read, &self.write];
        let targets = [&self.remote_read, &self.remote_write];
        let counted = counters.iter().chain(&targets).any(|cntr| cntr.is_some());
        if queues || counted {
            Ok(())
        } else {
            Err(Errno::ENOCQ)
        }
    }

    #[inline(always)]
    fn counter(&self, class: OpClass) -> Option<&Cntr> {
        let counter = match class {
            OpClass::Send | OpClass::TaggedSend => &self.send,
            OpClass::Read | OpClass::FetchAtomic => &self.read,
            OpClass::Write | OpClass::Atomic => &self.write,
        };
        counter.as_deref()
    }

    /// What completions report for a source.
    #[inline]
    pub fn source(&self, src: u64) -> u64 {
        match &self.av {
            Some(av) if src != UNKNOWN_SOURCE => av.reported(src),
            _ => src,
        }
    }

    /// Tells the application how an operation ended.
    #[inline(always)]
    pub fn report_op(&self, op: &Op, outcome: Result) {
        match outcome {
            Ok(()) => {
                if let Some(counter) = self.counter(op.class) {
                    counter.count(op.len);
                }
                if op.report
                    && let Some(cq) = &self.tx_cq
                {
                    cq.write(&completion_of(op));
                }
            }
            Err(error) => self.report_failed_op(op, error),
        }
    }

    #[cold]
    fn report_failed_op(&self, op: &Op, error: Errno) {
        if let Some(counter) = self.counter(op.class) {
            counter.count_error();
        }
        if !op.is_inject
            && let Some(cq) = &self.tx_cq
        {
            cq.write_error(ErrorCompletion::new(completion_of(op), error));
        }
    }

    /// Tells the application how a receive ended; `room` is what the buffer
    /// has for the message and `release` whether a multi-receive buffer is the
    /// application's again.
    pub fn report_receive(
        &self,
        receipt: &Receipt,
        memory: &AppIov,
        release: bool,
        outcome: Result,
    ) {
        let mut completion = self.completion_of_receive(receipt, memory);
        if let Some(data) = receipt.data {
            completion.flags |= FI_REMOTE_CQ_DATA;
            completion.data = data;
        }
        if release {
            completion.flags |= fabric_abi::FI_MULTI_RECV;
        }
        let wanted = receipt.flags & FI_COMPLETION != 0 || release;
        self.end_receive(completion, wanted, memory, outcome);
    }

    /// [`Queues::report_receive`] for a message that came whole, without
    /// immediate data, into a buffer of its own.
    #[inline(always)]
    pub fn report_plain_receive(&self, receipt: &Receipt, memory: &AppIov) {
        let completion = self.completion_of_receive(receipt, memory);
        let wanted = receipt.flags & FI_COMPLETION != 0;
        self.end_receive(completion, wanted, memory, Ok(()));
    }

    #[inline(always)]
    fn completion_of_receive(&self, receipt: &Receipt, memory: &AppIov) -> Completion {
        Completion {
            context: receipt.context.pointer(),
            flags: FI_RECV | if receipt.tagged { FI_TAGGED } else { FI_MSG },
            len: receipt.len,
            buf: memory.address(),
            data: 0,
            tag: receipt.tag,
            src: self.source(receipt.src),
        }
    }

    #[inline(always)]
    fn end_receive(&self, completion: Completion, wanted: bool, memory: &AppIov, outcome: Result) {
        let excess = completion.len.saturating_sub(memory.len());
        let error = match outcome {
            Ok(()) if excess == 0 => {
                if let Some(counter) = &self.recv {
                    counter.count(completion.len);
                }
                if wanted && let Some(cq) = &self.rx_cq {
                    cq.write(&completion);
                }
                return;
            }
            Ok(()) => Errno::ETRUNC,
            Err(error) => error,
        };
        self.report_failed_receive(completion, error, excess);
    }

    #[cold]
    fn report_failed_receive(&self, mut completion: Completion, error: Errno, excess: usize) {
        if let Some(counter) = &self.recv {
            counter.count_error();
        }
        completion.len -= excess.min(completion.len);
        if let Some(cq) = &self.rx_cq {
            cq.write_error(ErrorCompletion {
                olen: excess,
                ..ErrorCompletion::new(completion, error)
            });
        }
    }
}

/// The posted receives and unexpected messages of an endpoint, or of several
/// that share a context.
pub struct Receiver {
    pub matching: ReceiveContext<AppIov, Unexpected>,
    /// Whether it is not a single endpoint's own.
    pub shared: bool,
    /// Receives that may be posted at once; none once the only connection that
    /// could bring messages for them has ended.
    pub size: usize,
    /// See `FI_OPT_MIN_MULTI_RECV`.
    pub min_multi_recv: usize,
    /// Of a shared context: where receives complete that no endpoint took.
    pub queues: Queues,
}

impl Receiver {
    /// Without receives and messages.
    pub fn new(size: usize, min_multi_recv: usize, shared: bool) -> Self {
        Receiver {
            matching: ReceiveContext::new(min_multi_recv),
            shared,
            size,
            min_multi_recv,
            queues: Queues::default(),
        }
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV`.
    pub fn set_min_multi_recv(&mut self, bytes: usize) {
        self.min_multi_recv = bytes;
        self.matching.set_min_multi_recv(bytes);
    }
}
