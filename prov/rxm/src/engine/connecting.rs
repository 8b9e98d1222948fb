//! Connections: established on first use, one per peer. [`Peers`](prov_message::peers::Peers)
//! decides what to do about them, and [`Reaching`] does it.
//!
//! If two endpoints request a connection from each other at the same time, the request of the
//! larger address wins, as the protocol defines.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_base::warn_again;
use prov_message::peers::{ConnectTarget, Deadline, RdmAddress, RdmVector, UNKNOWN_SOURCE};
use prov_message::reaching::PeersOf;
use prov_message::strangers::Hosting as _;
use prov_message::{Core as _, Linked as _, Reaching};
use prov_util::below::{Asking, Event};

use super::Core;
use super::endpoint::Rdm;
use super::keys::{Due, EpKey, LinkKey, PeerKey};
use super::link::{Fault, Link, Stage};
use crate::wire::connection::{Acceptance, FlowControl, Name, Refusal, Request};
use crate::{LOG, address};

fn own_pid() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

impl Reaching for Core {
    type Vector = RdmVector;

    const LOG_TARGET: &'static str = LOG.ep_ctrl;

    fn peers(&mut self, ep: EpKey) -> Option<&mut PeersOf<Self>> {
        self.rdm(ep).map(|rdm| &mut rdm.peers)
    }

    fn ask(
        &mut self,
        ep: EpKey,
        peer: PeerKey,
        target: &ConnectTarget<RdmAddress>,
    ) -> Result<LinkKey> {
        let addr = target.addr;
        let key = self
            .ask_at(ep, peer, addr, target.source)
            .inspect_err(|error| {
                warn_again!(target: LOG.ep_ctrl, "cannot ask {addr} for a connection: {error}");
            })?;
        self.has_to_open(key, target.deadline);
        Ok(key)
    }

    fn call_at(&mut self, at: Instant, ep: EpKey, peer: PeerKey) {
        self.poller.call_at(at, Due::Peer(ep, peer));
    }

    fn has_source(&mut self, link: LinkKey, source: u64) {
        if let Some(link) = self.links.get_mut(link) {
            link.has_source(source);
        }
        self.count_if_stranger(link);
        if source == UNKNOWN_SOURCE {
            self.end_removed(link);
        }
    }
}

impl Core {
    /// Sets the time by which a link has to be open.
    fn has_to_open(&mut self, key: LinkKey, deadline: Instant) {
        if let Some(link) = self.links.get_mut(key) {
            link.deadline = Some(Deadline::new(deadline));
            self.poller.call_at(deadline, Due::Link(key));
        }
    }

    /// Ends a link that is not open in time.
    pub(super) fn check_deadline(&mut self, key: LinkKey, now: Instant) {
        let again = self.params.connect_timeout();
        let link = self.links.get_mut(key).filter(|link| !link.is_open());
        let Some(deadline) = link.and_then(|link| link.deadline.as_mut()) else {
            return;
        };
        match deadline.is_over(now, again) {
            true => self.break_link(key, Fault::Ended(Errno::ETIMEDOUT)),
            false => self.poller.call_at(deadline.at(), Due::Link(key)),
        }
    }

    pub(super) fn rdm(&mut self, ep: EpKey) -> Option<&mut Rdm> {
        Some(&mut *self.endpoints.get_mut(ep)?.own)
    }

    /// Requests a connection from a peer.
    fn ask_at(&mut self, ep: EpKey, peer: PeerKey, addr: RdmAddress, src: u64) -> Result<LinkKey> {
        let below = self.below.as_mut().ok_or(Errno::EOPBADSTATE)?;
        let endpoint = below.endpoint_to(&addr.at)?;
        let receives = below.receives();
        let mut link = Link::new(ep, addr, (endpoint, receives), Stage::Asking);
        link.peer = Some(peer);
        link.has_source(src);
        let key = self.add_link(link)?;
        let asked = self.ask_on(key, &addr);
        asked.map(|()| key).inspect_err(|_| self.remove_link(key))
    }

