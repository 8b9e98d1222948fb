//! The targets of log records. The framework's logger takes the provider and the subsystem
//! (`FI_LOG_PROV`, `FI_LOG_SUBSYS`, fabric(7)) from a target `<provider>::<subsystem>`.

use std::sync::atomic::{AtomicU64, Ordering};

/// The names of the subsystems, indexed by their C value
/// (`enum fi_log_subsys`).
pub const SUBSYSTEMS: [&str; 10] = [
    "core", "fabric", "domain", "ep_ctrl", "ep_data", "av", "cq", "eq", "mr", "cntr",
];

/// Splits a target into the provider and the subsystem. A target that names no subsystem, such as a
/// module's path, belongs to `core`.
pub fn origin(target: &str) -> (&str, &str) {
    let mut parts = target.split("::");
    let provider = match parts.next().unwrap_or_default() {
        "" | "fabric" | "prov_layer" | "prov_objects" | "prov_seam" => "core",
        name => name.strip_prefix("prov_").unwrap_or(name),
    };
    let subsystem = parts
        .find_map(|part| SUBSYSTEMS.into_iter().find(|&name| name == part))
        .unwrap_or("core");
    (provider, subsystem)
}

/// The log targets of one provider, one for each subsystem. Objects of the toolkit hold those of
/// the provider that they belong to.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Targets {
    pub core: &'static str,
    pub fabric: &'static str,
    pub domain: &'static str,
    pub ep_ctrl: &'static str,
    pub ep_data: &'static str,
    pub av: &'static str,
    pub cq: &'static str,
    pub eq: &'static str,
    pub mr: &'static str,
    pub cntr: &'static str,
}

/// Returns the [`Targets`] of the provider with a given name.
#[macro_export]
macro_rules! log_targets {
    ($provider:literal) => {
        $crate::logging::Targets {
            core: concat!($provider, "::core"),
            fabric: concat!($provider, "::fabric"),
            domain: concat!($provider, "::domain"),
            ep_ctrl: concat!($provider, "::ep_ctrl"),
            ep_data: concat!($provider, "::ep_data"),
            av: concat!($provider, "::av"),
            cq: concat!($provider, "::cq"),
            eq: concat!($provider, "::eq"),
            mr: concat!($provider, "::mr"),
            cntr: concat!($provider, "::cntr"),
        }
    };
}

/// The toolkit's own targets, for messages that belong to no provider.
pub const UTIL: Targets = log_targets!("core");

/// The number of times that an event has happened that others, such as peers, can cause as often as
/// they like; limits how many lines it adds to the log.
#[derive(Debug, Default)]
pub struct Recurring(AtomicU64);

impl Recurring {
    /// Starts with no occurrence.
    pub const fn new() -> Self {
        Recurring(AtomicU64::new(0))
    }

    /// Counts an occurrence; returns the number if it is to be logged: at the first occurrence, and
    /// then whenever the number has doubled.
    pub fn again(&self) -> Option<u64> {
        let times = self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        times.is_power_of_two().then_some(times)
    }
}

/// Warns of an event that others can cause as often as they like, with the number of times it has
/// happened in this place ([`Recurring::again`]).
#[macro_export]
macro_rules! warn_again {
    (target: $target:expr, $($what:tt)+) => {{
        static TIMES: $crate::logging::Recurring = $crate::logging::Recurring::new();
        if let Some(times) = TIMES.again() {
            log::warn!(target: $target, "{} ({times} times)", format_args!($($what)+));
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recurring_events_are_logged_less_and_less_often() {
        let recurring = Recurring::new();
        let logged: Vec<_> = (0..1000).filter_map(|_| recurring.again()).collect();
        assert_eq!(logged, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    }

    #[test]
    fn a_target_names_its_provider_and_subsystem() {
        for (target, origin_expected) in [
            ("tcp::ep_ctrl", ("tcp", "ep_ctrl")),
            ("tcp", ("tcp", "core")),
            ("core::core", ("core", "core")),
            ("prov_tcp::connection", ("tcp", "core")),
            ("prov_objects::cq", ("core", "cq")),
            ("prov_layer::below", ("core", "core")),
            ("prov_seam::ffi::mr", ("core", "mr")),
            ("fabric::registry", ("core", "core")),
            ("ofi_rxm::ep_data", ("ofi_rxm", "ep_data")),
            ("", ("core", "core")),
        ] {
            assert_eq!(origin(target), origin_expected, "{target:?}");
        }
    }
}
