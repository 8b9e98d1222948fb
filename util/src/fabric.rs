//! A safe interface to libfabric's C interface.

#[macro_use]
mod slot;

mod completion_queue;
mod connection;
mod domain;
mod endpoint;
mod error;
mod hints;
mod info;
mod log;
mod memory;
mod object;
mod parameters;
mod text;

pub use completion_queue::CompletionQueue;
pub use connection::{Event, EventQueue, PassiveEndpoint};
pub use domain::{AddressVector, Domain, Fabric};
pub use endpoint::{Binding, CONTEXTS, Endpoint, Queue};
pub use error::{Failure, Result, strerror};
pub use hints::Hints;
pub use info::{Info, InfoList};
pub use log::{Message, while_listening};
pub use memory::Memory;
pub use parameters::{Parameter, Parameters};
pub use text::{endpoint_type, library_file, library_version, protocol};
