//! `fi_fabric`: opening a provider's fabric (fi_fabric(3)), with the hooks of `FI_HOOK` over it
//! (fi_hook(7)).

use std::ffi::c_void;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};

use crate::deep::Deep;
use crate::framework::Framework;
use crate::level::CORE;
use crate::name_filter::LAYER_SEPARATOR;
use crate::provider::{Class, Provider};
use crate::registry::Registry;
use crate::version::Version;

/// The first interface whose `struct fid_fabric` has an `api_version`.
const HAS_API_VERSION: Version = Version::of(1, 5);

/// Opens the fabric that the attributes name, at the provider that they name.
///
/// # Safety
/// `attr` is valid for as long as the call lasts, and `context` is what the
/// caller wants to find in the object.
pub unsafe fn open(
    framework: &Framework,
    attr: *mut fi_fabric_attr,
    context: *mut c_void,
) -> Result<*mut fid_fabric> {
    // SAFETY: the caller guarantees that `attr` is valid during the call.
    let names = unsafe { Deep::new(attr.cast_const()) }.ok_or(Errno::EINVAL)?;
    let api_version = names.api_version;
    let fabric_name = names.name().ok_or(Errno::EINVAL)?.to_string_lossy();
    let full_name = names.prov_name().ok_or(Errno::EINVAL)?.to_string_lossy();
    // The uppermost layer opens those below it.
    let name = full_name
        .rsplit(LAYER_SEPARATOR)
        .next()
        .unwrap_or(&full_name);
    let Some(entry) = framework.registry.find(name) else {
        log::warn!(target: CORE, "cannot open fabric {fabric_name}: there is no provider {name}");
        return Err(Errno::ENODEV);
    };
    let provider = entry.provider;
    // SAFETY: the caller guarantees that `attr` is valid during the call; the provider only stores
    // `context`.
    let fabric = unsafe { provider.open_fabric(attr, context) }?;
    if provider.fi_version() >= HAS_API_VERSION {
        // SAFETY: the provider has just opened this object, which no other code refers to yet.
        unsafe { (*fabric).api_version = api_version };
    }
    let path = provider.library_path().unwrap_or_default();
    log::info!(
        target: "core::fabric",
        "opened fabric {fabric_name}, provider {name} {} of {}",
        provider.version(),
        path.display()
    );
    // A provider that serves other providers shares objects with them, so that hooks see its calls
    // there.
    if provider.class() == Class::Offload {
        return Ok(fabric);
    }
    Ok(install_hooks(framework, provider, fabric))
}

/// Installs all hooks over the fabric. A hook that fails is left out.
fn install_hooks(
    framework: &Framework,
    provider: Provider,
    mut fabric: *mut fid_fabric,
) -> *mut fid_fabric {
    for name in &framework.hooks {
        let Some(hook) = find_hook(&framework.registry, name) else {
            log::warn!(target: CORE, "FI_HOOK names {name}, which is no hooking provider");
            continue;
        };
        // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
        let mut attr: fi_fabric_attr = unsafe { std::mem::zeroed() };
        attr.fabric = fabric;
        // SAFETY: the attributes are valid during the call and contain the fabric to hook; the
        // context is the fabric's provider, as hooks expect.
        match unsafe { hook.open_fabric(&mut attr, provider.as_ptr().cast()) } {
            Ok(hooked) => fabric = hooked,
            Err(error) => log::warn!(target: CORE, "hook {name} fails: {error}"),
        }
    }
    fabric
}

fn find_hook(registry: &Registry, name: &str) -> Option<Provider> {
    let entry = registry
        .find(name)
        .or_else(|| registry.find(&format!("ofi_hook_{name}")))?;
    (entry.class == Class::Hook).then_some(entry.provider)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::Candidate;
    use crate::name_filter::NameFilter;
    use crate::provider::fake;

    #[test]
    fn a_hook_is_found_under_its_short_name_too() {
        let mut registry = Registry::new(NameFilter::default());
        for (name, answers) in [(c"ofi_hook_noop", false), (c"tcp", true)] {
            registry.register(Candidate {
                provider: fake::provider(name, Version::of(1, 0), answers),
                preferred: false,
                library: None,
            });
        }
        assert!(find_hook(&registry, "noop").is_some());
        assert!(find_hook(&registry, "ofi_hook_noop").is_some());
        assert!(find_hook(&registry, "tcp").is_none());
        assert!(find_hook(&registry, "perf").is_none());
    }
}
