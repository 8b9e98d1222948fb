//! The loopback provider (fi_loopback(7)): reliable datagrams between endpoints
//! of one process.
//!
//! It is the example for authors of providers. This file implements the interface to libraries and
//! applications, `network` the lookup of endpoints and the messages between them. The rest of the
//! provider is that of `prov-message` and `prov-util`.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), forbid(unsafe_code))]

mod network;
#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

use fabric_abi::{FI_ADDR_STR, fi_provider};
use prov_base::errno::{Errno, Result};
use prov_base::{log_targets, logging::Targets, sync::LockKind};
use prov_message::objects::{Domain, Enabling, Provider, SoftEndpoint, SoftFabric};
use prov_message::{Lane, Member, Names, RmaTarget, Sizes, attributes};
use prov_util::attr::{Base, FabricAttr, Info, Request, named, version};
use prov_util::av::format::Format;
use prov_util::{mr::MrTable, provider};

use self::network::Network;

const LOG: Targets = log_targets!("loopback");
const VERSION: u32 = version(207, 0);
const SIZES: Sizes = Sizes {
    inject: 4096,
    atomic: 64 << 10,
    message: Sizes::LONGEST,
};

/// The provider.
#[derive(Default)]
pub struct Loopback(OnceLock<Arc<Lane<Network>>>);

prov_util::provider!(Loopback);

impl provider::Provider for Loopback {
    const NAME: &CStr = c"loopback";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = SoftFabric<Joined>;

    fn load(_: &fi_provider) -> Self {
        Loopback::default()
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        named::getinfo(request, &bases(), self)
    }

    fn fabric(&self, _: &FabricAttr) -> Result<Self::Fabric> {
        let network = Lane::start(LockKind::Real, |_| Ok(Network::default()))?;
        let joined = Joined(self.0.get_or_init(|| network).clone());
        Ok(SoftFabric::new(joined, bases()))
    }
}

/// Returns the kinds of endpoints.
fn bases() -> Vec<Base> {
    let mut info = attributes::rdm("loopback", VERSION, SIZES);
    info.addr_format = FI_ADDR_STR;
    let shared = attributes::with_shared_receive(info.clone());
    vec![info.into(), shared.into()]
}

impl named::Naming for Loopback {
    fn is_address(&self, bytes: &[u8]) -> bool {
        let text = bytes.strip_suffix(b"\0");
        text.and_then(network::endpoint_at).is_some()
    }
}

/// The state that all domains share: the lane of their endpoints.
#[derive(Clone)]
pub struct Joined(Arc<Lane<Network>>);

impl Provider for Joined {
    type Core = Network;
    type Setup = ();

    const LOG: Targets = LOG;
    const THREAD: &'static str = "fi_loopback";
    const ATOMIC_LIMIT: usize = SIZES.atomic;
    const DOMAINS_MEET: bool = true;

    fn address_format(_: u32) -> Option<Format> {
        Some(Format::text(network::LONGEST_ADDRESS))
    }

    fn lane(&self, _: &Arc<MrTable>, _: LockKind) -> Result<Arc<Lane<Network>>> {
        Ok(self.0.clone())
    }

    fn open(_: &Domain<Self>, info: &Info) -> Result {
        // Addresses are assigned, not chosen by the application.
        let is_free = info.src_addr.is_empty();
        is_free.then_some(()).ok_or(Errno::EADDRNOTAVAIL)
    }

    fn enable(&self, _: &mut (), enabling: Enabling<'_, Self>) -> Result<Member> {
        let av = enabling.bindings.av.clone().ok_or(Errno::ENOAV)?;
        Ok(Member {
            names: Names::new(av),
            target: RmaTarget::new(&enabling.domain.memory),
        })
    }

    fn name(ep: &SoftEndpoint<Self>) -> Result<Vec<u8>> {
        Ok((network::address(ep.seated()?.key) + "\0").into_bytes())
    }
}
