//! Receive contexts: posted receives and unexpected messages. What happens to them is in
//! [`receiving`](crate::endpoints::receiving) and [`arriving`](crate::endpoints::arriving).

pub mod cross_lane_srx;
pub(crate) mod imported_srx;

use std::collections::BTreeSet;

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_util::matching::{Message, MessageId, ReceiveContext, ReceiveQueue};

use crate::endpoints::behind::Behind;
use crate::endpoints::transport::{Transport, origin};
use crate::endpoints::unexpected::{Unexpected, UnexpectedHandle};
use crate::reports::Reports;

use cross_lane_srx::CrossLaneReceives;
use imported_srx::ImportedReceives;

/// A receive context: the posted receives and unexpected messages of one endpoint, or of several
/// that share it.
pub struct Inbox<T: Transport> {
    /// Stays empty if another provider has the receives.
    matching: ReceiveContext<AppIov, Unexpected<T>>,
    /// The shared receive context that has the receives for messages that match none of this inbox.
    pub(crate) other_srx: Option<OtherSrx<T>>,
    /// Whether it is a shared receive context.
    pub shared: bool,
    /// Limit of posted receives. It is 0 once the only link that could bring messages has ended, or
    /// if another provider has the receives.
    pub(crate) size: usize,
    /// The same for the fast path; 0 while each receive has an effect on other endpoints or on links
    /// that are held back.
    fast_size: usize,
    /// Whether endpoints in other lanes use the context, which have to be told of each receive.
    is_slow: bool,
    /// Links of other than strangers that are held back with a message of this inbox.
    held_back: BTreeSet<T::Link>,
    /// Whether the application has looked for a message that was not there (`FI_PEEK`), and has not
    /// found one or posted a receive since.
    is_sought: bool,
    /// The error with which that link ended.
    pub(crate) ended: Option<Errno>,
    /// Whether its endpoint uses another one: it ends with the messages that are arriving in its
    /// multi-receive buffers.
    pub(crate) is_left: bool,
    /// See `FI_OPT_MIN_MULTI_RECV`.
    min_multi_recv: usize,
    /// For a shared context: where receives complete that were not taken by an endpoint.
    pub reports: Reports,
    /// The same, if nothing is bound to the context and no endpoint of the lane uses it: those of
    /// an endpoint in another lane, during a call.
    pub(crate) lent: Option<Reports>,
    /// Receives that wait for a device ([`Endpoints::settle`](crate::endpoints::Endpoints::settle_behind)).
    pub(crate) behind: Vec<Behind<T::Ack>>,
}

impl<T: Transport> Inbox<T> {
    /// Creates an empty inbox.
    pub(crate) fn new(size: usize, shared: bool) -> Self {
        Inbox {
            matching: ReceiveContext::new(T::MIN_MULTI_RECV),
            other_srx: None,
            shared,
            size,
            fast_size: size,
            is_slow: false,
            held_back: BTreeSet::new(),
            is_sought: false,
            ended: None,
            is_left: false,
            min_multi_recv: T::MIN_MULTI_RECV,
            reports: Reports::default(),
            lent: None,
            behind: Vec::new(),
        }
    }

    /// Returns the queue of untagged or of tagged messages.
    #[inline]
    pub(crate) fn queue(&mut self, tagged: bool) -> &mut ReceiveQueue<AppIov, Unexpected<T>> {
        if tagged {
            &mut self.matching.tagged
        } else {
            &mut self.matching.msg
        }
    }

    /// The receives of another provider, if it has them.
    pub(crate) fn imported(&mut self) -> Option<&mut ImportedReceives<T>> {
        match &mut self.other_srx {
            Some(OtherSrx::Imported(imported)) => Some(imported),
            Some(OtherSrx::CrossLane(_)) | None => None,
        }
    }

    /// The shared context of another lane whose receives the messages take.
    pub(crate) fn cross_lane(&mut self) -> Option<&mut CrossLaneReceives> {
        match &mut self.other_srx {
            Some(OtherSrx::CrossLane(cross_lane)) => Some(cross_lane),
            Some(OtherSrx::Imported(_)) | None => None,
        }
    }

