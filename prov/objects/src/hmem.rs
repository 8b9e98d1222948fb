//! Memory of devices in a domain with `FI_HMEM` (fi_mr(3)): whose memory a registration or an
//! operation's buffer is. The drivers' interfaces
//! ([`interfaces`]) know that; here are the domain's registrations and the
//! functions of the application that copy instead of a driver (`FI_SET_OPS_HMEM_OVERRIDE`).

mod functions;

use std::collections::HashMap;
use std::sync::Arc;

use fabric_abi::{
    FI_HMEM_CUDA, FI_HMEM_P2P_DISABLED, FI_HMEM_P2P_ENABLED, FI_HMEM_P2P_PREFERRED,
    FI_HMEM_P2P_REQUIRED,
};
use parking_lot::RwLock;
use prov_base::buffer::AppIov;
use prov_base::device_memory::{Kind, detects, interfaces};
use prov_base::errno::{Errno, Result};

use crate::desc::Descs;
use functions::OwnCopier;

pub use functions::Functions;

/// `FI_OPT_FI_HMEM_P2P` (fi_endpoint(3)): no device moves the data of the software providers.
///
/// # Errors
/// `-FI_EOPNOTSUPP` if a device is to, `-FI_EINVAL` for what is no mode.
pub fn check_p2p(mode: i32) -> Result {
    match mode {
        FI_HMEM_P2P_ENABLED | FI_HMEM_P2P_PREFERRED | FI_HMEM_P2P_DISABLED => Ok(()),
        FI_HMEM_P2P_REQUIRED => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// `FI_OPT_CUDA_API_PERMITTED` (fi_endpoint(3)).
///
/// # Errors
/// `-FI_EINVAL` without CUDA, `-FI_EOPNOTSUPP` if its calls are not permitted.
pub fn check_cuda_calls(permitted: bool) -> Result {
    let has_cuda = interfaces().is_some_and(|interfaces| interfaces.has(FI_HMEM_CUDA));
    match (has_cuda, permitted) {
        (false, _) => Err(Errno::EINVAL),
        (true, false) => Err(Errno::EOPNOTSUPP),
        (true, true) => Ok(()),
    }
}

/// What a domain knows about memory of devices.
pub struct Hmem {
    /// `FI_MR_HMEM`: the application registers such memory and passes its descriptors.
    is_registered: bool,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// The application's functions.
    functions: Option<Functions>,
    /// The kinds of memory that they copy, by interface and device.
    own_kinds: HashMap<(u32, u64), Kind>,
    /// The kinds of the domain's regions, by their descriptors.
    regions: HashMap<usize, Kind>,
}

impl Hmem {
    /// With `is_registered`, operations of device memory have descriptors (`FI_MR_HMEM`), unless memory is
    /// to be detected.
    pub fn new(is_registered: bool) -> Self {
        Hmem {
            is_registered: is_registered && !detects(),
            state: RwLock::default(),
        }
    }

    /// Has memory that is registered from now on be copied by these functions.
    pub fn set_functions(&self, functions: Functions) {
        let mut state = self.state.write();
        state.functions = Some(functions);
        // Regions that are open keep the former ones.
        let former = std::mem::take(&mut state.own_kinds);
        let used: Vec<Kind> = state.regions.values().copied().collect();
        former
            .values()
            .filter(|kind| !used.contains(kind))
            .for_each(|kind| kind.end());
    }

    /// Returns the kind of memory of a device, which is registered with its interface
    /// (`fi_hmem_iface`).
    ///
    /// # Errors
    /// `-FI_ENOSYS` if nobody can copy it, `-FI_EINVAL` if it is not that device's.
    pub fn kind(&self, interface: u32, device: i32, address: usize) -> Result<Kind> {
        let mut state = self.state.write();
        let Some(functions) = state.functions else {
            drop(state);
            let interfaces = interfaces().ok_or(Errno::ENOSYS)?;
            return interfaces.kind(interface, device, address);
        };
        let device = u64::from(device.cast_unsigned());
        if let Some(kind) = state.own_kinds.get(&(interface, device)) {
            return Ok(*kind);
        }
        let kind = Kind::new(Arc::new(OwnCopier {
            functions,
            interface,
            device,
        }))?;
        state.own_kinds.insert((interface, device), kind);
        Ok(kind)
    }

    /// Returns the kind of memory that is registered without an interface.
    ///
    /// # Errors
    /// Those of [`Interfaces::owner`](prov_base::device_memory::Interfaces::owner).
    pub fn owner(&self, address: usize) -> Result<Kind> {
        interfaces().map_or(Ok(Kind::HOST), |interfaces| interfaces.owner(address))
    }

    /// Notes a region, by its descriptor.
    pub fn note(&self, desc: usize, kind: Kind) {
        self.state.write().regions.insert(desc, kind);
    }

    /// Forgets a region.
    pub fn forget(&self, desc: usize) {
        self.state.write().regions.remove(&desc);
    }

    /// Whether memory is copied by functions of the application.
    pub fn has_functions(&self) -> bool {
        self.state.read().functions.is_some()
    }

    /// Finds out whose memory an operation's buffers are, by their descriptors, and without one by
    /// their addresses.
    ///
    /// # Errors
    /// `-FI_EINVAL` for memory of a device without a descriptor where one is needed (`FI_MR_HMEM`),
    /// and those of [`Hmem::owner`].
    pub fn resolve(&self, memory: &mut AppIov, descs: &Descs) -> Result {
        self.resolve_for(memory, descs, self.is_registered)
    }

    /// The same for an operation whose caller has no descriptors to pass.
    ///
    /// # Errors
    /// Those of [`Hmem::owner`].
    pub fn resolve_unregistered(&self, memory: &mut AppIov) -> Result {
        self.resolve_for(memory, &Descs::NONE, false)
    }

    fn resolve_for(&self, memory: &mut AppIov, descs: &Descs, is_registered: bool) -> Result {
        for position in 0..memory.pieces().len() {
            let Some(piece) = memory.pieces().get(position) else {
                break;
            };
            let address = piece.iov_base.addr();
            let desc = descs.of_piece(position).map(|desc| desc.0.addr());
            let known = desc.and_then(|desc| self.state.read().regions.get(&desc).copied());
            let kind = match known {
                Some(kind) => kind,
                None => self.unregistered(address, is_registered)?,
            };
            // SAFETY: the application has registered the memory as this kind, or the driver that
            // owns it says so.
            unsafe { memory.set_kind(position, kind) };
        }
        // What an earlier operation has left behind is not this one's.
        let _ = memory.take_failure();
        Ok(())
    }

    fn unregistered(&self, address: usize, is_registered: bool) -> Result<Kind> {
        let kind = self.owner(address)?;
        if is_registered && !kind.is_host() {
            prov_base::warn_again!(
                target: prov_base::logging::UTIL.mr,
                "memory of a device at {address:#x} has no descriptor, which FI_MR_HMEM demands"
            );
            return Err(Errno::EINVAL);
        }
        Ok(kind)
    }
}

impl Drop for Hmem {
    fn drop(&mut self) {
        self.state
            .get_mut()
            .own_kinds
            .values()
            .for_each(|kind| kind.end());
    }
}
