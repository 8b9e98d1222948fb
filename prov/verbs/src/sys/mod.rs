//! What libibverbs and librdmacm declare. Nothing but [`crate::device`] uses it.

pub mod ibverbs;
#[cfg(test)]
mod layout;
pub mod library;
pub mod rdmacm;
pub mod xrc;
