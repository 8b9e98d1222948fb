//! `fi_info::nic`: an object that describes a network interface (fi_nic(3)), closed by the owner of
//! the `fi_info`.
//!
//! Layered providers copy such objects member by member and keep the operations, as those of the C
//! library do. An object therefore consists only of the C structures, each allocated with
//! malloc(3), and the operations accept objects that others have assembled.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write;

use fabric_abi::*;

use super::allocated::{copy, zeroed};
use crate::missing::{self, status};
use prov_base::errno::{Errno, Result};
use prov_objects::attr::{Nic, NicDevice, NicLink, PciAddress};

static OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: Some(close),
    bind: missing::slot(),
    control: Some(control),
    ops_open: missing::slot(),
    tostr: Some(tostr),
    ops_set: missing::slot(),
};

/// An object under construction; closed if it cannot be completed.
struct Made(*mut fid_nic);

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: the object was made by `to_c`, and has no other users.
        unsafe { close(self.0.cast()) };
    }
}

/// Creates an object for C, which [`close`] frees.
///
/// # Errors
/// `-FI_ENOMEM`
pub(super) fn to_c(value: &Nic) -> Result<*mut fid_nic> {
    // SAFETY: zero is a valid value of all structures that are allocated here, and they are not
    // moved.
    unsafe {
        let made = Made(zeroed()?);
        let nic = &mut *made.0;
        nic.fid.fclass = FI_CLASS_NIC;
        nic.fid.ops = (&raw const OPS).cast_mut();
        nic.device_attr = zeroed()?;
        let (device, from) = (&mut *nic.device_attr, &value.device);
        device.name = text(&from.name)?;
        device.device_id = text(&from.device_id)?;
        device.device_version = text(&from.device_version)?;
        device.vendor_id = text(&from.vendor_id)?;
        device.driver = text(&from.driver)?;
        device.firmware = text(&from.firmware)?;
        nic.bus_attr = zeroed()?;
        let bus = &mut *nic.bus_attr;
        if let Some(pci) = value.pci {
            bus.bus_type = FI_BUS_PCI;
            bus.attr.pci = fi_pci_attr {
                domain_id: pci.domain,
                bus_id: pci.bus,
                device_id: pci.device,
                function_id: pci.function,
            };
        }
        nic.link_attr = zeroed()?;
        let (link, from) = (&mut *nic.link_attr, &value.link);
        link.address = text(&from.address)?;
        link.mtu = from.mtu;
        link.speed = from.speed;
        link.state = match from.is_up {
            None => FI_LINK_UNKNOWN,
            Some(false) => FI_LINK_DOWN,
            Some(true) => FI_LINK_UP,
        };
        link.network_type = text(&from.network_type)?;
        Ok(std::mem::ManuallyDrop::new(made).0)
    }
}

/// Returns a text for C; null for `None` and for a text with a NUL.
fn text(text: &Option<String>) -> Result<*mut c_char> {
    match text {
        Some(text) if !text.contains('\0') => Ok(copy(format!("{text}\0").as_bytes())?.cast()),
        _ => Ok(std::ptr::null_mut()),
    }
}

/// Reads an object, whichever library has assembled it.
///
/// # Safety
/// `nic` points to a complete object.
unsafe fn from_c(nic: *const fid_nic) -> Nic {
    // SAFETY: the caller guarantees that the object is complete: its parts are null or valid, and
    // its texts null or terminated.
    unsafe {
        let text = |text: *const c_char| {
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        let mut value = Nic::default();
        if let Some(device) = (*nic).device_attr.as_ref() {
            value.device = NicDevice {
                name: text(device.name),
                device_id: text(device.device_id),
                device_version: text(device.device_version),
                vendor_id: text(device.vendor_id),
                driver: text(device.driver),
                firmware: text(device.firmware),
            };
        }
        if let Some(bus) = (*nic).bus_attr.as_ref()
            && bus.bus_type == FI_BUS_PCI
        {
            let pci = bus.attr.pci;
            value.pci = Some(PciAddress {
                domain: pci.domain_id,
                bus: pci.bus_id,
                device: pci.device_id,
                function: pci.function_id,
            });
        }
        if let Some(link) = (*nic).link_attr.as_ref() {
            value.link = NicLink {
                address: text(link.address),
                mtu: link.mtu,
                speed: link.speed,
                is_up: match link.state {
                    FI_LINK_UP => Some(true),
                    FI_LINK_DOWN => Some(false),
                    _ => None,
                },
                network_type: text(link.network_type),
            };
        }
        value
    }
}

/// Frees the object.
///
/// # Safety
/// `fid` is an object, of pieces from malloc(3), that nobody uses any more.
pub(super) unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    let nic = fid.cast::<fid_nic>();
    // SAFETY: the caller guarantees that all parts are from malloc(3) and have no other users;
    // free(3) accepts a null pointer.
    unsafe {
        if let Some(device) = (*nic).device_attr.as_ref() {
            libc::free(device.name.cast());
            libc::free(device.device_id.cast());
            libc::free(device.device_version.cast());
            libc::free(device.vendor_id.cast());
            libc::free(device.driver.cast());
            libc::free(device.firmware.cast());
        }
        libc::free((*nic).device_attr.cast());
        libc::free((*nic).bus_attr.cast());
        if let Some(link) = (*nic).link_attr.as_ref() {
            libc::free(link.address.cast());
            libc::free(link.network_type.cast());
        }
        libc::free((*nic).link_attr.cast());
        libc::free(nic.cast());
    }
    0
}

