//! A safe face of libfabric's C interface.

mod error;
mod hints;
mod info;
mod parameters;
mod text;

pub use error::{Failure, Result, strerror};
pub use hints::Hints;
pub use info::{Info, InfoList};
pub use parameters::{Parameter, Parameters};
pub use text::{endpoint_type, library_version, protocol};
