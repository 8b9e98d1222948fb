//! Where the value of a parameter comes from: `fi_info --env`.
//!
//! fi_getparams(3) returns only the value. The library takes it from the environment or from
//! libfabric.conf, so a value that is not the environment's is the file's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The source of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// Not set.
    Default,
    Environment,
    ConfigurationFile,
}

impl Provenance {
    /// Compares the effective value with the environment's.
    pub fn of(value: Option<&[u8]>, environment: Option<&OsStr>) -> Provenance {
        match value {
            None => Provenance::Default,
            Some(value) if environment.map(OsStr::as_bytes) == Some(value) => {
                Provenance::Environment
            }
            Some(_) => Provenance::ConfigurationFile,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Provenance::Default => "default",
            Provenance::Environment => "environment",
            Provenance::ConfigurationFile => "configuration file",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_the_environment_does_not_have_is_the_files() {
        let of = |value: Option<&str>, environment: Option<&str>| {
            Provenance::of(value.map(str::as_bytes), environment.map(OsStr::new))
        };
        assert_eq!(of(None, None), Provenance::Default);
        assert_eq!(of(Some("1"), Some("1")), Provenance::Environment);
        assert_eq!(of(Some("1"), None), Provenance::ConfigurationFile);
        // With FI_PREFER_SYSCONFIG the file overrides.
        assert_eq!(of(Some("1"), Some("2")), Provenance::ConfigurationFile);
        assert_eq!(of(Some(""), Some("")), Provenance::Environment);
    }
}
