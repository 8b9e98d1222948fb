//! The attributes that a layered provider offers over the providers below (fi_getinfo(3)).

use fabric_abi::{FI_FORMAT_UNSPEC, FI_LOCAL_COMM, FI_REMOTE_COMM};
use prov_base::errno::{Errno, Result};

use super::{CORE_ONLY, getinfo};
use prov_objects::attr::{Base, FabricAttr, Hints, Info, Opaque, Request, version};

/// The capabilities that tell which peers the provider below reaches.
pub const REACH: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

/// A layered provider, by its name, such as `ofi_rxm`.
#[derive(Clone, Copy, Debug)]
pub struct Layer(pub &'static str);

impl Layer {
    /// Returns the endpoints that match a request, over those below that match the hints `wanted`.
    /// `base` makes the provider's attributes from those of an endpoint below; `within` removes
    /// from the hints the values that exclude nothing, given these attributes.
    ///
    /// # Errors
    /// `-FI_ENODATA` if none does, and those of the providers below.
    pub fn offers(
        self,
        request: &Request<'_>,
        wanted: &Info,
        base: impl Fn(&Info) -> Base,
        within: impl Fn(Hints, &Info) -> Hints,
    ) -> Result<Vec<Info>> {
        let flags = request.flags | CORE_ONLY;
        let (node, service) = (request.node, request.service);
        let below = getinfo(request.version, node, service, flags, wanted)?;
        let mut infos = Vec::new();
        let asked_reach = request.hints.map_or(0, |hints| hints.caps & REACH);
        for core in &below {
            let base = base(core);
            let hints = request.hints.map(|hints| {
                // The providers below have accepted the format.
                let addr_format = FI_FORMAT_UNSPEC;
                let hints = Hints {
                    addr_format,
                    ..hints.clone()
                };
                within(hints, &base.limits)
            });
            // Node and service are passed to the providers below.
            let judged = Request {
                node: None,
                service: None,
                flags: 0,
                hints: hints.as_ref(),
                ..*request
            };
            let Ok(fitting) = judged.fitting(&[base]) else {
                continue;
            };
            let fitting = fitting.into_iter().map(|mut info| {
                info.src_addr = core.src_addr.clone();
                info.dest_addr = core.dest_addr.clone();
                info.addr_format = core.addr_format;
                info.handle = Opaque::NULL;
                info.caps = info.caps & !REACH | core.caps & REACH | asked_reach;
                info.fabric.prov_name = core.fabric.prov_name.clone();
                info
            });
            // Endpoints below may differ only in attributes that this provider hides; the first one
            // is used.
            for info in fitting {
                if !infos.contains(&info) {
                    infos.push(info);
                }
            }
        }
        match infos.is_empty() {
            true => Err(Errno::ENODATA),
            false => Ok(infos),
        }
    }

    /// Returns the providers below that hints name, if they name any.
    pub fn named_below(self, hints: &Hints) -> Option<String> {
        let name = hints.fabric.as_ref()?.prov_name.as_ref()?;
        let is_other = |name: &&str| !name.eq_ignore_ascii_case(self.0);
        let others: Vec<&str> = name.split(';').filter(is_other).collect();
        Some(others.join(";")).filter(|name| !name.is_empty())
    }

    /// Returns hints for the providers below, with the parts of the application's that concern them:
    /// addresses, and the names of fabric, domain and provider.
    pub fn hints_below(self, asked: &Hints) -> Info {
        let mut below = Info {
            addr_format: asked.addr_format,
            src_addr: asked.src_addr.clone(),
            dest_addr: asked.dest_addr.clone(),
            ..Info::default()
        };
        if let Some(fabric) = &asked.fabric {
            below.fabric.name = fabric.name.clone();
            below.fabric.api_version = fabric.api_version;
        }
        if let Some(domain) = &asked.domain {
            below.domain.name = domain.name.clone();
        }
        below.fabric.prov_name = Some(match self.named_below(asked) {
            Some(name) => format!("{name};^{}", self.0),
            None => format!("^{}", self.0),
        });
        below
    }
}

/// Returns the endpoint below for an endpoint or a domain with these attributes, over this provider:
/// the first one that matches what `wanted` makes of them.
///
/// # Errors
/// `-FI_ENODATA` if it does not exist any more, and those of the providers below.
pub fn one_below(
    api: u32,
    info: &Info,
    provider: Option<&str>,
    wanted: impl FnOnce(&Hints) -> Info,
) -> Result<Info> {
    let mut hints = Hints::from(info.clone());
    if let (Some(fabric), Some(_)) = (&mut hints.fabric, provider) {
        fabric.prov_name = provider.map(str::to_owned);
    }
    let mut wanted = wanted(&hints);
    // Attributes by which it was found, such as the peer's address, may be unknown here.
    wanted.fabric.api_version = 0;
    wanted.dest_addr = Vec::new();
    let found = getinfo(api, None, None, CORE_ONLY, &wanted)?;
    found.into_iter().next().ok_or(Errno::ENODATA)
}

/// Returns the endpoints below of a fabric, which match what `wanted` makes of its attributes and of
/// the interface version.
///
/// # Errors
/// `-FI_ENODATA` if there are none, and those of the providers below.
pub fn all_below(attr: &FabricAttr, wanted: impl FnOnce(u32, &Hints) -> Info) -> Result<Vec<Info>> {
    let hints = Hints {
        fabric: Some(FabricAttr {
            fabric: Opaque::NULL,
            prov_version: 0,
            ..attr.clone()
        }),
        ..Hints::default()
    };
    // With older interfaces, registration modes select only half of the endpoints.
    let api = attr.api_version.max(version(1, 5));
    let mut wanted = wanted(api, &hints);
    wanted.fabric.api_version = 0;
    getinfo(api, None, None, CORE_ONLY, &wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_below_are_named_without_the_layer() {
        let layer = Layer("ofi_rxm");
        let named = |name: &str| {
            let fabric = FabricAttr {
                prov_name: Some(name.to_owned()),
                ..FabricAttr::default()
            };
            layer.hints_below(&Hints {
                fabric: Some(fabric),
                ..Hints::default()
            })
        };
        for (name, below) in [
            ("tcp;ofi_rxm", "tcp;^ofi_rxm"),
            ("OFI_RXM;verbs", "verbs;^ofi_rxm"),
            ("ofi_rxm", "^ofi_rxm"),
        ] {
            assert_eq!(named(name).fabric.prov_name.as_deref(), Some(below));
        }
    }
}
