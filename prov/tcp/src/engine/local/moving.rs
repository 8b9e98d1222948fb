//! Connections between two processes of one host leave their socket for memory
//! that the two share.
//!
//! The side that asked for the connection makes the memory, puts a number into
//! it and says which of its files it is ([`Acquaintance`]); the other side has
//! made sure which process that is ([`acquaintance`](super::acquaintance)), opens
//! the file, which only who has rights over that process can, and tells the
//! number back. Each side's answer is the last that it sends through the socket.

use std::os::fd::{AsFd, AsRawFd};

use prov_local::barrier;
use prov_local::process::open_segment;
use prov_local::stream::Stream;
use prov_message::Sleeper;
use prov_util::errno::{Errno, Result};

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::fault::{Fault, Step};
use crate::engine::link::keys::{ConnKey, Source};
use crate::engine::link::path::{Heard, Offered, Shortcut};
use crate::wire::WireError;
use crate::wire::direct::Acquaintance;
use crate::wire::handshake::Features;
use crate::wire::header::{Header, MAX_HEADER, Op};

/// Times that a connection has brought something before it is worth it.
const WORTH_MOVING: u8 = 4;

/// Connections of a lane that may: each takes memory, and a look now and then.
const MOST: usize = 256;

impl Core {
    /// A connection has brought something: one that does so often moves, if it
    /// can.
    #[inline]
    pub(crate) fn brought_something(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if conn.brought < WORTH_MOVING && conn.is_open() {
            conn.brought += 1;
            let may_move = conn.features.has(Features::LOCAL) && self.rota.len() < MOST;
            if conn.brought == WORTH_MOVING && may_move {
                self.introduce(key);
            }
        }
    }

    /// The peer is a process of this host: it is offered memory, if that is for
    /// this side to do.
    pub(crate) fn offer_memory(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if !conn.calls || !conn.features.has(Features::LOCAL) || conn.shortcut.is_some() {
            return;
        }
        let offered = crate::random::bytes().ok_or(Errno::EIO).and_then(|secret| {
            let secret = u64::from_ne_bytes(secret);
            let (stream, fd) = Stream::create(secret)?;
            Ok((stream, Offered { fd, secret }))
        });
        let (stream, offered) = match offered {
            Ok(offered) => offered,
            Err(error) => return stays(conn, &error.to_string()),
        };
        let number = u64::from(offered.fd.as_raw_fd().unsigned_abs());
        conn.shortcut = Some(Box::new(Shortcut::new(stream, Some(offered))));
        self.acquaint(key, Acquaintance::Memory, number, has_barrier());
    }

