//! Two processes of one host: proof of who the other is, and copies from each
//! other's memory. No provider by itself.

pub mod far_end;
pub mod neighbour;
pub mod process;
