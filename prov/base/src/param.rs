//! Tables of parameters: the settings of a provider, each with its type, its default and the text
//! that `fi_info -e` shows.
//!
//! [`param_table!`](crate::param_table) makes a structure out of such a table.

use std::ffi::{CStr, CString};
use std::ops::RangeInclusive;

use fabric_abi::*;

use crate::services;

pub use fabric_abi::fi_provider;

/// A type that parameters can have.
pub trait ParamType: Sized {
    /// `FI_PARAM_*`
    const KIND: fi_param_type;

    /// Returns the value that the user set for the parameter `name`; `None` if it is not set, or
    /// not to a value of this type, which is reported in the log.
    fn read(provider: &fi_provider, name: &CStr) -> Option<Self>;

    /// Formats the value for the help text.
    fn show(&self) -> String;
}

impl ParamType for i32 {
    const KIND: fi_param_type = FI_PARAM_INT;

    fn read(provider: &fi_provider, name: &CStr) -> Option<Self> {
        services::param_int(provider, name)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl ParamType for usize {
    const KIND: fi_param_type = FI_PARAM_SIZE_T;

    fn read(provider: &fi_provider, name: &CStr) -> Option<Self> {
        services::param_size(provider, name)
    }

    fn show(&self) -> String {
        if *self == usize::MAX {
            UNLIMITED.into()
        } else {
            self.to_string()
        }
    }
}

impl ParamType for bool {
    const KIND: fi_param_type = FI_PARAM_BOOL;

    fn read(provider: &fi_provider, name: &CStr) -> Option<Self> {
        services::param_bool(provider, name)
    }

    fn show(&self) -> String {
        if *self { "on".into() } else { "off".into() }
    }
}

impl ParamType for String {
    const KIND: fi_param_type = FI_PARAM_STRING;

    fn read(provider: &fi_provider, name: &CStr) -> Option<Self> {
        services::param_text(provider, name)
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl<T: ParamType> ParamType for Option<T> {
    const KIND: fi_param_type = T::KIND;

    fn read(provider: &fi_provider, name: &CStr) -> Option<Self> {
        T::read(provider, name).map(Some)
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "not set".into(), T::show)
    }
}

/// Defines the parameter `name` and reads it. A value outside `range` is reported in the log, and
/// the default is used instead.
pub fn load<T: ParamType + PartialOrd>(
    provider: &fi_provider,
    target: &str,
    name: &str,
    help: &str,
    default: T,
    range: Option<RangeInclusive<T>>,
) -> T {
    let Ok(c_name) = CString::new(name) else {
        return default;
    };
    // Each line of the row's doc comment begins with a space.
    let help = help.trim_start();
    let bounds = range.as_ref().map(bounds).unwrap_or_default();
    let default_text = default.show();
    let help = format!("{help} (default: {default_text}{bounds})");
    services::define_param(provider, &c_name, T::KIND, &help);
    match (T::read(provider, &c_name), range) {
        (Some(value), Some(range)) if !range.contains(&value) => {
            log::error!(
                target: target,
                "parameter {name} is {}, which is not between {} and {}; using {}",
                value.show(),
                range.start().show(),
                range.end().show(),
                default.show()
            );
            default
        }
        (Some(value), _) => value,
        (None, _) => default,
    }
}

/// Formats the bounds of a range for the help text.
fn bounds<T: ParamType>(range: &RangeInclusive<T>) -> String {
    let (start, end) = (range.start().show(), range.end().show());
    match (&*start, &*end) {
        ("0", _) => format!("; at most {end}"),
        (_, UNLIMITED) => format!("; at least {start}"),
        _ => format!("; from {start} to {end}"),
    }
}

/// The text for the largest size.
const UNLIMITED: &str = "no limit";

/// Defines a structure with one field for each parameter of a provider. The
/// doc comment of a field is its help text; types are those of
/// [`ParamType`]; a range limits what is accepted:
///
/// ```text
/// param_table! {
///     /// What users can set (fi_tcp(7)).
///     pub struct Params for "tcp" {
///         /// Lowest port to listen at, 0 for any
///         port_low_range: i32 = 0, in 0..=65535;
///         /// Network interface to use
///         iface: Option<String> = None;
///     }
/// }
/// let params = Params::load(provider);
/// ```
#[macro_export]
macro_rules! param_table {
    (
        $(#[$attr:meta])*
        $vis:vis struct $name:ident for $provider:literal {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $default:expr $(, in $range:expr)?;
            )*
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $(
                $(#[doc = $help])+
                pub $field: $type,
            )*
        }

        impl $name {
            /// Defines the parameters and reads the values that the user set.
            $vis fn load(provider: &$crate::param::fi_provider) -> Self {
                let defaults = Self::default();
                Self {
                    $(
                        $field: $crate::param::load(
                            provider,
                            concat!($provider, "::core"),
                            stringify!($field),
                            concat!($($help),+),
                            defaults.$field,
                            $crate::param_table!(@range $($range)?),
                        ),
                    )*
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
    (@range) => { None };
    (@range $range:expr) => { Some($range) };
}

#[cfg(test)]
mod tests {
    use crate::services::stand_in;

    param_table! {
        /// A table.
        struct Params for "test" {
            /// A port,
            /// or 0
            port: i32 = 7, in 0..=100;
            /// A size
            limit: usize = usize::MAX;
            /// A switch
            on: bool = false;
            /// A name
            iface: Option<String> = None;
        }
    }

    #[test]
    fn unset_parameters_have_their_defaults_and_are_known_with_their_help() {
        let provider = stand_in::provider("unset");
        assert_eq!(Params::load(&provider), Params::default());
        assert_eq!(
            stand_in::help(&provider, "port").as_deref(),
            Some("A port, or 0 (default: 7; at most 100)")
        );
        assert_eq!(
            stand_in::help(&provider, "limit").as_deref(),
            Some("A size (default: no limit)")
        );
    }

    #[test]
    fn set_parameters_have_their_values() {
        let provider = stand_in::provider("set");
        for (name, value) in [
            ("port", "80"),
            ("limit", "4096"),
            ("on", "1"),
            ("iface", "eth7"),
        ] {
            stand_in::set(&provider, name, value);
        }
        let params = Params::load(&provider);
        assert_eq!((params.port, params.limit, params.on), (80, 4096, true));
        assert_eq!(params.iface.as_deref(), Some("eth7"));
    }

    #[test]
    fn values_out_of_range_and_unparsable_ones_leave_the_default() {
        let provider = stand_in::provider("bad");
        stand_in::set(&provider, "port", "101");
        stand_in::set(&provider, "limit", "many");
        let params = Params::load(&provider);
        assert_eq!((params.port, params.limit), (7, usize::MAX));
    }
}
