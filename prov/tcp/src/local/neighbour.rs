//! The mutual identification of the processes at the two ends of a connection.
//!
//! The kernel decides who may read another process's memory (ptrace(2), "Ptrace access mode
//! checking"), and this library only reads memory of its own user. Each of the two processes sends
//! its id and the number of the descriptor of its end. Each checks that the other does have that
//! end open, and shows it a card: a file that only a process with access rights to it can read. The
//! card contains the end that it is for, and the address of a seal, next to which is a secret. A
//! process that knows the secret is not a third one that communicates through the other, and could
//! not be made to read or be told anything that it is not permitted to. The seal is read with every
//! copy; it is valid as long as the connection.
//!
//! These messages are sent over the connection, as [`Remark`]s.

use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd};

use prov_base::errno::{Errno, Result};
use prov_base::process_memory::Seal;
use prov_base::socket;

use crate::local::far_end::{self, Holder};
use crate::local::host;
use prov_local::doorbell::DoorbellOfPeer;
use prov_local::process::{Card, OtherProcess, Reading};

/// A message of one process to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remark {
    pub subject: Subject,
    /// The meaning of these two depends on the subject.
    pub id: u64,
    pub word: u64,
}

/// The subject of a remark; remarks are sent in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The sender's identity: `id` is its process id, `word` the number of its descriptor of the
    /// connection.
    Introduction,
    /// Sent to a peer whose identity is verified: `id` is the number of a file of the sender that
    /// can be read only with access rights to its memory. `word` is one more than the number of its
    /// lane's doorbell, 0 if it has none.
    Card,
    /// The sender has read the card, next to whose seal it found the secret `id`, and can read the
    /// peer's memory.
    Ready,
    /// Memory to share: `id` is the number of a file of the sender. `word` says what the sender can do
    /// with it, here and in [`Subject::Moved`]: bit 0 that it participates in
    /// [`barrier`](prov_local::barrier), bit 1 that it follows
    /// [`relocation`](prov_local::relocation)s.
    Memory,
    /// The sender's next bytes come through that memory. From the side to which it was offered,
    /// `id` is the number that the memory contains.
    Moved,
    /// The sender cannot share it.
    Stays,
    /// The peer may access the sender's registered memory directly
    /// ([`onesided`](prov_local::onesided)): `id` is the number of a file of the sender that
    /// contains its regions.
    Regions,
}

impl Subject {
    /// Returns the number of the subject in messages.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the subject with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Subject::Introduction),
            1 => Some(Subject::Card),
            2 => Some(Subject::Ready),
            3 => Some(Subject::Memory),
            4 => Some(Subject::Moved),
            5 => Some(Subject::Stays),
            6 => Some(Subject::Regions),
            _ => None,
        }
    }
}

/// The peer has sent a remark that is not allowed at this point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfTurn;

/// The state of the identification of this process and the peer's.
#[derive(Default)]
pub struct Neighbour {
    said: Said,
    heard: Heard,
    holder: Option<Holder>,
    /// The peer's doorbell, if it has one.
    bell: Option<DoorbellOfPeer>,
}

/// What this process has sent about itself.
#[derive(Default)]
enum Said {
    #[default]
    Nothing,
    /// Its identity; or it has no reason to send it.
    Name,
    /// The location of its card.
    Card {
        /// Keeps the card open.
        _card: Card,
        seal: Seal,
    },
    /// The peer has read the card.
    Read {
        /// Keeps the seal valid.
        _seal: Seal,
    },
}

/// What the peer has sent about itself.
#[derive(Default)]
enum Heard {
    #[default]
    Nothing,
    /// Its identity, which [`Neighbour::holder`] has if it was verified.
    Name,
    /// The location of its card; its memory, if that can be read.
    Card(Option<OtherProcess>),
}

impl Neighbour {
    /// Returns the peer's memory, if each of the two can read the other's.
    pub fn memory(&self) -> Option<&OtherProcess> {
        match (&self.said, &self.heard) {
            (Said::Read { .. }, Heard::Card(memory)) => memory.as_ref(),
            _ => None,
        }
    }

    /// Returns the peer's process, once it is known.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Returns the peer's doorbell, if it has shown its card and has one.
    pub fn bell(&self) -> Option<DoorbellOfPeer> {
        self.bell.clone()
    }

