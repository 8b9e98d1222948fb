//! What users can set (fi_rxm(7)).

use std::time::Duration;

use fabric_abi::{FI_FLOAT_COMPLEX, FI_MSWAP};
use prov_util::atomic_ops::Offered;
use prov_util::param_table;

use crate::wire::part;

/// Most bytes of operands of an atomic operation.
pub const ATOMIC_LIMIT: usize = 8064;
/// What there is of atomic operations: the C library's peers know no others, not
/// even those of 16 bytes where it is built without them, and do not look what
/// they are sent.
pub const ATOMICS: Offered = Offered {
    bytes: ATOMIC_LIMIT,
    filter: |datatype, op, _| datatype <= FI_FLOAT_COMPLEX && op <= FI_MSWAP,
};
/// Bytes of a segment are counted in 16 bits.
const LONGEST_SEGMENT: usize = u16::MAX as usize;

param_table! {
    /// The parameters of the provider.
    pub struct Params for "ofi_rxm" {
        /// Bytes of the longest message that is sent in one packet. Peers must
        /// have the same value
        buffer_size: usize = 16384, in 256..=1 << 30;
        /// Completions of the provider below that are taken in at least in one
        /// turn, if there are as many
        comp_per_progress: i32 = 1, in 1..=1 << 20;
        /// Bytes of the longest message that is sent in several packets; longer
        /// ones are announced, and read by the receiver. 0 stands for eight
        /// times buffer_size
        sar_limit: usize = 0;
        /// Whether all peers' packets go to one shared receive context of the
        /// provider below; unset: over tcp
        use_srx: Option<bool> = None;
        /// Transmits that an endpoint holds at once, unless the application asks
        /// for another number
        tx_size: usize = 2048, in 1..=16384;
        /// Receives that an endpoint holds at once, unless the application asks
        /// for another number
        rx_size: usize = 2048, in 1..=65536;
        /// Operations that an endpoint below holds at once; 0 stands for 128
        msg_tx_size: usize = 0, in 0..=1 << 20;
        /// Receives that are posted below: for one peer, 128 where this is 0, or
        /// for all with a shared receive context, 4096 then
        msg_rx_size: usize = 0, in 0..=1 << 20;
        /// Microseconds between two looks at what happens to connections
        cm_progress_interval: i32 = 10_000, in 0..=1_000_000_000;
        /// Turns that bring completions between two looks at whether it is time
        /// to look at connections
        cq_eq_fairness: i32 = 128, in 1..=1 << 20;
        /// Whether transfers are driven by a thread though the application did
        /// not ask for that
        data_auto_progress: bool = false;
        /// Whether senders write long messages to the receiver's memory, and
        /// receivers do not read them from the sender's. Peers must have the
        /// same value, unless they run this library
        use_rndv_write: bool = false;
        /// Whether messages leave from the application's memory where the
        /// provider below does not want it registered
        enable_direct_send: bool = true;
        /// Milliseconds for which operations wait for a peer that does not
        /// answer
        connect_timeout: i32 = 15_000, in 1..=3_600_000;
        /// Bytes of messages that are kept because no receive has taken them
        /// yet. A peer that has more kept is held back, or loses its connection
        /// where it shares its receives below
        max_unexpected: usize = 512 << 20;
        /// Connections to peers that no address vector knows and that they have
        /// made, in the whole process; for one more, the one that was used least
        /// recently and has nothing under way is closed. 0 stands for a quarter
        /// of the descriptors that the process may open (RLIMIT_NOFILE, the soft
        /// limit)
        max_strangers: usize = 0;
        /// Taken, and without effect: receives below always have memory of
        /// their own
        enable_dyn_rbuf: bool = false;
        /// Taken, and without effect: there is no memory but the host's
        detect_hmem_iface: bool = false;
        /// Taken, and without effect: there is one connection for each peer
        num_msg_eps: usize = 1, in 1..=255;
    }
}

impl Params {
    /// See `connect_timeout`.
    pub fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout.unsigned_abs().into())
    }

    /// See `cm_progress_interval`.
    pub fn event_interval(&self) -> Duration {
        Duration::from_micros(self.cm_progress_interval.unsigned_abs().into())
    }

    /// Bytes of the longest message that is sent in parts; not longer than
    /// [`Params::buffer_size`] where none is.
    pub fn segmented(&self) -> usize {
        if self.buffer_size > LONGEST_SEGMENT {
            return self.buffer_size;
        }
        match self.sar_limit {
            0 => self.buffer_size * 8,
            limit => limit.max(self.buffer_size),
        }
    }

    /// Bytes of a message that is announced which may come with that.
    pub fn longest_front(&self) -> usize {
        self.buffer_size.saturating_sub(part::COUNTED_LIST)
    }

    /// Bytes of operands of an atomic operation, for the memory and again for
    /// what it is compared with.
    pub fn atomic(&self) -> usize {
        ((self.buffer_size - part::LIST) / 2).min(ATOMIC_LIMIT)
    }

    /// Operations that an endpoint below holds at once.
    pub fn below_tx_size(&self) -> usize {
        match self.msg_tx_size {
            0 => 128,
            size => size,
        }
    }

    /// Receives that are posted below.
    pub fn below_rx_size(&self, is_shared: bool) -> usize {
        match (self.msg_rx_size, is_shared) {
            (0, true) => 4096,
            (0, false) => 128,
            (size, _) => size,
        }
    }
}

/// Peers that an endpoint will have, about (`FI_UNIVERSE_SIZE`).
pub fn universe_size() -> usize {
    let set = std::env::var("FI_UNIVERSE_SIZE");
    let set = set.ok().and_then(|text| text.trim().parse().ok());
    set.unwrap_or(256).clamp(1, 1 << 20)
}
