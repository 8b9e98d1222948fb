//! The parameters that users can set (fi_tcp(7)).

use std::ffi::CStr;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use fabric_abi::{FI_EP_MSG, fi_ep_type, fi_param_type};
use prov_base::errno::{Errno, Result};
use prov_base::netif;
use prov_base::own_file;
use prov_base::param::{ParamType, fi_provider};
use prov_base::param_table;
use prov_local::switch_points::WIDE;
use prov_message::Sizes;

use crate::wire::authentication::Key;
use crate::wire::handshake::Features;
use crate::wire::multipath::is_reachable;

/// Least number of bytes that can be the limit of injected messages.
pub const LEAST_INJECT: usize = 128;
/// Largest number of bytes of operands of an atomic operation.
pub const ATOMIC_LIMIT: usize = 64 * 1024;
/// Default number of outstanding operations of an endpoint with one peer.
const FOR_ONE_PEER: usize = 256;
/// Default number of outstanding operations of endpoints with many peers, and of shared contexts.
const FOR_MANY_PEERS: usize = 65536;

param_table! {
    /// The parameters of the provider.
    pub struct Params for "tcp" {
        /// Network interface to use, by its name in the system, or several, separated by commas:
        /// connections then use all of them, and addresses are of the first
        iface: Option<String> = None;
        /// Connections (subflows) for each interface that carry the data which is exchanged with a
        /// peer
        streams: usize = 1, in 1..=8;
        /// Lowest port to listen at if the application names none
        port_low_range: i32 = 0, in 0..=65535;
        /// Highest port to listen at if the application names none; 0 lets
        /// the system choose
        port_high_range: i32 = 0, in 0..=65535;
        /// Largest number of outstanding transmit operations of an endpoint, unless the application
        /// requests another one; 0 stands for 256 on msg and 65536 on rdm endpoints
        tx_size: usize = 0, in 0..=1 << 24;
        /// Number of posted receives that an endpoint announces, unless the application requests
        /// another one; more are accepted; 0 stands for 256 on msg and 65536 on rdm endpoints
        rx_size: usize = 0, in 0..=1 << 24;
        /// Largest number of bytes of an injected message
        max_inject: usize = 4096, in LEAST_INJECT..=1 << 20;
        /// Bytes of small messages that are coalesced before they are passed to the kernel
        staging_sbuf_size: usize = 64 << 10, in 0..=1 << 26;
        /// Largest number of bytes of one read from a socket
        prefetch_rbuf_size: usize = 256 << 10, in 4096..=1 << 26;
        /// Messages of at least so many bytes are sent without being copied to the kernel, if it
        /// supports that
        zerocopy_size: usize = usize::MAX;
        /// Whether to send small segments without delay; unset leaves it to the traffic class,
        /// where only bulk data may wait
        nodelay: Option<bool> = None;
        /// Congestion control of connections within this host, which do not benefit from the pacing
        /// of some; `system` keeps the system's choice
        local_congestion: String = "reno".into();
        /// Largest number of bytes in flight on a connection within this host: few enough to stay
        /// in the processors' caches, where the copies from and to the kernel are fast. 0 leaves it
        /// to the system, and so does a net.core.wmem_max below it
        local_sndbuf_size: usize = 512 << 10, in 0..=1 << 30;
        /// Whether data between two processes of one host and user goes through shared memory,
        /// `auto`, or through their socket, `off`
        local: Local = Local::Auto;
        /// Messages of at least so many bytes that would go through shared memory
        /// are announced instead, and copied by the peer (process_vm_readv(2)); with the
        /// highest value, neither process accesses the other one's memory
        local_message_size: usize = WIDE + 1, in 4096..=usize::MAX;
        /// Bytes of unexpected messages that are buffered; beyond that the senders are held back,
        /// those of this library only after 64 MiB more, since they announce their messages by
        /// then. An endpoint reuses up to 8 MiB of that memory and does not free it
        max_unexpected: usize = 64 << 20;
        /// Bytes of such messages, on top of that, from peers of the C library, which cannot be
        /// asked to announce theirs
        max_unannounced: usize = 512 << 20;
        /// Unexpected tagged messages of each peer of the C library that are buffered whatever the
        /// limits above, as long as all of them take less than half of the process's memory, as its
        /// control groups limit it: a sender to the C library can rely on that
        max_saved: usize = 64;
        /// Longer tagged messages are announced to peers of the C library, and sent when these
        /// request them. To be lowered if the parameter of this name makes these peers buffer less
        max_saved_size: usize = 64 << 20, in 16384..=usize::MAX;
        /// Connections to peers that are in no address vector and that these have made, in the
        /// whole process; for another one, the least recently used connection without operations in
        /// progress is closed. As many may have sent no request yet. 0 stands for a quarter of the
        /// descriptors that the process may open (RLIMIT_NOFILE, the soft limit)
        max_strangers: usize = 0;
        /// Milliseconds within which a connection must be established, and for which, or for two
        /// seconds if that is longer, the peer's host may leave everything unacknowledged
        connect_timeout: i32 = 15_000, in 1..=3_600_000;
        /// Whether peers cannot connect to this node, only this node to them
        firewall_addr: bool = false;
        /// Whether to log each message that is sent or received, at level trace
        trace_msg: bool = false;
        /// Whether no thread drives transfers for applications that requested automatic progress
        disable_auto_progress: bool = false;
        /// File with a secret that peers must prove, if the application gives no key
        auth_key_file: Option<String> = None;
    }
}

