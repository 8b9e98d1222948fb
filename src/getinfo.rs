//! `fi_getinfo`: queries the providers and orders their results (fi_getinfo(3)).

use std::ffi::{CStr, CString};
use std::fmt;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::netif::Snapshot;
use prov_base::resolve;

use crate::deep::Deep;
use crate::framework::Framework;
use crate::info::Info;
use crate::layering::{Layer, Layers, flags};
use crate::level::CORE;
use crate::name_filter::LAYER_SEPARATOR;
use crate::provider::{Class, Provider, Request};
use crate::registry::{Hidden, RegisteredProvider, Registry};
use crate::tostr::{self, names};
use crate::version::Version;
use crate::{listening, loader, log_layer, strerror, why};

/// Returns the results of all providers together; `ENODATA` if there are none.
pub fn getinfo(framework: &Framework, request: &Request) -> Result<Vec<Info>> {
    let _interfaces = Snapshot::begin();
    let _names = resolve::Memory::begin();
    log_layer::calling(|| together(framework, request))
}

fn together(framework: &Framework, request: &Request) -> Result<Vec<Info>> {
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
        return providers(&framework.registry);
    }
    if let (Some(hints), true) = (
        request.hints,
        log::log_enabled!(target: CORE, log::Level::Debug),
    ) {
        log::debug!(target: CORE, "hints:\n{}", tostr::info(hints));
    }
    let answers = answers(framework, request)?;
    if request.flags & flags::OF_PROVIDERS == 0 {
        match answers.is_empty() {
            false => why::found(),
            true => why::explain(|| {
                let _ = self::answers(framework, request);
            }),
        }
    }
    if answers.is_empty() {
        Err(Errno::ENODATA)
    } else {
        Ok(answers)
    }
}

/// Returns the results of all providers that may answer, in order.
fn answers(framework: &Framework, request: &Request) -> Result<Vec<Info>> {
    let registry = &framework.registry;
    let name = request.hints.and_then(Deep::<fi_info>::prov_name);
    let layers = name.as_deref().map(Layers::parse).unwrap_or_default();
    let is_explained = !listening::is_listening() && listening::is_wanted();
    if is_explained {
        explain_absent(registry, &layers);
    }
    let mut answers = Vec::new();
    let mut is_any_asked = false;
    for entry in registry.entries() {
        if let Err(reason) = admit(registry, entry, &layers, request) {
            if is_explained {
                why::say(entry.provider.name(), &format_args!("not asked: {reason}"));
            }
            continue;
        }
        is_any_asked = true;
        answers.append(&mut ask(entry, request, name.as_deref())?);
    }
    if !is_any_asked {
        listening::keep(&"no provider below it may be asked");
    }
    if request.flags & flags::OF_PROVIDERS == 0 {
        answers.retain(|info| wanted(registry, request.hints, info));
        put_native_before_layered(&mut answers);
    }
    // Offload providers have the addresses of the providers that they serve, and applications do not
    // see those of providers that are linked.
    let not_seen = flags::OFFLOAD | flags::HIDDEN;
    let of_applications = framework
        .address_format
        .filter(|_| request.flags & not_seen == 0);
    if let Some(format) = of_applications {
        answers.retain(|info| has_address_format(info, format));
    }
    Ok(answers)
}

/// Whether a result has the format that `FI_ADDR_FORMAT` names.
fn has_address_format(info: &Info, format: u32) -> bool {
    let has = info.view().addr_format;
    if has == format {
        return true;
    }
    let name = |format: u32| names::enumerator(names::ADDRESS_FORMATS, format.into());
    leave_out(
        info,
        &format_args!(
            "addr_format is {}, and FI_ADDR_FORMAT asks for {}; unset it",
            name(has),
            name(format)
        ),
    );
    false
}

/// Reports that the application does not get a result of a provider.
fn leave_out(info: &Info, reason: &dyn fmt::Display) {
    if !listening::is_wanted() {
        return;
    }
    let name = provider_of(info);
    // The log refers to providers by their own names; the last one is layered over the others.
    let own = name.rsplit(LAYER_SEPARATOR).next().unwrap_or(&name);
    why::say(
        own,
        &format_args!("a result of {name} is left out: {reason}"),
    );
}

