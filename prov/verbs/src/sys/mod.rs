//! The declarations of libibverbs and librdmacm, used by [`crate::device`] only.

pub mod ibverbs;
#[cfg(test)]
mod layout;
pub mod library;
pub mod rdmacm;
pub mod xrc;
