//! How a provider tells the owner of its receives (fi_peer(3)) that a peer is gone, for which
//! fi_peer(3) has nothing. The owner passes a table to the endpoint with fi_set_ops(3), under a name
//! that only this library knows; other providers refuse it.
//!
//! The owner in turn tells the endpoint which peers its receives depend on, so that it finds out
//! whether they are reachable.

use std::ffi::{CStr, c_int, c_void};

use fabric_abi::fi_addr_t;

/// The name of the table for fi_set_ops(3). Another layout gets another name.
pub const NAME: &CStr = c"libfabric-rs/peer_ends/1";

/// The table.
#[repr(C)]
#[derive(Debug)]
pub struct PeerEndsOps {
    /// The size of the structure in bytes.
    pub size: usize,
    /// Set by the owner: the first argument of `ended`.
    pub owner: *mut c_void,
    /// Set by the owner: a peer has ended with this error. The number is what the peer's messages
    /// have as their source. With `FI_PEER_TRANSFER` in the flags it has closed its endpoint, which
    /// ends only receives of other providers. Called from any thread, with locks of the provider
    /// held: it calls no provider.
    pub ended: Option<unsafe extern "C" fn(*mut c_void, fi_addr_t, u64, c_int)>,
    /// Set by the provider: the first argument of `awaits`.
    pub endpoint: *mut c_void,
    /// Set by the provider: a receive was posted that only messages of this peer, by its number in
    /// the endpoint's address vector, can match. With `FI_PEER_TRANSFER` in the flags the peer is
    /// contacted if it has not been. Called under the owner's lock.
    pub awaits: Option<unsafe extern "C" fn(*mut c_void, fi_addr_t, u64)>,
}
