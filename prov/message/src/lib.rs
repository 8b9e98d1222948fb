//! What every software endpoint does with messages: components that a provider combines with its
//! own transport. They perform no I/O, know no clock and take no lock: they are called with facts
//! and return decisions. [`lane`] puts them under one lock, [`objects`] behind the interface.

#![deny(clippy::indexing_slicing)]
#![forbid(unsafe_code)]

mod admission;
pub mod apart;
pub mod attributes;
pub mod budget;
pub mod burst;
pub mod checks;
pub mod endpoints;
pub mod importing;
pub mod keys;
pub mod lane;
pub mod names;
pub mod objects;
pub mod operation;
pub mod own;
pub mod peers;
pub mod receipt;
mod receive_limit;
pub mod reports;
mod spare;
pub mod strangers;

pub use apart::Charge;
pub use arriving::{Arrival, Expected, Notice, Unmatched};
pub use burst::Burst;
pub use checks::Sizes;
pub use endpoints::plain::Plain;
pub use endpoints::{Attributes, Endpoint, Endpoints};
pub use endpoints::{arriving, distant, foreign, inbox, keeping, receiving, target, whole};
pub use importing::{Importing, OwnerDrives};
pub use inbox::{Action, Course, Fetch, Inbox, NoLink, Placing, Then, Transport, UnexpectedHandle};
pub use keeping::Limits;
pub use keeping::strangers::{StrangersKept, StrangersLimits};
pub use lane::linked::{Linked, Sided};
pub use lane::wakeups::{Wakeups, Woken};
pub use lane::{Core, Errand, Lane, NoErrand};
pub use lane::{reaching, sources};
pub use names::Names;
pub use operation::{Context, EpKey, Ledger, Op, OpClass, Ticket};
pub use own::{Far, Member, Own, Within};
pub use prov_util::drive::{Idling, Signals, Sleeper};
pub use reaching::Reaching;
pub use receipt::{Buffer, InboxKey, Receipt};
pub use receive_limit::receive_limit;
pub use receiving::{Poster, Posting};
pub use reports::{Reports, completion_of};
pub use sources::Sources;
pub use target::{AtomicRequest, PayloadBuffer, Refusal, RmaTarget, Visitor};
pub use whole::{Taken, Whole};
