//! The parameters that users can set (fi_verbs(7)).

use prov_base::param_table;

param_table! {
    /// The parameters of the provider.
    pub struct Params for "verbs" {
        /// Largest number of outstanding transmit operations of an endpoint, unless the application
        /// requests another one
        tx_size: usize = 384, in 1..=1 << 20;
        /// Largest number of posted receives of an endpoint, unless the application requests
        /// another one
        rx_size: usize = 384, in 1..=1 << 20;
        /// Largest number of buffers of a transmit operation
        tx_iov_limit: usize = 4, in 1..=4;
        /// Largest number of buffers of a receive
        rx_iov_limit: usize = 4, in 1..=4;
        /// Largest number of bytes that can be injected: the device copies them with the request. 0
        /// stands for as many as it can
        inline_size: usize = 256, in 0..=1 << 16;
        /// How long a peer waits before it retries a message for which there is no receive, as the
        /// device counts it: 1 is 10 microseconds, 12 is 640 microseconds, 31 is 492 milliseconds,
        /// 0 is 655 milliseconds
        min_rnr_timer: i32 = 12, in 0..=31;
        /// Largest number of completions that are polled from the device in one call
        cqread_bunch_size: usize = 8, in 1..=256;
        /// Network interfaces whose devices may be used: names or beginnings of
        /// names, separated by commas
        iface: Option<String> = None;
        /// Devices that may be used: names or beginnings of names, separated by
        /// commas
        device_name: Option<String> = None;
        /// Whether endpoints of XRC come before those of RC if both match
        prefer_xrc: bool = false;
        /// The file by which processes of a host share their domain of XRC, created if it does not
        /// exist; empty for a domain of one's own, which shares no connections with other processes
        /// of the host
        xrcd_filename: Option<String> = Some("/tmp/verbs_xrcd".to_owned());
        /// Which of a port's addresses to use
        gid_idx: i32 = 0, in 0..=65535;
        /// Whether a thread of the first process on a host resolves services to addresses of
        /// endpoints for datagrams; unset, it does so except in MPI processes
        dgram_use_name_server: Option<bool> = None;
        /// The port at which it does so
        name_server_port: i32 = 5678, in 1..=65535;
        /// Whether memory that a file represents is registered as dma-buf
        use_dmabuf: bool = true;
        /// The order in which devices are found: none, auto (the nearest to affinity_device first)
        /// or manual (that of nic_affinity_config first)
        nic_affinity_policy: Option<String> = None;
        /// The PCI address of the device, such as a GPU, that devices are to be near
        affinity_device: Option<String> = None;
        /// A file with lines of a PCI address and the device that is to be first
        /// for it
        nic_affinity_config: Option<String> = None;
    }
}

impl Params {
    /// Returns the port of the name server, if there is to be one.
    pub fn name_server(&self) -> Option<u16> {
        let is_mpi = || {
            let is_set = |name| std::env::var_os(name).is_some();
            is_set("OMPI_COMM_WORLD_RANK") || is_set("PMI_RANK")
        };
        let wanted = self.dgram_use_name_server.unwrap_or_else(|| !is_mpi());
        wanted.then(|| u16::try_from(self.name_server_port).ok())?
    }
}

/// Whether a name is in a list of names and beginnings of names; every name is, if there is no
/// list.
pub fn is_listed(list: Option<&str>, name: &str) -> bool {
    let Some(list) = list else {
        return true;
    };
    let mut prefixes = list.split(',').map(str::trim);
    prefixes.any(|prefix| !prefix.is_empty() && name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_by_their_beginnings() {
        assert!(is_listed(None, "mlx5_0"));
        assert!(is_listed(Some("rxe, mlx5"), "mlx5_0"));
        assert!(!is_listed(Some("mlx5_1,rxe"), "mlx5_0"));
        assert!(!is_listed(Some(","), "mlx5_0"));
    }
}
