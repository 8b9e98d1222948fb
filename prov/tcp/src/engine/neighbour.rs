//! Processes of one host that may read one another's memory.
//!
//! The system decides who may (ptrace(2), "Ptrace access mode checking"), and
//! this library only reads that of its own user. Each of the two says which
//! process it is and which number its end of the connection has there. Each
//! looks whether the other does hold that end, so that nobody is made to read
//! from a third, nor told where something is in this process's memory; and then
//! shows a seal, which is read along with every copy. It holds as long as the
//! connection has operations.

use std::os::fd::{AsFd, AsRawFd};

use prov_util::process_memory::{OtherProcess, Seal, Token};

use super::Core;
use super::arrival::Step;
use super::closing::Fault;
use super::keys::ConnKey;
use super::{far_end, socket};
use crate::wire::WireError;
use crate::wire::direct::Acquaintance;
use crate::wire::handshake::Features;
use crate::wire::header::{Header, Op};

/// How well this process and the peer's know each other.
#[derive(Default)]
pub struct Neighbour {
    said: Said,
    heard: Heard,
    /// Whether the peer can read the memory of this process.
    reads_ours: bool,
}

/// What this process has said of itself.
#[derive(Default)]
enum Said {
    #[default]
    Nothing,
    /// Who it is; or it has no reason to.
    Name,
    /// Where its seal is, which lasts as long as this.
    Seal(#[expect(dead_code)] Seal),
}

/// What the peer has said of itself.
#[derive(Default)]
enum Heard {
    #[default]
    Nothing,
    /// Who it is; the process, if it is that.
    Name(Option<u32>),
    /// Where its seal is; its memory, if it is there.
    Seal(Option<OtherProcess>),
}

impl Neighbour {
    /// The peer's memory, where this process can read it.
    pub fn memory(&self) -> Option<OtherProcess> {
        match self.heard {
            Heard::Seal(memory) => memory,
            Heard::Nothing | Heard::Name(_) => None,
        }
    }

    /// What the peer still copies is worth nothing from here on.
    pub fn part(&mut self) {
        self.said = Said::Nothing;
        self.reads_ours = false;
    }
}

impl Core {
    /// Whether the peer can read the memory of this process. To find out, the
    /// first call begins the acquaintance.
    pub(super) fn reads_ours(&mut self, key: ConnKey) -> bool {
        self.introduce(key);
        let conn = self.conns.get(key);
        conn.is_some_and(|conn| conn.neighbour.reads_ours)
    }

    /// Tells a peer of this host which process this is, unless it was told.
    fn introduce(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if !matches!(conn.neighbour.said, Said::Nothing) {
            return;
        }
        conn.neighbour.said = Said::Name;
        if !conn.features.has(Features::DIRECT.or(Features::NAMED_ACKS))
            || !socket::is_within_namespace(conn.socket.as_fd())
        {
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

    fn acquaint(&mut self, key: ConnKey, what: Acquaintance, id: u64, word: u64) {
        let mut header = Header::new(Op::Acquaint);
        header.op_data = what.code();
        header.id = id;
        header.word = word;
        self.post_control(key, header);
    }

    /// The peer tells something about itself.
    pub(super) fn acquainted(&mut self, key: ConnKey, header: &Header) -> Step {
        let out_of_turn = || Fault::Protocol(WireError::Field("acquaintance"));
        let neighbour = &mut self.conns.get_mut(key).ok_or(Fault::Gone)?.neighbour;
        let what = Acquaintance::from_code(header.op_data).ok_or_else(out_of_turn)?;
        match (what, &neighbour.heard) {
            (Acquaintance::Introduction, Heard::Nothing) => {
                self.introduce(key);
                self.meet(key, header.id, header.word);
                Ok(())
            }
            (Acquaintance::Seal, &Heard::Name(pid)) => {
                let token = Token {
                    addr: header.id,
                    value: header.word,
                };
                let memory = pid.and_then(|pid| match OtherProcess::find(pid, token) {
                    Ok(memory) => Some(memory),
                    Err(error) => {
                        log::debug!("cannot read the memory of process {pid}: {error}");
                        None
                    }
                });
                neighbour.heard = Heard::Seal(memory);
                if memory.is_some() {
                    self.acquaint(key, Acquaintance::Ready, 0, 0);
                }
                Ok(())
            }
            // It cannot read a seal that it was not shown.
            (Acquaintance::Ready, _) if matches!(neighbour.said, Said::Seal(_)) => {
                neighbour.reads_ours = true;
                Ok(())
            }
            _ => Err(out_of_turn()),
        }
    }

    /// The peer says that it is process `pid`, which has its end of the
    /// connection as number `number`. If that is so, it is shown this process's
    /// seal.
    fn meet(&mut self, key: ConnKey, pid: u64, number: u64) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.neighbour.heard = Heard::Name(None);
        let socket = conn.socket.as_fd();
        if !socket::is_within_namespace(socket) {
            return;
        }
        let met = far_end::process(socket, pid, number).and_then(|pid| Ok((pid, Seal::new()?)));
        let (pid, seal) = match met {
            Ok(met) => met,
            Err(error) => {
                log::debug!(
                    "{} is not known to be process {pid} of this host and user: {error}",
                    conn.peer_text()
                );
                return;
            }
        };
        let Token { addr, value } = seal.token();
        conn.neighbour.heard = Heard::Name(Some(pid));
        conn.neighbour.said = Said::Seal(seal);
        self.acquaint(key, Acquaintance::Seal, addr, value);
    }
}
