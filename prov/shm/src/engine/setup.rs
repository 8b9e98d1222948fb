//! Setting up links: on first use, one for each peer. [`Peers`](prov_message::peers::Peers) decides
//! what has to be done about a peer, and [`Reaching`] does it.
//!
//! The side that requests a link creates the channel, and sends it along with its name. If both
//! sides request one at the same time, the request of the endpoint with the smaller name is
//! granted.

pub(super) mod introduction;

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::listener::{Bell, Listener, Wire};
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::{Seal, Token};
use prov_local::channel::Channel;
use prov_local::doorbell::{Doorbell, DoorbellOfPeer};
use prov_local::link;
use prov_local::onesided::table::RegionTable;
use prov_local::onesided::window::Window;
use prov_local::process::OtherProcess;
use prov_message::Reaching;
use prov_message::peers::{ConnectTarget, Failure};
use prov_message::reaching::PeersOf;

use self::introduction::{
    GIVES_BACK, HAS_BARRIER, HAS_BELL, IS_CROWDED, IS_FULL, Introduction, PACKET, WANTS, own_flags,
    thrift,
};
use super::endpoint::{Rdm, Vector};
use super::keys::{Due, EpKey, LinkKey, PeerKey, Source};
use super::link::{Fault, GIVEN_BACK, LEAVES, Link, Stage};
use super::{Core, SERVICE};
use crate::LOG;

/// Number of connections that are accepted before the links have their turn.
const ADMISSIONS: u32 = 16;
/// Time within which a peer has to request a link after it has connected.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Largest number of peers of one endpoint that have connected and not requested a link; beyond
/// that the oldest connection is closed.
const ENTERED_LIMIT: usize = 128;
/// Number of packets that are received from one link before the others have their turn.
const HEARINGS: u32 = 16;

/// Creates a link, and requests it from the endpoint with this name.
fn new_link(
    ep: EpKey,
    own: &str,
    name: &str,
    doorbell: &Doorbell,
    regions: Option<&Arc<RegionTable>>,
    bell: Option<&Arc<Bell>>,
) -> Result<Link> {
    let wire = Wire::reach(SERVICE, name)?;
    let (channel, fd) = Channel::create().inspect_err(|error| {
        log::warn!(target: LOG.ep_ctrl, "no memory to be shared with {name}: {error}");
    })?;
    let seal = Seal::new()?;
    let hello = Introduction {
        flags: own_flags() | WANTS | thrift(&wire, bell),
        seal: seal.token(),
        name: own,
    };
    let mut link = Link::new(ep, wire, seal, Stage::Asking);
    link.channel = Some(channel);
    let regions = lend(&mut link, regions);
    let with = [fd.as_fd(), doorbell.descriptor()]
        .into_iter()
        .chain(regions);
    link.wire.send(&hello.encode(), with)?;
    Ok(link)
}

/// Permits the peer to access registered memory directly, if that is possible. Returns the
/// descriptor that the peer needs for that.
fn lend<'a>(link: &mut Link, regions: Option<&'a Arc<RegionTable>>) -> Option<BorrowedFd<'a>> {
    let (channel, regions) = (link.channel.as_ref()?, regions?);
    // Of another PID namespace, as is said when its memory is looked for.
    if link.wire.pid == 0 {
        return None;
    }
    match regions.watch(channel.flights_of_peer(), link.wire.pid) {
        Ok(watching) => {
            link.watching = Some(watching);
            Some(regions.descriptor())
        }
        Err(error) => {
            log::info!(
                target: LOG.ep_ctrl,
                "process {} cannot access memory by itself: {error}", link.wire.pid
            );
            None
        }
    }
}

/// Sets up direct access to the peer's registered memory, if the peer has sent the descriptor that
/// this needs.
fn look(link: &mut Link, regions: Option<OwnedFd>) {
    let (Some(channel), Some(memory), Some(fd)) = (&link.channel, &link.memory, regions) else {
        return;
    };
    match Window::attach(fd.as_fd(), channel.flights(), memory.clone()) {
        Ok(window) => link.window = Some(window),
        Err(error) => log::info!(
            target: LOG.ep_ctrl,
            "cannot access the memory of process {} by itself: {error}", link.wire.pid
        ),
    }
}

/// Returns the lane's doorbell, which is created for its first link.
///
/// # Errors
/// Those of [`Doorbell::create`].
fn own_doorbell(doorbell: &mut Option<Doorbell>) -> Result<&Doorbell> {
    match doorbell {
        Some(doorbell) => Ok(doorbell),
        none => Ok(none.insert(Doorbell::create()?)),
    }
}

impl Reaching for Core {
    type Vector = Vector;

