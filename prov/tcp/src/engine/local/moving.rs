//! Connections between two processes of one host, which find out that they are
//! ([`neighbour`](crate::local::neighbour)) and leave their socket for memory that
//! the two share ([`path`](crate::local::path)).

use std::os::fd::AsFd;

use crate::local::neighbour::{OutOfTurn, Remark, Subject};
use crate::local::path::{Heard, Shortcut};
use prov_base::errno::Errno;
use prov_local::doorbell::Doorbell;

use crate::LOG;
use crate::engine::Core;
use crate::engine::link::connection::{Connection, Owner};
use crate::engine::link::detours::Detour;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::keys::{ConnKey, EpKey, Source};
use crate::engine::link::messages::Endpoints;
use crate::engine::link::ready::Why;
use crate::wire::handshake::Features;
use crate::wire::header::{Header, MAX_HEADER, Op};

/// Times that a connection has brought something before it is worth to move it; its lane's other
/// connections add as many, up to [`NUMEROUS`].
const WORTH_MOVING: u8 = 4;
/// A move takes about as much of the two processors as so many messages each way save. Where a process
/// has few connections, each soon saves that, and in time that somebody waits for; where it has many, a
/// job may end, or go on with other pairs, before most of them have saved it.
const NUMEROUS: u8 = 16;
/// Value of a connection's `local.brought` once the connection was asked to move, or cannot.
const DECIDED: u8 = u8::MAX;
/// Connections of a lane that may: each takes memory, and a look now and then.
const MOST: usize = 256;

impl Core {
    /// Whether this process and the peer's can read one another's memory. To
    /// find out, the first call begins the acquaintance.
    pub(crate) fn is_neighbour(&mut self, key: ConnKey) -> bool {
        self.introduce(key);
        let conn = self.conns.get(key);
        conn.is_some_and(|conn| {
            conn.features.has(Features::DIRECT) && conn.local.neighbour.memory().is_some()
        })
    }

    /// A connection has brought something: one that does so often moves, if it
    /// can.
    #[inline]
    pub(crate) fn brought_something(&mut self, key: ConnKey) {
        let others = self.conns.len().saturating_sub(1);
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if conn.local.brought == DECIDED || !conn.is_open() {
            return;
        }
        conn.local.brought += 1;
        let others = u8::try_from(others).unwrap_or(NUMEROUS).min(NUMEROUS);
        let is_worth = conn.local.brought >= WORTH_MOVING + others;
        if !is_worth && !is_accessed(&self.endpoints, conn.owner) {
            return;
        }
        conn.local.brought = DECIDED;
        if conn.features.has(Features::LOCAL) && self.rota.len() < MOST {
            self.introduce(key);
        }
    }

    /// A connection has begun. The two processes get to know each other at once if the peer may access
    /// this one's memory: it may make no more calls when the first access comes.
    pub(crate) fn has_begun(&mut self, key: ConnKey, ep: EpKey) {
        self.begin_subflows(key);
        if is_accessed(&self.endpoints, Owner::Ep(ep)) {
            self.meet_for_accesses(key);
        }
    }

    /// Two processes that access one another's memory had better know each other: that
    /// takes more than one message each way.
    pub(super) fn meet_for_accesses(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        let is_of_use = conn.is_some_and(|conn| conn.features.has(Features::REGIONS));
        if is_of_use && self.rota.len() < MOST {
            self.introduce(key);
        }
    }

    /// Tells a peer of this host which process this is, unless it was told.
    fn introduce(&mut self, key: ConnKey) {
        let conn = self.conns.get_mut(key);
        if let Some(introduction) = conn.and_then(Connection::introduce) {
            self.remark(key, introduction);
        }
    }

    fn remark(&mut self, key: ConnKey, remark: Remark) {
        self.post_with_others(key, header_of(remark));
    }

