//! What the processes at the two ends of a connection know of one another, and
//! how they get to know it.
//!
//! The system decides who may read another process's memory (ptrace(2), "Ptrace
//! access mode checking"), and this library only reads that of its own user.
//! Each of the two says which process it is and which number its end of the
//! connection has there. Each looks whether the other does hold that end, and
//! shows it a card: a file that only a process with rights over it can read. On
//! it stand the end that it is for, and the place of a seal, with a secret
//! beside it. Who knows the secret is no third that speaks through the other,
//! and could not be made to read, or be told, what it may not. The seal is read
//! along with every copy; it holds as long as the connection.
//!
//! What they say is carried by the connection, as [`Remark`]s.

use std::os::fd::{AsRawFd, BorrowedFd};

use prov_base::errno::{Errno, Result};
use prov_base::process_memory::Seal;
use prov_base::socket;

use crate::local::far_end::{self, Holder};
use crate::local::host;
use prov_local::process::{Card, OtherProcess, Reading};

/// What one tells the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remark {
    pub subject: Subject,
    /// These two mean what the subject says.
    pub id: u64,
    pub word: u64,
}

/// What a remark is about, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Who the sender is: `id` is its process, `word` the number that its end
    /// of the connection has there.
    Introduction,
    /// To a peer that is who it says it is: `id` is the number of a file of the
    /// sender's that only who may read its memory can read.
    Card,
    /// The sender has read that, where it found the secret `id`, and can read
    /// the peer's memory.
    Ready,
    /// Memory to share: `id` is the number of a file of the sender's. `word` is
    /// 1 where it takes part in [`barrier`](prov_local::barrier), here as below.
    Memory,
    /// The sender's next bytes come through that memory. From who was offered
    /// it, `id` is the number that stands in it.
    Moved,
    /// The sender cannot share it.
    Stays,
    /// The peer may access the sender's registered memory by itself
    /// ([`onesided`](prov_local::onesided)): `id` is the number of a file of the sender's, in
    /// which its regions stand.
    Regions,
}

impl Subject {
    /// The number that stands for it between processes.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What this number stands for.
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

/// The peer has said what it may not say now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfTurn;

/// How well this process and the peer's know each other.
#[derive(Default)]
pub struct Neighbour {
    said: Said,
    heard: Heard,
    holder: Option<Holder>,
}

/// What this process has said of itself.
#[derive(Default)]
enum Said {
    #[default]
    Nothing,
    /// Who it is; or it has no reason to.
    Name,
    /// Where its card is.
    Card {
        /// Open as long as this.
        _card: Card,
        seal: Seal,
    },
    /// The peer has read the card.
    Read {
        /// Lasts as long as this.
        _seal: Seal,
    },
}

/// What the peer has said of itself.
#[derive(Default)]
enum Heard {
    #[default]
    Nothing,
    /// Who it is, if it is that.
    Name(Option<Holder>),
    /// Where its card is; its memory, if that can be read.
    Card(Option<OtherProcess>),
}

impl Neighbour {
    /// The peer's memory, where each of the two can read the other's.
    pub fn memory(&self) -> Option<&OtherProcess> {
        match (&self.said, &self.heard) {
            (Said::Read { .. }, Heard::Card(memory)) => memory.as_ref(),
            _ => None,
        }
    }

    /// The peer's process, once it is known.
    pub fn holder(&self) -> Option<Holder> {
        self.holder
    }

    /// Who this process is, for a peer of this host that was not told.
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

    /// The peer has made a remark about itself: what it is answered. `target` is
    /// where to log.
    ///
    /// # Errors
    /// It is not the time for it.
    pub fn hear(
        &mut self,
        socket: BorrowedFd<'_>,
        remark: &Remark,
        target: &'static str,
    ) -> std::result::Result<Option<Remark>, OutOfTurn> {
        match (remark.subject, &self.heard) {
            (Subject::Introduction, Heard::Nothing) => {
                self.heard = Heard::Name(None);
                if !host::is_within_namespace(socket) {
                    return Ok(None);
                }
                let answer = self.meet(socket, remark).inspect_err(|error| {
                    log::debug!(
                        target: target,
                        "{} is not known to be process {} of this host and user: {error}",
                        socket::peer_text(socket),
                        remark.id
                    );
                });
                Ok(answer.ok())
            }
            (Subject::Card, &Heard::Name(holder)) => {
                self.heard = Heard::Card(None);
                let Some(holder) = holder else {
                    return Ok(None);
                };
                let answer = self.read_card(holder, remark.id).inspect_err(|error| {
                    log::debug!(
                        target: target,
                        "cannot read the memory of process {}: {error}", holder.pid
                    );
                });
                Ok(answer.ok())
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

    /// The peer says which process it is and which number its end of the
    /// connection has there. If that is so, it is shown this process's card.
    fn meet(&mut self, socket: BorrowedFd<'_>, introduction: &Remark) -> Result<Remark> {
        let holder = far_end::holder(socket, introduction.id, introduction.word)?;
        let seal = Seal::new()?;
        let card = Card::new(far_end::inode(socket)?, seal.token())?;
        let number = card.number();
        self.heard = Heard::Name(Some(holder));
        self.holder = Some(holder);
        self.said = Said::Card { _card: card, seal };
        Ok(Remark {
            subject: Subject::Card,
            id: number.into(),
            word: 0,
        })
    }

    /// The peer shows its card, as file `number`. If that can be read, it is told
    /// so.
    fn read_card(&mut self, holder: Holder, number: u64) -> Result<Remark> {
        let (memory, secret) = read(holder, number)?;
        self.heard = Heard::Card(Some(memory));
        Ok(Remark {
            subject: Subject::Ready,
            id: secret,
            word: 0,
        })
    }
}

/// The memory of the process that has the far end, and its card for that as file
/// `number`, and the secret of the card's seal.
///
/// # Errors
/// `-FI_EPERM` where it is not the holder's own card, and those of [`Card::read`]
/// and [`OtherProcess::find`].
fn read(holder: Holder, number: u64) -> Result<(OtherProcess, u64)> {
    let number = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
    let Reading { inode, seal } = Card::read(holder.pid, number)?;
    match inode == holder.inode {
        true => OtherProcess::find(holder.pid, seal),
        // It is shown by somebody else, through the holder.
        false => Err(Errno::EPERM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_for_what_has_it() {
        for code in 0..=u8::MAX {
            let known = Subject::from_code(code);
            assert_eq!(known.is_some(), code < 7);
            assert!(known.is_none_or(|known| known.code() == code));
        }
    }
}
