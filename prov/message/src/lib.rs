//! What every software endpoint does with messages: components that a provider combines with its
//! own transport. They perform no I/O, know no clock and take no lock: they are called with facts
//! and return decisions. [`lane`] puts them under one lock, [`objects`] behind the interface.

#![deny(clippy::indexing_slicing)]
#![forbid(unsafe_code)]

mod admission;
pub mod attributes;
pub mod budget;
pub mod burst;
pub mod checks;
pub mod endpoints;
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
pub mod unreported;

pub use actions::{Action, Course, Fetch};
pub use arrival::{Arrival, Expected};
pub use arriving::{Notice, Unmatched};
pub use burst::Burst;
pub use checks::Sizes;
pub use endpoints::plain::Plain;
pub use endpoints::{Attributes, Endpoint, Endpoints};
pub use endpoints::{actions, arrival, arriving, inbox, keeping, placing, receiving, target};
pub use endpoints::{transport, unexpected, whole};
pub use inbox::{Inbox, cross_lane_srx};
pub use keeping::Limits;
pub use keeping::charge::Charge;
pub use keeping::strangers::{StrangersKept, StrangersLimits};
pub use lane::imported_srx::{Importing, OwnerDrives};
pub use lane::linked::{Linked, Sided};
pub use lane::wakeups::{Wakeups, Woken};
pub use lane::{Core, Errand, Lane, NoErrand};
pub use lane::{reaching, sources};
pub use names::Names;
pub use operation::{Context, EpKey, Ledger, Op, OpClass, Ticket};
pub use own::{Far, Member, Own, Within};
pub use placing::{Placing, Then};
pub use prov_hmem::{GDRCOPY_LIMIT, install as find_devices, limit_gdrcopy};
pub use prov_util::drive::{Idling, Signals, Sleeper};
pub use reaching::Reaching;
pub use receipt::{Buffer, InboxKey, Receipt};
pub use receive_limit::receive_limit;
pub use receiving::{Poster, Posting};
pub use reports::{Reports, completion_of};
pub use sources::Sources;
pub use target::{AtomicRequest, PayloadBuffer, Refusal, RmaTarget, Visitor};
pub use transport::{NoLink, Transport};
pub use unexpected::UnexpectedHandle;
pub use unreported::{RemoteData, Unreported};
pub use whole::{Taken, Whole};
