//! The targets of log records. The framework's logger reads provider and
//! subsystem (`FI_LOG_PROV`, `FI_LOG_SUBSYS`, fabric(7)) out of a target
//! `<provider>::<subsystem>`.

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
