//! Reports environment variables that begin with `FI_`, are unknown and similar to a known one:
//! probably a mistyped name, which has no effect.

use std::collections::BTreeSet;

use crate::level::CORE;
use crate::params;
use crate::registry::ORDER;

/// Reports such variables of the environment and of libfabric.conf in the log, each once. To be
/// called when all providers have defined their parameters.
pub fn report() {
    if !log::log_enabled!(target: CORE, log::Level::Warn) {
        return;
    }
    let known: BTreeSet<String> = params::list()
        .into_iter()
        .map(|listed| listed.variable.to_string_lossy().into_owned())
        .collect();
    let environment = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let set: BTreeSet<String> = environment.chain(params::names_in_config_file()).collect();
    for name in set.difference(&known) {
        if let Some(close) = close_to(name, &known) {
            log::warn!(target: CORE, "{name} is set, which nothing knows; is it {close}?");
        }
    }
}

/// Returns the most similar known name, if it is close enough for a typing error.
fn close_to<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    const PREFIX: &str = "FI_";
    /// Names up to this length are assumed to have at most one error, longer ones two.
    const SHORT: usize = 8;
    if !name.starts_with(PREFIX) {
        return None;
    }
    let most = if name.len() <= SHORT { 1 } else { 2 };
    let owner = owner(name);
    known
        .iter()
        .filter(|known| known.len().abs_diff(name.len()) <= most)
        // Providers that are not present have variables, too, whose names differ only in the
        // provider's.
        .filter(|known| owner.is_none() || owner == self::owner(known))
        .map(|known| (strsim::osa_distance(name, known), known.as_str()))
        .filter(|(errors, _)| *errors <= most)
        .min()
        .map(|(_, known)| known)
}

/// Returns the provider of a variable, according to its name.
fn owner(variable: &str) -> Option<&'static str> {
    let rest = variable.get("FI_".len()..)?;
    ORDER.into_iter().find(|provider| {
        rest.get(..provider.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(provider))
            && rest.as_bytes().get(provider.len()) == Some(&b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_typing_error_or_two_is_close_to_the_right_one() {
        let known: BTreeSet<String> = [
            "FI_HOOK",
            "FI_PROVIDER",
            "FI_LOG_LEVEL",
            "FI_TCP_IFACE",
            "FI_TCP_PORT_LOW_RANGE",
            "FI_OFI_RXM_TX_SIZE",
        ]
        .map(str::to_owned)
        .into();
        for (name, close) in [
            ("FI_PROVIDR", Some("FI_PROVIDER")),
            ("FI_PROVIDERS", Some("FI_PROVIDER")),
            ("FI_LOGLEVEL", Some("FI_LOG_LEVEL")),
            ("FI_TPC_IFACE", Some("FI_TCP_IFACE")),
            ("FI_TCP_PORTLOW_RANGE", Some("FI_TCP_PORT_LOW_RANGE")),
            ("FI_HOK", Some("FI_HOOK")),
            // Variables of other providers, which may be correct.
            ("FI_UDP_IFACE", None),
            ("FI_OFI_RXD_TX_SIZE", None),
            ("FI_EFA_SHM_AV_SIZE", None),
            ("FI_HMEM", None),
            ("OFI_PROVIDER", None),
            ("PATH", None),
        ] {
            assert_eq!(close_to(name, &known), close, "{name}");
        }
    }
}