    const LOG_TARGET: &'static str = LOG.ep_ctrl;

    fn peers(&mut self, ep: EpKey) -> Option<&mut PeersOf<Self>> {
        self.rdm(ep).map(|rdm| &mut rdm.peers)
    }

    fn ask(&mut self, ep: EpKey, peer: PeerKey, target: &ConnectTarget<String>) -> Result<LinkKey> {
        let own = self.rdm(ep).ok_or(Errno::EOPBADSTATE)?.name.clone();
        let bell = self.bell().ok();
        let doorbell = own_doorbell(&mut self.doorbell)?;
        let regions = self.regions.as_ref();
        let mut link = new_link(ep, &own, &target.addr, doorbell, regions, bell.as_ref())?;
        (link.peer, link.src) = (Some(peer), target.source);
        self.add_link(link)
    }

    fn not_asked(&mut self, ep: EpKey, peer: PeerKey, error: Errno) -> Failure {
        // A peer that was connected before returns soon or never; another one may not have started
        // yet.
        match self.rdm(ep).is_some_and(|rdm| rdm.peers.is_lost(peer)) {
            true => Failure::of(error),
            false => Failure::Unreached(error),
        }
    }

    fn call_at(&mut self, at: Instant, ep: EpKey, peer: PeerKey) {
        self.poller.call_at(at, Due::Peer(ep, peer));
    }

    fn has_source(&mut self, link: LinkKey, source: u64) {
        if let Some(link) = self.links.get_mut(link) {
            link.src = source;
        }
    }
}

impl Core {
    pub(super) fn rdm(&mut self, ep: EpKey) -> Option<&mut Rdm> {
        Some(&mut *self.endpoints.get_mut(ep)?.own)
    }

    /// Opens an endpoint's listener, so that peers can find the endpoint.
    ///
    /// # Errors
    /// Those of listen(2) and of the poller.
    pub fn open_listener(&mut self, ep: EpKey, mut listener: Listener) -> Result {
        listener.listen()?;
        self.poller
            .watch_listener(listener.as_fd(), Source::Listener(ep))?;
        if let Some(rdm) = self.rdm(ep) {
            rdm.listener = Some(listener);
        }
        Ok(())
    }

    #[allow(clippy::indexing_slicing, reason = "the link was just added")]
    fn add_link(&mut self, link: Link) -> Result<LinkKey> {
        let key = self.links.insert(link);
        bounded!(self.links, PEERS);
        // The next turn polls for an answer.
        self.open.poll_soon();
        let socket = self.links[key].wire.socket().ok_or(Errno::ENOTCONN);
        match socket.and_then(|socket| self.poller.watch(socket, Source::Link(key))) {
            Ok(()) => Ok(key),
            Err(error) => {
                self.links.remove(key);
                Err(error)
            }
        }
    }

    /// Accepts the connections of an endpoint's listener. If there are more, the poller reports
    /// them again.
    pub(super) fn admit(&mut self, ep: EpKey) {
        for _ in 0..ADMISSIONS {
            let Some(listener) = self.rdm(ep).and_then(|rdm| rdm.listener.as_ref()) else {
                return;
            };
            let admitted = match listener.accept() {
                Ok(None) => return,
                Ok(Some(wire)) => Seal::new()
                    .and_then(|seal| self.add_link(Link::new(ep, wire, seal, Stage::Entered))),
                // The peer has gone, or is another user's: the next one is accepted.
                Err(Errno::ECONNABORTED | Errno::EPERM) => continue,
                Err(error) => Err(error),
            };
            if admitted == Err(Errno::EMFILE) {
                // Links that are being set up may give back theirs.
                if self.rdm(ep).is_some_and(|rdm| !rdm.entered.is_empty()) {
                    return self.rest(ep);
                }
                if self.refuse_for_want(ep) {
                    continue;
                }
            }
            match admitted {
                Ok(key) => {
                    self.entered(ep, key);
                    self.read_wire(key);
                }
                Err(error) => {
                    log::warn!(target: LOG.ep_ctrl, "cannot let peers in for the moment: {error}");
                    self.rest(ep);
                    return;
                }
            }
        }
        self.open.poll_soon();
    }

    /// Tells the next peer that connects that this process has no descriptor left for it. Returns `false`
    /// if that is impossible, too.
    fn refuse_for_want(&mut self, ep: EpKey) -> bool {
        let refusal = self.refusal(ep);
        let Some(listener) = self.rdm(ep).and_then(|rdm| rdm.listener.as_mut()) else {
            return false;
        };
        listener.accept_to_refuse(|wire| {
            log::warn!(
                target: LOG.ep_ctrl,
                "process {} gets no link, since this process may open no more files \
                 (RLIMIT_NOFILE)", wire.pid
            );
            // If it does not arrive, the end of the connection does.
            let _ = wire.send(&refusal, None);
        })
    }

