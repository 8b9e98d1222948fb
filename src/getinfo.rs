//! `fi_getinfo`: asking the providers and putting their answers in order
//! (fi_getinfo(3)).

use std::ffi::{CStr, CString};

use fabric_abi::*;
use prov_util::errno::{Errno, Result};

use crate::deep::Deep;
use crate::framework::Framework;
use crate::info::Info;
use crate::layering::{Layer, Layers, flags};
use crate::level::CORE;
use crate::provider::{Class, Request};
use crate::registry::{Entry, Registry};
use crate::strerror;
use crate::tostr::{self, names};
use crate::version::Version;

/// What all providers together offer. An empty answer is `ENODATA`.
pub fn getinfo(framework: &Framework, request: &Request) -> Result<Vec<Info>> {
    let registry = &framework.registry;
    if request.version > Version::LIBRARY {
        log::warn!(
            target: CORE,
            "the application asks for interface {}, this library has {}",
            request.version,
            Version::LIBRARY
        );
        return Err(Errno::ENOSYS);
    }
    if request.flags & FI_PROV_ATTR_ONLY != 0 {
        return providers(registry);
    }
    if let (Some(hints), true) = (
        request.hints,
        log::log_enabled!(target: CORE, log::Level::Debug),
    ) {
        log::debug!(target: CORE, "hints:\n{}", tostr::info(hints));
    }
    let name = request.hints.and_then(Deep::<fi_info>::prov_name);
    let layers = name.as_deref().map(Layers::parse).unwrap_or_default();
    let mut answers = Vec::new();
    for entry in registry.entries() {
        if entry.hidden && request.flags & flags::HIDDEN == 0 {
            continue;
        }
        if let Err(reason) = admit(registry, entry, &layers, request) {
            log::info!(target: CORE, "provider {} is not asked: {reason}", entry.provider.name());
            continue;
        }
        answers.append(&mut ask(entry, request, name.as_deref())?);
    }
    let internal = flags::CORE_ONLY | flags::INTERNAL | flags::HIDDEN | flags::OFFLOAD;
    if request.flags & internal == 0 {
        answers.retain(|info| wanted(registry, request.hints, info));
        put_native_before_layered(&mut answers);
    }
    // What serves other providers has the addresses of those.
    let of_applications = framework
        .address_format
        .filter(|_| request.flags & flags::OFFLOAD == 0);
    if let Some(format) = of_applications {
        answers.retain(|info| {
            let matches = info.view().addr_format == format;
            if !matches {
                log::info!(
                    target: CORE,
                    "a result of {} is left out: its addr_format is {}, FI_ADDR_FORMAT asks for {}",
                    provider_of(info),
                    names::enumerator(names::ADDRESS_FORMATS, info.view().addr_format.into()),
                    names::enumerator(names::ADDRESS_FORMATS, format.into()),
                );
            }
            matches
        });
    }
    if answers.is_empty() {
        Err(Errno::ENODATA)
    } else {
        Ok(answers)
    }
}

/// One result for each provider, with its name and version
/// (`FI_PROV_ATTR_ONLY`).
fn providers(registry: &Registry) -> Result<Vec<Info>> {
    let list: Vec<Info> = registry
        .entries()
        .iter()
        .map(|entry| {
            let mut info = Info::new()?;
            let name = entry.provider.c_name().unwrap_or_default();
            info.set_provider(name, entry.provider.version(), Version::new(0))?;
            Ok(info)
        })
        .collect::<Result<_>>()?;
    if list.is_empty() {
        Err(Errno::ENODATA)
    } else {
        Ok(list)
    }
}

/// Whether a provider is to be asked, or else why not.
fn admit(
    registry: &Registry,
    entry: &Entry,
    layers: &Layers,
    request: &Request,
) -> std::result::Result<(), String> {
    if !entry.provider.answers_getinfo() {
        return Err("it only hooks other providers".into());
    }
    if !layers.names() && registry.is_for_hints_alone(entry) {
        return Err("it is offered by name only".into());
    }
    if entry.class == Class::Offload && request.flags & flags::OFFLOAD == 0 {
        return Err("it only serves other providers".into());
    }
    layers.admit(entry.layer(), request.flags, |name| {
        registry.find(name).map(Entry::layer)
    })?;
    if entry.provider.fi_version() < request.version {
        return Err(format!(
            "it has interface {}, the application asks for {}",
            entry.provider.fi_version(),
            request.version
        ));
    }
    Ok(())
}

/// One provider's answer, under its full name. A provider that has none, for
/// whatever reason, does not keep others from answering.
fn ask(entry: &Entry, request: &Request, asked_for: Option<&str>) -> Result<Vec<Info>> {
    let provider = entry.provider;
    let mut answer = match provider.getinfo(request) {
        Ok(answer) => answer,
        Err(error) => {
            // Whoever names a provider wants to know what is wrong with it.
            let level = if asked_for == Some(provider.name()) {
                log::Level::Warn
            } else {
                log::Level::Info
            };
            log::log!(
                target: CORE,
                level,
                "provider {} answers {} ({})",
                provider.name(),
                error.to_c(),
                strerror::text(error.number()).to_string_lossy(),
            );
            return Ok(Vec::new());
        }
    };
    log::debug!(target: CORE, "provider {} answers with {} results", provider.name(), answer.len());
    let own_name = provider.c_name().unwrap_or_default();
    for info in &mut answer {
        let below = info
            .view()
            .fabric_attr()
            .and_then(Deep::<fi_fabric_attr>::prov_name);
        let name = full_name(entry.class, own_name, below);
        info.set_provider(&name, provider.version(), request.version)?;
    }
    Ok(answer)
}

