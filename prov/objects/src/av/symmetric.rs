//! The addresses of fi_av_insertsym(3): ranges of nodes and services.

use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use prov_base::errno::{Errno, Result};
use prov_base::resolve::{self, Query};

/// A range of nodes, each with a range of services.
pub struct Symmetric {
    nodes: Nodes,
    node_count: usize,
    services: Services,
    service_count: usize,
    /// `AF_INET`, `AF_INET6`, or 0 for either.
    family: i32,
}

/// The first node, and how its successors are named.
enum Nodes {
    V4(Ipv4Addr),
    /// With its scope id (interface number), or 0.
    V6(Ipv6Addr, u32),
    /// A name or a string address, which has no successor.
    One(CString),
    /// A name that ends in a number with at least `width` digits.
    Numbered {
        stem: String,
        first: u64,
        width: usize,
    },
}

enum Services {
    Ports(u16),
    One(CString),
    /// The node is a string address that includes the port.
    InNode,
}

impl Symmetric {
    /// Creates a range.
    ///
    /// # Errors `-FI_EINVAL` for a range that leaves the address space, and for several nodes or
    /// services whose first one has no number.
    pub fn new(
        node: Option<&CStr>,
        node_count: usize,
        service: Option<&CStr>,
        service_count: usize,
        family: i32,
    ) -> Result<Self> {
        let node = node.ok_or(Errno::EINVAL)?;
        let nodes = Nodes::new(node, node_count)?;
        let services = Services::new(service, service_count)?;
        node_count
            .checked_mul(service_count)
            .filter(|&count| count <= super::table::CAPACITY)
            .ok_or(Errno::EINVAL)?;
        Ok(Symmetric {
            nodes,
            node_count,
            services,
            service_count,
            family,
        })
    }

    /// Returns whether the addresses are known without a name look-up.
    pub fn is_numeric(&self) -> bool {
        matches!(self.nodes, Nodes::V4(_) | Nodes::V6(..))
            && matches!(self.services, Services::Ports(_))
    }

    /// Iterates over the addresses: all services of a node before the next node. A name that does
    /// not resolve is an error.
    pub fn addresses(&self) -> impl Iterator<Item = Result<SocketAddr>> + '_ {
        (0..self.node_count).flat_map(move |node| {
            (0..self.service_count).map(move |service| self.address(node, service))
        })
    }

    fn address(&self, node: usize, service: usize) -> Result<SocketAddr> {
        let ip: Option<IpAddr> = match &self.nodes {
            Nodes::V4(first) => Some(Ipv4Addr::from_bits(first.to_bits() + node as u32).into()),
            Nodes::V6(first, _) => Some(Ipv6Addr::from_bits(first.to_bits() + node as u128).into()),
            Nodes::One(_) | Nodes::Numbered { .. } => None,
        };
        if let (Some(ip), Services::Ports(first)) = (ip, &self.services) {
            let port = first + service as u16;
            return Ok(match ip {
                IpAddr::V4(_) => SocketAddr::new(ip, port),
                IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope()).into(),
            });
        }
        let name = match (&self.nodes, ip) {
            (Nodes::One(name), _) => name.clone(),
            (Nodes::Numbered { stem, first, width }, _) => {
                c_string(format!("{stem}{:0width$}", first + node as u64))?
            }
            (_, Some(ip)) if self.scope() != 0 => c_string(format!("{ip}%{}", self.scope()))?,
            (_, Some(ip)) => c_string(ip.to_string())?,
            (_, None) => return Err(Errno::EINVAL),
        };
        let service = match &self.services {
            Services::Ports(first) => Some(c_string((first + service as u16).to_string())?),
            Services::One(name) => Some(name.clone()),
            Services::InNode => None,
        };
        let found = resolve::resolve(&Query {
            node: Some(&name),
            service: service.as_deref(),
            family: self.family,
            ..Query::default()
        })?;
        found.first().copied().ok_or(Errno::ENODATA)
    }
}

impl Symmetric {
    fn scope(&self) -> u32 {
        match self.nodes {
            Nodes::V6(_, scope) => scope,
            _ => 0,
        }
    }
}

/// Parses an IPv6 address, which may name its interface (`fe80::1%eth0`, `fe80::1%2`).
fn scoped(text: &str) -> Option<(Ipv6Addr, u32)> {
    let Some((ip, zone)) = text.split_once('%') else {
        return Some((text.parse().ok()?, 0));
    };
    let number = || {
        let flags = SocketFlags::CLOEXEC;
        let any = rustix::net::socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None);
        rustix::net::netdevice::name_to_index(any.ok()?, zone).ok()
    };
    let scope = zone.parse().ok().or_else(number)?;
    Some((ip.parse().ok()?, scope))
}

