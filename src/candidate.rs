//! Providers that are to be entered into the registry.

pub use libloading::Library;

use crate::provider::Provider;

/// The rule that selects one of two providers with the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    /// The later version; of equal ones the first one found.
    #[default]
    Version,
    /// The first one found.
    Discovery,
}

/// A provider that was found and is to be entered.
pub struct Candidate {
    pub provider: Provider,
    pub preferred: bool,
    pub library: Option<Library>,
}

/// A library or a provider that was found and cannot be used.
pub struct Useless {
    /// The provider's name, or the library's file.
    pub name: String,
    pub reason: String,
}
