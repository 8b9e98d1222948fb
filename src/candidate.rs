//! Providers on their way into the registry.

pub use libloading::Library;

use crate::provider::Provider;

/// How two providers of one name decide which of them is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    /// The later version; of equal ones the one that came first.
    #[default]
    Version,
    /// The one that came first.
    Discovery,
}

/// A provider that was found and is to be entered.
pub struct Candidate {
    pub provider: Provider,
    pub preferred: bool,
    pub library: Option<Library>,
}

/// A library or a provider that was found and is of no use.
pub struct Useless {
    /// The provider's name, or the library's file.
    pub name: String,
    pub reason: String,
}
