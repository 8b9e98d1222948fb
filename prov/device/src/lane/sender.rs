//! The send queue of an endpoint.

use std::ffi::c_void;
use std::sync::Arc;

use fabric_abi::{FI_COMPLETION, FI_INJECT};
use prov_base::errno::{Errno, Result};
use prov_message::{Context, EpKey, Op, OpClass, Reports};
use prov_util::cq::Completion;

use super::member::{NUMBER_MASK, Name, RECEIVE, SHARED};
use super::{Work, completion_of_nobody};
use crate::device::{Completion as _, Device, QueuePair, RemoteKind, SendRequest, Verb};
use crate::failure::Failure;
use crate::link::Link;

/// Largest number of consecutive requests without a completion of their own.
const MOST_SILENT: usize = 32;

/// The requests that an endpoint has posted. They complete in order, and the completion of one
/// implies those of the earlier ones.
pub struct Sender<D: Device> {
    pair: Arc<D::Pair>,
    /// The id of its request 0.
    first: u64,
    reports: Reports,
    /// The connection; `None` for an endpoint for datagrams.
    link: Option<Arc<Link>>,
    /// The data to report, by the number of the request.
    sent: Box<[Sent]>,
    mask: u32,
    size: u32,
    /// Largest number of outstanding requests: `size`, or 0 once it is abandoned.
    most: u32,
    /// The number of the oldest outstanding request.
    head: u32,
    /// The number of the next one.
    tail: u32,
    /// The number after the last request with a completion of its own. At most `most_silent`
    /// requests follow without.
    signalled: u32,
    most_silent: u32,
    /// Largest number of inline bytes of a request.
    inline: usize,
    /// Whether any counter for these requests is bound.
    is_counting: bool,
}

/// The application's operation.
#[derive(Clone, Copy)]
pub struct Operation {
    /// What kind of operation.
    pub class: OpClass,
    /// Complete flags: `FI_COMPLETION` if success is to be reported.
    pub flags: u64,
    /// The application's context.
    pub context: *mut c_void,
}

/// The number of requests that a sender has posted, and how many of these have completed.
#[derive(Clone, Copy, Debug)]
pub struct Advance {
    /// Wraps around.
    pub posted: u32,
    completed: u32,
}

impl Advance {
    /// Whether the first `posted` requests have completed.
    pub fn has_completed(&self, posted: u32) -> bool {
        self.completed.wrapping_sub(posted).cast_signed() >= 0
    }
}

#[derive(Clone, Copy)]
struct Sent {
    context: Context,
    len: usize,
    class: OpClass,
    /// The flags of an [`Operation`] that are relevant here, all of which are in the lower half.
    flags: u32,
}

const _: () = assert!((FI_COMPLETION | FI_INJECT) >> u32::BITS == 0);

impl Sent {
    #[inline(always)]
    fn is_reported(&self) -> bool {
        self.flags & FI_COMPLETION as u32 != 0
    }

    /// Returns the operation for reports that need more than its context.
    fn operation(&self) -> Op {
        let is_inject = self.flags & FI_INJECT as u32 != 0;
        Op {
            ep: EpKey::default(),
            class: self.class,
            report: self.is_reported(),
            is_inject: is_inject && !self.is_reported(),
            len: self.len,
            context: self.context,
        }
    }
}

const NOTHING: Sent = Sent {
    context: Context(0),
    len: 0,
    class: OpClass::Send,
    flags: 0,
};

impl<D: Device> Sender<D> {
    /// Creates a sender for up to `size` outstanding requests, of up to `inline` inline bytes.
    pub fn new(
        pair: Arc<D::Pair>,
        reports: Reports,
        link: Option<Arc<Link>>,
        size: usize,
        inline: usize,
    ) -> Result<Self> {
        let size = u32::try_from(size.max(1)).map_err(|_| Errno::EINVAL)?;
        let places = size.checked_next_power_of_two().ok_or(Errno::EINVAL)?;
        if places > NUMBER_MASK {
            return Err(Errno::EINVAL);
        }
        Ok(Sender {
            is_counting: reports.counters.count_transmits(),
            pair,
            first: 0,
            reports,
            link,
            sent: vec![NOTHING; places as usize].into(),
            mask: places - 1,
            size,
            most: size,
            head: 0,
            tail: 0,
            signalled: 0,
            most_silent: (size as usize / 2).min(MOST_SILENT) as u32,
            inline,
        })
    }

    /// The same, with a completion of each request: others post to its queue pair, too, which
    /// requests without a completion would fill.
    pub fn without_silence(self) -> Self {
        Sender {
            most_silent: 0,
            ..self
        }
    }

    /// Sets where later completions are reported.
    pub fn report_to(&mut self, reports: Reports) {
        self.is_counting = reports.counters.count_transmits();
        self.reports = reports;
    }

    /// Sets the name in the ids of its requests.
    pub fn be_named(&mut self, name: Name) {
        self.first = name.request(0);
    }

    /// Whether this is the id of a request of a sender.
    #[inline(always)]
    pub fn is_named(id: u64) -> bool {
        id & (RECEIVE | SHARED) == 0
    }

    /// Returns the largest number of outstanding requests.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Returns the number of outstanding requests.
    #[inline(always)]
    pub fn under_way(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// Returns the numbers of posted and completed requests.
    pub fn advance(&self) -> Advance {
        Advance {
            posted: self.tail,
            completed: self.head,
        }
    }

    /// Whether no more can be posted.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.tail.wrapping_sub(self.head) >= self.most
    }

