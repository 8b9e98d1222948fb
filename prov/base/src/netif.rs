//! The network interfaces of this machine, in the order of preference.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use crate::uncancelled::Uncancelled;

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
    /// Link speed in Mbit/s; 0 if the system does not know it.
    pub speed: u32,
    /// Whether only this machine is reachable.
    pub loopback: bool,
}

/// Whether `name`, as a user writes it, means the loopback interface.
fn means_loopback(name: &str) -> bool {
    name == "lo" || name == "loopback"
}

/// Returns the interface that the user has chosen with the parameter `iface`, unless it has no
/// usable address. `target` is the log target.
pub fn chosen(name: Option<String>, target: &str) -> Option<String> {
    let name = name.filter(|name| !name.is_empty())?;
    if interfaces(Some(&name)).is_empty() {
        log::error!(
            target: target,
            "parameter iface: there is no usable address on {name}; using any interface"
        );
        return None;
    }
    Some(name)
}

/// Returns the addresses that are up, best first: fastest link, IPv4 before IPv6, global before
/// link-local addresses, loopback last. With `only`, those of that interface; point-to-point links
/// (tunnels) are returned only if named.
pub fn interfaces(only: Option<&str>) -> Vec<Interface> {
    let wanted = |entry: &Entry| match only {
        None => !entry.is_tunnel,
        Some(name) => entry.interface.name == name,
    };
    let mut found: Vec<_> = listed()
        .into_iter()
        .filter(wanted)
        .map(|entry| entry.interface)
        .collect();
    if only.is_none_or(means_loopback) {
        found.retain(|interface| !interface.loopback);
        found.extend(loopback());
    }
    sort(&mut found);
    found.dedup();
    found
}

/// An address that is up.
#[derive(Clone)]
struct Entry {
    interface: Interface,
    /// Whether it is one of a point-to-point link.
    is_tunnel: bool,
}

thread_local! {
    /// How many [`Snapshot`]s this thread has.
    static SNAPSHOTS: Cell<usize> = const { Cell::new(0) };
    /// What was listed since the first of them.
    static LISTED: RefCell<Option<Vec<Entry>>> = const { RefCell::new(None) };
}

/// While it lives, this thread asks the system for the interfaces at most once: all providers of
/// one call of fi_getinfo(3) have the same ones.
#[must_use]
pub struct Snapshot(());

impl Snapshot {
    /// Begins; one within another one has no effect.
    pub fn begin() -> Self {
        SNAPSHOTS.set(SNAPSHOTS.get() + 1);
        Snapshot(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        SNAPSHOTS.set(SNAPSHOTS.get() - 1);
        if SNAPSHOTS.get() == 0 {
            let _ = LISTED.try_with(RefCell::take);
        }
    }
}

/// Returns all addresses that are up, in the system's order.
fn listed() -> Vec<Entry> {
    if SNAPSHOTS.get() == 0 {
        return list();
    }
    // A thread whose variables are gone has no snapshot.
    LISTED
        .try_with(|listed| listed.borrow_mut().get_or_insert_with(list).clone())
        .unwrap_or_else(|_| list())
}

fn list() -> Vec<Entry> {
    let mut found = Vec::new();
    // Under load the kernel may refuse a netlink socket; the request is then repeated.
    for attempt in 0..10 {
        let all = {
            let _uncancelled = Uncancelled::begin();
            getifaddrs()
        };
        match all {
            Ok(all) => {
                found = all.filter_map(usable).collect();
                break;
            }
            Err(Errno::ECONNREFUSED) => {
                std::thread::sleep(Duration::from_millis(1 << attempt));
            }
            Err(error) => {
                log::warn!(target: crate::logging::UTIL.core, "cannot list network interfaces: {error}");
                break;
            }
        }
    }
    let mut known: Option<(String, u32)> = None;
    for Entry { interface, .. } in &mut found {
        if interface.loopback {
            continue;
        }
        // Addresses of one interface follow one another.
        let speed = match &known {
            Some((name, speed)) if *name == interface.name => *speed,
            _ => speed(&interface.name),
        };
        interface.speed = speed;
        known = Some((interface.name.clone(), speed));
    }
    found
}

/// Sorts best first; see [`interfaces`].
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

/// Returns an address that is up, without its speed.
fn usable(entry: InterfaceAddress) -> Option<Entry> {
    let flags = entry.flags;
    if !flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING) {
        return None;
    }
    let (addr, prefix) = address(&entry.address?, entry.netmask.as_ref())?;
    Some(Entry {
        is_tunnel: flags.contains(InterfaceFlags::IFF_POINTOPOINT),
        interface: Interface {
            network: network(addr.ip(), prefix),
            speed: 0,
            name: entry.interface_name,
            addr,
            loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
        },
    })
}