    /// The packet that tells a peer that this process has no descriptor left for a link.
    fn refusal(&mut self, ep: EpKey) -> Vec<u8> {
        let own = self.rdm(ep).map(|rdm| rdm.name.clone());
        let refusal = Introduction {
            flags: own_flags() | IS_FULL,
            seal: Token { addr: 0, value: 0 },
            name: own.as_deref().unwrap_or_default(),
        };
        refusal.encode()
    }

    /// Notes a connection whose peer has to request a link within [`REQUEST_TIME`].
    fn entered(&mut self, ep: EpKey, key: LinkKey) {
        let deadline = Instant::now() + REQUEST_TIME;
        self.poller.call_at(deadline, Due::Entered(key));
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        rdm.entered.push_back(key);
        bounded!(rdm.entered, PEERS);
        if rdm.entered.len() > ENTERED_LIMIT
            && let Some(oldest) = rdm.entered.pop_front()
        {
            log::info!(
                target: LOG.ep_ctrl,
                "too many peers that have not asked for a link; the oldest has to go"
            );
            self.remove_link(oldest);
        }
    }

    /// Handles that a peer which has connected requests a link, or has gone.
    pub(super) fn no_longer_entered(&mut self, ep: EpKey, key: LinkKey) {
        if let Some(rdm) = self.rdm(ep) {
            rdm.entered.retain(|other| *other != key);
        }
    }

    /// Ends a connection whose peer has not requested a link in time.
    pub(super) fn check_entered(&mut self, key: LinkKey) {
        let link = self.links.get(key);
        if link.is_some_and(|link| link.stage == Stage::Entered) {
            self.break_link(key, Fault::Ended(Errno::ETIMEDOUT));
        }
    }

    /// Pauses polling a listener. Connections wait in the kernel meanwhile.
    pub(super) fn rest(&mut self, ep: EpKey) {
        let Some(rdm) = self.endpoints.get(ep).map(|ep| &ep.own) else {
            return;
        };
        if let Some(listener) = &rdm.listener {
            self.poller.rest(listener.as_fd(), Due::Listener(ep));
        }
    }

    /// Resumes polling an endpoint's listener.
    pub(super) fn resume_listener(&mut self, ep: EpKey) {
        let Some(rdm) = self.endpoints.get(ep).map(|ep| &ep.own) else {
            return;
        };
        if let Some(listener) = &rdm.listener {
            self.poller
                .rested(listener.as_fd(), Source::Listener(ep), Due::Listener(ep));
        }
    }

