//! The attributes of completion queues, and the formats of their entries (fi_cq(3)).

use fabric_abi::{fi_cq_data_entry, fi_cq_entry, fi_cq_msg_entry, fi_cq_tagged_entry};

use super::{Completion, ErrorCompletion};
use crate::wait::Attachment;
use prov_base::errno::Result;
use prov_base::sync::LockKind;

/// The format of an entry (`enum fi_cq_format`).
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
    /// Returns the size of an entry in bytes.
    pub(super) fn entry_size(self) -> usize {
        match self {
            CqFormat::Context => size_of::<fi_cq_entry>(),
            CqFormat::Msg => size_of::<fi_cq_msg_entry>(),
            CqFormat::Data => size_of::<fi_cq_data_entry>(),
            CqFormat::Tagged => size_of::<fi_cq_tagged_entry>(),
        }
    }
}

/// The attributes of a queue.
pub struct CqConfig {
    /// The format of entries.
    pub format: CqFormat,
    /// Number of entries to allocate; 0 for the default.
    pub size: usize,
    /// Whether source addresses are kept for fi_cq_readfrom(3).
    pub with_sources: bool,
    /// The kind of lock that the threading level requires.
    pub lock: LockKind,
    /// The wait object.
    pub wait: Attachment,
    /// Whether blocking reads wait for a number of entries (`FI_CQ_COND_THRESHOLD`).
    pub by_threshold: bool,
    /// Interface version of the application, which determines the layout of error entries.
    pub api_version: u32,
    /// Flow control: number of unread entries from which on peers add none without a posted receive
    /// (immediate data of remote writes and atomic operations). The links that carry such
    /// operations wait until entries are read. At least `size`.
    pub unasked: usize,
    /// The queue that gets all entries of this one (fi_peer(3)).
    pub owner: Option<Box<dyn CqOwner>>,
}

/// A queue with entries in the longest format, and without a wait object.
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

/// Another provider's queue that receives this one's completions.
pub trait CqOwner: Send + Sync {
    /// Takes a completion.
    fn write(&self, completion: &Completion) -> Result;

    /// Takes an error entry.
    fn write_error(&self, error: &ErrorCompletion) -> Result;
}

/// Default of [`CqConfig::unasked`]: 262,144 entries of 56 bytes are 14 MiB.
const UNASKED: usize = 1 << 18;
