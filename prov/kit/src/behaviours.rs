//! The behaviours, by what they are about.

pub mod atomics;
pub mod cancelling;
pub mod connections;
pub mod ending;
pub mod matching;
pub mod messages;
pub mod one_sided;
pub mod peeking;
pub mod queues;
pub mod sources;
pub mod strangers;
pub mod unread;
