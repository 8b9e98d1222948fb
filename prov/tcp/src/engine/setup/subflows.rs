//! Adding subflows to a connection ([`multipath`](crate::multipath)), and making those again that
//! have failed.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use prov_base::errno::{Errno, Result};
use prov_base::{random, resolve};

use crate::LOG;
use crate::engine::Core;
use crate::engine::link::connection::{Connection, Owner, Stage};
use crate::engine::link::detours::Detour;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::keys::{ConnKey, Due, Event, ListenerKey, Source};
use crate::engine::link::listener::{BACKLOG, ListenerKind};
use crate::engine::link::post::Post;
use crate::engine::link::socket;
use crate::engine::setup::handshake::send_all;
use crate::multipath::joined::Joined;
use crate::multipath::plan::Plan;
use crate::multipath::{Ended, Multipath};
use crate::wire::WireError;
use crate::wire::handshake::{Features, Kind as MessageKind, Message};
use crate::wire::header::{Header, Op};
use crate::wire::multipath::{self, Join, Offer, is_reachable};

/// Time within which a subflow has to be made: a lost packet is repeated after one second, and then
/// after two.
const ATTEMPT: Duration = Duration::from_secs(4);
/// Interval between two looks at subflows that carry something.
const LOOK: Duration = Duration::from_millis(125);

/// A listening socket for subflows of the lane's connections.
pub struct Door {
    addr: SocketAddr,
    _listener: ListenerKey,
}

impl Core {
    /// Handles that a connection has begun: if this process is to use several subflows, it offers
    /// them, or asks for an offer. Within a host, shared memory is faster.
    pub(crate) fn begin_subflows(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get(key) else {
            return;
        };
        let can_have = conn.features.has(Features::MULTIPATH) && !moves_to_memory(conn);
        if !self.params.wants_subflows() || !can_have {
            return;
        }
        match conn.calls {
            true => self.post_control(key, header_of(multipath::ASK)),
            false => self.offer_subflows(key),
        }
    }

