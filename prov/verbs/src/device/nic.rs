//! The data of fi_nic(3) for a device and one of its ports.

use std::ffi::{CStr, c_char};
use std::fs::read_link;
use std::path::Path;

use prov_base::errno::Result;
use prov_util::attr::{Nic, NicDevice, NicLink, PciAddress};

use super::Context;
use crate::sys::ibverbs::{IBV_PORT_ACTIVE, IBV_PORT_DOWN, ibv_port_attr};

/// `IBV_LINK_LAYER_ETHERNET`
pub const ETHERNET: u8 = 2;

/// Returns the largest number of bytes of a packet.
pub(super) fn mtu_of(port: &ibv_port_attr) -> usize {
    // 1 stands for 256 bytes, 5 for 4096.
    128usize << port.active_mtu.clamp(1, 5)
}

impl Context {
    /// Returns the data of the device and a port.
    pub fn nic(&self, port: u8) -> Result<Nic> {
        let device = self.query()?;
        let port = self.query_port(port)?;
        let name = self.name();
        let place = Path::new("/sys/class/infiniband")
            .join(&name)
            .join("device");
        Ok(Nic {
            device: NicDevice {
                name: Some(name),
                device_id: Some(format!("{:#06x}", device.vendor_part_id)),
                device_version: Some(device.hw_ver.to_string()),
                vendor_id: Some(format!("{:#06x}", device.vendor_id)),
                driver: target_of(&place.join("driver")),
                firmware: Some(text_in(&device.fw_ver)),
            },
            pci: target_of(&place).as_deref().and_then(PciAddress::parse),
            link: NicLink {
                address: None,
                mtu: mtu_of(&port),
                speed: speed_of(&port),
                is_up: match port.state {
                    IBV_PORT_ACTIVE => Some(true),
                    IBV_PORT_DOWN => Some(false),
                    _ => None,
                },
                network_type: Some(
                    match port.link_layer {
                        ETHERNET => "Ethernet",
                        _ => "InfiniBand",
                    }
                    .to_owned(),
                ),
            },
        })
    }
}

/// Returns the last component of a symbolic link's target.
fn target_of(link: &Path) -> Option<String> {
    let target = read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Returns the speed in bits per second: that of a lane, times the lanes.
fn speed_of(port: &ibv_port_attr) -> usize {
    let lanes = match port.active_width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    let megabits = match port.active_speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    megabits * 1_000_000 * lanes
}

/// Returns the text in an array, which ends at a 0 or at the end of the array.
fn text_in(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|&byte| byte as u8).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(
        |_| String::new(),
        |text| text.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_is_that_of_all_lanes() {
        // SAFETY: the structure consists of integers, unions of these and pointers, for which zero
        // is a valid value.
        let mut port: ibv_port_attr = unsafe { std::mem::zeroed() };
        assert_eq!(speed_of(&port), 0);
        port.active_width = 2;
        port.active_speed = 32;
        assert_eq!(speed_of(&port), 100_000_000_000);
    }

    #[test]
    fn text_ends_with_its_array_at_the_latest() {
        let array = |text: &[u8]| text.iter().map(|&byte| byte as c_char).collect::<Vec<_>>();
        assert_eq!(text_in(&array(b"20.31\0\0junk")), "20.31");
        assert_eq!(text_in(&array(b"full")), "full");
    }
}
