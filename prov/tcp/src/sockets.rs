//! The provider `sockets` (fi_sockets(7)): the engine of tcp under the name that old scripts and
//! programs request. Its parameters are those of tcp, and for some of them names of the C library's
//! provider.

use std::ffi::CStr;
use std::sync::Arc;

use prov_base::errno::Result;
use prov_base::logging::Targets;
use prov_base::netif;
use prov_base::param_table;
use prov_util::attr::{FabricAttr, Info, Request};
use prov_util::provider::{Provider, fi_provider};

use crate::VERSION;
use crate::bases::Name;
use crate::fabric::Fabric;
use crate::params::Params;
use crate::provider::{checked, getinfo};

/// The provider, with the parameters that the user has set.
pub struct Sockets {
    params: Arc<Params>,
}

prov_util::provider!(Sockets);

param_table! {
    /// Parameters that the C library's provider of this name calls differently from tcp.
    struct Others for "sockets" {
        /// Milliseconds within which a connection must be established; 0 leaves it to
        /// FI_SOCKETS_CONNECT_TIMEOUT
        conn_timeout: i32 = 0, in 0..=3_600_000;
    }
}

impl Others {
    /// Applies the parameters to those of the engine.
    fn within(&self, params: Params) -> Params {
        Params {
            connect_timeout: match self.conn_timeout {
                0 => params.connect_timeout,
                set => set,
            },
            iface: params.iface.map(full_names),
            ..params
        }
    }
}

/// Returns the interfaces whose names begin with those of a list.
fn full_names(list: String) -> String {
    let names = list.split(',').map(|name| full_name(name.trim().into()));
    names.collect::<Vec<_>>().join(",")
}

/// Returns the interface whose name begins with `prefix`, the best of several; the prefix itself if
/// there is none.
fn full_name(prefix: String) -> String {
    if prefix.is_empty() || !netif::interfaces(Some(&prefix)).is_empty() {
        return prefix;
    }
    let all = netif::interfaces(None).into_iter();
    let mut names = all.map(|interface| interface.name);
    let found = names.find(|name| name.starts_with(&prefix));
    found.unwrap_or(prefix)
}

impl Provider for Sockets {
    const NAME: &CStr = c"sockets";
    const VERSION: u32 = VERSION;
    const LOG: Targets = prov_base::log_targets!("sockets");
    type Fabric = Fabric;

    fn load(provider: &fi_provider) -> Self {
        let others = Others::load(provider);
        Sockets {
            params: checked(others.within(Params::load(provider))),
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        getinfo(Name::Sockets, &self.params, request)
    }

    fn fabric(&self, _: &FabricAttr) -> Result<Fabric> {
        Ok(Fabric::new(Name::Sockets, self.params.clone()))
    }
}

#[cfg(test)]
mod tests {
    use fabric_abi::FI_FENCE;

    use super::*;
    use crate::bases::bases;

    #[test]
    fn only_this_provider_offers_fences() {
        let fenced = |name| {
            let bases = bases(name, &Params::default()).into_iter();
            let caps = bases.flat_map(|base| [base.limits.caps, base.limits.tx.caps]);
            caps.filter(|caps| caps & FI_FENCE != 0).count()
        };
        assert_eq!([fenced(Name::Tcp), fenced(Name::Sockets)], [0, 6]);
    }

    #[test]
    fn the_time_to_connect_has_the_name_of_either_provider() {
        let params = |conn_timeout, connect_timeout| {
            let params = Params {
                connect_timeout,
                ..Params::default()
            };
            Others { conn_timeout }.within(params).connect_timeout
        };
        assert_eq!(params(0, 7_000), 7_000);
        assert_eq!(params(300, 7_000), 300);
    }

    #[test]
    fn an_interface_is_known_by_the_beginning_of_its_name() {
        // Interfaces other than the loopback one may begin like this, too.
        let found = full_name("l".into());
        assert!(found.starts_with('l') && found.len() > 1, "{found}");
        assert_eq!(full_name("lo".into()), "lo");
        assert_eq!(full_name("lofty".into()), "lofty");
        assert_eq!(full_name(String::new()), "");
    }
}
