//! Decides which providers may answer a request that names providers.
//!
//! A name in the hints is one provider or several layers, such as `tcp;ofi_rxm`, the one that moves
//! the bytes first. Utility providers in turn query this library for providers to layer over, with
//! a name that ends in layers they do not want, each after a `^`.

use crate::name_filter::LAYER_SEPARATOR;
use crate::provider::Class;

/// Flags of `fi_getinfo` that providers use among themselves. Their values are
/// part of the interface between the library and external providers.
pub mod flags {
    /// Flag: the result is for the library and not for an application.
    pub const INTERNAL: u64 = 1 << 58;
    /// Flag: the result has core providers only.
    pub const CORE_ONLY: u64 = 1 << 59;
    /// Flag: the result includes hidden providers.
    pub const HIDDEN: u64 = 1 << 60;
    /// Flag: the result includes offload providers.
    pub const OFFLOAD: u64 = 1 << 61;
    /// All of these flags: a caller that sets one is not an application.
    pub const OF_PROVIDERS: u64 = INTERNAL | CORE_ONLY | HIDDEN | OFFLOAD;
}

/// The properties of a provider that the rules depend on.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    pub name: &'a str,
    pub class: Class,
    pub alone: bool,
}

/// The layers that a name requests and those that it excludes.
#[derive(Debug, Default)]
pub struct Layers<'a> {
    wanted: Vec<&'a str>,
    unwanted: Vec<&'a str>,
}

impl<'a> Layers<'a> {
    /// Parses a provider name from hints.
    pub fn parse(name: &'a str) -> Self {
        let mut wanted: Vec<&str> = name
            .split(LAYER_SEPARATOR)
            .filter(|layer| !layer.is_empty())
            .collect();
        // Exclusions stand only at the end.
        let first_excluded = wanted
            .iter()
            .rposition(|layer| !layer.starts_with('^'))
            .map_or(0, |last_wanted| last_wanted + 1);
        let unwanted = wanted
            .split_off(first_excluded)
            .into_iter()
            .map(|layer| &layer[1..])
            .collect();
        Layers { wanted, unwanted }
    }

    /// Returns the requested layers.
    pub fn wanted(&self) -> impl Iterator<Item = &'a str> {
        self.wanted.iter().copied()
    }

    /// Whether any layer is requested by name.
    pub fn names(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Checks whether `provider` may answer; the error is the reason why not. `find` returns the
    /// other providers by name.
    pub fn admit<'b>(
        &self,
        provider: Layer<'b>,
        flags: u64,
        find: impl Fn(&str) -> Option<Layer<'b>>,
    ) -> Result<(), String> {
        if is_one_of(provider.name, &self.unwanted) {
            return Err("the layer above excludes it".into());
        }
        if flags & flags::CORE_ONLY != 0 {
            if provider.class != Class::Core {
                return Err("a core provider is asked for".into());
            }
            if self.wanted.is_empty() && provider.alone {
                return Err("it is layered over only when named".into());
            }
        }
        match self.wanted[..] {
            [] => Ok(()),
            // Any utility provider may be layered over a core provider.
            [core] if provider.class == Class::Utility && !is_utility(core) => match find(core) {
                Some(core) if core.alone => Err(format!(
                    "{0} is layered over only when both are named; name {0};{1}",
                    core.name, provider.name
                )),
                _ => Ok(()),
            },
            // Two layers may be named in either order.
            [utility, core] if is_utility(utility) && !is_utility(core) => {
                same(provider.name, utility)
            }
            [.., top] => same(provider.name, top),
        }
    }
}

fn same(name: &str, asked: &str) -> Result<(), String> {
    if name.eq_ignore_ascii_case(asked) {
        Ok(())
    } else {
        Err(format!(
            "the hints name {asked}; name {name} or none to get it"
        ))
    }
}

fn is_utility(name: &str) -> bool {
    name.get(..4)
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case("ofi_"))
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn layer(name: &'static str, class: Class, alone: bool) -> Layer<'static> {
        Layer { name, class, alone }
    }

    const PROVIDERS: [Layer; 5] = [
        layer("tcp", Class::Core, false),
        layer("udp", Class::Core, false),
        layer("shm", Class::Core, true),
        layer("ofi_rxm", Class::Utility, true),
        layer("ofi_rxd", Class::Utility, true),
    ];

    fn admitted(name: &str, flags: u64) -> Vec<&'static str> {
        let layers = Layers::parse(name);
        let find = |name: &str| PROVIDERS.into_iter().find(|provider| provider.name == name);
        PROVIDERS
            .into_iter()
            .filter(|provider| layers.admit(*provider, flags, find).is_ok())
            .map(|provider| provider.name)
            .collect()
    }

    #[test]
    fn without_a_name_all_may_answer() {
        assert_eq!(admitted("", 0).len(), PROVIDERS.len());
    }

    #[test]
    fn a_core_provider_comes_with_what_layers_over_it() {
        assert_eq!(admitted("tcp", 0), ["tcp", "ofi_rxm", "ofi_rxd"]);
    }

    #[test]
    fn some_core_providers_stand_alone_unless_the_layers_are_named() {
        assert_eq!(admitted("shm", 0), ["shm"]);
        assert_eq!(admitted("shm;ofi_rxm", 0), ["ofi_rxm"]);
    }

    #[test]
    fn a_utility_provider_answers_for_itself_over_anything() {
        assert_eq!(admitted("ofi_rxm", 0), ["ofi_rxm"]);
        assert_eq!(admitted("OFI_RXM", 0), ["ofi_rxm"]);
    }

    #[test]
    fn two_layers_are_answered_by_the_utility_provider_in_either_order() {
        assert_eq!(admitted("tcp;ofi_rxm", 0), ["ofi_rxm"]);
        assert_eq!(admitted("ofi_rxm;tcp", 0), ["ofi_rxm"]);
    }

    #[test]
    fn of_more_layers_the_last_one_answers() {
        assert_eq!(admitted("tcp;ofi_rxm;ofi_rxd", 0), ["ofi_rxd"]);
    }

    #[test]
    fn excluded_layers_do_not_answer() {
        assert_eq!(admitted("^udp;^ofi_rxd", 0), ["tcp", "shm", "ofi_rxm"]);
        assert_eq!(admitted("tcp;^ofi_rxm", 0), ["tcp", "ofi_rxd"]);
    }

    #[test]
    fn a_layering_provider_gets_core_providers_that_allow_it() {
        assert_eq!(admitted("", flags::CORE_ONLY), ["tcp", "udp"]);
        assert_eq!(admitted("shm", flags::CORE_ONLY), ["shm"]);
        assert_eq!(admitted("^tcp", flags::CORE_ONLY), ["udp"]);
    }
}
