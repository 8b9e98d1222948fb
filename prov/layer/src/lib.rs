//! The layer kit: calls of the interface as a provider makes them that layers over another one
//! (`below`), and C structures from and to values (`marshal`). ARCHITECTURE.md has the map.

#![deny(clippy::indexing_slicing)]
pub mod below;
pub mod marshal;
pub mod missing;

#[cfg(test)]
#[path = "../../base/src/services/stand_in.rs"]
mod framework;
