//! The trait of providers (fi_provider(3)): a name, parameters, fi_getinfo(3), and fabrics.
//!
//! A provider implements [`Provider`] for its own type, and [`provider!`](crate::provider!) creates
//! the `struct fi_provider`. With [`external!`](crate::external!), a library that contains nothing
//! else is an external provider.

use std::ffi::CStr;

use crate::domain::Fabric;
use prov_base::errno::Result;
use prov_base::logging::Targets;
use prov_objects::attr::{FabricAttr, Info, Request};

pub use prov_base::param::fi_provider;

/// A provider. Its value is created once, when the library is initialised, and lives as long as the
/// process.
pub trait Provider: Send + Sync + Sized + 'static {
    /// The name in `FI_PROVIDER` and `fi_fabric_attr::prov_name`.
    const NAME: &'static CStr;
    /// The provider's version. Of two providers with one name, the library uses the later version.
    const VERSION: u32;
    /// The log targets, `log_targets!("name")`.
    const LOG: Targets;
    /// Its fabrics.
    type Fabric: Fabric;

    /// Defines the parameters and reads what the user has set.
    fn load(provider: &fi_provider) -> Self;

    /// Implements fi_getinfo(3), usually by [`prov_objects::attr::ip::getinfo`] or
    /// [`prov_objects::attr::named::getinfo`] with the endpoints that the provider offers.
    ///
    /// # Errors
    /// `-FI_ENODATA` if nothing matches.
    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>>;

    /// Opens a fabric that [`getinfo`](Provider::getinfo) has returned.
    fn fabric(&self, attr: &FabricAttr) -> Result<Self::Fabric>;
}

/// Creates the C interface of a [`Provider`]: a function `provider()`, which returns the `struct
/// fi_provider` for the library's list.
#[macro_export]
macro_rules! provider {
    ($provider:ty) => {
        impl $crate::ffi::provider::Entered for $provider {
            fn entry() -> &'static $crate::ffi::provider::ProviderEntry<Self> {
                static ENTRY: $crate::ffi::provider::ProviderEntry<$provider> =
                    $crate::ffi::provider::ProviderEntry::new();
                &ENTRY
            }
        }

        /// Returns the C structure of the provider. The first call defines and reads its
        /// parameters.
        pub fn provider() -> *mut $crate::provider::fi_provider {
            <$provider as $crate::ffi::provider::Entered>::entry().start()
        }
    };
}

/// Makes a library that contains only a [`Provider`] an external provider: its entry point is
/// `fi_prov_ini`, and its log messages go to the library that loads it.
#[macro_export]
macro_rules! external {
    ($provider:ty) => {
        /// The entry point of an external provider (fi_provider(3)).
        #[unsafe(no_mangle)]
        pub extern "C" fn fi_prov_ini() -> *mut $crate::provider::fi_provider {
            $crate::ffi::external::start::<$provider>()
        }
    };
}
