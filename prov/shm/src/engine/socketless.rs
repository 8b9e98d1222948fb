//! Links whose sockets were given back: where a process has few descriptors left, the two sides of a
//! link agree on that while they set it up.
//!
//! What the socket did is done without a descriptor. Sleeping threads are woken by the lane's [`Bell`].
//! A side that ends the link writes so into the channel. Whether the peer's process is still there is
//! looked at from time to time ([`Life`]). Writes to the peer's registered memory are requests, since
//! nothing tells right before a copy whether another program is executed there.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::errno::{Errno, Result};
use prov_local::link;
use prov_local::process::Life;

use super::Core;
use super::keys::{Due, LinkKey, Source, bell_key};
use super::link::{GIVEN_BACK, Link};
use crate::LOG;
use crate::listener::Bell;

/// Time between two looks at the peers' processes: the end of one is noticed within that while there
/// are no more than [`LOOKS`].
const PERIOD: Duration = Duration::from_millis(250);
/// Number of processes that are looked at in turn, at some microseconds each: less than a hundredth
/// of a processor's time.
const LOOKS: usize = 128;

/// What a lane has for these links.
#[derive(Default)]
pub struct Socketless {
    /// What wakes this lane's threads, once a link may need it.
    bell: Option<Arc<Bell>>,
    /// The links, in the order in which they will be looked at.
    turns: std::collections::VecDeque<LinkKey>,
}

impl Core {
    /// Returns the lane's bell.
    ///
    /// # Errors
    /// Those of [`Bell::new`] and of the poller.
    pub(super) fn bell(&mut self) -> Result<Arc<Bell>> {
        if let Some(bell) = &self.socketless.bell {
            return Ok(bell.clone());
        }
        let bell = Arc::new(Bell::new()?);
        self.poller.watch(bell.as_fd(), Source::Link(bell_key()))?;
        self.socketless.bell = Some(bell.clone());
        Ok(bell)
    }

    /// Gives back the socket of a link that this side has requested, and that is open.
    ///
    /// # Errors
    /// Those of sendmsg(2): the peer has ended.
    pub(super) fn give_back(&mut self, key: LinkKey) -> Result {
        let link = self.links.get(key).ok_or(Errno::ESHUTDOWN)?;
        link.wire.send(GIVEN_BACK, None)?;
        self.given_back(key);
        Ok(())
    }

    /// Closes a socket that the peer does not use any longer.
    pub(super) fn given_back(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        if let Some(socket) = link.wire.socket() {
            self.poller.forget(socket);
        }
        link.wire.give_back();
        let life = Life::of(link.wire.pid, link.memory.clone());
        if let Err(error) = &life {
            log::info!(
                target: LOG.ep_ctrl,
                "the end of process {} will not be noticed: {error}", link.wire.pid
            );
        }
        link.life = life.ok();
        log::debug!(
            target: LOG.ep_ctrl,
            "the link with process {} has no socket, since one of the two processes has few \
             descriptors left",
            link.wire.pid
        );
        if self.socketless.turns.is_empty() {
            self.poller.call_at(Instant::now() + PERIOD, Due::Lives);
        }
        self.socketless.turns.push_back(key);
        bounded!(self.socketless.turns, PEERS);
        // A packet that was to wake this side may have been lost.
        self.open.woken();
    }

    /// Handles that a peer has rung the bell: a message has come, or a link has ended.
    pub(super) fn rung(&mut self) {
        if let Some(bell) = &self.socketless.bell
            && bell.silence()
        {
            self.poller
                .tell_again(bell.as_fd(), Source::Link(bell_key()));
        }
        self.open.woken();
        self.look_for_ends(self.socketless.turns.len());
    }

    /// Looks at the processes of peers in turn, and at what peers have written into the channels.
    pub(super) fn check_lives(&mut self, now: Instant) {
        let links = &self.links;
        self.socketless.turns.retain(|key| links.contains_key(*key));
        if self.socketless.turns.is_empty() {
            return;
        }
        self.poller.call_at(now + PERIOD, Due::Lives);
        self.look_for_ends(self.socketless.turns.len());
        for _ in 0..LOOKS.min(self.socketless.turns.len()) {
            let Some(key) = self.socketless.turns.pop_front() else {
                return;
            };
            let Some(link) = self.links.get_mut(key) else {
                continue;
            };
            self.socketless.turns.push_back(key);
            if link.life.as_ref().is_some_and(Life::has_ended) {
                link.has_ended = true;
                // It may have ended the link meanwhile.
                link.look_for_end();
                link::drain(self, key);
            }
        }
    }

    /// Looks whether peers have ended their links.
    fn look_for_ends(&mut self, most: usize) {
        for at in 0..most {
            let Some(&key) = self.socketless.turns.get(at) else {
                return;
            };
            let Some(link) = self.links.get_mut(key) else {
                continue;
            };
            link.look_for_end();
            if link.has_ended {
                link::drain(self, key);
            }
        }
    }

    /// Tells the peer that this side ends the link, if the peer may have closed its end of the socket.
    pub(super) fn tell_end(&self, link: &Link, has_left: bool) {
        // A forked child ends nothing of its parent's.
        if let Some(channel) = &link.channel
            && link.wire.may_be_given_back()
            && self.poller.is_own()
        {
            channel.end(has_left);
            link.wire.wake();
        }
    }
}

impl Link {
    /// Looks whether the peer has ended the link.
    fn look_for_end(&mut self) {
        let channel = self.channel.as_ref();
        if let Some(end) = channel.and_then(|channel| channel.end_there()) {
            self.has_left |= end.has_left;
            self.has_ended = true;
        }
    }
}
