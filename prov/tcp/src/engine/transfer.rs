//! Transfers over open connections, in both directions.

pub mod acknowledging;
pub mod arrival;
pub mod aside;
pub mod atomics;
pub mod nearby;
pub mod posting;
pub mod progress;
pub mod refusing;
pub mod rendezvous;
pub mod rma;
pub mod sending;
pub mod waiting;
pub mod ways;
