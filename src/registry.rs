//! All providers, in the order in which `fi_getinfo` queries them.

use crate::candidate::{Candidate, Library, Precedence, Useless};
use crate::level::CORE;
use crate::logging;
use crate::name_filter::NameFilter;
use crate::params::{self, Owner};
use crate::provider::{Class, Provider};
use crate::version::Version;

/// The order of the known names: networks with hardware of their own first, then layered providers,
/// then memory, then providers over sockets. It is the C library's. Providers with other names
/// follow in the order in which they are found.
pub const ORDER: [&str; 24] = [
    "efa",
    "psm2",
    "opx",
    "usnic",
    "verbs",
    "cxi",
    "psm3",
    "ucx",
    "ofi_rxm",
    "ofi_rxd",
    "shm",
    "udp",
    "tcp",
    "sockets",
    "net",
    "ofi_hook_perf",
    "ofi_hook_trace",
    "ofi_hook_profile",
    "ofi_hook_monitor",
    "ofi_hook_debug",
    "ofi_hook_noop",
    "ofi_hook_hmem",
    "ofi_hook_dmabuf_peer_mem",
    "off_coll",
];

/// Core providers over which utility providers are layered only if the caller names that
/// combination: these have reliable datagrams of their own.
const ALONE: [&str; 7] = ["sockets", "shm", "efa", "psm3", "ucx", "cxi", "loopback"];

/// Providers that are used only if named: they reach no other process.
const ON_REQUEST: [&str; 1] = ["loopback"];

/// The oldest version of the interface whose providers are compatible.
const OLDEST_INTERFACE: Version = Version::of(1, 3);

/// A provider in the registry.
pub struct RegisteredProvider {
    pub provider: Provider,
    pub class: Class,
    /// Whether utility providers are layered over it only on request.
    pub alone: bool,
    /// Why `fi_getinfo` leaves it out, if it does.
    pub hidden: Option<Hidden>,
    /// Whether it was selected with `+` in `FI_PROVIDER_PATH`.
    preferred: bool,
    /// Keeps the code of an external provider loaded.
    _library: Option<Library>,
}

/// Why `fi_getinfo` leaves a provider out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// `FI_PROVIDER` excludes it.
    Unwanted,
    /// Another one with the same name is used instead.
    Replaced,
}

/// The providers, in order. Of several with the same name the one in use is first.
pub struct Registry {
    entries: Vec<RegisteredProvider>,
    useless: Vec<Useless>,
    filter: NameFilter,
    precedence: Precedence,
}

impl Registry {
    /// Creates a registry without providers. `filter` is the value of `FI_PROVIDER`.
    pub fn new(filter: NameFilter) -> Self {
        Registry {
            entries: Vec::new(),
            useless: Vec::new(),
            filter,
            precedence: Precedence::default(),
        }
    }

    /// Sets how to select one of several providers with the same name from now on.
    pub fn set_precedence(&mut self, precedence: Precedence) {
        self.precedence = precedence;
    }

    /// Returns the value of `FI_PROVIDER`.
    pub fn filter(&self) -> &NameFilter {
        &self.filter
    }

    /// Whether a provider that is queried only if `FI_PROVIDER` or the hints name it is not named
    /// by `FI_PROVIDER`.
    pub fn is_for_hints_alone(&self, entry: &RegisteredProvider) -> bool {
        let name = entry.provider.name();
        is_one_of(name, &ON_REQUEST) && !self.filter.wants(name)
    }

    /// Returns all providers, in order, including hidden ones.
    pub fn entries(&self) -> &[RegisteredProvider] {
        &self.entries
    }

    /// Returns the libraries that were found and cannot be used, and why.
    pub fn useless(&self) -> &[Useless] {
        &self.useless
    }

    /// Adds a library that was found and cannot be used.
    pub fn reject(&mut self, useless: Useless) {
        self.useless.push(useless);
    }

    /// Returns the provider in use with this name, whatever its case.
    pub fn find(&self, name: &str) -> Option<&RegisteredProvider> {
        self.entries
            .iter()
            .find(|entry| entry.provider.name().eq_ignore_ascii_case(name))
    }