/// Reports why libraries cannot be used, and where a provider would have to be that the hints name
/// and that does not exist.
fn explain_absent(registry: &Registry, layers: &Layers) {
    for useless in registry.useless() {
        let reason = format_args!("{} is not used: {}", useless.name, useless.reason);
        why::say("core", &reason);
    }
    for name in layers.wanted() {
        if registry.find(name).is_none() {
            let directory = loader::default_directory();
            let reason = format_args!(
                "the hints name {name}, and there is no such provider; ask for another one, or \
                 install lib{}-fi.so in {} or in a directory of FI_PROVIDER_PATH",
                name.trim_start_matches("ofi_").to_ascii_lowercase(),
                directory.display()
            );
            why::say("core", &reason);
        }
    }
}

/// Returns one result for each provider, with its name and version (`FI_PROV_ATTR_ONLY`).
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

/// Checks whether a provider is to be queried; the error is the reason why not.
fn admit(
    registry: &Registry,
    entry: &RegisteredProvider,
    layers: &Layers,
    request: &Request,
) -> std::result::Result<(), String> {
    let name = entry.provider.name();
    match entry.hidden {
        _ if request.flags & flags::HIDDEN != 0 => {}
        None => {}
        Some(Hidden::Unwanted) if registry.filter().is_negated() => {
            return Err(format!(
                "FI_PROVIDER excludes it; remove {name} from FI_PROVIDER"
            ));
        }
        Some(Hidden::Unwanted) => {
            return Err(format!(
                "FI_PROVIDER does not name it; add {name} to FI_PROVIDER"
            ));
        }
        Some(Hidden::Replaced) => {
            return Err(format!(
                "version {} of it is not used, another one takes its place; choose with \
                 FI_PROVIDER_PATH",
                entry.provider.version()
            ));
        }
    }
    if !entry.provider.answers_getinfo() {
        return Err("it only hooks other providers; set FI_HOOK to use it".into());
    }
    if !layers.names() && registry.is_for_hints_alone(entry) {
        return Err("it is offered by name only; name it in the hints or in FI_PROVIDER".into());
    }
    if entry.class == Class::Offload && request.flags & flags::OFFLOAD == 0 {
        return Err("it only serves other providers".into());
    }
    layers.admit(entry.layer(), request.flags, |name| {
        registry.find(name).map(RegisteredProvider::layer)
    })?;
    if entry.provider.fi_version() < request.version {
        return Err(format!(
            "it has interface {}, the application asks for {}; ask for {0} or earlier",
            entry.provider.fi_version(),
            request.version
        ));
    }
    Ok(())
}

/// Returns one provider's results, under its full name. A provider without results, for whatever
/// reason, does not prevent others from answering.
fn ask(
    entry: &RegisteredProvider,
    request: &Request,
    asked_for: Option<&str>,
) -> Result<Vec<Info>> {
    let provider = entry.provider;
    let (answer, said) = listening::listen(|| provider.getinfo(request));
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            refused(provider, error, said, asked_for);
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

/// Reports that a provider has no result; `said` are its reasons.
fn refused(provider: Provider, error: Errno, mut said: Vec<String>, asked_for: Option<&str>) {
    let name = provider.name();
    // A user that names a provider wants to know that it has a problem.
    let is_named = asked_for == Some(name) && error != Errno::ENODATA;
    if is_named && !listening::is_listening() {
        log::warn!(target: CORE, "provider {name} answers {}", shown(error));
    }
    if !listening::is_wanted() {
        return;
    }
    if said.is_empty() {
        said.push(format!("it answers {}", shown(error)));
    }
    if !listening::pass_up(name, &said) {
        for reason in said {
            why::say(name, &format_args!("not offered: {reason}"));
        }
    }
}

/// Formats an error as number and text.
fn shown(error: Errno) -> String {
    let text = strerror::text(error.number());
    format!("{} ({})", error.to_c(), text.to_string_lossy())
}

/// Returns the name of a result: the provider's own, or, for one that is layered over another, that
/// one's name followed by its own.
fn full_name(class: Class, own: &CStr, below: Option<&CStr>) -> CString {
    match below {
        None => own.to_owned(),
        // It combines several, and has already entered their names.
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

/// Whether the names in `FI_PROVIDER` and in the hints accept a result.
fn wanted(registry: &Registry, hints: Option<Deep<fi_info>>, info: &Info) -> bool {
    let reject = |attribute: &str, asked: &str, has: &str| {
        leave_out(
            info,
            &format_args!("{attribute}: asked for {asked}, supported is {has}"),
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
        return reject("FI_PROVIDER", &format!("{negation}{listed}"), &name);
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

/// Moves the reliable datagrams of the tcp provider before those of a layer over its connections,
/// which have the same addresses and are slower. All other results keep the order of the providers.
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

impl RegisteredProvider {
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
    fn native_datagrams_of_tcp_are_listed_before_layered_ones() {
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
