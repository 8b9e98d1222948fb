//! The targets of log records. The framework's logger reads provider and
//! subsystem (`FI_LOG_PROV`, `FI_LOG_SUBSYS`, fabric(7)) out of a target
//! `<provider>::<subsystem>`.

use std::sync::atomic::{AtomicU64, Ordering};

/// The names of the subsystems, indexed by their C value
/// (`enum fi_log_subsys`).
pub const SUBSYSTEMS: [&str; 10] = [
    "core", "fabric", "domain", "ep_ctrl", "ep_data", "av", "cq", "eq", "mr", "cntr",
];

/// The provider and the subsystem of a target. A target that names no
/// subsystem, such as a module's path, belongs to `core`.
pub fn origin(target: &str) -> (&str, &str) {
    let mut parts = target.split("::");
    let provider = match parts.next().unwrap_or_default() {
        "" | "fabric" | "prov_util" => "core",
        name => name.strip_prefix("prov_").unwrap_or(name),
    };
    let subsystem = parts
        .find_map(|part| SUBSYSTEMS.into_iter().find(|&name| name == part))
        .unwrap_or("core");
    (provider, subsystem)
}

/// The log targets of one provider, one for each subsystem. Toolkit objects
/// keep those of the provider that they work for.
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

/// The [`Targets`] of the provider of a given name.
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

/// The toolkit's own targets, for what belongs to no provider.
pub const UTIL: Targets = log_targets!("core");

/// How often something has happened that somebody else can make happen as often as they
/// like, so that the log does not grow with it.
#[derive(Debug, Default)]
pub struct Recurring(AtomicU64);

impl Recurring {
    /// It has not happened.
    pub const fn new() -> Self {
        Recurring(AtomicU64::new(0))
    }

    /// It has happened once more: the number of times, where that is to be logged, which
    /// is at the first and then whenever it has doubled.
    pub fn again(&self) -> Option<u64> {
        let times = self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        times.is_power_of_two().then_some(times)
    }
}

/// Warns of what somebody else can make happen as often as they like, with how often it
/// has happened in this place ([`Recurring::again`]).
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
    fn what_recurs_is_logged_less_and_less_often() {
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
            ("prov_util::cq", ("core", "cq")),
            ("fabric::registry", ("core", "core")),
            ("ofi_rxm::ep_data", ("ofi_rxm", "ep_data")),
            ("", ("core", "core")),
        ] {
            assert_eq!(origin(target), origin_expected, "{target:?}");
        }
    }
}
