//! fi_getinfo(3) for providers whose addresses are not internet addresses: strings (`FI_ADDR_STR`),
//! or what they derive from a node and a service.

use fabric_abi::*;

use super::mismatch::{DOMAIN_NAME, FABRIC_NAME};
use super::{Base, Info, Mismatch, Request};
use prov_base::errno::{Errno, Result};

/// How a provider derives addresses from names. Addresses are bytes in its `addr_format`; those in
/// the format `FI_ADDR_STR` end with a NUL.
pub trait Naming {
    /// Returns the address for a node, a service or both. By default `-FI_ENODATA`: only the
    /// provider creates addresses.
    fn address(&self, _node: Option<&str>, _service: Option<&str>) -> Result<Vec<u8>> {
        Err(Errno::ENODATA)
    }

    /// Returns whether a caller's bytes are an address of the provider.
    fn is_address(&self, bytes: &[u8]) -> bool;

    /// Returns the source address for callers that name none. By default empty, which leaves it to
    /// the endpoint.
    fn own(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the destination address for callers that name neither end. By default empty.
    fn peer(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Returns the endpoints out of `bases` that match, with their addresses. If the provider's
/// addresses are strings, a node that is such a string (`fi_shm://7`) is an address and needs no
/// service; together with a service it is a name like any other.
///
/// # Errors
/// `-FI_ENODATA` if nothing matches, and those of [`Naming::address`].
pub fn getinfo(request: &Request<'_>, bases: &[Base], naming: &impl Naming) -> Result<Vec<Info>> {
    let mut infos = request.fitting(bases)?;
    infos.retain(|info| names_fit(request, info));
    if infos.is_empty() {
        return Err(Errno::ENODATA);
    }
    let strings = infos.iter().any(|info| info.addr_format == FI_ADDR_STR);
    let ends = request.ends(
        || look_up(request, strings, naming),
        |bytes| naming.is_address(bytes).then(|| bytes.to_vec()),
    )?;
    for info in &mut infos {
        info.src_addr = ends.src.clone().unwrap_or_else(|| naming.own());
        info.dest_addr = match &ends.dest {
            Some(dest) => dest.clone(),
            None if request.flags & FI_SOURCE != 0 => Vec::new(),
            None => naming.peer(),
        };
    }
    Ok(infos)
}

fn look_up(request: &Request<'_>, strings: bool, naming: &impl Naming) -> Result<Vec<u8>> {
    let text = |name: Option<&std::ffi::CStr>| match name.map(|name| name.to_str()) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.to_owned())),
        Some(Err(_)) => Err(Errno::ENODATA),
    };
    let node = text(request.node)?;
    let service = text(request.service)?;
    match node {
        Some(node) if strings && service.is_none() && node.contains("://") => {
            let mut bytes = node.into_bytes();
            bytes.push(0);
            if naming.is_address(&bytes) {
                Ok(bytes)
            } else {
                request.refuse(&"the node is an address of another kind");
                Err(Errno::ENODATA)
            }
        }
        node => naming.address(node.as_deref(), service.as_deref()),
    }
}

/// Returns whether fabric and domain, if the hints name them, are those of the entry. Logs why
/// not.
fn names_fit(request: &Request<'_>, info: &Info) -> bool {
    let Some(hints) = request.hints else {
        return true;
    };
    let mismatch = hints
        .fabric_name()
        .and_then(|asked| Mismatch::of_name(FABRIC_NAME, asked, &info.fabric.name))
        .or_else(|| {
            let asked = hints.domain_name()?;
            Mismatch::of_name(DOMAIN_NAME, asked, &info.domain.name)
        });
    if let Some(mismatch) = &mismatch {
        request.refuse(mismatch);
    }
    mismatch.is_none()
}