/// Returns the loopback addresses, which getinfo offers whatever their netmask.
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

/// Returns an address and the length of its network prefix; `None` for others than those of IP. A
/// link-local address, which is meaningless without its interface, has the number of that.
fn address(
    address: &SockaddrStorage,
    netmask: Option<&SockaddrStorage>,
) -> Option<(SocketAddr, u32)> {
    if let Some(v4) = address.as_sockaddr_in() {
        let mask = netmask.and_then(SockaddrStorage::as_sockaddr_in);
        let prefix = mask.map_or(32, |mask| mask.ip().to_bits().leading_ones());
        return Some((SocketAddr::new(v4.ip().into(), 0), prefix));
    }
    let v6 = address.as_sockaddr_in6()?;
    let mask = netmask.and_then(SockaddrStorage::as_sockaddr_in6);
    let prefix = mask.map_or(128, |mask| mask.ip().to_bits().leading_ones());
    let scope = match v6.ip().is_unicast_link_local() {
        true => v6.scope_id(),
        false => 0,
    };
    Some((SocketAddrV6::new(v6.ip(), 0, 0, scope).into(), prefix))
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

/// Returns the link speed in Mbit/s; 0 for virtual interfaces, which have none, and for drivers
/// that report -1.
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
    fn the_fastest_link_is_first_and_loopback_last() {
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
    fn an_address_of_one_link_names_its_interface() {
        let of = |address: &str| {
            let of_the_system = |address: &str| -> SockaddrStorage {
                SocketAddrV6::new(address.parse().unwrap(), 0, 0, 7).into()
            };
            let mask = of_the_system("ffff:ffff:ffff:ffff::");
            super::address(&of_the_system(address), Some(&mask))
        };
        let addr = SocketAddrV6::new("fe80::1".parse().unwrap(), 0, 0, 7);
        assert_eq!(of("fe80::1"), Some((addr.into(), 64)));
        let addr = SocketAddrV6::new("fd00::1".parse().unwrap(), 0, 0, 0);
        assert_eq!(of("fd00::1"), Some((addr.into(), 64)));
    }

    #[test]
    fn a_snapshot_is_listed_once_and_ends_with_its_last_owner() {
        let is_listed = || LISTED.with_borrow(Option::is_some);
        let outer = Snapshot::begin();
        assert!(!is_listed());
        {
            let _inner = Snapshot::begin();
            interfaces(None);
        }
        assert!(is_listed());
        LISTED.set(Some(Vec::new()));
        assert!(interfaces(None).iter().all(|interface| interface.loopback));
        drop(outer);
        assert!(!is_listed());
        interfaces(None);
        assert!(!is_listed());
    }

    #[test]
    fn loopback_is_always_there_and_only_loopback_when_named() {
        assert!(interfaces(None).iter().any(|i| i.loopback));
        let only = interfaces(Some("lo"));
        assert!(!only.is_empty() && only.iter().all(|i| i.loopback));
        assert!(interfaces(Some("no-such-interface")).is_empty());
    }
}
