//! What the processes at the two ends of a connection know of one another.

use prov_util::errno::{Errno, Result};
use prov_util::process_memory::Seal;

use crate::far_end::Holder;
use crate::process::{Card, OtherProcess, Reading};

/// How well this process and the peer's know each other.
#[derive(Default)]
pub struct Neighbour {
    pub said: Said,
    pub heard: Heard,
    /// The peer's process, once it is known.
    pub holder: Option<Holder>,
}

/// What this process has said of itself.
#[derive(Default)]
pub enum Said {
    #[default]
    Nothing,
    /// Who it is; or it has no reason to.
    Name,
    /// Where its card is.
    Card {
        /// Open as long as this.
        card: Card,
        seal: Seal,
    },
    /// The peer has read the card; the seal lasts as long as this.
    Read(Seal),
}

/// What the peer has said of itself.
#[derive(Default)]
pub enum Heard {
    #[default]
    Nothing,
    /// Who it is, if it is that.
    Name(Option<Holder>),
    /// Where its card is; its memory, if that can be read.
    Card(Option<OtherProcess>),
}

impl Neighbour {
    /// The peer's memory, where each of the two can read the other's.
    pub fn memory(&self) -> Option<OtherProcess> {
        match (&self.said, &self.heard) {
            (Said::Read(_), Heard::Card(memory)) => *memory,
            _ => None,
        }
    }
}

/// The memory of the process that has the far end, and its card for that as file
/// `number`, and the secret of the card's seal.
///
/// # Errors
/// `-FI_EPERM` where it is not the holder's own card, and those of [`Card::read`]
/// and [`OtherProcess::find`].
pub fn read(holder: Holder, number: u64) -> Result<(OtherProcess, u64)> {
    let number = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
    let Reading { inode, seal } = Card::read(holder.pid, number)?;
    match inode == holder.inode {
        true => OtherProcess::find(holder.pid, seal),
        // It is shown by somebody else, through the holder.
        false => Err(Errno::EPERM),
    }
}