    /// The peer tells something about itself.
    pub(crate) fn remarked(&mut self, key: ConnKey, header: &Header) -> LinkResult {
        let subject = Subject::from_code(header.op_data).ok_or(OutOfTurn)?;
        let remark = Remark {
            subject,
            id: header.id,
            word: header.word,
        };
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if !may_be_acquainted(conn.features) {
            return Err(OutOfTurn.into());
        }
        match subject {
            Subject::Introduction | Subject::Card | Subject::Ready => {}
            Subject::Memory => {
                let Some(refusal) = conn.memory_offered(&remark, self.rota.len() < MOST)? else {
                    self.rota.add(key);
                    return self.depart_if_due(key);
                };
                self.remark(key, refusal);
                return Ok(());
            }
            Subject::Moved => return self.moved(key, &remark),
            Subject::Stays => return conn.refused_memory(),
            Subject::Regions => return conn.regions_offered(&remark),
        }
        if conn.features.has(Features::LOCAL) && self.doorbell.is_none() {
            // Without one, the connection stays with its socket.
            self.doorbell = Doorbell::create().ok();
        }
        let bell = self.doorbell.as_ref().map(Doorbell::descriptor);
        let is_first = subject == Subject::Introduction;
        let introduction = is_first.then(|| conn.introduce()).flatten();
        let (neighbour, socket) = (&mut conn.local.neighbour, conn.socket.as_fd());
        let answer = neighbour.hear(socket, &remark, bell, LOG.ep_ctrl)?;
        let is_known = subject == Subject::Card;
        let offer = is_known.then(|| conn.offer_memory()).flatten();
        for remark in [introduction, answer, offer].into_iter().flatten() {
            self.remark(key, remark);
        }
        Ok(())
    }

    /// The peer's next bytes come through the memory.
    fn moved(&mut self, key: ConnKey, remark: &Remark) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let shortcut = conn.local.shortcut.as_mut().ok_or(OutOfTurn)?;
        if shortcut.comes_in(remark)? {
            self.rota.add(key);
        }
        // A call to wake may have been read with this.
        self.rota.woken();
        conn.local
            .copies
            .transfers
            .meet(shortcut.channel().inflow());
        conn.local
            .copies
            .transfers
            .follow(shortcut.channel().relocated());
        log::info!(
            target: LOG.ep_ctrl,
            "what {} sends comes through shared memory", conn.peer_text()
        );
        self.favourite.forget(key);
        self.hear(key);
        self.read_later(key);
        self.depart_if_due(key)
    }

    /// Sends through the memory from now on, if that is due and what is queued on
    /// the connection has left.
    #[allow(
        clippy::indexing_slicing,
        reason = "what encodes a header returns its length"
    )]
    pub(crate) fn depart_if_due(&mut self, key: ConnKey) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if !conn.outbox.is_empty() {
            return Ok(());
        }
        let Some(shortcut) = &mut conn.local.shortcut else {
            return Ok(());
        };
        let Some(departure) = shortcut.departure() else {
            return Ok(());
        };
        let mut last = [0; MAX_HEADER];
        let len = header_of(departure).encode(&[], conn.order, conn.sequence, &mut last);
        conn.sequence = conn.sequence.wrapping_add(1);
        let departed = shortcut.depart(conn.socket.as_fd(), &last[..len]);
        if let Err(error) = departed {
            if !conn.outlives(error) {
                return Err(Fault::Io(error));
            }
            self.cut_off(key);
            return Ok(());
        }
        conn.outbox.sent_directly(len);
        conn.bursts.messages.set_free();
        conn.bursts.answers.set_free();
        let is_leaving = shortcut.is_leaving();
        let lent = conn.lend_regions(&self.endpoints, self.regions.as_ref());
        if is_leaving {
            self.waits_for_room(key);
        }
        if let Some(regions) = lent {
            self.remark(key, regions);
        }
        Ok(())
    }

    /// A connection has something to send for which there is no room. Where the
    /// kernel does not tell when there is, progress calls look, and the thread that
    /// helps where the application makes none.
    pub(crate) fn waits_for_room(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if !conn.outbox.is_empty() {
            conn.set_blocked(true);
        }
        if conn.sends_by_memory() {
            self.note_stall(key, Why::Starved, true);
        }
    }

    /// Notes whether a connection waits for its peer for this reason.
    pub(crate) fn note_stall(&mut self, key: ConnKey, why: Why, waits: bool) {
        let is_first = !self.ready.has_stalls();
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if conn.due.has(why) == waits {
            return;
        }
        if waits {
            self.ready.add(key, &mut conn.due, why);
            if is_first {
                self.signals.stall_begins();
            }
        } else {
            self.ready.remove(key, &mut conn.due, why);
            self.stall_ends_if_over();
        }
    }

    /// Goes on with those that have room again.
    #[inline(never)]
    pub(crate) fn feed(&mut self) {
        // Those that begin to wait meanwhile come behind these.
        for _ in 0..self.ready.of(Why::Starved).len() {
            let Some(key) = self.next_due(Why::Starved) else {
                break;
            };
            match self.may_feed(key) {
                true => self.flush(key),
                false => self.is_due(key, Why::Starved),
            }
        }
        self.stall_ends_if_over();
    }

    /// Tells the helping thread when nothing waits for room any more.
    pub(crate) fn stall_ends_if_over(&self) {
        if !self.ready.has_stalls() {
            self.signals.stall_ends();
        }
    }

    /// Whether a connection that waits for room is to be tried again.
    fn may_feed(&mut self, key: ConnKey) -> bool {
        let Some(conn) = self.conns.get_mut(key) else {
            return true;
        };
        let Some(shortcut) = &mut conn.local.shortcut else {
            return true;
        };
        // An error shows when the rest is sent.
        shortcut.has_room()
            && (shortcut.leave(conn.socket.as_fd()) != Err(Errno::EAGAIN)
                || !conn.outbox.is_empty())
    }

    /// The socket of a connection that comes through memory has something: calls
    /// to wake, or its end.
    pub(crate) fn hear(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if let Some(shortcut) = &mut conn.local.shortcut
            && shortcut.is_in()
        {
            let heard = shortcut.hear(conn.socket.as_fd());
            if shortcut.has_ended() {
                conn.detours.set(Detour::PeerEnded, true);
            }
            if heard == Heard::More {
                self.poller
                    .tell_again(conn.socket.as_fd(), Source::Link(key));
            }
            if heard != Heard::Nothing {
                self.rota.woken();
            }
        }
    }
}