    /// Enters a provider, unless it is incompatible with this library; then it is cleaned up.
    pub fn register(&mut self, candidate: Candidate) {
        let provider = candidate.provider;
        if self.entries.iter().any(|entry| entry.provider == provider) {
            // The same library under another path.
            return;
        }
        if let Err(reason) = fitness(provider) {
            log::warn!(target: CORE, "ignoring provider {}: {reason}", provider.name());
            params::undefine(Owner {
                id: provider.as_ptr() as usize,
                provider: None,
            });
            self.reject(Useless {
                name: provider.name().to_owned(),
                reason,
            });
            provider.clean_up();
            return;
        }
        let name = provider.name();
        log::info!(target: CORE, "registering provider {name} {}", provider.version());
        let class = provider.class();
        let alone = class == Class::Utility || is_one_of(name, &ALONE);
        // A list of wanted providers selects core providers; providers that can be layered over
        // those are included.
        let unwanted =
            (self.filter.is_negated() || class == Class::Core) && !self.filter.allows_core(name);
        if unwanted {
            log::info!(target: CORE, "FI_PROVIDER leaves out provider {name}");
        }
        provider.set_context(class, !logging::wants_provider(name), alone);
        self.insert(RegisteredProvider {
            provider,
            class,
            alone,
            hidden: unwanted.then_some(Hidden::Unwanted),
            preferred: candidate.preferred,
            _library: candidate.library,
        });
    }

    /// Reports names in `FI_PROVIDER` that no provider has, which are mostly misspelled.
    pub fn report_unknown_names(&self) {
        for name in self
            .filter
            .names()
            .flat_map(|name| name.split(crate::name_filter::LAYER_SEPARATOR))
        {
            if self.find(name).is_some() || is_one_of(name, &ORDER) {
                continue;
            }
            let close = self
                .entries
                .iter()
                .map(|entry| entry.provider.name())
                .find(|known| is_close(name, known));
            match close {
                Some(close) => {
                    log::warn!(target: CORE, "FI_PROVIDER names {name}, which is unknown; is it {close}?");
                }
                None => log::warn!(target: CORE, "FI_PROVIDER names {name}, which is unknown"),
            }
        }
    }

    /// Lets all providers release their resources, last ones first.
    pub fn clean_up(&self) {
        for entry in self.entries.iter().rev() {
            entry.provider.clean_up();
        }
    }

    #[allow(clippy::indexing_slicing, reason = "the position is in the list")]
    fn insert(&mut self, mut new: RegisteredProvider) {
        let name = new.provider.name();
        let current = self
            .entries
            .iter()
            .position(|entry| entry.provider.name().eq_ignore_ascii_case(name));
        match current {
            Some(current) if self.replaces(&self.entries[current], &new) => {
                log::info!(
                    target: CORE,
                    "provider {name} {} takes the place of {}",
                    new.provider.version(),
                    self.entries[current].provider.version(),
                );
                self.entries[current].hidden = Some(Hidden::Replaced);
                self.entries.insert(current, new);
            }
            Some(current) => {
                new.hidden = Some(Hidden::Replaced);
                self.entries.insert(current + 1, new);
            }
            None => {
                let rank = rank(name);
                let place = self
                    .entries
                    .iter()
                    .position(|entry| self::rank(entry.provider.name()) > rank)
                    .unwrap_or(self.entries.len());
                self.entries.insert(place, new);
            }
        }
    }

    fn replaces(&self, current: &RegisteredProvider, new: &RegisteredProvider) -> bool {
        if current.preferred || new.preferred {
            return !current.preferred;
        }
        self.precedence == Precedence::Version
            && new.provider.version() > current.provider.version()
    }
}

