//! The traits that a provider implements. They belong to the seam, since an implementation gets its
//! own object (`Handle`).

pub mod domain;
pub mod endpoint;
pub mod provider;