/// What to do with connections within the host (`FI_TCP_LOCAL`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub enum Local {
    /// They go through shared memory if possible.
    Auto,
    /// They stay with their sockets.
    Off,
}

impl ParamType for Local {
    const KIND: fi_param_type = <String as ParamType>::KIND;

    fn read(provider: &fi_provider, name: &CStr) -> Option<Self> {
        let text = String::read(provider, name)?;
        let known = [Local::Auto, Local::Off];
        let value = known.into_iter().find(|known| known.show() == text);
        if value.is_none() {
            log::error!(
                target: crate::LOG.core,
                "parameter local is {text}, which is neither auto nor off; using auto"
            );
        }
        value
    }

    fn show(&self) -> String {
        match self {
            Local::Auto => "auto".into(),
            Local::Off => "off".into(),
        }
    }
}

impl Params {
    /// Returns the secret that peers must prove, if there is one: the contents of `auth_key_file`,
    /// without white space at the end.
    pub fn auth_key(&self) -> Result<Option<Key>> {
        let Some(file) = &self.auth_key_file else {
            return Ok(None);
        };
        let secret = own_file::read_secret(Path::new(file)).map_err(|error| {
            log::error!(
                target: crate::LOG.core,
                "cannot read auth_key_file {file}: {error}"
            );
            Errno::EACCES
        })?;
        static SAID: Once = Once::new();
        if secret.is_public {
            SAID.call_once(|| {
                log::warn!(
                    target: crate::LOG.core,
                    "every user of this host can read auth_key_file {file}"
                );
            });
        }
        let key = Key::new(secret.bytes.trim_ascii_end());
        if key.is_none() {
            log::error!(target: crate::LOG.core, "auth_key_file {file} is empty");
        }
        key.map(Some).ok_or(Errno::EACCES)
    }

    /// Leaves the choice of the interface to the provider if the user's have no address, and reports
    /// that in the log.
    pub fn drop_unknown_interface(&mut self) {
        if self.interfaces().count() < 2 {
            self.iface = netif::chosen(self.iface.take(), crate::LOG.core);
            return;
        }
        // Those that have none may have one when a connection is made.
        let is_usable = |name: &&str| !netif::interfaces(Some(name)).is_empty();
        let (usable, others): (Vec<_>, Vec<_>) = self.interfaces().partition(is_usable);
        for name in &others {
            log::error!(
                target: crate::LOG.core,
                "parameter iface: there is no usable address on {name} at present"
            );
        }
        self.iface = match usable.is_empty() {
            true => None,
            false => Some([usable, others].concat().join(",")),
        };
    }

    /// Returns the names of the interfaces that the user has chosen.
    fn interfaces(&self) -> impl Iterator<Item = &str> {
        let names = self.iface.as_deref().unwrap_or_default().split(',');
        names.map(str::trim).filter(|name| !name.is_empty())
    }

    /// Returns the interface whose addresses endpoints have.
    pub fn first_interface(&self) -> Option<&str> {
        self.interfaces().next()
    }

    /// Whether connections are to have several subflows.
    pub fn wants_subflows(&self) -> bool {
        self.streams > 1 || self.interfaces().nth(1).is_some()
    }

