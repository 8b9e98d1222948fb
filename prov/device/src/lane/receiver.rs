//! The receive queue of an endpoint.

use std::sync::Arc;

use fabric_abi::{FI_MSG, FI_RECV, FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE, FI_RMA};
use prov_base::errno::{Errno, Result};
use prov_message::{Context, Reports};
use prov_util::cq::{Completion, ErrorCompletion};
use prov_util::request::Receive;

use super::member::{NUMBER_MASK, Name, RECEIVE};
use super::{Shared, completion_of_nobody};
use crate::device::{Completion as _, Device, QueuePair, ReceiveRequest};
use crate::failure::Failure;
use crate::link::Link;

/// The receives that an endpoint has posted, which messages consume in order; or the shared queue
/// that it uses.
pub struct Receiver<D: Device> {
    pair: Arc<D::Pair>,
    reporter: Reporter,
    shared: Option<Arc<Shared<D>>>,
    /// The data to report, by the number of the request.
    posted: Box<[Posted]>,
    mask: u32,
    size: u32,
    head: u32,
    tail: u32,
    /// The reason why it accepts no receives of its own, if so.
    refusal: Option<Errno>,
}

/// Reports receives.
struct Reporter {
    reports: Reports,
    /// The connection; `None` for an endpoint for datagrams, or if the receiver of a message is not
    /// known.
    link: Option<Arc<Link>>,
    /// Number of bytes that the device stores before messages and that do not belong to them.
    skipped: usize,
}

/// The rest of a receiver of shared receives until its queue pair is destroyed: messages may have
/// consumed some of them.
pub struct Leaver<D: Device> {
    reporter: Reporter,
    shared: Arc<Shared<D>>,
}

/// A receive that waits for a message.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// The application's context.
    pub context: Context,
    /// The address of the message's buffer, to report it.
    pub address: usize,
    /// Whether success is reported.
    pub is_reported: bool,
}

impl Posted {
    /// The entry of a slot without a receive.
    pub(super) const NOTHING: Posted = Posted {
        context: Context(0),
        address: 0,
        is_reported: false,
    };

    /// The entry of a receive without memory, whose success is reported.
    pub fn reported(context: usize) -> Self {
        Posted {
            context: Context(context),
            is_reported: true,
            ..Posted::NOTHING
        }
    }

    /// The entry of a receive of the application (fi_recvmsg(3)).
    #[inline(always)]
    pub fn of(receive: &Receive) -> Self {
        Posted {
            context: Context::of(receive.context),
            address: receive.buffers.address().expose_provenance(),
            is_reported: receive.wants_completion(),
        }
    }
}

impl<D: Device> Receiver<D> {
    /// Creates a receiver for up to `size` outstanding receives, of its own or `shared`.
    pub fn new(
        pair: Arc<D::Pair>,
        reports: Reports,
        link: Option<Arc<Link>>,
        shared: Option<Arc<Shared<D>>>,
        size: usize,
    ) -> Result<Self> {
        let size = u32::try_from(size.max(1)).map_err(|_| Errno::EINVAL)?;
        let places = match shared {
            Some(_) => 1,
            None => size.checked_next_power_of_two().ok_or(Errno::EINVAL)?,
        };
        if places > NUMBER_MASK {
            return Err(Errno::EINVAL);
        }
        Ok(Receiver {
            pair,
            reporter: Reporter {
                reports,
                link,
                skipped: 0,
            },
            refusal: shared.is_some().then_some(Errno::EINVAL),
            shared,
            posted: vec![Posted::NOTHING; places as usize].into(),
            mask: places - 1,
            size,
            head: 0,
            tail: 0,
        })
    }

    /// The same, for messages after so many bytes that do not belong to them.
    pub fn skipping(mut self, skipped: usize) -> Self {
        self.reporter.skipped = skipped;
        self
    }

    /// Sets where later completions are reported.
    pub fn report_to(&mut self, reports: Reports) {
        self.reporter.reports = reports;
    }

    /// Whether this is the id of a request of a receiver.
    #[inline(always)]
    pub fn is_named(id: u64) -> bool {
        id & RECEIVE != 0
    }

    /// Returns its queue pair.
    pub fn pair(&self) -> &D::Pair {
        &self.pair
    }

    /// Returns the shared queue of its receives, if they are not its own.
    pub fn shared(&self) -> Option<&Arc<Shared<D>>> {
        self.shared.as_ref()
    }

    /// Returns the largest number of posted receives, here or in the shared queue.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Returns the number of its own posted receives.
    #[inline(always)]
    pub fn under_way(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// Whether no more can be posted.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.under_way() >= self.size()
    }