    /// Returns the introduction of this process, for a peer of this host that has not got it.
    pub fn introduce(&mut self, socket: BorrowedFd<'_>) -> Option<Remark> {
        if !matches!(self.said, Said::Nothing) {
            return None;
        }
        self.said = Said::Name;
        host::is_within_namespace(socket).then(|| Remark {
            subject: Subject::Introduction,
            id: std::process::id().into(),
            word: socket.as_raw_fd().unsigned_abs().into(),
        })
    }

    /// Handles a remark of the peer about itself; returns the answer. `bell` is the descriptor of this
    /// lane's doorbell, `target` the log target.
    ///
    /// # Errors
    /// The remark is not allowed at this point.
    pub fn hear(
        &mut self,
        socket: BorrowedFd<'_>,
        remark: &Remark,
        bell: Option<BorrowedFd<'_>>,
        target: &'static str,
    ) -> std::result::Result<Option<Remark>, OutOfTurn> {
        match (remark.subject, &self.heard) {
            (Subject::Introduction, Heard::Nothing) => {
                self.heard = Heard::Name;
                if !host::is_within_namespace(socket) {
                    return Ok(None);
                }
                let answer = self.meet(socket, remark, bell).inspect_err(|error| {
                    // As where each of the two has a PID namespace of its own.
                    log::info!(
                        target: target,
                        "without the local path to {}: it is not known to be process {} of this \
                         host and user: {error}",
                        socket::peer_text(socket),
                        remark.id
                    );
                });
                Ok(answer.ok())
            }
            (Subject::Card, Heard::Name) => {
                self.heard = Heard::Card(None);
                let Some(holder) = &self.holder else {
                    return Ok(None);
                };
                self.bell = bell_of(holder, remark.word);
                match read(holder, remark.id) {
                    Ok((memory, secret)) => {
                        self.heard = Heard::Card(Some(memory));
                        Ok(Some(Remark {
                            subject: Subject::Ready,
                            id: secret,
                            word: 0,
                        }))
                    }
                    Err(error) => {
                        log::info!(
                            target: target,
                            "without the local path to {}: cannot read the memory of process {}: \
                             {error}",
                            socket::peer_text(socket),
                            holder.pid()
                        );
                        Ok(None)
                    }
                }
            }
            (Subject::Ready, _) => match std::mem::take(&mut self.said) {
                Said::Card { seal, .. } if seal.secret() == remark.id => {
                    self.said = Said::Read { _seal: seal };
                    Ok(None)
                }
                _ => Err(OutOfTurn),
            },
            _ => Err(OutOfTurn),
        }
    }

    /// Handles the peer's process id and descriptor number. If they are correct, returns this
    /// process's card.
    fn meet(
        &mut self,
        socket: BorrowedFd<'_>,
        introduction: &Remark,
        bell: Option<BorrowedFd<'_>>,
    ) -> Result<Remark> {
        let holder = far_end::holder(socket, introduction.id, introduction.word)?;
        let seal = Seal::new()?;
        let card = Card::new(far_end::inode(socket)?, seal.token())?;
        let number = card.number();
        self.holder = Some(holder);
        self.said = Said::Card { _card: card, seal };
        Ok(Remark {
            subject: Subject::Card,
            id: number.into(),
            word: bell.map_or(0, |fd| u64::from(fd.as_raw_fd().unsigned_abs()) + 1),
        })
    }
}

/// Returns the doorbell of a process that has shown this word with its card.
fn bell_of(holder: &Holder, word: u64) -> Option<DoorbellOfPeer> {
    let memory = holder.files.segment(word.checked_sub(1)?).ok()?;
    DoorbellOfPeer::attach(memory.as_fd()).ok()
}

/// Returns the memory of the process that has the other end, whose card for that is file `number`,
/// and the secret next to the card's seal.
///
/// `-FI_EPERM` if it is not the holder's own card, and those of
/// [`OtherFiles::read_card`](prov_local::process::OtherFiles::read_card) and [`OtherProcess::find`].
fn read(holder: &Holder, number: u64) -> Result<(OtherProcess, u64)> {
    let Reading { inode, seal } = holder.files.read_card(number)?;
    match inode == holder.inode {
        true => OtherProcess::find(holder.pid(), seal),
        // It is shown by another process, through the holder.
        false => Err(Errno::EPERM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_has_its_code() {
        for code in 0..=u8::MAX {
            let known = Subject::from_code(code);
            assert_eq!(known.is_some(), code < 7);
            assert!(known.is_none_or(|known| known.code() == code));
        }
    }
}
