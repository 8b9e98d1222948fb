//! How completion queues are opened, and what their entries consist of (fi_cq(3)).

use fabric_abi::{fi_cq_data_entry, fi_cq_entry, fi_cq_msg_entry, fi_cq_tagged_entry};

use super::{Completion, ErrorCompletion};
use crate::errno::Result;
use crate::sync::LockKind;
use crate::wait::Attachment;

/// What an entry consists of (`enum fi_cq_format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqFormat {
    /// `struct fi_cq_entry`
    Context,
    /// `struct fi_cq_msg_entry`
    Msg,
    /// `struct fi_cq_data_entry`
    Data,
    /// `struct fi_cq_tagged_entry`
    Tagged,
}

impl CqFormat {
    /// Bytes of an entry.
    pub(super) fn entry_size(self) -> usize {
        match self {
            CqFormat::Context => size_of::<fi_cq_entry>(),
            CqFormat::Msg => size_of::<fi_cq_msg_entry>(),
            CqFormat::Data => size_of::<fi_cq_data_entry>(),
            CqFormat::Tagged => size_of::<fi_cq_tagged_entry>(),
        }
    }
}

/// How to open a queue.
pub struct CqConfig {
    /// What an entry consists of.
    pub format: CqFormat,
    /// Entries to set memory aside for; 0: the library chooses.
    pub size: usize,
    /// Whether source addresses are kept for `readfrom`.
    pub with_sources: bool,
    /// Whether the threading level makes threads meet here.
    pub lock: LockKind,
    /// What to wait with.
    pub wait: Attachment,
    /// Whether blocking reads name a number of entries to wait for
    /// (`FI_CQ_COND_THRESHOLD`).
    pub by_threshold: bool,
    /// Interface version of the application, on which error entries depend.
    pub api_version: u32,
    /// Unread entries from which on peers add none for which no receive was posted
    /// (immediate data of remote writes and atomic operations): the links that bring
    /// such operations wait until entries are read. At least `size`.
    pub unasked: usize,
    /// The queue that everything goes to instead (fi_peer(3)).
    pub owner: Option<Box<dyn CqOwner>>,
}

/// A queue of entries with all that there is to say, and with nothing to wait with.
impl Default for CqConfig {
    fn default() -> Self {
        CqConfig {
            format: CqFormat::Tagged,
            size: 0,
            with_sources: true,
            lock: LockKind::Real,
            wait: Attachment::None,
            by_threshold: false,
            api_version: crate::attr::version(2, 0),
            unasked: UNASKED,
            owner: None,
        }
    }
}

/// A queue of another provider which takes this one's completions.
pub trait CqOwner: Send + Sync {
    /// Takes a completion.
    fn write(&self, completion: &Completion) -> Result;

    /// Takes an error entry.
    fn write_error(&self, error: &ErrorCompletion) -> Result;
}

/// Default of [`CqConfig::unasked`]: 262,144 entries of 56 bytes are 14 MiB.
const UNASKED: usize = 1 << 18;