    /// Buffers a message that matched no receive; `None` if the owner of imported receives does not
    /// accept it.
    pub(crate) fn keep(&mut self, message: Message<Unexpected<T>>) -> Option<MessageId> {
        match self.imported() {
            None => {
                let origin = origin(message.payload.link);
                Some(self.queue(message.payload.tagged).keep_of(origin, message))
            }
            Some(imported) => imported.keep(message),
        }
    }

    /// Returns a buffered message, unless a receive has taken it.
    pub(crate) fn payload_mut(&mut self, kept: UnexpectedHandle) -> Option<&mut Unexpected<T>> {
        if self.imported().is_none() {
            return self.queue(kept.tagged).payload_mut(kept.id);
        }
        self.imported()?.payload_mut(kept.id)
    }

    /// Handles that no message arrives any more, because of this error, or that another provider
    /// has the receives.
    pub(crate) fn ends(&mut self, cause: Option<Errno>) {
        self.size = 0;
        self.ended = cause;
        self.set_fast_size();
    }

    /// Has all receives posted by [`Endpoints::post`], and none by [`Endpoints::post_fast`].
    ///
    /// [`Endpoints::post`]: crate::endpoints::Endpoints::post
    /// [`Endpoints::post_fast`]: crate::endpoints::Endpoints::post_fast
    pub fn slow_down(&mut self) {
        self.is_slow = true;
        self.set_fast_size();
    }

    fn set_fast_size(&mut self) {
        self.fast_size = match self.is_slow || self.is_sought || !self.held_back.is_empty() {
            true => 0,
            false => self.size,
        };
    }

    /// Notes that a link is held back with a message of this inbox, or is no more.
    pub(crate) fn holds_back(&mut self, link: T::Link, is_held_back: bool) {
        match is_held_back {
            true => self.held_back.insert(link),
            false => self.held_back.remove(&link),
        };
        bounded!(self.held_back, PEERS);
        self.set_fast_size();
    }

    /// The links that [`Inbox::holds_back`] has noted.
    pub(crate) fn held_back(&self) -> &BTreeSet<T::Link> {
        &self.held_back
    }

    /// Notes that the application has looked for a message, and whether it has found one or has posted
    /// a receive for it.
    pub(crate) fn looked(&mut self, has_found: bool) {
        if self.is_sought == has_found {
            self.is_sought = !has_found;
            self.set_fast_size();
        }
    }

    /// Returns whether the application waits for a message that is not here.
    pub(crate) fn is_awaited(&self) -> bool {
        match &self.other_srx {
            Some(OtherSrx::CrossLane(cross_lane)) => cross_lane.any_posted(),
            // Its receives are not known here.
            Some(OtherSrx::Imported(_)) => false,
            None => self.is_sought || self.any_posted(),
        }
    }

    /// Returns whether receives are posted here.
    pub fn any_posted(&self) -> bool {
        let ReceiveContext { msg, tagged, .. } = &self.matching;
        msg.posted_len() != 0 || tagged.posted_len() != 0
    }

    /// The limit of posted receives of the fast path.
    #[inline(always)]
    pub(crate) fn fast_size(&self) -> usize {
        self.fast_size
    }

    /// See [`ReceiveContext::finishes_multi`].
    pub(crate) fn finishes_multi(&self) -> bool {
        self.matching.finishes_multi()
    }

    /// `FI_OPT_MIN_MULTI_RECV`
    pub fn min_multi_recv(&self) -> usize {
        self.min_multi_recv
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV`.
    pub fn set_min_multi_recv(&mut self, bytes: usize) {
        self.min_multi_recv = bytes;
        self.matching.set_min_multi_recv(bytes);
    }
}

/// A shared receive context that is not one of the lane's own.
pub(crate) enum OtherSrx<T: Transport> {
    /// Another provider's: see the [`imported_srx`](crate::endpoints::imported_srx) module.
    Imported(Box<ImportedReceives<T>>),
    /// Another lane's: see the [`cross_lane_srx`](crate::endpoints::cross_lane_srx) module.
    CrossLane(Box<CrossLaneReceives>),
}