    /// Handles a message about subflows that has no payload; `rest` follows it.
    pub(crate) fn subflow_message(
        &mut self,
        key: ConnKey,
        header: &Header,
        rest: &mut &[u8],
    ) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let wrong = Fault::Protocol(WireError::Field("subject"));
        match (header.op_data, &mut conn.multipath) {
            (multipath::ASK, None) if !conn.calls => {
                if !moves_to_memory(conn) {
                    self.offer_subflows(key);
                }
                Ok(())
            }
            (multipath::ASK, Some(_)) if !conn.calls => Ok(()),
            (multipath::SWITCH, Some(multipath)) => {
                // What was read behind it is a part of the first frames.
                multipath.comes_in(std::mem::take(rest))?;
                if !conn.calls {
                    multipath.must_depart = true;
                }
                self.favourite.forget(key);
                self.read_later(key);
                self.depart_to_subflows(key);
                Ok(())
            }
            _ => Err(wrong),
        }
    }

    /// Offers subflows to the peer, which connects to them.
    fn offer_subflows(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get(key) else {
            return;
        };
        let offered = socket::name(conn.socket.as_fd()).and_then(|own| {
            let token = random::bytes()?;
            let addresses = self.doors(own)?;
            Ok((token, addresses))
        });
        let streams = u8::try_from(self.params.streams).unwrap_or(1);
        let outcome = offered.and_then(|(token, addresses)| {
            self.set_up_subflows(key, token, Plan::default())?;
            let offer = Offer {
                token,
                streams,
                addresses,
            };
            let bytes = offer.encode();
            let mut header = header_of(multipath::OFFER);
            header.payload = bytes.len();
            self.post(key, Post::own(header, &[], &bytes));
            Ok(())
        });
        if let Err(error) = outcome {
            log::info!(target: LOG.ep_ctrl, "no subflows are offered: {error}");
        }
    }

    /// Returns the addresses at which this lane listens for subflows, for a connection that arrived
    /// at `own`.
    fn doors(&mut self, own: SocketAddr) -> Result<Vec<SocketAddr>> {
        let mut addresses = self.params.interface_addresses(own.is_ipv4());
        if addresses.is_empty() {
            addresses.push(own);
        }
        let mut doors = Vec::new();
        for addr in addresses.iter().filter(|addr| is_reachable(addr)) {
            let known = self.doors.iter();
            let known = known.map(|door| door.addr);
            if let Some(known) = known.clone().find(|known| known.ip() == addr.ip()) {
                doors.push(known);
                continue;
            }
            let addr = SocketAddr::new(addr.ip(), 0);
            let socket = socket::bound(&addr, &self.params)?;
            let addr = socket::name(socket.as_fd())?;
            let listener = self.add_listener(socket, ListenerKind::Subflows, None, BACKLOG)?;
            self.doors.push(Door {
                addr,
                _listener: listener,
            });
            doors.push(addr);
        }
        Ok(doors)
    }

    /// Handles the peer's offer.
    pub(crate) fn subflows_offered(&mut self, key: ConnKey, bytes: &[u8]) -> LinkResult {
        let offer = Offer::decode(bytes)?;
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        if !conn.calls || conn.multipath.is_some() || moves_to_memory(conn) {
            return Err(Fault::Protocol(WireError::Field("subject")));
        }
        let Ok(first) = prov_base::socket::ends(conn.socket.as_fd()) else {
            return Ok(());
        };
        let locals = self.params.interface_addresses(first.0.is_ipv4());
        let streams = self.params.streams.max(offer.streams.into());
        let remotes = offer.addresses.into_iter().filter(is_reachable);
        let remotes: Vec<_> = remotes.collect();
        let plan = Plan::new(first, &locals, &remotes, streams, |remote| {
            resolve::source_towards(remote).ok().map(|own| own.ip())
        });
        if plan.is_single() {
            return Ok(());
        }
        match self.set_up_subflows(key, offer.token, plan) {
            Ok(()) => self.make_subflows(key),
            Err(error) => log::info!(target: LOG.ep_ctrl, "no subflows: {error}"),
        }
        Ok(())
    }

    fn set_up_subflows(&mut self, key: ConnKey, token: multipath::Token, plan: Plan) -> Result {
        let conn = self.conns.get_mut(key).ok_or(Errno::ENOTCONN)?;
        let first = conn.socket.try_clone()?;
        socket::limit_unsent(first.as_fd());
        conn.multipath = Some(Box::new(Multipath::new(token, first, plan)));
        conn.detours.set(Detour::Multipath, true);
        Ok(())
    }

    /// Connects the subflows that are due.
    fn make_subflows(&mut self, key: ConnKey) {
        let now = Instant::now();
        while let Some(multipath) = self.multipath(key)
            && let Some(attempt) = multipath.plan.attempt(now)
        {
            let join = Join {
                token: multipath.token,
                number: attempt.number,
            };
            let features = self.params.features();
            let request = Message::new(MessageKind::Join, features, 0, &join.encode()).encode();
            let stage = Stage::Connecting { request };
            let owner = Owner::Subflow(key, attempt.number);
            let socket = socket::connect(attempt.local, &attempt.remote, &self.params);
            let made = socket.and_then(|socket| {
                self.add_connection(Connection::new(socket, owner, stage, Some(now + ATTEMPT)))
            });
            if let Err(error) = made {
                self.no_subflow(key, attempt.number, &error.to_string());
            }
        }
        self.call_for_subflows(key);
    }

    /// Handles that a subflow could not be made.
    pub(crate) fn no_subflow(&mut self, key: ConnKey, number: u8, reason: &str) {
        log::info!(target: LOG.ep_ctrl, "subflow {number} is not made: {reason}");
        if let Some(multipath) = self.multipath(key) {
            multipath
                .plan
                .failed(number, Instant::now(), Duration::ZERO);
        }
        self.call_for_subflows(key);
    }

    /// Handles that the peer has accepted a subflow of this side.
    pub(crate) fn subflow_accepted(&mut self, made: ConnKey, message: &Message) {
        let Some(conn) = self.conns.get(made) else {
            return;
        };
        let Owner::Subflow(key, number) = conn.owner else {
            return;
        };
        if message.kind != MessageKind::Accept {
            self.break_with(made, Fault::Refused(Vec::new()));
            return;
        }
        let Some(conn) = self.conns.remove(made) else {
            return;
        };
        self.poller.forget(conn.socket.as_fd());
        self.add_subflow(key, number, conn.socket);
        if let Some(multipath) = self.multipath(key)
            && !multipath.is_out()
            && multipath.plain_until.is_none()
        {
            multipath.must_depart = true;
        }
        self.depart_to_subflows(key);
    }

    /// Handles a peer's request for a subflow.
    pub(crate) fn subflow_requested(
        &mut self,
        made: ConnKey,
        listener: ListenerKey,
        message: &Message,
    ) {
        self.no_longer_half_open(made, listener);
        let join = Join::decode(&message.data).ok();
        let owner = join.and_then(|join| {
            let mut conns = self.conns.iter();
            let is_its = |conn: &Connection| {
                let multipath = conn.multipath.as_ref();
                !conn.calls && multipath.is_some_and(|multipath| multipath.token == join.token)
            };
            conns
                .find(|(_, conn)| is_its(conn))
                .map(|(key, _)| (key, join.number))
        });
        let (Some((key, number)), Some(joined)) = (owner, Joined::new()) else {
            log::info!(target: LOG.ep_ctrl, "a request for a subflow is refused");
            self.remove_connection(made);
            return;
        };
        let features = self.params.features();
        let answer = Message::new(MessageKind::Accept, features, 0, &[]).encode();
        let sent = self.socket(made).map(|socket| send_all(socket, &answer));
        if !matches!(sent, Some(Ok(()))) {
            self.remove_connection(made);
            return;
        }
        let Some(conn) = self.conns.remove(made) else {
            return;
        };
        self.poller.forget(conn.socket.as_fd());
        self.add_subflow(key, number, conn.socket);
        if let Some(multipath) = self.multipath(key) {
            multipath.joined.retain(|(other, _)| *other != number);
            multipath.joined.push((number, joined));
        }
    }

    fn add_subflow(&mut self, key: ConnKey, number: u8, socket: OwnedFd) {
        socket::limit_unsent(socket.as_fd());
        let watched = self.poller.watch(socket.as_fd(), Source::Beside(key));
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let Some(multipath) = &mut conn.multipath else {
            return;
        };
        if let Err(error) = watched {
            return self.no_subflow(key, number, &error.to_string());
        }
        let path = path_text(socket.as_fd());
        match multipath.lost.iter().position(|lost| *lost == number) {
            Some(place) => {
                multipath.lost.swap_remove(place);
                log::warn!(target: LOG.ep_ctrl, "{path} carries data again");
            }
            None => log::info!(
                target: LOG.ep_ctrl,
                "{path} carries data of the connection with {}", conn.peer_text()
            ),
        }
        if let Some(multipath) = &mut conn.multipath {
            multipath.add(number, socket);
        }
        self.tend_subflows(key);
        self.read_later(key);
    }

    /// Begins to send in frames, if that is due.
    pub(crate) fn depart_to_subflows(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let Some(multipath) = &mut conn.multipath else {
            return;
        };
        // What the kernel sends without a copy is reported on the first socket.
        if !multipath.must_depart || !conn.lent.is_empty() {
            return;
        }
        multipath.must_depart = false;
        self.post_control(key, header_of(multipath::SWITCH));
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if let Some(multipath) = &mut conn.multipath {
            match conn.outbox.is_empty() {
                true => multipath.departs(),
                false => multipath.plain_until = Some(conn.outbox.end_of_next(0)),
            }
        }
        self.tend_subflows(key);
    }

    /// Handles an event of one of the sockets of a connection.
    pub(crate) fn subflow_event(&mut self, key: ConnKey, event: &Event) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let is_paused = conn.is_paused();
        let Some(multipath) = &mut conn.multipath else {
            return;
        };
        let is_anchor = matches!(event.source, Source::Link(_));
        let may_end = event.ended || event.failed;
        multipath.has_event_on(is_anchor, event.readable, may_end);
        multipath.pump();
        if is_paused && !multipath.has_room() {
            // There may be acknowledgements, which make room.
            multipath.receive_aside();
        }
        if !conn.outbox.is_empty() {
            self.flush(key);
        }
        self.tend_subflows(key);
    }

    /// Handles what has happened to the subflows of a connection.
    pub(crate) fn tend_subflows(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let Some(multipath) = &mut conn.multipath else {
            return;
        };
        if let Some(error) = multipath.take_fault() {
            return self.break_with(key, Fault::Protocol(error));
        }
        if multipath.has_ended_some() {
            self.subflows_ended(key);
        }
        if self.multipath(key).is_some_and(|flows| flows.anchor_failed) {
            self.anchor(key);
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let is_paused = conn.is_paused();
        let waits = conn.is_blocked() && !conn.outbox.is_empty();
        let Some(multipath) = &mut conn.multipath else {
            return;
        };
        if multipath.is_over() {
            conn.detours.set(Detour::PeerEnded, true);
        }
        let may_send = waits && multipath.has_room();
        if multipath.may_receive() && !is_paused {
            self.read_later(key);
        }
        if may_send {
            self.flush(key);
        }
        self.depart_to_subflows(key);
        self.note_what_is_aside(key);
        self.call_for_subflows(key);
    }

    #[cold]
    fn subflows_ended(&mut self, key: ConnKey) {
        let now = Instant::now();
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let has_left = conn.has_left;
        let Some(multipath) = &mut conn.multipath else {
            return;
        };
        let ended = multipath.take_ended();
        let works: Vec<u8> = multipath.working().collect();
        for ended in ended {
            let (number, reason, age) = match ended {
                Ended::Closed(socket) => {
                    self.poller.forget(socket.as_fd());
                    continue;
                }
                Ended::Failed {
                    number,
                    reason,
                    age,
                } => (number, reason, age),
            };
            multipath.anchor_failed |= multipath.anchor == Some(number);
            if works.contains(&number) {
                // It was replaced.
                if multipath.anchor_failed {
                    multipath.anchor = None;
                }
                continue;
            }
            multipath.joined.retain(|(other, _)| *other != number);
            multipath.plan.failed(number, now, age);
            if !multipath.lost.contains(&number) {
                multipath.lost.push(number);
                // Those of a connection that ends do so together.
                if !works.is_empty() && !has_left {
                    multipath.news.push((number, reason));
                }
            }
        }
    }

    /// Takes the socket of another subflow as that of the connection, if its own has failed.
    #[cold]
    fn anchor(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let Some(multipath) = &mut conn.multipath else {
            return;
        };
        let Some(number) = multipath.working().next() else {
            return;
        };
        let Some((first, copy)) = multipath
            .socket_of(number)
            .and_then(|first| Some((first, first.try_clone_to_owned().ok()?)))
        else {
            return;
        };
        // The copy is watched instead of it, and the one before by itself, as long as it is read.
        self.poller.forget(first);
        self.poller.forget(conn.socket.as_fd());
        if let Some(before) = multipath
            .anchor
            .and_then(|anchor| multipath.socket_of(anchor))
        {
            let _ = self.poller.watch(before, Source::Beside(key));
        }
        multipath.anchor = Some(number);
        // Events that were not handled yet have the keys of before.
        multipath.has_event();
        multipath.anchor_failed = false;
        conn.socket = copy;
        let _ = self.poller.watch(conn.socket.as_fd(), Source::Link(key));
    }

    /// Looks at the subflows of a connection, since it is time.
    pub(crate) fn subflows_due(&mut self, key: ConnKey, now: Instant) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let peer = conn.peer_text();
        let Some(multipath) = &mut conn.multipath else {
            return;
        };
        multipath.due = None;
        for (number, reason) in std::mem::take(&mut multipath.news) {
            log::warn!(
                target: LOG.ep_ctrl,
                "subflow {number} of the connection with {peer} has failed ({reason}): others \
                 carry its data"
            );
        }
        multipath.is_busy = multipath.look_for_silence(now);
        // One may have been slower than expected: others take what waits for it.
        multipath.pump();
        if !multipath.is_busy && multipath.awaits_ack() {
            // What is kept for it is freed then.
            multipath.ask_for_ack();
        }
        self.make_subflows(key);
        self.tend_subflows(key);
    }

    /// Handles that something was sent, or accepted to be sent.
    #[inline(never)]
    pub(crate) fn sent_on_subflows(&mut self, key: ConnKey) {
        self.note_what_is_aside(key);
        self.call_for_subflows(key);
    }

    /// Sets the timer for the next look at the subflows of a connection.
    #[inline(never)]
    pub(crate) fn call_for_subflows(&mut self, key: ConnKey) {
        let Some(multipath) = self.multipath(key) else {
            return;
        };
        let is_busy = multipath.is_busy || multipath.has_to_send();
        let look = (is_busy || !multipath.news.is_empty()).then(|| Instant::now() + LOOK);
        let next = match (look, multipath.plan.next()) {
            (Some(look), Some(next)) => Some(look.min(next)),
            (look, next) => look.or(next),
        };
        if let Some(next) = next
            && multipath.due.is_none_or(|due| next < due)
        {
            multipath.due = Some(next);
            self.poller.call_at(next, Due::Subflows(key));
        }
    }

    /// Whether something was sent in frames that has to reach the peer before the connection ends:
    /// the kernel resets a socket for which an acknowledgement arrives after that.
    pub(crate) fn must_wait_for_subflows(&mut self, key: ConnKey) -> bool {
        let is_open = self
            .conns
            .get(key)
            .is_some_and(|conn| conn.is_open() && !conn.is_cut_off());
        let Some(multipath) = self.multipath(key) else {
            return false;
        };
        multipath.ask_for_ack();
        multipath.go_on();
        multipath.receive_aside();
        is_open && multipath.awaits_ack() && !multipath.is_over()
    }

    fn multipath(&mut self, key: ConnKey) -> Option<&mut Multipath> {
        self.conns.get_mut(key)?.multipath.as_deref_mut()
    }
}

/// Whether a connection leaves its socket for shared memory.
fn moves_to_memory(conn: &Connection) -> bool {
    conn.local.shortcut.is_some() || conn.local.is_within_host && conn.features.has(Features::LOCAL)
}

/// Describes both ends of a subflow, for the log.
fn path_text(socket: BorrowedFd<'_>) -> String {
    match prov_base::socket::ends(socket) {
        Ok((near, far)) => format!("the subflow from {near} to {far}"),
        Err(_) => "a subflow".into(),
    }
}

fn header_of(subject: u8) -> Header {
    let mut header = Header::new(Op::Multipath);
    header.op_data = subject;
    header
}