/// The name of a result: the provider's own, or for one that layers over
/// another that one's name with its own behind it.
fn full_name(class: Class, own: &CStr, below: Option<&CStr>) -> CString {
    match below {
        None => own.to_owned(),
        // It joins several, and has already said which.
        Some(below) if class == Class::Link => below.to_owned(),
        // A core provider that has entered its own name.
        Some(below) if class == Class::Core && below == own => own.to_owned(),
        Some(below) => {
            let mut name = below.to_bytes().to_vec();
            name.push(b';');
            name.extend(own.to_bytes());
            // Neither of the two contains a NUL.
            CString::new(name).unwrap_or_default()
        }
    }
}

/// Whether the names in `FI_PROVIDER` and in the hints let a result pass.
fn wanted(registry: &Registry, hints: Option<Deep<fi_info>>, info: &Info) -> bool {
    let reject = |attribute: &str, asked: &str, has: &str| {
        log::info!(
            target: CORE,
            "a result of {} is left out: {attribute} is {has}, asked for is {asked}",
            provider_of(info),
        );
        false
    };
    let name = provider_of(info);
    if !registry.filter().allows_layered(&name) {
        let negation = if registry.filter().is_negated() {
            "not "
        } else {
            ""
        };
        let listed = registry.filter().names().collect::<Vec<_>>().join(",");
        return reject("the provider's name", &format!("{negation}{listed}"), &name);
    }
    let Some(hints) = hints else { return true };
    let domain = (
        hints.domain_attr().and_then(Deep::<fi_domain_attr>::name),
        info.view()
            .domain_attr()
            .and_then(Deep::<fi_domain_attr>::name),
    );
    let fabric = (
        hints.fabric_attr().and_then(Deep::<fi_fabric_attr>::name),
        info.view()
            .fabric_attr()
            .and_then(Deep::<fi_fabric_attr>::name),
    );
    for (attribute, (asked, has)) in [("domain_attr.name", domain), ("fabric_attr.name", fabric)] {
        let Some(asked) = asked else { continue };
        let has = has.unwrap_or_default();
        if !asked.to_bytes().eq_ignore_ascii_case(has.to_bytes()) {
            return reject(attribute, &asked.to_string_lossy(), &has.to_string_lossy());
        }
    }
    true
}

/// The reliable datagrams of the tcp provider come before those that a layer makes over
/// its connections, which have the same addresses and are slower. All else keeps the
/// order of the providers.
fn put_native_before_layered(answers: &mut Vec<Info>) {
    let is = |info: &Info, name: &str| provider_of(info).eq_ignore_ascii_case(name);
    let Some(first) = answers.iter().position(|info| is(info, "tcp;ofi_rxm")) else {
        return;
    };
    let is_native = |info: &Info| {
        let endpoint = info.view().ep_attr();
        is(info, "tcp") && endpoint.is_some_and(|attr| attr.type_ == FI_EP_RDM)
    };
    let behind = answers.split_off(first);
    let (native, rest): (Vec<_>, Vec<_>) = behind.into_iter().partition(is_native);
    answers.extend(native);
    answers.extend(rest);
}

fn provider_of(info: &Info) -> String {
    info.view()
        .prov_name()
        .map_or_else(|| "an unnamed provider".into(), |name| name.into_owned())
}

impl Entry {
    fn layer(&self) -> Layer<'static> {
        Layer {
            name: self.provider.name(),
            class: self.class,
            alone: self.alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(provider: &CStr, endpoint: fi_ep_type) -> Info {
        let mut info = Info::new().unwrap();
        info.set_provider(provider, Version::of(1, 0), Version::LIBRARY)
            .unwrap();
        info.set_endpoint_type(endpoint);
        info
    }

    fn order_of(answers: &[Info]) -> Vec<(String, bool)> {
        let order = answers.iter().map(|info| {
            let datagrams = info.view().ep_attr().unwrap().type_ == FI_EP_RDM;
            (provider_of(info), datagrams)
        });
        order.collect()
    }

    #[test]
    fn native_datagrams_of_tcp_come_before_layered_ones() {
        let mut answers = vec![
            answer(c"tcp;ofi_rxm", FI_EP_RDM),
            answer(c"udp;ofi_rxd", FI_EP_RDM),
            answer(c"shm", FI_EP_RDM),
            answer(c"tcp", FI_EP_MSG),
            answer(c"tcp", FI_EP_RDM),
        ];
        put_native_before_layered(&mut answers);
        let expected = [
            ("tcp", true),
            ("tcp;ofi_rxm", true),
            ("udp;ofi_rxd", true),
            ("shm", true),
            ("tcp", false),
        ];
        assert_eq!(
            order_of(&answers),
            expected.map(|(name, rdm)| (name.to_owned(), rdm))
        );
    }

    #[test]
    fn without_a_layer_over_tcp_the_order_is_that_of_the_providers() {
        let mut answers = vec![
            answer(c"shm", FI_EP_RDM),
            answer(c"tcp", FI_EP_MSG),
            answer(c"tcp", FI_EP_RDM),
        ];
        let before = order_of(&answers);
        put_native_before_layered(&mut answers);
        assert_eq!(order_of(&answers), before);
    }

    #[test]
    fn a_layer_adds_its_name_to_that_of_the_provider_below() {
        let name = |class, own, below| full_name(class, own, below).into_string().unwrap();
        assert_eq!(name(Class::Core, c"tcp", None), "tcp");
        assert_eq!(name(Class::Core, c"tcp", Some(c"tcp")), "tcp");
        assert_eq!(
            name(Class::Utility, c"ofi_rxm", Some(c"tcp")),
            "tcp;ofi_rxm"
        );
        assert_eq!(name(Class::Link, c"lnx", Some(c"shm+tcp")), "shm+tcp");
    }
}