    /// Receives the packets of a link's socket, at most [`HEARINGS`] in a turn.
    #[allow(
        clippy::indexing_slicing,
        reason = "the link was just added; the system returns no more than there was room for"
    )]
    pub(super) fn read_wire(&mut self, key: LinkKey) {
        let mut packet = [0; PACKET + 1];
        for _ in 0..HEARINGS {
            let Some(link) = self.links.get_mut(key) else {
                return;
            };
            if link.wire.socket().is_none() {
                return;
            }
            let mut received = link.wire.receive(&mut packet);
            if link.stage == Stage::Asking && received.as_ref().err() == Some(&Errno::ECONNRESET) {
                // The peer has closed its end without reading the request. What it has sent before,
                // such as why, comes behind the error.
                received = match link.wire.receive(&mut packet) {
                    Ok((0, _)) | Err(_) => received,
                    said => said,
                };
            }
            let said = match received {
                Ok((0, _)) => {
                    link.has_ended = true;
                    return link::drain(self, key);
                }
                Ok((len, with)) => self.hear(key, &packet[..len], with),
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => continue,
                Err(Errno::EMFILE) if link.stage == Stage::Entered => {
                    let ep = link.ep;
                    let refusal = self.refusal(ep);
                    if let Some(link) = self.links.get(key) {
                        log::warn!(
                            target: LOG.ep_ctrl,
                            "process {} gets no link, since this process may open no more files \
                             (RLIMIT_NOFILE)", link.wire.pid
                        );
                        let _ = link.wire.send(&refusal, None);
                    }
                    Err(Fault::Ended(Errno::EMFILE))
                }
                Err(_) if link.is_open() => {
                    // The peer ended without having received all packets that wake it.
                    link.has_ended = true;
                    return link::drain(self, key);
                }
                Err(error) => Err(Fault::Ended(error)),
            };
            if let Err(fault) = said {
                return self.break_link(key, fault);
            }
        }
        if let Some(socket) = self.links.get(key).and_then(|link| link.wire.socket()) {
            self.poller.tell_again(socket, Source::Link(key));
        }
    }

    fn hear(
        &mut self,
        key: LinkKey,
        packet: &[u8],
        with: Vec<OwnedFd>,
    ) -> std::result::Result<(), Fault> {
        let Some(link) = self.links.get_mut(key) else {
            return Ok(());
        };
        if link.is_open() {
            if packet == GIVEN_BACK && link.wire.may_be_given_back() {
                self.given_back(key);
                return Ok(());
            }
            // The packet was sent to wake this side.
            link.has_left |= packet == LEAVES;
            self.open.woken();
            return Ok(());
        }
        let is_asked = link.stage == Stage::Entered;
        let said = Introduction::decode(packet);
        let said = said.ok_or(Fault::Protocol("first packet"))?;
        if is_asked {
            let ep = link.ep;
            self.no_longer_entered(ep, key);
        }
        let mut with = with.into_iter();
        if !is_asked {
            return self.answered(key, &said, with.next(), with.next());
        }
        let (Some(fd), Some(doorbell)) = (with.next(), with.next()) else {
            return Err(Fault::Protocol("first packet without memory"));
        };
        let mut channel = Channel::attach(fd.as_fd()).map_err(Fault::Ended)?;
        channel.is_asymmetric(said.flags & own_flags() & HAS_BARRIER != 0);
        channel.rings(DoorbellOfPeer::attach(doorbell.as_fd()).map_err(Fault::Ended)?);
        self.asked(key, &said, channel, with.next())
    }

    /// Returns the memory of the process at the other end, if it can be read.
    fn find_memory(&self, link: &Link, seal: Token) -> Option<OtherProcess> {
        if self.params.disable_cma {
            return None;
        }
        let found = OtherProcess::find(link.wire.pid, seal);
        let found = found.inspect_err(|error| match link.wire.pid {
            0 => log::info!(
                target: LOG.ep_ctrl,
                "cannot read the memory of a process of another PID namespace; long messages and \
                 accesses to memory go through shared memory"
            ),
            pid => log::info!(
                target: LOG.ep_ctrl,
                "cannot read the memory of process {pid}: {error}; long messages and accesses to \
                 memory go through shared memory"
            ),
        });
        found.ok().map(|(memory, _)| memory)
    }

    /// Handles a peer's request for a link.
    fn asked(
        &mut self,
        key: LinkKey,
        said: &Introduction<'_>,
        channel: Channel,
        regions: Option<OwnedFd>,
    ) -> std::result::Result<(), Fault> {
        let Some(link) = self.links.get(key) else {
            return Ok(());
        };
        let (ep, name) = (link.ep, said.name.to_owned());
        let memory = self.find_memory(link, said.seal);
        let Some(rdm) = self.rdm(ep) else {
            return Err(Fault::Refused);
        };
        let is_itself = name == rdm.name;
        let bell = match !is_itself && said.flags & HAS_BELL != 0 {
            true => self.bell().ok(),
            false => None,
        };
        let Some(rdm) = self.rdm(ep) else {
            return Err(Fault::Refused);
        };
        let is_first = rdm.name < name;
        let own = rdm.name.clone();
        let peer = rdm.peers.peer_at(&name);
        let is_refused = if is_itself {
            rdm.peers.loops_back(peer, key);
            false
        } else {
            self.make_way(ep, peer, key, is_first)
        };
        let Some(link) = self.links.get_mut(key) else {
            return Ok(());
        };
        link.memory = memory;
        link.channel = Some(channel);
        let thrift = thrift(&link.wire, bell.as_ref());
        let gives_back = thrift & HAS_BELL != 0 && (thrift | said.flags) & IS_CROWDED != 0;
        match bell.filter(|_| gives_back) {
            Some(bell) => link.wire.has_bells(bell, said.bell()),
            None => look(link, regions),
        }
        // If the answer cannot be sent, the peer's attempt has failed, and this side's has given
        // way to it.
        link.peer = (!is_itself && !is_refused).then_some(peer);
        let mut answer = Introduction {
            flags: own_flags() | thrift,
            seal: link.seal.token(),
            name: &own,
        };
        let mut lent = None;
        if !is_refused {
            answer.flags |= WANTS;
            match gives_back {
                true => answer.flags |= GIVES_BACK,
                false => lent = lend(link, self.regions.as_ref()),
            }
        }
        let doorbell = match is_refused {
            true => None,
            false => Some(own_doorbell(&mut self.doorbell).map_err(Fault::Ended)?),
        };
        let with = doorbell.map(Doorbell::descriptor).into_iter().chain(lent);
        let sent = link.wire.send(&answer.encode(), with);
        if is_refused {
            if let Some(rdm) = self.rdm(ep) {
                rdm.peers.forget_idle(peer);
            }
            return Err(Fault::Refused);
        }
        sent.map_err(Fault::Ended)?;
        let source = self.rdm(ep).map(|rdm| rdm.peers.source(peer));
        if let (Some(link), Some(source)) = (self.links.get_mut(key), source) {
            link.src = source;
        }
        self.opened(key);
        Ok(())
    }

    /// Gives up this side's attempt, or link, to a peer for a link that the peer requests. Returns
    /// `true` if the peer's request has to give way.
    fn make_way(&mut self, ep: EpKey, peer: PeerKey, key: LinkKey, is_first: bool) -> bool {
        let known = self.rdm(ep).and_then(|rdm| rdm.peers.link(peer));
        if let Some(known) = known
            && let Some(is_open) = self.links.get(known).map(Link::is_open)
        {
            if is_open && self.has_left(key) {
                // The peer has withdrawn its request in favour of that link.
                return true;
            } else if is_open {
                // The peer requests a link only when the previous one is over.
                self.read_wire(known);
                if let Some(link) = self.links.get_mut(known) {
                    link.has_ended = true;
                }
                link::drain(self, known);
                self.break_link(known, Fault::Ended(Errno::ESHUTDOWN));
            } else if is_first {
                return true;
            }
        }
        let Some(rdm) = self.rdm(ep) else {
            return true;
        };
        if let Some(ours) = rdm.peers.adopt(peer, key, Instant::now()) {
            self.remove_link(ours);
        }
        false
    }

    /// Whether a peer that requested a link has gone since.
    fn has_left(&self, key: LinkKey) -> bool {
        let link = self.links.get(key);
        link.is_none_or(|link| !matches!(link.wire.receive(&mut [0]), Err(Errno::EAGAIN)))
    }

    /// Handles a peer's answer.
    fn answered(
        &mut self,
        key: LinkKey,
        said: &Introduction<'_>,
        doorbell: Option<OwnedFd>,
        regions: Option<OwnedFd>,
    ) -> std::result::Result<(), Fault> {
        if said.flags & IS_FULL != 0 {
            if let Some(link) = self.links.get(key) {
                log::info!(
                    target: LOG.ep_ctrl,
                    "process {} may open no more files, and has no link to give", link.wire.pid
                );
            }
            return Err(Fault::Ended(Errno::EMFILE));
        }
        if said.flags & WANTS == 0 {
            return Err(Fault::Refused);
        }
        let doorbell = doorbell.ok_or(Fault::Protocol("answer without a doorbell"))?;
        let doorbell = DoorbellOfPeer::attach(doorbell.as_fd()).map_err(Fault::Ended)?;
        let Some(link) = self.links.get(key) else {
            return Ok(());
        };
        let memory = self.find_memory(link, said.seal);
        let bell = self.bell().ok();
        let Some(link) = self.links.get_mut(key) else {
            return Ok(());
        };
        link.memory = memory;
        if let Some(channel) = &mut link.channel {
            channel.rings(doorbell);
            channel.is_asymmetric(said.flags & own_flags() & HAS_BARRIER != 0);
        }
        let gives_back = said.flags & (GIVES_BACK | HAS_BELL) == GIVES_BACK | HAS_BELL;
        match bell.filter(|_| gives_back) {
            Some(bell) => {
                link.wire.has_bells(bell, said.bell());
                link.watching = None;
                self.opened(key);
                self.give_back(key).map_err(Fault::Ended)
            }
            None => {
                look(link, regions);
                self.opened(key);
                Ok(())
            }
        }
    }

    /// Handles that a link is open: operations that have waited for it are posted.
    fn opened(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        link.stage = Stage::Open;
        let local = &mut link.local;
        if let Some(channel) = &local.channel {
            local.pulls.meet(channel.inflow());
        }
        let (ep, peer) = (link.ep, link.peer);
        let Some(peer) = peer else {
            self.endpoints.link_is_own(key);
            return self.open.add_own(key);
        };
        self.open.add(key);
        let opened = self.rdm(ep).and_then(|rdm| rdm.peers.opened(peer, key));
        if let (Some(opened), Some(link)) = (opened, self.links.get_mut(key)) {
            link.src = opened.source;
            if let Some(displaced) = opened.displaced {
                self.break_link(displaced, Fault::Ended(Errno::ECONNRESET));
            }
        }
        link::replay(self, key);
    }
}