    fn ask_on(&mut self, key: LinkKey, addr: &RdmAddress) -> Result {
        let ep = self.links.get(key).ok_or(Errno::EOPBADSTATE)?.ep;
        let from = self.rdm(ep).ok_or(Errno::EOPBADSTATE)?.context;
        let (Some(link), Some(below)) = (self.links.get(key), &mut self.below) else {
            return Err(Errno::EOPBADSTATE);
        };
        below.expect_packets(key, &link.below, link.receives)?;
        let request = Request {
            port: below.addr.port(),
            flow_control: FlowControl::Off,
            number: 0,
            eager_limit: self.params.buffer_size as u32,
            receives: below.setting.core.rx.size as u32,
            name: Name {
                pid: own_pid(),
                id: link.id,
            },
            to: addr.context,
            from,
            takes_leave: true,
        };
        link.below
            .connect(&address::bytes(&addr.at), &request.encode())
    }

    fn add_link(&mut self, link: Link) -> Result<LinkKey> {
        let name = link.below.name();
        let key = self.links.insert(link);
        bounded!(self.links, PEERS);
        let Some(id) = self.ids.add(key) else {
            self.links.remove(key);
            return Err(Errno::EMFILE);
        };
        if let Some(link) = self.links.get_mut(key) {
            link.id = id;
        }
        self.note_what_is_awaited(key);
        self.names.insert(name, key);
        bounded!(self.names, PEERS);
        self.connecting += 1;
        self.until_clock = 0;
        Ok(key)
    }

    /// Removes a link that was never open, without reporting it.
    pub(super) fn remove_link(&mut self, key: LinkKey) {
        self.fail_link(key, Errno::ECANCELED);
    }

    /// Handles the events of the provider below, unless the lane is deaf: connections end with the
    /// messages that have arrived on them.
    pub(super) fn take_events(&mut self) -> bool {
        if self.endpoints.is_deaf() {
            return false;
        }
        let mut any = false;
        loop {
            let Some(below) = &self.below else {
                return any;
            };
            let event = match below.wiring.eq.read() {
                Ok(Some(event)) => event,
                Ok(None) => return any,
                Err(error) => {
                    warn_again!(target: LOG.ep_ctrl, "no events can be read: {error}");
                    return any;
                }
            };
            any = true;
            self.event(event);
            self.follow_up();
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Asked(asking, data) => self.asked(asking, &data),
            Event::Connected(name, data) => {
                if let Some(&key) = self.names.get(&name) {
                    self.connected(key, &data);
                }
            }
            Event::Shutdown(name) => {
                if let Some(&key) = self.names.get(&name) {
                    self.has_ended(key, Fault::Ended(Errno::ESHUTDOWN));
                }
            }
            Event::Failed(name, error, data) => {
                if let Some(&key) = self.names.get(&name) {
                    self.failed(key, error, &data);
                }
            }
            Event::Other => {}
        }
    }

    /// Handles a peer's connection request.
    fn asked(&mut self, asking: Asking, data: &[u8]) {
        let answer = match Request::decode(data) {
            Ok(request) => self.judge(&asking, &request),
            Err(malformed) => {
                warn_again!(target: LOG.ep_ctrl, "a peer with another {}", malformed.0);
                Err(Refusal::Refused)
            }
        };
        let (addr, request, is_itself) = match answer {
            Ok(answer) => answer,
            Err(refusal) => return self.refuse(asking, refusal),
        };
        if let Err(error) = self.accept(&asking, addr, &request, is_itself) {
            warn_again!(target: LOG.ep_ctrl, "cannot let {addr} in: {error}");
            self.refuse(asking, Refusal::Refused);
        }
    }

