//! The provider `ofi_mrail` (fi_mrail(7)): the engine of tcp, over the interfaces that the C library's
//! provider of this name has as its rails, under the names of that provider's parameters.

use std::ffi::CStr;
use std::net::IpAddr;
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use prov_base::resolve::{self, Query};
use prov_base::{netif, param_table, sockaddr};
use prov_util::attr::{FabricAttr, Info, Request};
use prov_util::provider::{Provider, fi_provider};

use crate::VERSION;
use crate::bases::Name;
use crate::fabric::Fabric;
use crate::params::Params;
use crate::provider::{checked, getinfo};

/// The provider, with the parameters that the user has set.
pub struct Mrail {
    params: Arc<Params>,
    /// Whether there are rails: otherwise it offers nothing, as the C library's provider.
    has_rails: bool,
}

prov_util::provider!(Mrail);

const LOG: Targets = prov_base::log_targets!("ofi_mrail");

param_table! {
    /// The parameters of the C library's provider of this name.
    struct Rails for "ofi_mrail" {
        /// The rails, separated by commas: each an address in the format of FI_ADDR_STR, a host
        /// name, an IP address or the name of a network interface. The provider offers nothing
        /// without
        addr: Option<String> = None;
        /// The name of FI_OFI_MRAIL_ADDR in older versions
        addr_strc: Option<String> = None;
        /// Pairs of the largest length of messages and `fixed`, `round-robin` or `striping`,
        /// separated by commas. Only if all are fixed it has an effect: the first rail is used
        config: Option<String> = None;
    }
}

impl Rails {
    /// Returns the names of the interfaces, in order.
    fn interfaces(&self) -> Vec<String> {
        let list = self.addr.as_deref().or(self.addr_strc.as_deref());
        let rails = list.unwrap_or_default().split(',').map(str::trim);
        let mut names = Vec::new();
        for rail in rails.filter(|rail| !rail.is_empty()) {
            match interface_of(rail) {
                Some(name) if names.contains(&name) => {}
                Some(name) => names.push(name),
                None => log::error!(target: LOG.core, "no interface has the address {rail}"),
            }
        }
        if self.is_fixed() {
            names.truncate(1);
        }
        names
    }

    /// Whether messages of every length use one rail.
    fn is_fixed(&self) -> bool {
        let Some(config) = &self.config else {
            return false;
        };
        let policies: Option<Vec<Policy>> = config.split(',').map(Policy::of).collect();
        match policies {
            None => {
                log::error!(target: LOG.core, "parameter config is not understood: {config}");
                false
            }
            Some(policies) => policies.iter().all(|policy| *policy == Policy::Fixed),
        }
    }
}

/// How messages up to a length use the rails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    Fixed,
    RoundRobin,
    Striping,
}

impl Policy {
    /// Returns the policy of a pair, if it is one.
    fn of(pair: &str) -> Option<Policy> {
        let (length, policy) = pair.trim().split_once(':')?;
        let is_length = matches!(length, "-1" | "ULONG_MAX") || length.parse::<u64>().is_ok();
        match policy {
            _ if !is_length => None,
            "fixed" => Some(Policy::Fixed),
            "round-robin" => Some(Policy::RoundRobin),
            "striping" => Some(Policy::Striping),
            _ => None,
        }
    }
}

/// Returns the name of the interface of a rail.
fn interface_of(rail: &str) -> Option<String> {
    if !netif::interfaces(Some(rail)).is_empty() {
        return Some(rail.into());
    }
    let all = netif::interfaces(None);
    addresses_of(rail).into_iter().find_map(|ip| {
        let mut all = all.iter();
        let found = all.find(|interface| interface.addr.ip() == ip);
        found.map(|interface| interface.name.clone())
    })
}

fn addresses_of(rail: &str) -> Vec<IpAddr> {
    if sockaddr::is_uri(rail) {
        let addr = sockaddr::parse(rail);
        return addr.iter().map(std::net::SocketAddr::ip).collect();
    }
    if let Ok(ip) = rail.parse() {
        return vec![ip];
    }
    let Ok(node) = std::ffi::CString::new(rail) else {
        return Vec::new();
    };
    let query = Query {
        node: Some(&node),
        ..Query::default()
    };
    let found = resolve::resolve(&query).unwrap_or_default();
    found.iter().map(std::net::SocketAddr::ip).collect()
}

impl Provider for Mrail {
    const NAME: &CStr = c"ofi_mrail";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = Fabric;

    fn load(provider: &fi_provider) -> Self {
        let interfaces = Rails::load(provider).interfaces();
        let has_rails = !interfaces.is_empty();
        let mut params = Params::load(provider);
        if has_rails {
            params.iface = Some(interfaces.join(","));
        }
        Mrail {
            params: checked(params),
            has_rails,
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        match self.has_rails {
            true => {
                let mut infos = getinfo(Name::Mrail, &self.params, request)?;
                for info in &mut infos {
                    // The framework adds that of the layer.
                    info.fabric.prov_name = Some(Name::Mrail.text().into());
                }
                Ok(infos)
            }
            false => {
                log::info!(target: LOG.core, "FI_OFI_MRAIL_ADDR is not set, or has no rail");
                Err(Errno::ENODATA)
            }
        }
    }

    fn fabric(&self, _: &FabricAttr) -> Result<Fabric> {
        Ok(Fabric::new(Name::Mrail, self.params.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rails(addr: &str) -> Rails {
        Rails {
            addr: Some(addr.into()),
            ..Rails::default()
        }
    }

    #[test]
    fn a_rail_is_an_interface_or_one_of_its_addresses() {
        for rail in [
            "lo",
            "127.0.0.1",
            "fi_sockaddr_in://127.0.0.1:0",
            " lo ,127.0.0.1,,",
        ] {
            assert_eq!(rails(rail).interfaces(), ["lo"], "{rail}");
        }
        for rail in ["", "lofty.invalid", "192.0.2.1", "fi_sockaddr_in://nowhere"] {
            assert!(rails(rail).interfaces().is_empty(), "{rail}");
        }
        let old = Rails {
            addr_strc: Some("lo".into()),
            ..Rails::default()
        };
        assert_eq!(old.interfaces(), ["lo"]);
    }

    #[test]
    fn only_policies_that_are_all_fixed_leave_one_rail() {
        for (config, is_fixed) in [
            ("-1:fixed", true),
            ("100:fixed,ULONG_MAX:fixed", true),
            ("16384:fixed,ULONG_MAX:striping", false),
            ("100:round-robin,-1:fixed", false),
            ("100:random", false),
            ("x:fixed", false),
            ("", false),
        ] {
            let rails = Rails {
                config: Some(config.into()),
                ..Rails::default()
            };
            assert_eq!(rails.is_fixed(), is_fixed, "{config}");
        }
    }
}
