//! The network interfaces of this machine, in the order of preference.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The system's name of the interface, such as `eth0`; the domain name of
    /// IP providers.
    pub name: String,
    /// The network, such as `10.1.0.0/16`; the fabric name of IP providers.
    pub network: String,
    /// The address, with port 0.
    pub addr: SocketAddr,
    /// Link speed in Mbit/s; 0 where the system does not know.
    pub speed: u32,
    /// Whether only this machine is reachable.
    pub loopback: bool,
}

/// Whether `name`, as a user writes it, means the loopback interface.
fn means_loopback(name: &str) -> bool {
    name == "lo" || name == "loopback"
}

/// The addresses that are up, best first: fastest link, IPv4 before IPv6,
/// addresses valid everywhere before those valid on one link, loopback last.
/// Only those of the interface `only` if given; point-to-point links (tunnels)
/// only if given by name.
pub fn interfaces(only: Option<&str>) -> Vec<Interface> {
    let mut found = Vec::new();
    // A netlink socket that the kernel refuses under load is not an error.
    for attempt in 0..10 {
        match getifaddrs() {
            Ok(all) => {
                found = all.filter_map(|entry| usable(entry, only)).collect();
                break;
            }
            Err(nix::Error::ECONNREFUSED) => {
                std::thread::sleep(Duration::from_millis(1 << attempt));
            }
            Err(error) => {
                log::warn!(target: crate::logging::UTIL.core, "cannot list network interfaces: {error}");
                break;
            }
        }
    }
    if only.is_none_or(means_loopback) {
        found.retain(|interface| !interface.loopback);
        found.extend(loopback());
    }
    sort(&mut found);
    found.dedup();
    found
}

/// Best first; see [`interfaces`].
fn sort(interfaces: &mut [Interface]) {
    interfaces.sort_by_key(|interface| {
        let local = match interface.addr.ip() {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        (
            interface.loopback,
            Reverse(interface.speed),
            interface.addr.is_ipv6(),
            local,
            interface.addr.ip(),
        )
    });
}

fn usable(entry: nix::ifaddrs::InterfaceAddress, only: Option<&str>) -> Option<Interface> {
    let flags = entry.flags;
    let named = only == Some(entry.interface_name.as_str());
    if !flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING)
        || only.is_some() && !named
        || flags.contains(InterfaceFlags::IFF_POINTOPOINT) && !named
    {
        return None;
    }
    let addr = address(&entry.address?)?;
    let prefix = match (entry.netmask.as_ref().and_then(address), addr.ip()) {
        (Some(mask), ip) if mask.is_ipv4() == ip.is_ipv4() => prefix_len(mask.ip()),
        (_, IpAddr::V4(_)) => 32,
        (_, IpAddr::V6(_)) => 128,
    };
    let loopback = flags.contains(InterfaceFlags::IFF_LOOPBACK);
    Some(Interface {
        network: network(addr.ip(), prefix),
        speed: if loopback {
            0
        } else {
            speed(&entry.interface_name)
        },
        name: entry.interface_name,
        addr,
        loopback,
    })
}

/// The loopback addresses, which getinfo offers whatever their netmask.
fn loopback() -> [Interface; 2] {
    let entry = |ip: IpAddr, network: &str| Interface {
        name: "lo".into(),
        network: network.into(),
        addr: SocketAddr::new(ip, 0),
        speed: 0,
        loopback: true,
    };
    [
        entry(Ipv4Addr::LOCALHOST.into(), "127.0.0.1/32"),
        entry(Ipv6Addr::LOCALHOST.into(), "::1/128"),
    ]
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), 0));
    }
    let v6 = storage.as_sockaddr_in6()?;
    Some(SocketAddrV6::new(v6.ip(), 0, v6.flowinfo(), v6.scope_id()).into())
}

fn prefix_len(mask: IpAddr) -> u32 {
    match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    }
}

fn network(ip: IpAddr, prefix: u32) -> String {
    let network: IpAddr = match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    };
    format!("{network}/{prefix}")
}

/// Link speed in Mbit/s. Virtual interfaces have none, and some drivers say -1.
fn speed(name: &str) -> u32 {
    std::fs::read_to_string(format!("/sys/class/net/{name}/speed"))
        .ok()
        .and_then(|text| text.trim().parse::<i64>().ok())
        .and_then(|mbps| u32::try_from(mbps).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(addr: &str, speed: u32) -> Interface {
        Interface {
            name: "x".into(),
            network: String::new(),
            addr: SocketAddr::new(addr.parse().unwrap(), 0),
            speed,
            loopback: addr == "127.0.0.1",
        }
    }

    #[test]
    fn the_fastest_link_comes_first_and_loopback_last() {
        let mut list = vec![
            interface("127.0.0.1", 0),
            interface("fe80::1", 10_000),
            interface("fd00::1", 10_000),
            interface("10.0.0.1", 1_000),
            interface("10.0.0.2", 10_000),
            interface("192.168.0.1", 0),
        ];
        sort(&mut list);
        let order: Vec<_> = list.iter().map(|i| i.addr.ip().to_string()).collect();
        assert_eq!(
            order,
            [
                "10.0.0.2",
                "fd00::1",
                "fe80::1",
                "10.0.0.1",
                "192.168.0.1",
                "127.0.0.1"
            ]
        );
    }

    #[test]
    fn networks_are_written_with_their_prefix() {
        assert_eq!(network("10.1.2.3".parse().unwrap(), 24), "10.1.2.0/24");
        assert_eq!(network("10.1.2.3".parse().unwrap(), 0), "0.0.0.0/0");
        assert_eq!(network("10.1.2.3".parse().unwrap(), 32), "10.1.2.3/32");
        assert_eq!(network("fe80::1:2".parse().unwrap(), 64), "fe80::/64");
        assert_eq!(network("fe80::1".parse().unwrap(), 0), "::/0");
    }

    #[test]
    fn loopback_is_always_there_and_only_loopback_when_named() {
        assert!(interfaces(None).iter().any(|i| i.loopback));
        let only = interfaces(Some("lo"));
        assert!(!only.is_empty() && only.iter().all(|i| i.loopback));
        assert!(interfaces(Some("no-such-interface")).is_empty());
    }
}