impl Connection {
    /// Returns what tells a peer of this host which process this is, unless it was told.
    fn introduce(&mut self) -> Option<Remark> {
        let is_possible = may_be_acquainted(self.features) && !self.is_multipath();
        let socket = self.socket.as_fd();
        is_possible
            .then(|| self.local.neighbour.introduce(socket))
            .flatten()
    }

    /// Returns the offer of memory to the peer, a process of this host, if that is for this side to
    /// make.
    fn offer_memory(&mut self) -> Option<Remark> {
        if !self.calls || !self.features.has(Features::LOCAL) || self.local.shortcut.is_some() {
            return None;
        }
        let Some(bell) = self.local.neighbour.bell() else {
            stays(self, "the peer has no doorbell");
            return None;
        };
        let offered = Shortcut::offer(bell, LOG.ep_ctrl);
        let offered = offered.inspect_err(|error| stays(self, &error.to_string()));
        let (shortcut, offer) = offered.ok()?;
        self.local.shortcut = Some(Box::new(shortcut));
        Some(offer)
    }

    /// The peer offers memory. Returns the answer if it is not accepted, such as when the lane
    /// `has_room` for no more.
    fn memory_offered(&mut self, offer: &Remark, has_room: bool) -> Result<Option<Remark>, Fault> {
        if self.calls || self.local.shortcut.is_some() || !self.features.has(Features::LOCAL) {
            return Err(OutOfTurn.into());
        }
        let attached = match (self.local.neighbour.holder(), self.local.neighbour.bell()) {
            (Some(_), Some(_)) if !has_room => Err(Errno::ENOMEM),
            (Some(peer), Some(bell)) => Shortcut::attach(&peer.files, bell, offer, LOG.ep_ctrl),
            _ => Err(Errno::EPERM),
        };
        match attached {
            Ok(shortcut) => {
                self.local.shortcut = Some(Box::new(shortcut));
                Ok(None)
            }
            Err(error) => {
                stays(self, &error.to_string());
                Ok(Some(Remark {
                    subject: Subject::Stays,
                    id: 0,
                    word: 0,
                }))
            }
        }
    }

    /// The peer does not take the memory that it was offered.
    fn refused_memory(&mut self) -> LinkResult {
        let shortcut = &mut self.local.shortcut;
        let offered = shortcut.take_if(|shortcut| shortcut.is_offered());
        offered.ok_or(OutOfTurn)?;
        stays(self, "the peer cannot share memory");
        Ok(())
    }
}

/// Whether peers of this owner's endpoint may access memory of this process that makes no calls.
fn is_accessed(endpoints: &Endpoints, owner: Owner) -> bool {
    let Owner::Ep(key) = owner else {
        return false;
    };
    let ep = endpoints.get(key);
    ep.is_some_and(|ep| ep.own.is_for_rma && !ep.own.only_rendezvous)
}

/// Says why a connection within this host stays with its socket.
fn stays(conn: &Connection, reason: &str) {
    log::info!(
        target: LOG.ep_ctrl,
        "no shared memory with {}: {reason}", conn.peer_text()
    );
}

/// Whether a peer with these features knows what remarks are.
fn may_be_acquainted(features: Features) -> bool {
    let has_use = features.has(Features::DIRECT) || features.has(Features::LOCAL);
    has_use && features.has(Features::NAMED_ACKS)
}

fn header_of(remark: Remark) -> Header {
    let mut header = Header::new(Op::Acquaint);
    header.op_data = remark.subject.code();
    header.id = remark.id;
    header.word = remark.word;
    header
}
