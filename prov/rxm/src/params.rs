//! The parameters (fi_rxm(7)).

use std::time::Duration;

use prov_base::atomic_ops::Offered;
use prov_base::param_table;
use prov_base::services::core_size;

use crate::wire::part;

/// Largest size of the operands of an atomic operation, in bytes.
pub const ATOMIC_LIMIT: usize = 8064;
/// The supported atomic operations: those of peers that run the C library.
pub const ATOMICS: Offered = Offered::common(ATOMIC_LIMIT);
/// Largest segment in bytes: its length field has 16 bits.
const LONGEST_SEGMENT: usize = u16::MAX as usize;

param_table! {
    /// The parameters of the provider.
    pub struct Params for "ofi_rxm" {
        /// Bytes of the longest message that is sent in one packet. Peers must use the same value
        buffer_size: usize = 16384, in 256..=1 << 30;
        /// Minimum number of completions of the provider below that are handled per progress call,
        /// if there are as many
        comp_per_progress: i32 = 1, in 1..=1 << 20;
        /// Bytes of the longest message that is sent in several packets; longer ones use the
        /// rendezvous protocol: the receiver reads them. 0 means eight times buffer_size
        sar_limit: usize = 0;
        /// Whether all peers' packets arrive through one shared receive context of the provider
        /// below; unset means only over tcp
        use_srx: Option<bool> = None;
        /// Default limit of outstanding transmits of an endpoint, for applications that do not ask
        /// for another one
        tx_size: usize = 2048, in 1..=16384;
        /// Number of posted receives that an endpoint announces, for applications that do not ask
        /// for another one; more are accepted
        rx_size: usize = 2048, in 1..=65536;
        /// Limit of outstanding operations of an endpoint below; 0 means 128
        msg_tx_size: usize = 0, in 0..=1 << 20;
        /// Number of packet buffers that are posted below: for one peer, where 0 means 128, or for
        /// all peers with a shared receive context, where 0 means 4096
        msg_rx_size: usize = 0, in 0..=1 << 20;
        /// Interval between two checks for connection events, in microseconds
        cm_progress_interval: i32 = 10_000, in 0..=1_000_000_000;
        /// Number of progress calls with completions between two checks whether connection events
        /// are due
        cq_eq_fairness: i32 = 128, in 1..=1 << 20;
        /// Whether a thread makes progress for transfers although the application did not ask for
        /// automatic progress
        data_auto_progress: bool = false;
        /// Whether senders write long messages to the receiver's memory, instead of receivers
        /// reading them from the sender's. Peers must use the same value, unless they run this
        /// library
        use_rndv_write: bool = false;
        /// Whether messages are sent from the application's memory if the provider below does not
        /// require it to be registered
        enable_direct_send: bool = true;
        /// Time in milliseconds for which operations wait for a peer that does not answer
        connect_timeout: i32 = 15_000, in 1..=3_600_000;
        /// Limit of the unexpected messages that are kept until a receive takes them, in bytes. A
        /// peer that exceeds its share is held back; one that uses the shared receive context below
        /// loses its connection when half of the memory that the process may use is full
        max_unexpected: usize = 512 << 20;
        /// Limit of the connections in the whole process that were established by peers which are
        /// in no address vector. For another one, the least recently used connection without
        /// outstanding operations is closed. 0 means a quarter of the process's limit of open
        /// descriptors (RLIMIT_NOFILE, the soft limit)
        max_strangers: usize = 0;
        /// Accepted without effect: receives below always have their own memory
        enable_dyn_rbuf: bool = false;
        /// Accepted without effect: memory of devices is detected wherever it has no descriptor
        detect_hmem_iface: bool = false;
        /// Accepted without effect: there is one connection for each peer
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

    /// Longest message in bytes that is sent in segments; not more than [`Params::buffer_size`] if
    /// no message is.
    pub fn segmented(&self) -> usize {
        if self.buffer_size > LONGEST_SEGMENT {
            return self.buffer_size;
        }
        match self.sar_limit {
            0 => self.buffer_size * 8,
            limit => limit.max(self.buffer_size),
        }
    }

    /// Largest number of bytes of an announced message that its announcement may contain.
    pub fn longest_front(&self) -> usize {
        self.buffer_size.saturating_sub(part::COUNTED_LIST)
    }

    /// Largest size in bytes of the operands of an atomic operation, and also of its comparison
    /// values.
    pub fn atomic(&self) -> usize {
        ((self.buffer_size - part::LIST) / 2).min(ATOMIC_LIMIT)
    }

    /// Limit of outstanding operations of an endpoint below.
    pub fn below_tx_size(&self) -> usize {
        match self.msg_tx_size {
            0 => 128,
            size => size,
        }
    }

    /// Number of packet buffers that are posted below.
    pub fn below_rx_size(&self, is_shared: bool) -> usize {
        match (self.msg_rx_size, is_shared) {
            (0, true) => 4096,
            (0, false) => 128,
            (size, _) => size,
        }
    }
}

/// Expected number of peers of an endpoint, unless the framework's parameter `universe_size` is set.
/// The C library's value.
const USUAL_PEERS: usize = 1024;

/// Returns the expected number of peers of an endpoint.
pub fn universe_size() -> usize {
    let set = core_size(c"universe_size");
    set.unwrap_or(USUAL_PEERS).clamp(1, 1 << 20)
}