    /// The peer offers memory: its file `number`.
    pub(crate) fn memory_offered(&mut self, key: ConnKey, header: &Header) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if conn.calls || conn.shortcut.is_some() || !conn.features.has(Features::LOCAL) {
            return Err(out_of_turn());
        }
        let attached = match conn.neighbour.holder {
            Some(_) if self.rota.len() >= MOST => Err(Errno::ENOMEM),
            Some(holder) => attach(holder.pid, header.id),
            None => Err(Errno::EPERM),
        };
        let (mut stream, secret) = match attached {
            Ok(attached) => attached,
            Err(error) => {
                stays(conn, &error.to_string());
                self.acquaint(key, Acquaintance::Stays, 0, 0);
                return Ok(());
            }
        };
        stream.is_asymmetric(header.word & has_barrier() != 0);
        conn.shortcut = Some(Box::new(Shortcut::new(stream, None)));
        self.rota.add(key);
        self.depart(key, secret)
    }

    /// The peer's next bytes come through the memory.
    pub(crate) fn moved(&mut self, key: ConnKey, header: &Header) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let shortcut = conn.shortcut.as_mut().ok_or_else(out_of_turn)?;
        if shortcut.is_in() {
            return Err(out_of_turn());
        }
        let answers = shortcut.offered.take();
        if let Some(offered) = &answers {
            if offered.secret != header.id {
                return Err(out_of_turn());
            }
            shortcut.is_asymmetric(header.word & has_barrier() != 0);
            self.rota.add(key);
        }
        shortcut.comes_in();
        log::info!(
            target: crate::LOG.ep_ctrl,
            "what {} sends comes through shared memory", conn.peer_text()
        );
        self.favourite.forget(key);
        self.hear(key);
        self.read_later(key);
        match answers {
            Some(_) => self.depart(key, 0),
            None => Ok(()),
        }
    }

    /// The peer does not take the memory that it was offered.
    pub(crate) fn refused_memory(&mut self, key: ConnKey) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let offered = conn.shortcut.take_if(|shortcut| shortcut.offered.is_some());
        offered.ok_or_else(out_of_turn)?;
        stays(conn, "the peer cannot share memory");
        Ok(())
    }

    /// Sends through the memory from now on, or when what is queued has left.
    fn depart(&mut self, key: ConnKey, secret: u64) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let shortcut = conn.shortcut.as_mut().ok_or(Fault::Gone)?;
        shortcut.departs = Some(secret);
        self.depart_if_due(key)
    }

    /// What is queued on a connection has left.
    pub(crate) fn depart_if_due(&mut self, key: ConnKey) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if !conn.outbox.is_empty() {
            return Ok(());
        }
        let Some(shortcut) = &mut conn.shortcut else {
            return Ok(());
        };
        let Some(secret) = shortcut.departs.take() else {
            return Ok(());
        };
        let mut header = Header::new(Op::Acquaint);
        header.op_data = Acquaintance::Moved.code();
        header.id = secret;
        header.word = has_barrier();
        let mut last = [0; MAX_HEADER];
        let len = header.encode(&[], conn.order, conn.sequence, &mut last);
        conn.sequence = conn.sequence.wrapping_add(1);
        let departed = shortcut.depart(conn.socket.as_fd(), &last[..len]);
        departed.map_err(Fault::Io)?;
        conn.outbox.sent_directly(len);
        conn.burst.set_free();
        conn.answers.set_free();
        if shortcut.is_leaving() {
            self.waits_for_room(key);
        }
        Ok(())
    }

    /// A connection has something to send for which there is no room. Where the
    /// kernel does not tell when there is, progress calls look.
    pub(crate) fn waits_for_room(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.is_blocked |= !conn.outbox.is_empty();
        if let Some(shortcut) = &mut conn.shortcut
            && shortcut.is_out()
            && !std::mem::replace(&mut shortcut.is_starved, true)
        {
            self.starved.push(key);
        }
    }

    /// Goes on with those that have room again.
    #[inline(never)]
    pub(crate) fn feed(&mut self) {
        for key in std::mem::take(&mut self.starved) {
            let Some(conn) = self.conns.get_mut(key) else {
                continue;
            };
            let Some(shortcut) = &mut conn.shortcut else {
                continue;
            };
            shortcut.is_starved = false;
            if !shortcut.has_room() {
                self.waits_for_room(key);
                continue;
            }
            // An error shows when the rest is sent.
            let left = shortcut.leave(conn.socket.as_fd());
            if conn.outbox.is_empty() && left == Err(Errno::EAGAIN) {
                self.waits_for_room(key);
            } else {
                self.flush(key);
            }
        }
    }

    /// The socket of a connection that comes through memory has something: calls
    /// to wake, or its end.
    pub(crate) fn hear(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if let Some(shortcut) = &mut conn.shortcut
            && shortcut.is_in()
        {
            let heard = shortcut.hear(conn.socket.as_fd());
            conn.peer_ended |= shortcut.has_ended();
            if heard == Heard::More {
                self.poller
                    .tell_again(conn.socket.as_fd(), Source::Conn(key));
            }
            if heard != Heard::Nothing {
                self.rota.woken();
            }
        }
    }

    /// Tells peers that a thread may sleep.
    pub(crate) fn nap(&mut self) {
        for key in self.rota.all() {
            let conn = self.conns.get_mut(*key);
            if let Some(shortcut) = conn.and_then(|conn| conn.shortcut.as_mut()) {
                shortcut.sleep();
            }
        }
        barrier::heavy();
        // What peers have sent without knowing it.
        self.rota.poll_soon();
    }

    /// Has the peers told that a thread sleeps, unless they know; `false` if
    /// something has come meanwhile, or can go.
    pub(crate) fn may_nap(&mut self, sleeper: Sleeper) -> bool {
        let shortcuts = self
            .rota
            .all()
            .iter()
            .filter_map(|key| self.conns.get(*key));
        let mut shortcuts = shortcuts.filter_map(|conn| conn.shortcut.as_ref());
        let all_know = shortcuts.all(|shortcut| !shortcut.is_awake());
        if self.rota.begins_nap(sleeper, all_know) && !self.rota.is_empty() {
            self.nap();
        }
        let is_deaf = self.endpoints.is_deaf();
        let (keys, conns) = (self.rota.all(), &mut self.conns);
        keys.iter().all(|key| {
            let Some(conn) = conns.get_mut(*key) else {
                return true;
            };
            let can_take = !is_deaf && !conn.is_paused();
            let is_blocked = conn.is_blocked;
            conn.shortcut.as_mut().is_none_or(|shortcut| {
                let has_come = can_take && shortcut.has_next();
                !(has_come || is_blocked && shortcut.has_room())
            })
        })
    }
}

/// Says why a connection within this host stays with its socket.
fn stays(conn: &Connection, reason: &str) {
    log::info!(
        target: crate::LOG.ep_ctrl,
        "no shared memory with {}: {reason}", conn.peer_text()
    );
}

fn attach(pid: u32, number: u64) -> Result<(Stream, u64)> {
    let number = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
    Stream::attach(open_segment(pid, number)?.as_fd())
}

fn has_barrier() -> u64 {
    barrier::is_available().into()
}

fn out_of_turn() -> Fault {
    Fault::Protocol(WireError::Field("acquaintance"))
}