    fn refuse(&mut self, asking: Asking, refusal: Refusal) {
        let Some(below) = &self.below else {
            return;
        };
        if let Err(error) = below.passive.reject(asking, &refusal.encode()) {
            warn_again!(target: LOG.ep_ctrl, "a request cannot be refused: {error}");
        }
    }

    /// Decides about a request, and makes room for its connection.
    fn judge(
        &mut self,
        asking: &Asking,
        request: &Request,
    ) -> std::result::Result<(RdmAddress, Request, bool), Refusal> {
        let Some(below) = &self.below else {
            return Err(Refusal::Refused);
        };
        let (ep, own) = (below.ep, below.addr);
        let from = address::read(&asking.address()).map_err(|_| Refusal::Refused)?;
        let at = address::at_port(from, request.port);
        let Some(addr) = RdmAddress::new(at, request.from) else {
            warn_again!(target: LOG.ep_ctrl, "{at} cannot be the context {}", request.from);
            return Err(Refusal::Refused);
        };
        if request.eager_limit as usize != self.params.buffer_size {
            warn_again!(
                target: LOG.ep_ctrl,
                "{addr} has buffer_size {}, this side {}: set FI_OFI_RXM_BUFFER_SIZE for both",
                request.eager_limit,
                self.params.buffer_size
            );
            return Err(Refusal::Refused);
        }
        if request.number != 0 {
            // One connection is enough.
            return Err(Refusal::Refused);
        }
        if self.rdm(ep).is_some_and(|rdm| rdm.context != request.to) {
            return Err(Refusal::NoContext);
        }
        if request.name.pid == own_pid()
            && request.port == own.port()
            && let Some(key) = self.ids.find(request.name.id)
            && self
                .links
                .get(key)
                .is_some_and(|link| link.stage == Stage::Asking)
        {
            return Ok((addr, *request, true));
        }
        let Some(rdm) = self.rdm(ep) else {
            return Err(Refusal::Refused);
        };
        let addr = rdm.peers.known_as(&addr, RdmAddress::without_scope);
        let known = rdm.peers.find(&addr).and_then(|peer| rdm.peers.link(peer));
        let Some((known, link)) = known.and_then(|known| Some((known, self.links.get(known)?)))
        else {
            return Ok((addr, *request, false));
        };
        match link.stage {
            Stage::Asking if (addr.at.ip(), addr.at.port()) < (own.ip(), own.port()) => {
                Err(Refusal::Already)
            }
            // This side's request is given up when the peer's is accepted.
            Stage::Asking => Ok((addr, *request, false)),
            Stage::Accepting | Stage::Open if link.far_pid == request.name.pid => {
                Err(Refusal::Already)
            }
            Stage::Accepting | Stage::Open => {
                // Another process would not request a connection while the old one existed.
                self.take_in_all();
                self.break_link(known, Fault::Ended(Errno::ECONNRESET));
                Ok((addr, *request, false))
            }
        }
    }

    fn accept(
        &mut self,
        asking: &Asking,
        addr: RdmAddress,
        request: &Request,
        is_itself: bool,
    ) -> Result {
        let ep = self.below.as_ref().ok_or(Errno::EOPBADSTATE)?.ep;
        if !is_itself && !self.may_come_in(ep, &addr) {
            return Err(Errno::EMFILE);
        }
        let is_stranger = !is_itself && self.is_stranger(ep, &addr);
        let below = self.below.as_mut().ok_or(Errno::EOPBADSTATE)?;
        let endpoint = below.endpoint_for(asking, is_stranger)?;
        let mut link = Link::new(ep, addr, endpoint, Stage::Accepting);
        link.far_id = request.name.id;
        link.far_pid = request.name.pid;
        link.takes_leave = request.takes_leave;
        let key = self.add_link(link)?;
        self.accept_on(key).inspect_err(|_| self.remove_link(key))?;
        let Some(rdm) = self.rdm(ep) else {
            return Ok(());
        };
        let peer = rdm.peers.peer_at(&addr);
        let gives_way = if is_itself {
            rdm.peers.loops_back(peer, key);
            None
        } else {
            rdm.peers.adopt(peer, key, Instant::now())
        };
        let source = rdm.peers.source(peer);
        let deadline = rdm.peers.target(peer).map(|target| target.deadline);
        if let Some(link) = self.links.get_mut(key) {
            link.has_source(source);
            link.peer = (!is_itself).then_some(peer);
        }
        self.count_if_stranger(key);
        if let Some(deadline) = deadline {
            self.has_to_open(key, deadline);
        }
        if let Some(ours) = gives_way {
            self.remove_link(ours);
        }
        Ok(())
    }