/// Checks whether a provider can be used; the error is the reason why not.
fn fitness(provider: Provider) -> Result<(), String> {
    if provider.c_name().is_none() {
        return Err("it has no name".into());
    }
    if !provider.opens_fabrics() {
        return Err("it lacks the function that opens a fabric".into());
    }
    if provider.fi_version() < OLDEST_INTERFACE {
        return Err(format!(
            "it was written for interface {}, and this library supports {OLDEST_INTERFACE} and later",
            provider.fi_version()
        ));
    }
    Ok(())
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn rank(name: &str) -> usize {
    ORDER
        .iter()
        .position(|known| known.eq_ignore_ascii_case(name))
        .unwrap_or(ORDER.len())
}

/// Whether one name may be a misspelling of the other.
fn is_close(name: &str, known: &str) -> bool {
    let common = name
        .bytes()
        .zip(known.bytes())
        .take_while(|(a, b)| a.eq_ignore_ascii_case(b))
        .count();
    common >= 2 && name.len().abs_diff(known.len()) <= 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::fake;
    use std::ffi::CStr;

    fn enter(registry: &mut Registry, name: &'static CStr, version: (u16, u16), preferred: bool) {
        let (major, minor) = version;
        registry.register(Candidate {
            provider: fake::provider(name, Version::of(major, minor), true),
            preferred,
            library: None,
        });
    }

    fn names(registry: &Registry) -> Vec<(&'static str, bool)> {
        registry
            .entries()
            .iter()
            .map(|entry| (entry.provider.name(), entry.hidden.is_some()))
            .collect()
    }

    fn active_version(registry: &Registry, name: &str) -> Version {
        registry.find(name).unwrap().provider.version()
    }

    #[test]
    fn providers_on_request_are_requested_only_by_name() {
        for (filter, is_for_hints_alone) in [
            ("", true),
            ("^tcp", true),
            ("Loopback", false),
            ("tcp,loopback", false),
        ] {
            let mut registry = Registry::new(NameFilter::parse(filter));
            enter(&mut registry, c"loopback", (1, 0), false);
            enter(&mut registry, c"tcp", (1, 0), false);
            let [tcp, loopback] = registry.entries() else {
                panic!("two providers");
            };
            assert!(!registry.is_for_hints_alone(tcp));
            assert_eq!(
                registry.is_for_hints_alone(loopback),
                is_for_hints_alone,
                "{filter}"
            );
        }
    }

    #[test]
    fn known_names_have_their_order_and_others_follow() {
        let mut registry = Registry::new(NameFilter::default());
        for name in [c"mine", c"tcp", c"verbs", c"ofi_rxm", c"yours", c"efa"] {
            enter(&mut registry, name, (1, 0), false);
        }
        let order: Vec<_> = names(&registry).into_iter().map(|(name, _)| name).collect();
        assert_eq!(order, ["efa", "verbs", "ofi_rxm", "tcp", "mine", "yours"]);
    }

    #[test]
    fn of_two_versions_the_later_one_is_used_and_of_equal_ones_the_first() {
        let mut registry = Registry::new(NameFilter::default());
        enter(&mut registry, c"tcp", (1, 0), false);
        enter(&mut registry, c"tcp", (2, 0), false);
        assert_eq!(active_version(&registry, "tcp"), Version::of(2, 0));
        enter(&mut registry, c"TCP", (1, 5), false);
        assert_eq!(active_version(&registry, "tcp"), Version::of(2, 0));
        let hidden = names(&registry)
            .iter()
            .filter(|(_, hidden)| *hidden)
            .count();
        assert_eq!((registry.entries().len(), hidden), (3, 2));

        let mut registry = Registry::new(NameFilter::default());
        enter(&mut registry, c"tcp", (1, 0), false);
        let first = registry.find("tcp").unwrap().provider;
        enter(&mut registry, c"tcp", (1, 0), false);
        assert!(registry.find("tcp").unwrap().provider == first);
    }

    #[test]
    fn by_discovery_the_first_one_is_used_whatever_its_version() {
        let mut registry = Registry::new(NameFilter::default());
        registry.set_precedence(Precedence::Discovery);
        enter(&mut registry, c"tcp", (1, 0), false);
        enter(&mut registry, c"tcp", (9, 0), false);
        assert_eq!(active_version(&registry, "tcp"), Version::of(1, 0));
    }

    #[test]
    fn a_preferred_provider_is_used_whatever_its_version() {
        let mut registry = Registry::new(NameFilter::default());
        enter(&mut registry, c"tcp", (5, 0), false);
        enter(&mut registry, c"tcp", (1, 0), true);
        enter(&mut registry, c"tcp", (9, 0), false);
        assert_eq!(active_version(&registry, "tcp"), Version::of(1, 0));
    }

    #[test]
    fn wanted_providers_bring_the_utility_providers_along() {
        let mut registry = Registry::new(NameFilter::parse("tcp"));
        for name in [c"tcp", c"udp", c"ofi_rxm"] {
            enter(&mut registry, name, (1, 0), false);
        }
        assert_eq!(
            names(&registry),
            [("ofi_rxm", false), ("udp", true), ("tcp", false)]
        );
    }

    #[test]
    fn any_provider_can_be_unwanted() {
        let mut registry = Registry::new(NameFilter::parse("^ofi_rxm,udp"));
        for name in [c"tcp", c"udp", c"ofi_rxm"] {
            enter(&mut registry, name, (1, 0), false);
        }
        assert_eq!(
            names(&registry),
            [("ofi_rxm", true), ("udp", true), ("tcp", false)]
        );
    }

    #[test]
    fn classes_follow_from_name_and_functions() {
        for (name, answers, class) in [
            (c"tcp", true, Class::Core),
            (c"ofi_rxm", true, Class::Utility),
            (c"ofi_hook_noop", false, Class::Hook),
            (c"off_coll", true, Class::Offload),
            (c"lnx", true, Class::Link),
        ] {
            assert_eq!(
                fake::provider(name, Version::of(1, 0), answers).class(),
                class
            );
        }
    }

    #[test]
    fn a_misspelled_name_is_close_to_the_right_one() {
        assert!(
            is_close("tcpp", "tcp") && is_close("verb", "verbs") && is_close("ofi_rmx", "ofi_rxm")
        );
        assert!(!is_close("udp", "tcp") && !is_close("t", "tcp"));
    }
}
