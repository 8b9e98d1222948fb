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
        let owner = conn.owner;
        if is_worth || self.is_accessed(owner) {
            let Some(conn) = self.conns.get_mut(key) else {
                return;
            };
            conn.local.brought = DECIDED;
            if conn.features.has(Features::LOCAL) && self.rota.len() < MOST {
                self.introduce(key);
            }
        }
    }

    /// A connection has begun. The two processes get to know each other at once if the peer may access
    /// this one's memory: it may make no more calls when the first access comes.
    pub(crate) fn has_begun(&mut self, key: ConnKey, ep: EpKey) {
        self.begin_subflows(key);
        if self.is_accessed(Owner::Ep(ep)) {
            self.meet_for_accesses(key);
        }
    }

    /// Whether peers of this owner's endpoint may access memory of this process that makes no calls.
    fn is_accessed(&self, owner: Owner) -> bool {
        let Owner::Ep(key) = owner else {
            return false;
        };
        let ep = self.endpoints.get(key);
        ep.is_some_and(|ep| ep.own.is_for_rma && !ep.own.only_rendezvous)
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
        let is_possible =
            |conn: &&mut Connection| may_be_acquainted(conn.features) && !conn.is_multipath();
        let Some(conn) = conn.filter(is_possible) else {
            return;
        };
        if let Some(introduction) = conn.local.neighbour.introduce(conn.socket.as_fd()) {
            self.remark(key, introduction);
        }
    }

    pub(super) fn remark(&mut self, key: ConnKey, remark: Remark) {
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
            Subject::Memory => return self.memory_offered(key, &remark),
            Subject::Moved => return self.moved(key, &remark),
            Subject::Stays => return self.refused_memory(key),
            Subject::Regions => return self.regions_offered(key, &remark),
        }
        if subject == Subject::Introduction {
            self.introduce(key);
        }
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if conn.features.has(Features::LOCAL) && self.doorbell.is_none() {
            // Without one, the connection stays with its socket.
            self.doorbell = Doorbell::create().ok();
        }
        let bell = self.doorbell.as_ref().map(Doorbell::descriptor);
        let socket = conn.socket.as_fd();
        if let Some(answer) = conn
            .local
            .neighbour
            .hear(socket, &remark, bell, LOG.ep_ctrl)?
        {
            self.remark(key, answer);
        }
        if subject == Subject::Card {
            self.offer_memory(key);
        }
        Ok(())
    }

    /// The peer is a process of this host: it is offered memory, if that is for
    /// this side to do.
    fn offer_memory(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if !conn.calls || !conn.features.has(Features::LOCAL) || conn.local.shortcut.is_some() {
            return;
        }
        let Some(bell) = conn.local.neighbour.bell() else {
            return stays(conn, "the peer has no doorbell");
        };
        match Shortcut::offer(bell, LOG.ep_ctrl) {
            Ok((shortcut, offer)) => {
                conn.local.shortcut = Some(Box::new(shortcut));
                self.remark(key, offer);
            }
            Err(error) => stays(conn, &error.to_string()),
        }
    }

    /// The peer offers memory.
    fn memory_offered(&mut self, key: ConnKey, offer: &Remark) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if conn.calls || conn.local.shortcut.is_some() || !conn.features.has(Features::LOCAL) {
            return Err(OutOfTurn.into());
        }
        let attached = match (conn.local.neighbour.holder(), conn.local.neighbour.bell()) {
            (Some(_), Some(_)) if self.rota.len() >= MOST => Err(Errno::ENOMEM),
            (Some(peer), Some(bell)) => Shortcut::attach(&peer.files, bell, offer, LOG.ep_ctrl),
            _ => Err(Errno::EPERM),
        };
        match attached {
            Ok(shortcut) => {
                conn.local.shortcut = Some(Box::new(shortcut));
                self.rota.add(key);
                self.depart_if_due(key)
            }
            Err(error) => {
                stays(conn, &error.to_string());
                let refusal = Remark {
                    subject: Subject::Stays,
                    id: 0,
                    word: 0,
                };
                self.remark(key, refusal);
                Ok(())
            }
        }
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

    /// The peer does not take the memory that it was offered.
    fn refused_memory(&mut self, key: ConnKey) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let offered = conn
            .local
            .shortcut
            .take_if(|shortcut| shortcut.is_offered());
        offered.ok_or(OutOfTurn)?;
        stays(conn, "the peer cannot share memory");
        Ok(())
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
        if shortcut.is_leaving() {
            self.waits_for_room(key);
        }
        self.lend_regions(key);
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