    /// Returns an address of each interface that the user has chosen, of the address family if
    /// possible.
    pub fn interface_addresses(&self, is_ipv4: bool) -> Vec<SocketAddr> {
        let of_one = |name| {
            let all = netif::interfaces(Some(name));
            let usable = all.iter().map(|interface| interface.addr);
            let usable: Vec<_> = usable.filter(is_reachable).collect();
            let fitting = usable.iter().find(|addr| addr.is_ipv4() == is_ipv4);
            fitting.or(usable.first()).copied()
        };
        self.interfaces().filter_map(of_one).collect()
    }

    /// Reports in the log that the port range is empty, and therefore ignored.
    pub fn report_empty_port_range(&self) {
        if self.has_empty_port_range() {
            log::warn!(
                target: crate::LOG.core,
                "parameter port_low_range ({}) is above port_high_range ({}): the system \
                 chooses the ports",
                self.port_low_range,
                self.port_high_range
            );
        }
    }

    /// Whether both ends of the port range are set, and the lowest port is above the highest.
    fn has_empty_port_range(&self) -> bool {
        self.port_high_range != 0 && self.port_low_range > self.port_high_range
    }

    /// Returns the ports to listen at if the application names none.
    pub fn port_range(&self) -> Option<RangeInclusive<u16>> {
        let low = u16::try_from(self.port_low_range).ok()?;
        let high = u16::try_from(self.port_high_range).ok()?;
        (high != 0 && low <= high).then_some(low.max(1)..=high)
    }

    /// Returns the limits that requests are checked against.
    #[inline]
    pub fn sizes(&self) -> Sizes {
        Sizes {
            inject: self.max_inject,
            atomic: ATOMIC_LIMIT,
            message: Sizes::LONGEST,
        }
    }

    /// Returns the number of outstanding transmit operations of an endpoint of this kind, unless
    /// the application requests another one.
    pub fn usual_tx_size(&self, ep_type: fi_ep_type) -> usize {
        set_or(self.tx_size, usual_size(ep_type))
    }

    /// Returns the number of posted receives that is announced, likewise.
    pub fn usual_rx_size(&self, ep_type: fi_ep_type) -> usize {
        set_or(self.rx_size, usual_size(ep_type))
    }

    /// The same of a shared context.
    pub fn usual_shared_size(&self) -> usize {
        set_or(self.rx_size, FOR_MANY_PEERS)
    }

    /// Returns the features that peers are told.
    pub fn features(&self) -> Features {
        let mut features = Features::OURS;
        if self.local_message_size == usize::MAX {
            features = features.without(Features::DIRECT);
        }
        if self.local == Local::Off {
            features = features.without(Features::LOCAL);
        }
        match features.has(Features::LOCAL.or(Features::DIRECT)) {
            true => features,
            false => features.without(Features::REGIONS),
        }
    }

    /// Whether sockets send small segments without delay.
    pub fn nodelay(&self) -> bool {
        self.nodelay.unwrap_or(true)
    }

    /// See `connect_timeout`.
    pub fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout.unsigned_abs().into())
    }
}

fn usual_size(ep_type: fi_ep_type) -> usize {
    match ep_type {
        FI_EP_MSG => FOR_ONE_PEER,
        _ => FOR_MANY_PEERS,
    }
}

fn set_or(set: usize, otherwise: usize) -> usize {
    match set {
        0 => otherwise,
        set => set,
    }
}

#[cfg(test)]
mod tests {
    use fabric_abi::FI_EP_RDM;

    use super::*;

    #[test]
    fn a_lowest_port_above_the_highest_leaves_the_choice_to_the_system() {
        let range = |port_low_range, port_high_range| Params {
            port_low_range,
            port_high_range,
            ..Params::default()
        };
        let empty = range(5000, 4000);
        assert!(empty.has_empty_port_range());
        assert_eq!(empty.port_range(), None);
        for (low, high) in [(0, 0), (4000, 0), (4000, 4000), (0, 4000)] {
            assert!(!range(low, high).has_empty_port_range());
        }
    }

    #[test]
    fn sizes_that_the_user_sets_apply_to_every_kind_of_endpoint() {
        let usual = Params::default();
        assert_eq!(usual.usual_tx_size(FI_EP_MSG), 256);
        assert_eq!(usual.usual_rx_size(FI_EP_RDM), 65536);
        assert_eq!(usual.usual_shared_size(), 65536);
        let set = Params {
            tx_size: 7,
            rx_size: 8,
            ..Params::default()
        };
        for kind in [FI_EP_MSG, FI_EP_RDM] {
            assert_eq!((set.usual_tx_size(kind), set.usual_rx_size(kind)), (7, 8));
        }
        assert_eq!(set.usual_shared_size(), 8);
    }
}