impl Nodes {
    fn new(node: &CStr, count: usize) -> Result<Self> {
        let text = node.to_str().map_err(|_| Errno::EINVAL)?;
        let last = count.saturating_sub(1);
        if let Ok(ip) = text.parse::<Ipv4Addr>() {
            let last = u32::try_from(last).map_err(|_| Errno::EINVAL)?;
            ip.to_bits().checked_add(last).ok_or(Errno::EINVAL)?;
            return Ok(Nodes::V4(ip));
        }
        if let Some((ip, scope)) = scoped(text) {
            ip.to_bits()
                .checked_add(last as u128)
                .ok_or(Errno::EINVAL)?;
            return Ok(Nodes::V6(ip, scope));
        }
        if count <= 1 {
            return Ok(Nodes::One(node.to_owned()));
        }
        let stem = text.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &text[stem.len()..];
        let first: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
        first.checked_add(last as u64).ok_or(Errno::EINVAL)?;
        Ok(Nodes::Numbered {
            stem: stem.to_owned(),
            first,
            // "node07" is followed by "node08", "node7" by "node8".
            width: if digits.starts_with('0') {
                digits.len()
            } else {
                1
            },
        })
    }
}

impl Services {
    fn new(service: Option<&CStr>, count: usize) -> Result<Self> {
        let Some(service) = service else {
            return if count <= 1 {
                Ok(Services::InNode)
            } else {
                Err(Errno::EINVAL)
            };
        };
        let number = service
            .to_str()
            .ok()
            .and_then(|text| text.parse::<u16>().ok());
        match number {
            Some(first) => {
                let last = u16::try_from(count.saturating_sub(1)).map_err(|_| Errno::EINVAL)?;
                first.checked_add(last).ok_or(Errno::EINVAL)?;
                Ok(Services::Ports(first))
            }
            None if count <= 1 => Ok(Services::One(service.to_owned())),
            None => Err(Errno::EINVAL),
        }
    }
}

fn c_string(text: String) -> Result<CString> {
    CString::new(text).map_err(|_| Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(node: &CStr, nodes: usize, service: &CStr, services: usize) -> Vec<String> {
        Symmetric::new(Some(node), nodes, Some(service), services, 0)
            .unwrap()
            .addresses()
            .map(|addr| addr.unwrap().to_string())
            .collect()
    }

    #[test]
    fn services_count_up_before_nodes() {
        assert_eq!(
            list(c"10.1.1.1", 2, c"5000", 2),
            [
                "10.1.1.1:5000",
                "10.1.1.1:5001",
                "10.1.1.2:5000",
                "10.1.1.2:5001"
            ]
        );
        assert_eq!(
            list(c"10.1.1.255", 2, c"1", 1),
            ["10.1.1.255:1", "10.1.2.0:1"]
        );
        assert_eq!(
            list(c"fe80::ffff", 2, c"7", 1),
            ["[fe80::ffff]:7", "[fe80::1:0]:7"]
        );
    }

    #[test]
    fn ranges_beyond_the_end_are_refused() {
        let refused = |node, nodes, service, services| {
            let made = Symmetric::new(Some(node), nodes, Some(service), services, 0);
            assert_eq!(made.err(), Some(Errno::EINVAL));
        };
        refused(c"10.1.1.1", 1, c"65535", 2);
        refused(c"255.255.255.255", 2, c"1", 1);
        refused(c"10.1.1.1", usize::MAX, c"1", usize::MAX);
        refused(c"10.1.1.1", 1 << 31, c"1", 2);
        refused(c"host", 2, c"1", 1);
        refused(c"10.1.1.1", 1, c"http", 2);
        assert!(Symmetric::new(None, 1, Some(c"1"), 1, 0).is_err());
        assert!(Symmetric::new(Some(c"1.1.1.1"), 1, None, 2, 0).is_err());
    }

    #[test]
    fn nodes_of_a_range_keep_the_interface_of_the_first() {
        let all = |node, service| -> Vec<_> {
            let made = Symmetric::new(Some(node), 2, Some(service), 2, 0).unwrap();
            made.addresses().map(Result::unwrap).collect()
        };
        let addrs = all(c"fe80::1%1", c"7").into_iter();
        let expected = [
            "[fe80::1%1]:7",
            "[fe80::1%1]:8",
            "[fe80::2%1]:7",
            "[fe80::2%1]:8",
        ];
        assert!(addrs.eq(expected.map(|addr| addr.parse::<SocketAddr>().unwrap())));
        // By the name that every Linux system has.
        assert_eq!(all(c"fe80::1%lo", c"7"), all(c"fe80::1%1", c"7"));
        assert!(scoped("fe80::1%no-such-interface").is_none());
    }

    #[test]
    fn numbered_names_keep_their_leading_zeros() {
        for (name, next) in [(c"node07", "node08"), (c"n9", "n10"), (c"n099", "n100")] {
            let Nodes::Numbered { stem, first, width } = Nodes::new(name, 2).unwrap() else {
                panic!("{name:?} has a number");
            };
            assert_eq!(format!("{stem}{:0width$}", first + 1), next);
        }
    }

    #[test]
    fn names_and_string_addresses_resolve() {
        let one = |node, service| {
            let made = Symmetric::new(Some(node), 1, service, 1, libc::AF_INET).unwrap();
            made.addresses().next().unwrap()
        };
        assert_eq!(
            one(c"localhost", Some(c"80")),
            Ok("127.0.0.1:80".parse().unwrap())
        );
        assert_eq!(
            one(c"fi_sockaddr_in://10.0.0.1:9", None),
            Ok("10.0.0.1:9".parse().unwrap())
        );
        assert!(one(c"10.0.0.1", Some(c"no-such-service")).is_err());
    }
}