    /// Posts a receive, if there is space for it. A missing key of its memory matters when a
    /// message arrives, and the device reports it then.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "the mask is one less than there are places"
    )]
    pub fn post(&mut self, name: Name, local: &mut D::Local, posted: Posted) -> Result {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        self.pair.post_receive(ReceiveRequest {
            id: name.receive(self.tail),
            local,
        })?;
        self.posted[(self.tail & self.mask) as usize] = posted;
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Handles the completion of one of its own receives; returns how many receives have completed.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "the mask is one less than there are places"
    )]
    pub fn completed(&mut self, completion: &D::Completion) -> usize {
        let ahead = (completion.id() as u32).wrapping_sub(self.head) & NUMBER_MASK;
        if ahead != 0 || self.under_way() == 0 {
            // They complete in order.
            completion_of_nobody::<D>(completion);
            return 0;
        }
        let posted = self.posted[(self.head & self.mask) as usize];
        self.head = self.head.wrapping_add(1);
        self.reporter.report::<D>(&posted, completion);
        1
    }

    /// Reports all of its receives as flushed, and accepts no more; returns how many were its own.
    #[cold]
    #[allow(
        clippy::indexing_slicing,
        reason = "the mask is one less than there are places"
    )]
    pub fn abandon(&mut self) -> usize {
        self.abandon_shared();
        self.refusal.get_or_insert(Errno::ENODEV);
        let count = self.under_way();
        for _ in 0..count {
            let posted = self.posted[(self.head & self.mask) as usize];
            self.head = self.head.wrapping_add(1);
            self.reporter.failed::<D>(&posted, &D::FLUSHED);
        }
        count
    }

    /// Reports those that it shares, which are not reported otherwise.
    #[cold]
    pub fn abandon_shared(&self) {
        let shared = self.shared.iter().flat_map(|shared| shared.abandon());
        shared.for_each(|posted| self.reporter.failed::<D>(&posted, &D::FLUSHED));
    }

    /// Handles the completion of a shared receive.
    pub fn shared_completed(&mut self, completion: &D::Completion) {
        self.reporter
            .shared_completed(self.shared.as_ref(), completion);
    }

    /// Drops its queue pair; returns the rest, if it shares receives.
    pub fn leave(self) -> Option<Leaver<D>> {
        Some(Leaver {
            reporter: self.reporter,
            shared: self.shared?,
        })
    }
}

impl<D: Device> Leaver<D> {
    /// As [`Receiver::shared_completed`].
    pub fn shared_completed(&self, completion: &D::Completion) {
        self.reporter
            .shared_completed(Some(&self.shared), completion);
    }
}

impl Reporter {
    fn shared_completed<D: Device>(
        &self,
        shared: Option<&Arc<Shared<D>>>,
        completion: &D::Completion,
    ) {
        match shared.and_then(|shared| shared.take(completion.id())) {
            Some(posted) => self.report::<D>(&posted, completion),
            None => completion_of_nobody::<D>(completion),
        }
    }

    #[inline(always)]
    fn report<D: Device>(&self, posted: &Posted, completion: &D::Completion) {
        if let Some(failure) = completion.receive_failure() {
            return self.failed::<D>(posted, &failure);
        }
        let is_write = completion.is_write();
        let immediate = completion.immediate();
        let len = completion.received().saturating_sub(self.skipped);
        let counters = &self.reports.counters;
        let counter = if is_write {
            &counters.remote_write
        } else {
            &counters.recv
        };
        if let Some(counter) = counter {
            counter.count(len);
        }
        // A write with immediate data is reported, whatever the receive's flags.
        if (posted.is_reported || is_write)
            && let Some(cq) = &self.reports.rx_cq
        {
            let kind = if is_write {
                FI_RMA | FI_REMOTE_WRITE
            } else {
                FI_MSG | FI_RECV
            };
            let data = match immediate {
                Some(_) => FI_REMOTE_CQ_DATA,
                None => 0,
            };
            cq.write_promptly(
                #[inline(always)]
                || Completion {
                    flags: kind | data,
                    len,
                    buf: std::ptr::with_exposed_provenance_mut(posted.address),
                    data: immediate.unwrap_or(0).into(),
                    ..Completion::new(posted.context.pointer(), 0)
                },
            );
        }
    }

    #[cold]
    #[inline(never)]
    fn failed<D: Device>(&self, posted: &Posted, failure: &Failure) {
        if let Some(counter) = &self.reports.counters.recv {
            counter.count_error();
        }
        if let Some(cq) = &self.reports.rx_cq {
            let receive = Completion::new(posted.context.pointer(), FI_MSG | FI_RECV);
            cq.write_error(ErrorCompletion {
                prov_errno: failure.status,
                err_data: failure.vendor_data(),
                ..ErrorCompletion::new(receive, failure.error)
            });
        }
        if let Some(link) = &self.link {
            link.failed::<D>(failure);
        }
    }
}
