//! What a provider is to a libfabric (fi_provider(3)): a name, parameters, an
//! answer to fi_getinfo(3), and fabrics.
//!
//! A provider implements [`Provider`] for a type of its own, and
//! [`provider!`](crate::provider!) makes the `struct fi_provider` for it. With
//! [`external!`](crate::external!) a library that contains nothing else is an
//! external provider.

use std::ffi::CStr;

use crate::attr::{FabricAttr, Info, Request};
use crate::domain::Fabric;
use crate::errno::Result;
use crate::logging::Targets;

pub use crate::param::fi_provider;

/// A provider. Its value is made once, when the library is set up, and lives
/// as long as the process.
pub trait Provider: Send + Sync + Sized + 'static {
    /// The name that `FI_PROVIDER` and `fi_fabric_attr::prov_name` know.
    const NAME: &'static CStr;
    /// The provider's version. Of two providers of one name, libraries use the
    /// one whose version is later.
    const VERSION: u32;
    /// Where it logs, `log_targets!("name")`.
    const LOG: Targets;
    /// Its fabrics.
    type Fabric: Fabric;

    /// Defines the parameters and reads what the user has set.
    fn load(provider: &fi_provider) -> Self;

    /// The answer to fi_getinfo(3): [`crate::attr::ip::getinfo`] or
    /// [`crate::attr::named::getinfo`] over what the provider offers.
    ///
    /// # Errors
    /// `-FI_ENODATA` where nothing fits.
    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>>;

    /// Opens a fabric that [`getinfo`](Provider::getinfo) has offered.
    fn fabric(&self, attr: &FabricAttr) -> Result<Self::Fabric>;
}

/// Makes the C interface of a [`Provider`]: a function `provider()`, which
/// returns the `struct fi_provider` that libraries enter into their lists.
#[macro_export]
macro_rules! provider {
    ($provider:ty) => {
        impl $crate::ffi::provider::Entered for $provider {
            fn entry() -> &'static $crate::ffi::provider::Entry<Self> {
                static ENTRY: $crate::ffi::provider::Entry<$provider> =
                    $crate::ffi::provider::Entry::new();
                &ENTRY
            }
        }

        /// The provider as C sees it. The first call defines its parameters
        /// and reads them.
        pub fn provider() -> *mut $crate::provider::fi_provider {
            <$provider as $crate::ffi::provider::Entered>::entry().start()
        }
    };
}

/// Makes the library that contains a [`Provider`] and nothing else an external
/// provider: its entry point is `fi_prov_ini`, and what it logs goes to the
/// library that loads it.
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
