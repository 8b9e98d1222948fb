//! `fi_info::nic`: an object that says what there is to say of a network interface
//! (fi_nic(3)), and that whoever frees the `fi_info` closes.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt::Write;

use fabric_abi::*;

use super::{missing, status};
use crate::attr::Nic;
use crate::errno::Errno;

/// The C structures, and what they point to. It is always behind a pointer of its
/// own, since they point to one another.
#[repr(C)]
struct NicObject {
    nic: fid_nic,
    device: fi_device_attr,
    bus: fi_bus_attr,
    link: fi_link_attr,
    texts: Vec<CString>,
    value: Nic,
}

static OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: Some(close),
    bind: missing::slot(),
    control: Some(control),
    ops_open: missing::slot(),
    tostr: Some(tostr),
    ops_set: missing::slot(),
};

/// An object for C, which [`close`] frees.
pub(super) fn to_c(value: &Nic) -> *mut fid_nic {
    let mut texts = Vec::new();
    let mut text = |text: &Option<String>| -> *mut c_char {
        let Some(text) = text
            .as_ref()
            .and_then(|text| CString::new(text.as_str()).ok())
        else {
            return std::ptr::null_mut();
        };
        let pointer = text.as_ptr().cast_mut();
        texts.push(text);
        pointer
    };
    let device = fi_device_attr {
        name: text(&value.device.name),
        device_id: text(&value.device.device_id),
        device_version: text(&value.device.device_version),
        vendor_id: text(&value.device.vendor_id),
        driver: text(&value.device.driver),
        firmware: text(&value.device.firmware),
    };
    let pci = value.pci.unwrap_or_default();
    let bus = fi_bus_attr {
        bus_type: match value.pci {
            Some(_) => FI_BUS_PCI,
            None => FI_BUS_UNKNOWN,
        },
        attr: fi_bus_attr_detail {
            pci: fi_pci_attr {
                domain_id: pci.domain,
                bus_id: pci.bus,
                device_id: pci.device,
                function_id: pci.function,
            },
        },
    };
    let link = fi_link_attr {
        address: text(&value.link.address),
        mtu: value.link.mtu,
        speed: value.link.speed,
        state: match value.link.is_up {
            None => FI_LINK_UNKNOWN,
            Some(false) => FI_LINK_DOWN,
            Some(true) => FI_LINK_UP,
        },
        network_type: text(&value.link.network_type),
    };
    let nic = fid_nic {
        fid: fid {
            fclass: FI_CLASS_NIC,
            context: std::ptr::null_mut(),
            ops: (&raw const OPS).cast_mut(),
        },
        device_attr: std::ptr::null_mut(),
        bus_attr: std::ptr::null_mut(),
        link_attr: std::ptr::null_mut(),
        prov_attr: std::ptr::null_mut(),
    };
    let object = Box::into_raw(Box::new(NicObject {
        nic,
        device,
        bus,
        link,
        texts,
        value: value.clone(),
    }));
    // SAFETY: the object was just made, and stays where it is.
    unsafe {
        (*object).nic.device_attr = &raw mut (*object).device;
        (*object).nic.bus_attr = &raw mut (*object).bus;
        (*object).nic.link_attr = &raw mut (*object).link;
    }
    object.cast()
}

/// Frees the object.
///
/// # Safety
/// `fid` is an object of [`to_c`] that nobody uses any more.
pub(super) unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: `to_c` made the object; it begins with the `fid`.
    drop(unsafe { Box::from_raw(fid.cast::<NicObject>()) });
    0
}

/// `FI_DUP` makes a copy.
///
/// # Safety
/// `fid` is an object of [`to_c`]; for `FI_DUP`, `place` has room for a pointer.
unsafe extern "C" fn control(fid: *mut fid, command: c_int, place: *mut c_void) -> c_int {
    if command != FI_DUP as c_int {
        return Errno::ENOSYS.to_c();
    }
    if place.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller vouches for object and place.
    unsafe {
        let copy = to_c(&(*fid.cast::<NicObject>()).value);
        place.cast::<*mut fid_nic>().write(copy);
    }
    status(Ok(()))
}

/// What fi_tostr(3) prints of it, cut to `len` bytes with the 0 at their end.
///
/// # Safety
/// `fid` is an object of [`to_c`]; `buf` has room for `len` bytes.
unsafe extern "C" fn tostr(fid: *const fid, buf: *mut c_char, len: usize) -> c_int {
    if buf.is_null() || len == 0 {
        return Errno::EINVAL.to_c();
    }
    let mut text = String::new();
    // SAFETY: the caller vouches for the object.
    let written = write!(text, "{}", unsafe { &(*fid.cast::<NicObject>()).value });
    let bytes = &text.as_bytes()[..text.len().min(len - 1)];
    // SAFETY: the caller vouches for the room, which is one byte more.
    unsafe {
        buf.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
        buf.add(bytes.len()).write(0);
    }
    status(written.map_err(|_| Errno::EIO))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::null_mut;

    use super::*;
    use crate::attr::{NicDevice, NicLink, PciAddress};

    #[test]
    fn an_object_says_what_it_was_made_of_and_so_does_its_copy() {
        let value = Nic {
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
        };
        let first = to_c(&value);
        // SAFETY: both objects are closed once, after their last use.
        unsafe {
            let mut second: *mut fid_nic = null_mut();
            let of = |nic: *mut fid_nic| nic.cast::<fid>();
            assert_eq!(
                control(of(first), FI_DUP as c_int, (&raw mut second).cast()),
                0
            );
            assert_eq!(close(of(first)), 0);
            let nic = &*second;
            assert_eq!(CStr::from_ptr((*nic.device_attr).name), c"rxe0");
            assert!((*nic.device_attr).driver.is_null());
            assert_eq!((*nic.bus_attr).bus_type, FI_BUS_PCI);
            assert_eq!((*nic.bus_attr).attr.pci.bus_id, 0x3b);
            assert_eq!((*nic.link_attr).state, FI_LINK_UP);
            assert_eq!(CStr::from_ptr((*nic.link_attr).network_type), c"Ethernet");
            let mut text = [1 as c_char; 16];
            assert_eq!(tostr(of(second), text.as_mut_ptr(), text.len()), 0);
            assert_eq!(CStr::from_ptr(text.as_ptr()), c"    nic:\n      ");
            assert_eq!(close(of(second)), 0);
        }
    }
}