    /// Returns the reason why no more can be posted.
    #[cold]
    pub fn refusal(&self) -> Errno {
        let is_over = self.link.as_ref().is_some_and(|link| !link.is_connected());
        match self.most {
            0 if is_over => Errno::ENOTCONN,
            0 => Errno::ENODEV,
            _ => Errno::EAGAIN,
        }
    }

    #[inline(always)]
    fn is_counted(&self, class: OpClass) -> bool {
        self.is_counting && self.counts_class(class)
    }

    #[inline(never)]
    fn counts_class(&self, class: OpClass) -> bool {
        let counters = &self.reports.counters;
        match class {
            OpClass::Send | OpClass::TaggedSend => counters.send.is_some(),
            OpClass::Read | OpClass::FetchAtomic => counters.read.is_some(),
            OpClass::Write | OpClass::Atomic => counters.write.is_some(),
            // Endpoints of devices are not used for collective operations.
            OpClass::Transfer => false,
        }
    }

    /// Posts a request, if there is space for it and `room` completions.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "the mask is one less than there are places"
    )]
    pub fn post(&mut self, operation: &Operation, work: &mut Work<'_, D>, room: usize) -> Result {
        if let Some(link) = &self.link
            && !link.is_connected()
        {
            return Err(Errno::ENOTCONN);
        }
        let is_sent = match work.verb {
            Verb::Send | Verb::SendTo { .. } => true,
            Verb::Remote(remote) => matches!(remote.kind, RemoteKind::Write),
        };
        let is_inline = is_sent && work.len <= self.inline && work.keys.is_readable;
        // Operands are part of the request.
        let is_taken_along =
            is_inline || matches!(work.verb, Verb::Remote(remote) if remote.kind.is_atomic());
        if !is_inline && !work.keys.are_complete
            || !is_taken_along && operation.flags & FI_INJECT != 0
        {
            return refused::<D>(operation.class);
        }
        // If the device's queue is nearly full, each completion has to free space soon.
        let is_signalled = operation.flags & FI_COMPLETION != 0
            || self.tail.wrapping_sub(self.signalled) >= self.most_silent
            || self.is_counted(operation.class)
            || room <= self.size();
        self.pair.post_send(SendRequest {
            id: self.first | u64::from(self.tail & NUMBER_MASK),
            verb: work.verb,
            local: &mut *work.local,
            immediate: work.immediate,
            is_signalled,
            is_inline,
        })?;
        self.sent[(self.tail & self.mask) as usize] = Sent {
            context: Context::of(operation.context),
            len: work.len,
            class: operation.class,
            flags: operation.flags as u32,
        };
        self.tail = self.tail.wrapping_add(1);
        if is_signalled {
            self.signalled = self.tail;
        }
        Ok(())
    }

    /// Handles the completion of a request, and of those before it; returns their number.
    #[inline(always)]
    pub fn completed(&mut self, completion: &D::Completion) -> usize {
        let number = completion.id() as u32;
        let ahead = number.wrapping_sub(self.head) & NUMBER_MASK;
        if ahead as usize >= self.under_way() {
            return unknown::<D>(completion);
        }
        let failure = completion.failure();
        if failure.is_some() || self.is_counting {
            return self.completed_in_full(ahead, failure);
        }
        let mut left = ahead;
        loop {
            let sent = self.oldest();
            if sent.is_reported()
                && let Some(cq) = &self.reports.tx_cq
            {
                cq.write_promptly(
                    #[inline(always)]
                    || Completion::new(sent.context.pointer(), sent.class.completion_flags()),
                );
            }
            if left == 0 {
                return ahead as usize + 1;
            }
            left -= 1;
        }
    }

    /// Handles these completions if the last one may have failed, or some may be counted.
    #[inline(never)]
    fn completed_in_full(&mut self, ahead: u32, failure: Option<Failure>) -> usize {
        for left in (0..=ahead).rev() {
            let op = self.oldest().operation();
            match &failure {
                Some(failure) if left == 0 => self.failed(&op, failure),
                _ => self.reports.operation(&op, Ok(())),
            }
        }
        ahead as usize + 1
    }

    /// Removes the oldest outstanding request.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "the mask is one less than there are places"
    )]
    fn oldest(&mut self) -> Sent {
        let sent = self.sent[(self.head & self.mask) as usize];
        self.head = self.head.wrapping_add(1);
        sent
    }

    /// Reports all outstanding requests as flushed, and accepts no more; returns their number.
    #[cold]
    pub fn abandon(&mut self) -> usize {
        self.most = 0;
        let count = self.under_way();
        for _ in 0..count {
            let op = self.oldest().operation();
            self.failed(&op, &D::FLUSHED);
        }
        count
    }

    #[cold]
    #[inline(never)]
    fn failed(&self, op: &Op, failure: &Failure) {
        self.reports
            .failed_on_device(op, failure.error, failure.status, failure.vendor_data());
        self.pair.note_failure();
        if let Some(link) = &self.link {
            link.failed::<D>(failure);
        }
    }
}

/// Refuses memory that the device has no key for, and that cannot be sent inline.
#[cold]
fn refused<D: Device>(class: OpClass) -> Result {
    log::debug!(
        target: D::LOG.ep_data,
        "{class:?}: memory without a descriptor that is too long to be sent inline"
    );
    Err(Errno::EINVAL)
}

#[cold]
fn unknown<D: Device>(completion: &D::Completion) -> usize {
    completion_of_nobody::<D>(completion);
    0
}
