//! The parameters (fi_ucx(7)).

use std::ffi::CString;

use prov_base::param_table;
use prov_base::services::core_size;

use crate::ucp::Settings;

param_table! {
    /// The parameters of the provider.
    pub struct Params for "ucx" {
        /// A file with settings of UCX
        config: Option<String> = None;
        /// The transports that UCX may use, as in UCX_TLS, which comes first; auto leaves it to UCX
        tls: Option<String> = None;
        /// The devices that UCX may use, as in UCX_NET_DEVICES, which comes first. Unset or auto,
        /// the provider is offered only where there is an RDMA device of NVIDIA
        devices: Option<String> = None;
        /// Largest number of bytes that can be injected
        inject_limit: i32 = 1024, in 0..=1 << 20;
        /// Whether an endpoint that is closed sends first what it has accepted
        ep_flush: bool = true;
        /// Whether UCX complains of operations that are in progress when an endpoint is closed
        check_req_leak: bool = false;
        /// Accepted without effect: no name server is started, and addresses are those of UCX
        ns_enable: bool = false;
        /// Accepted without effect, likewise
        ns_port: i32 = 12345;
        /// Accepted without effect, likewise
        ns_iface: Option<String> = None;
        /// Accepted without effect: address vectors always return the addresses that they have
        enable_spawn: bool = false;
        /// Accepted without effect: endpoints are locked as the threading level requires
        single_thread: bool = false;
        /// Accepted without effect: UCX_LOG_LEVEL is UCX's own
        extra_debug: bool = false;
    }
}

/// A value that leaves the choice to UCX, and all that begin with it.
const AUTO: &str = "auto";

/// Returns a value that was set, and does not leave the choice to UCX.
fn chosen(value: Option<&str>) -> Option<&str> {
    value.filter(|value| !value.starts_with(AUTO))
}

impl Params {
    /// Whether the user has named devices.
    pub fn names_devices(&self) -> bool {
        chosen(self.devices.as_deref()).is_some()
    }

    /// Returns the settings for UCX.
    pub fn settings(&self) -> Settings {
        let text = |value: &str| CString::new(value).ok();
        let values = [
            (c"TLS", "UCX_TLS", &self.tls),
            (c"NET_DEVICES", "UCX_NET_DEVICES", &self.devices),
        ];
        let values = values.into_iter().filter_map(|(name, variable, value)| {
            let value = chosen(value.as_deref())?;
            let is_free = std::env::var_os(variable).is_none();
            is_free.then(|| Some((name, text(value)?))).flatten()
        });
        Settings {
            file: self.config.as_deref().and_then(text),
            values: values.collect(),
            peers: core_size(c"universe_size"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_ucx_is_not_set() {
        let params = |devices: Option<&str>| Params {
            devices: devices.map(str::to_owned),
            ..Params::default()
        };
        for (devices, expected) in [
            (None, false),
            (Some("auto"), false),
            (Some("automatic"), false),
            (Some("all"), true),
            (Some("mlx5_0:1"), true),
        ] {
            assert_eq!(params(devices).names_devices(), expected, "{devices:?}");
        }
        let settings = params(Some("lo")).settings();
        assert_eq!(settings.values, [(c"NET_DEVICES", c"lo".to_owned())]);
        assert!(settings.file.is_none());
    }
}