    /// Returns whether this peer is in no address vector.
    fn is_stranger(&mut self, ep: EpKey, addr: &RdmAddress) -> bool {
        self.rdm(ep).is_none_or(|rdm| {
            let peer = rdm.peers.find(addr);
            peer.is_none_or(|peer| rdm.peers.source(peer) == UNKNOWN_SOURCE)
        })
    }

    /// Returns whether there is room for a link of this peer, or the address vector knows it.
    fn may_come_in(&mut self, ep: EpKey, addr: &RdmAddress) -> bool {
        let Some(rdm) = self.rdm(ep) else {
            return false;
        };
        let peer = rdm.peers.peer_at(addr);
        if rdm.peers.source(peer) != UNKNOWN_SOURCE || self.admit_stranger() {
            return true;
        }
        if let Some(rdm) = self.rdm(ep) {
            rdm.peers.forget_idle(peer);
        }
        false
    }

    fn accept_on(&mut self, key: LinkKey) -> Result {
        let (Some(link), Some(below)) = (self.links.get(key), &mut self.below) else {
            return Err(Errno::EOPBADSTATE);
        };
        below.expect_packets(key, &link.below, link.receives)?;
        let acceptance = Acceptance {
            name: Name {
                pid: own_pid(),
                id: link.id,
            },
            receives: below.setting.core.rx.size as u32,
            flow_control: FlowControl::Off,
            takes_leave: true,
        };
        link.below.accept(&acceptance.encode())
    }

    /// Handles an established connection.
    fn connected(&mut self, key: LinkKey, data: &[u8]) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        match link.stage {
            Stage::Asking => match Acceptance::decode(data) {
                Ok(acceptance) => {
                    let Name { id, pid } = acceptance.name;
                    (link.far_id, link.far_pid) = (id, pid);
                    link.takes_leave = acceptance.takes_leave;
                }
                Err(malformed) => return self.break_link(key, malformed.into()),
            },
            Stage::Accepting => {}
            Stage::Open => return,
        }
        link.stage = Stage::Open;
        let (ep, peer) = (link.ep, link.peer);
        self.connecting -= 1;
        let Some(peer) = peer else {
            return self.send_queued_on(key);
        };
        let opened = self.rdm(ep).and_then(|rdm| rdm.peers.opened(peer, key));
        if let (Some(opened), Some(link)) = (opened, self.links.get_mut(key)) {
            link.has_source(opened.source);
            if let Some(displaced) = opened.displaced {
                self.break_link(displaced, Fault::Ended(Errno::ECONNRESET));
            }
        }
        self.replay(key);
    }

    /// Handles a connection that failed or was broken.
    fn failed(&mut self, key: LinkKey, error: Errno, data: &[u8]) {
        let is_asking = self
            .links
            .get(key)
            .is_some_and(|link| link.stage == Stage::Asking);
        let fault = match (is_asking, error) {
            (true, Errno::ECONNREFUSED) => match Refusal::decode(data) {
                // The peer's own request is on its way, or was accepted.
                Refusal::Already => Fault::Ended(Errno::EALREADY),
                Refusal::Refused => Fault::Refused,
                Refusal::NoContext => Fault::NoContext,
            },
            _ => Fault::Ended(error),
        };
        self.has_ended(key, fault);
    }
}
