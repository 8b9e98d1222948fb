//! Links of the lane, as [`prov_local::link`] needs them, and what the application posts to them.

use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_local::channel::INLINE;
use prov_local::copies::{Copier, Copies, Pulls, Transfer};
use prov_local::link::payload::Payload;
use prov_local::link::{self, Ack, At, Fault, Links, Lists};
use prov_local::switch_points::EAGER;
use prov_message::peers::{Deferred, Destination, UNKNOWN_SOURCE};
use prov_message::reaching::DeferredOp;
use prov_message::{EpKey, Op, Reaching as _};
use prov_util::request::{Atomic, RemoteAccess, Transmit};

use super::Core;
use super::keys::LinkKey;
use super::link::Link;
use super::messages::{Action, Shm};
use crate::params::SIZES;

// The fast path does not check the length of messages that fit into a slot.
const _: () = assert!(INLINE <= SIZES.inject);
// What is checked here fits into a message of the channel.
const _: () = assert!(SIZES.atomic <= link::ATOMIC_LIMIT);

impl Core {
    #[inline(always)]
    pub(super) fn post_message(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        match self.post_at_once(ep, message) {
            Some(()) => Ok(()),
            None => self.post_in_turn(ep, message),
        }
    }

    /// The fast path: sends an eager message without special flags on an open link.
    #[inline(always)]
    fn post_at_once(&mut self, ep: EpKey, message: &mut Transmit) -> Option<()> {
        let len = message.buffers.len();
        if message.flags & link::SPECIAL != 0 {
            return None;
        }
        if len > INLINE {
            return self.post_long(ep, message);
        }
        self.post_whole::<false>(ep, message)
    }

    /// As [`Core::post_at_once`], for a message that does not fit into a slot.
    #[inline(never)]
    fn post_long(&mut self, ep: EpKey, message: &mut Transmit) -> Option<()> {
        let is_special = message.buffers.len() > EAGER || message.buffers.has_device();
        if is_special || SIZES.check_message(message).is_err() {
            return None;
        }
        self.post_whole::<true>(ep, message)
    }

    #[inline(always)]
    fn post_whole<const LONG: bool>(&mut self, ep: EpKey, message: &mut Transmit) -> Option<()> {
        let state = self.endpoints.get(ep)?;
        let key = state.own.peers.open_link(message.peer)?;
        let link = self.links.get_mut(key)?;
        if !link.local.send_at_once::<LONG>(message) {
            return None;
        }
        state.reports.plain_message(ep, message);
        Some(())
    }

    #[inline(never)]
    fn post_in_turn(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        SIZES.check_message(message)?;
        let state = self.endpoints.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let known = state.own.peers.open_link(message.peer);
        let known = known.filter(|key| self.links.contains_key(*key));
        let destination = match known {
            Some(key) => Destination::Open(key),
            None => self.reach(ep, message.peer)?,
        };
        match destination {
            Destination::Open(key) => link::post_message(self, ep, key, message),
            Destination::Waits(peer) => self.defer(peer, Op::of_transmit(ep, message), || {
                Deferred::transmit(message)
            }),
        }
    }

    pub(super) fn post_access(&mut self, ep: EpKey, access: &mut RemoteAccess) -> Result {
        SIZES.check_access(access)?;
        match self.reach(ep, access.peer)? {
            Destination::Open(key) => link::post_access(self, ep, key, access),
            Destination::Waits(peer) => {
                self.defer(peer, Op::of_access(ep, access), || Deferred::access(access))
            }
        }
    }

    pub(super) fn post_atomic(&mut self, ep: EpKey, atomic: &mut Atomic) -> Result {
        SIZES.check_atomic(atomic)?;
        match self.reach(ep, atomic.peer)? {
            Destination::Open(key) => link::post_atomic(self, ep, key, atomic),
            Destination::Waits(peer) => {
                self.defer(peer, Op::of_atomic(ep, atomic), || Deferred::atomic(atomic))
            }
        }
    }

    /// Carries out what a receive, or the lack of one, requires of a link.
    pub(super) fn act_on(&mut self, action: Action) {
        match action {
            Action::Acknowledge(key, Ack { name, .. }) => link::acknowledge(self, key, name),
            Action::Refuse(key, offered, ..) => link::acknowledge(self, key, offered.name),
            Action::Fetch(key, fetch) => {
                link::fetch(self, key, &fetch.name, fetch.memory, fetch.receipt);
            }
            Action::Throttle(key, is_on) => link::throttle(self, key, is_on),
            // All messages arrive whole, or are offered.
            Action::Redirect(..) | Action::Resume(..) => {}
        }
    }
}

impl Links for Core {
    #[inline(always)]
    fn at(&mut self, key: LinkKey) -> Option<At<'_, Shm>> {
        let Core {
            links,
            endpoints,
            target,
            lists,
            ..
        } = self;
        Some(At {
            link: &mut links.get_mut(key)?.local,
            endpoints,
            target,
            lists,
        })
    }

    #[inline(always)]
    fn lists(&mut self) -> &mut Lists<LinkKey> {
        &mut self.lists
    }

    #[inline]
    fn find_source(&mut self, key: LinkKey) {
        let unknown = self.links.get(key);
        let unknown = unknown.filter(|link| link.src == UNKNOWN_SOURCE);
        let Some(ep) = unknown.map(|link| link.ep) else {
            return;
        };
        if self.rdm(ep).is_some_and(|rdm| rdm.peers.av_changed()) {
            self.follow_av(ep);
        }
    }

    fn is_message_deferred(&mut self, key: LinkKey) -> Option<bool> {
        let link = self.links.get(key).filter(|link| link.is_open())?;
        let (ep, peer) = (link.ep, link.peer?);
        let (next, _) = self.rdm(ep)?.peers.waiting(peer).next()?;
        Some(next.message_len().is_some())
    }

    fn next_deferred(&mut self, key: LinkKey) -> Option<DeferredOp> {
        let link = self.links.get(key)?;
        let (ep, peer) = (link.ep, link.peer?);
        self.rdm(ep)?.peers.next_waiting(peer, key)
    }

    fn breaks(&mut self, key: LinkKey, fault: Fault) {
        self.break_link(key, fault);
    }
}

impl Copies for Core {
    fn copier(&mut self) -> &mut Copier<Shm> {
        &mut self.copier
    }

    fn pulls(&mut self, key: LinkKey) -> Option<Pulls<'_, Shm>> {
        let link = &mut self.links.get_mut(key)?.local;
        Some(Pulls {
            ep: link.ep,
            memory: link.memory.as_ref(),
            transfers: &mut link.pulls,
            endpoints: &mut self.endpoints,
        })
    }

    fn offered(&self, key: LinkKey, name: u64) -> Option<&Payload> {
        self.links.get(key)?.offered(name)
    }

    fn has_offers(&self, key: LinkKey) -> bool {
        self.links
            .get(key)
            .is_some_and(|link: &Link| link.has_offers())
    }

    fn wake_for_copies(&mut self) {
        if self.open.has_sleepers() {
            self.poller.wake_at(Instant::now());
        }
    }

    fn note_work(&mut self) {
        self.idle_calls = 0;
    }

    fn copied(&mut self, key: LinkKey, transfer: Transfer<Shm>, outcome: Result) {
        link::copied(self, key, transfer, outcome);
    }
}
