//! The network interface of an endpoint (fi_nic(3)).

use std::fmt;

/// `struct fid_nic`: a device, its bus address, and its link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Nic {
    pub device: NicDevice,
    /// The PCI address, if the device has one.
    pub pci: Option<PciAddress>,
    pub link: NicLink,
}

/// `struct fi_device_attr`; unknown members are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NicDevice {
    pub name: Option<String>,
    pub device_id: Option<String>,
    pub device_version: Option<String>,
    pub vendor_id: Option<String>,
    pub driver: Option<String>,
    pub firmware: Option<String>,
}

/// `struct fi_pci_attr`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PciAddress {
    pub domain: u16,
    pub bus: u8,
    pub device: u8,
    pub function: u8,
}

/// `struct fi_link_attr`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicLink {
    /// The address in the network's notation.
    pub address: Option<String>,
    /// Largest packet in bytes.
    pub mtu: usize,
    /// Bits per second.
    pub speed: usize,
    /// Whether the link is up, if that is known.
    pub is_up: Option<bool>,
    /// For example `Ethernet`.
    pub network_type: Option<String>,
}

impl PciAddress {
    /// Parses the system's notation: `0000:3b:00.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, function) = text.split_once('.')?;
        let mut parts = rest.split(':');
        let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
        let byte = |text| u8::from_str_radix(text, 16).ok();
        Some(PciAddress {
            domain: u16::from_str_radix(domain, 16).ok()?,
            bus: byte(bus)?,
            device: byte(device)?,
            function: byte(function)?,
        })
        .filter(|_| parts.next().is_none())
    }
}

/// The format of fi_tostr(3) within an `fi_info`.
impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FIRST: usize = 4;
        let head = |f: &mut fmt::Formatter<'_>, depth: usize, name: &str| {
            writeln!(f, "{:width$}{name}:", "", width = FIRST * depth)
        };
        let line = |f: &mut fmt::Formatter<'_>, depth: usize, name, value: &dyn fmt::Display| {
            let width = FIRST * depth;
            writeln!(f, "{:width$}{name}: {value}", "")
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "(null)".to_owned());
        head(f, 1, "nic")?;
        head(f, 2, "fi_device_attr")?;
        let device = &self.device;
        for (name, value) in [
            ("name", &device.name),
            ("device_id", &device.device_id),
            ("device_version", &device.device_version),
            ("vendor_id", &device.vendor_id),
            ("driver", &device.driver),
            ("firmware", &device.firmware),
        ] {
            line(f, 3, name, &text(value))?;
        }
        head(f, 2, "fi_bus_attr")?;
        match &self.pci {
            None => line(f, 3, "bus_type", &"FI_BUS_UNKNOWN")?,
            Some(pci) => {
                line(f, 3, "bus_type", &"FI_BUS_PCI")?;
                head(f, 3, "fi_pci_attr")?;
                line(f, 4, "domain_id", &pci.domain)?;
                line(f, 4, "bus_id", &pci.bus)?;
                line(f, 4, "device_id", &pci.device)?;
                line(f, 4, "function_id", &pci.function)?;
            }
        }
        head(f, 2, "fi_link_attr")?;
        let link = &self.link;
        line(f, 3, "address", &text(&link.address))?;
        line(f, 3, "mtu", &link.mtu)?;
        line(f, 3, "speed", &link.speed)?;
        let state = match link.is_up {
            None => "FI_LINK_UNKNOWN",
            Some(false) => "FI_LINK_DOWN",
            Some(true) => "FI_LINK_UP",
        };
        line(f, 3, "state", &state)?;
        line(f, 3, "network_type", &text(&link.network_type))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_on_the_bus_is_read_as_the_system_writes_it() {
        let expected = PciAddress {
            domain: 0x10,
            bus: 0x3b,
            device: 0x1f,
            function: 1,
        };
        assert_eq!(PciAddress::parse("0010:3b:1f.1"), Some(expected));
        for wrong in [
            "",
            "3b:1f.1",
            "0:0:0:0.0",
            "0010:3b:1f",
            "0010:3b:xx.0",
            "10:100:0.0",
        ] {
            assert_eq!(PciAddress::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn unknown_values_are_reported_as_unknown() {
        let nic = Nic::default();
        let text = nic.to_string();
        assert!(text.contains("            name: (null)\n"), "{text}");
        assert!(
            text.contains("            bus_type: FI_BUS_UNKNOWN\n"),
            "{text}"
        );
        assert!(
            text.contains("            state: FI_LINK_UNKNOWN\n"),
            "{text}"
        );
    }
}
