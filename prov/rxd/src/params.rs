//! The parameters (fi_rxd(7)).

use std::time::Duration;

use prov_base::param_table;

param_table! {
    /// The parameters of the provider.
    pub struct Params for "ofi_rxd" {
        /// Number of datagrams that are handled per progress call, if there are as many; 0 for all
        spin_count: i32 = 1000, in 0..=1 << 20;
        /// Whether datagrams that are not acknowledged are sent again. If not, the provider below
        /// must not lose any
        retry: bool = true;
        /// Limit of the peers of an endpoint that its address vector does not know. Another one takes
        /// the place of the one that has been idle longest. Each host has a share of a quarter: with
        /// less, it takes the place of a busy peer of a host that has more; beyond it, only of its own
        /// peers and of those that have been idle for a minute
        max_peers: usize = 1024, in 1..=1 << 24;
        /// Limit of the datagrams that a peer of the C library may have sent without an
        /// acknowledgement
        max_unacked: usize = 128, in 1..=4096;
        /// Whether fi_getinfo looks for changes of the network interfaces at each call; unset means
        /// only if the caller asks for that (FI_RESCAN)
        rescan: Option<bool> = None;
        /// Time in milliseconds after which a peer that does not answer is given up: all operations
        /// to it fail. A peer with manual progress answers when its application calls the library
        timeout: i32 = 120_000, in 100..=3_600_000;
        /// Limit of the unexpected messages that are kept until a receive takes them, in bytes.
        /// Peers that exceed their share are held back
        max_unexpected: usize = 512 << 20;
        /// Whether peers that run this library, too, are offered selective acknowledgements and
        /// larger windows
        extended: bool = true;
    }
}

impl Params {
    /// See `timeout`.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout.unsigned_abs().into())
    }
}
