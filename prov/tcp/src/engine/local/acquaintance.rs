//! Processes of one host that may read one another's memory.
//!
//! The system decides who may (ptrace(2), "Ptrace access mode checking"), and
//! this library only reads that of its own user. Each of the two says which
//! process it is and which number its end of the connection has there. Each
//! looks whether the other does hold that end, and shows it a card: a file that
//! only a process with rights over it can read. On it stand the end that it is
//! for, and the place of a seal, with a secret beside it. Who knows the secret
//! is no third that speaks through the other, and could not be made to read,
//! or be told, what it may not. The seal is read along with every copy; it
//! holds as long as the connection.

use std::os::fd::{AsFd, AsRawFd};

use prov_local::far_end;
use prov_local::neighbour::{self, Heard, Said};
use prov_local::process::Card;
use prov_util::process_memory::Seal;

use crate::engine::Core;
use crate::engine::link::fault::{Fault, Step};
use crate::engine::link::keys::ConnKey;
use crate::engine::link::socket;
use crate::wire::WireError;
use crate::wire::direct::Acquaintance;
use crate::wire::handshake::Features;
use crate::wire::header::{Header, Op};

impl Core {
    /// Whether this process and the peer's can read one another's memory. To
    /// find out, the first call begins the acquaintance.
    pub(crate) fn is_neighbour(&mut self, key: ConnKey) -> bool {
        self.introduce(key);
        let conn = self.conns.get(key);
        conn.is_some_and(|conn| {
            conn.features.has(Features::DIRECT) && conn.neighbour.memory().is_some()
        })
    }

    /// Tells a peer of this host which process this is, unless it was told.
    pub(crate) fn introduce(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if !matches!(conn.neighbour.said, Said::Nothing) {
            return;
        }
        conn.neighbour.said = Said::Name;
        if !may_be_acquainted(conn.features) || !socket::is_within_namespace(conn.socket.as_fd()) {
            return;
        }
        let number = conn.socket.as_raw_fd().unsigned_abs();
        self.acquaint(
            key,
            Acquaintance::Introduction,
            u64::from(std::process::id()),
            u64::from(number),
        );
    }

    pub(crate) fn acquaint(&mut self, key: ConnKey, what: Acquaintance, id: u64, word: u64) {
        let mut header = Header::new(Op::Acquaint);
        header.op_data = what.code();
        header.id = id;
        header.word = word;
        self.post_control(key, header);
    }

    /// The peer tells something about itself.
    pub(crate) fn acquainted(&mut self, key: ConnKey, header: &Header) -> Step {
        let out_of_turn = || Fault::Protocol(WireError::Field("acquaintance"));
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if !may_be_acquainted(conn.features) {
            return Err(out_of_turn());
        }
        let neighbour = &mut conn.neighbour;
        let what = Acquaintance::from_code(header.op_data).ok_or_else(out_of_turn)?;
        match (what, &neighbour.heard) {
            (Acquaintance::Introduction, Heard::Nothing) => {
                self.introduce(key);
                self.meet(key, header.id, header.word);
                Ok(())
            }
            (Acquaintance::Card, &Heard::Name(holder)) => {
                let read = holder.and_then(|holder| match neighbour::read(holder, header.id) {
                    Ok(read) => Some(read),
                    Err(error) => {
                        log::debug!(
                            target: crate::LOG.ep_ctrl,
                            "cannot read the memory of process {}: {error}", holder.pid
                        );
                        None
                    }
                });
                neighbour.heard = Heard::Card(read.map(|(memory, _)| memory));
                if let Some((_, secret)) = read {
                    self.acquaint(key, Acquaintance::Ready, secret, 0);
                }
                Ok(())
            }
            (Acquaintance::Memory, _) => self.memory_offered(key, header),
            (Acquaintance::Moved, _) => self.moved(key, header),
            (Acquaintance::Stays, _) => self.refused_memory(key),
            (Acquaintance::Ready, _) => match std::mem::take(&mut neighbour.said) {
                Said::Card { seal, .. } if seal.secret() == header.id => {
                    neighbour.said = Said::Read(seal);
                    Ok(())
                }
                _ => Err(out_of_turn()),
            },
            _ => Err(out_of_turn()),
        }
    }

    /// The peer says that it is process `pid`, which has its end of the
    /// connection as number `number`. If that is so, it is shown this process's
    /// card.
    fn meet(&mut self, key: ConnKey, pid: u64, number: u64) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.neighbour.heard = Heard::Name(None);
        let socket = conn.socket.as_fd();
        if !socket::is_within_namespace(socket) {
            return;
        }
        let met = far_end::holder(socket, pid, number).and_then(|holder| {
            let seal = Seal::new()?;
            let card = Card::new(far_end::inode(socket)?, seal.token())?;
            Ok((holder, card, seal))
        });
        let (holder, card, seal) = match met {
            Ok(met) => met,
            Err(error) => {
                log::debug!(
                    target: crate::LOG.ep_ctrl,
                    "{} is not known to be process {pid} of this host and user: {error}",
                    conn.peer_text()
                );
                return;
            }
        };
        let number = u64::from(card.number());
        conn.neighbour.heard = Heard::Name(Some(holder));
        conn.neighbour.holder = Some(holder);
        conn.neighbour.said = Said::Card { card, seal };
        self.acquaint(key, Acquaintance::Card, number, 0);
        self.offer_memory(key);
    }
}

/// Whether a peer with these features knows what acquaintance is.
fn may_be_acquainted(features: Features) -> bool {
    let has_use = features.has(Features::DIRECT) || features.has(Features::LOCAL);
    has_use && features.has(Features::NAMED_ACKS)
}