/// Implements `FI_DUP`: creates a copy.
///
/// # Safety
/// `fid` is a complete object; for `FI_DUP`, `place` has room for a pointer.
unsafe extern "C" fn control(fid: *mut fid, command: c_int, place: *mut c_void) -> c_int {
    if command != FI_DUP as c_int {
        return Errno::ENOSYS.to_c();
    }
    if place.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller guarantees that the object is complete.
    let copied = to_c(&unsafe { from_c(fid.cast()) });
    // SAFETY: the caller guarantees that `place` has space for a pointer.
    status(copied.map(|copy| unsafe { place.cast::<*mut fid_nic>().write(copy) }))
}

/// Implements fi_tostr(3) for it, truncated to `len` bytes including the final 0.
///
/// # Safety
/// `fid` is a complete object; `buf` has room for `len` bytes.
#[allow(clippy::indexing_slicing, reason = "limited to the text")]
unsafe extern "C" fn tostr(fid: *const fid, buf: *mut c_char, len: usize) -> c_int {
    if buf.is_null() || len == 0 {
        return Errno::EINVAL.to_c();
    }
    let mut text = String::new();
    // SAFETY: the caller guarantees that the object is complete.
    let written = write!(text, "{}", unsafe { from_c(fid.cast()) });
    let bytes = &text.as_bytes()[..text.len().min(len - 1)];
    // SAFETY: the caller guarantees that `buf` has `len` bytes, and the text was truncated to
    // fewer.
    unsafe {
        buf.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
        buf.add(bytes.len()).write(0);
    }
    status(written.map_err(|_| Errno::EIO))
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    fn example() -> Nic {
        Nic {
            device: NicDevice {
                name: Some("rxe0".to_owned()),
                ..NicDevice::default()
            },
            pci: PciAddress::parse("0000:3b:00.1"),
            link: NicLink {
                mtu: 4096,
                speed: 100_000_000_000,
                is_up: Some(true),
                network_type: Some("Ethernet".to_owned()),
                ..NicLink::default()
            },
        }
    }

    /// # Safety
    /// The object is open.
    unsafe fn duplicate(nic: *mut fid_nic) -> *mut fid_nic {
        let mut copy: *mut fid_nic = null_mut();
        // SAFETY: the caller guarantees that the object is open.
        let outcome = unsafe { control(nic.cast(), FI_DUP as c_int, (&raw mut copy).cast()) };
        assert_eq!(outcome, 0);
        copy
    }

    #[test]
    fn an_object_has_the_values_it_was_made_of_and_so_does_its_copy() {
        let first = to_c(&example()).unwrap();
        // SAFETY: both objects are closed once, after their last use.
        unsafe {
            let second = duplicate(first);
            assert_eq!(close(first.cast()), 0);
            assert_eq!(from_c(second), example());
            let nic = &*second;
            assert_eq!(CStr::from_ptr((*nic.device_attr).name), c"rxe0");
            assert!((*nic.device_attr).driver.is_null());
            assert_eq!((*nic.bus_attr).bus_type, FI_BUS_PCI);
            assert_eq!((*nic.bus_attr).attr.pci.bus_id, 0x3b);
            assert_eq!((*nic.link_attr).state, FI_LINK_UP);
            assert_eq!(CStr::from_ptr((*nic.link_attr).network_type), c"Ethernet");
            let mut text = [1 as c_char; 16];
            assert_eq!(tostr(second.cast(), text.as_mut_ptr(), text.len()), 0);
            assert_eq!(CStr::from_ptr(text.as_ptr()), c"    nic:\n      ");
            assert_eq!(close(second.cast()), 0);
        }
    }

    /// Copies the structures one by one, with the operations, as layered providers of the C library
    /// do.
    #[test]
    fn an_object_that_a_layer_has_copied_can_be_copied_and_closed() {
        let first = to_c(&example()).unwrap();
        // SAFETY: all parts are from malloc(3), and each has one owner.
        unsafe {
            let layers: *mut fid_nic = zeroed().unwrap();
            (*layers).fid = std::ptr::read(&raw const (*first).fid);
            (*layers).device_attr = zeroed().unwrap();
            (*(*layers).device_attr).name = libc::strdup(c"another".as_ptr());
            (*layers).link_attr = zeroed().unwrap();
            (*(*layers).link_attr).mtu = 1500;
            assert_eq!(close(first.cast()), 0);
            let second = duplicate(layers);
            let said = from_c(second);
            assert_eq!(said.device.name.as_deref(), Some("another"));
            assert_eq!(
                (said.link.mtu, said.link.is_up, said.pci),
                (1500, None, None)
            );
            let mut text = [1 as c_char; 256];
            assert_eq!(tostr(layers.cast(), text.as_mut_ptr(), text.len()), 0);
            let text = CStr::from_ptr(text.as_ptr()).to_string_lossy();
            assert!(text.contains("another"), "{text}");
            assert_eq!(close(layers.cast()), 0);
            assert_eq!(close(second.cast()), 0);
        }
    }
}
