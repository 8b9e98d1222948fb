//! Addresses as text: `fi_sockaddr_in://10.31.6.12:7471` (fi_getinfo(3)).

use std::net::{Ipv6Addr, SocketAddr};

use crate::sockaddr;
use fabric_abi::*;

const AF_IB: u16 = 27;

/// Returns the text of an address; `None` if the format has none or the address is too short for
/// it.
pub fn text(format: u32, address: &[u8]) -> Option<String> {
    Some(match format {
        FI_SOCKADDR if field(address, 0).map(u16::from_ne_bytes) == Some(AF_IB) => {
            infiniband(address)?
        }
        FI_SOCKADDR | FI_SOCKADDR_IP => internet(address, |_| true)?,
        FI_SOCKADDR_IN => internet(address, SocketAddr::is_ipv4)?,
        FI_SOCKADDR_IN6 => internet(address, SocketAddr::is_ipv6)?,
        FI_SOCKADDR_IB => infiniband(address)?,
        FI_ADDR_EFA => format!(
            "fi_addr_efa://[{}]:{}:{}",
            Ipv6Addr::from(field(address, 0)?),
            u16::from_ne_bytes(field(address, 16)?),
            u32::from_ne_bytes(field(address, 20)?),
        ),
        FI_ADDR_PSMX2 => format!("fi_addr_psmx2://{}", words(address, 2)?),
        FI_ADDR_PSMX3 => format!("fi_addr_psmx3://{}", words(address, 4)?),
        FI_ADDR_OPX => format!(
            "fi_addr_opx://{:016x}",
            u64::from_ne_bytes(field(address, 0)?)
        ),
        FI_ADDR_MLX => format!("fi_addr_mlx://{:p}", address.as_ptr()),
        FI_ADDR_UCX => format!("fi_addr_ucx://{:p}", address.as_ptr()),
        FI_ADDR_IB_UD => format!(
            "fi_addr_ib_ud://{}:{:x}/{:x}/{:x}/{:x}",
            Ipv6Addr::from(field(address, 0)?),
            u32::from_ne_bytes(field(address, 16)?),
            u16::from_ne_bytes(field(address, 20)?),
            u16::from_ne_bytes(field(address, 22)?),
            address.get(26)?,
        ),
        FI_ADDR_STR => {
            let text = address.split(|&byte| byte == 0).next()?;
            String::from_utf8_lossy(text).into_owned()
        }
        FI_ADDR_CXI => format!(
            "fi_addr_cxi://0x{:08x}",
            u32::from_ne_bytes(field(address, 0)?)
        ),
        _ => return None,
    })
}

/// Returns the `N` bytes at an offset; `None` if the address is shorter.
fn field<const N: usize>(address: &[u8], offset: usize) -> Option<[u8; N]> {
    address.get(offset..offset + N)?.try_into().ok()
}

/// Formats an internet address, if it is of the family that the format demands (`accepts`).
fn internet(address: &[u8], accepts: fn(&SocketAddr) -> bool) -> Option<String> {
    sockaddr::decode(address)
        .filter(accepts)
        .map(|address| sockaddr::to_string(&address))
}

/// Formats a `sockaddr_ib`: family, partition key, flow, address, service, its mask, scope; all but
/// the family are in network byte order.
fn infiniband(address: &[u8]) -> Option<String> {
    let partition = u16::from_be_bytes(field(address, 2)?);
    let host: [u8; 16] = field(address, 8)?;
    let service = u64::from_be_bytes(field(address, 24)?);
    let scope = u64::from_be_bytes(field(address, 40)?);
    Some(format!(
        "fi_sockaddr_ib://[{}]:0x{partition:x}:0x{:x}:0x{:x}",
        Ipv6Addr::from(host),
        (service >> 16) & 0xfff,
        scope & 0xff,
    ))
}

/// Formats 64-bit words in hexadecimal, with colons between them.
fn words(address: &[u8], count: usize) -> Option<String> {
    let words: Option<Vec<String>> = (0..count)
        .map(|word| {
            Some(format!(
                "{:x}",
                u64::from_ne_bytes(field(address, word * 8)?)
            ))
        })
        .collect();
    Some(words?.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockaddr_in(port: u16, host: [u8; 4]) -> Vec<u8> {
        let mut address = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        address.extend(port.to_be_bytes());
        address.extend(host);
        address.extend([0; 8]);
        address
    }

    #[test]
    fn an_ipv4_address_shows_host_and_port() {
        let address = sockaddr_in(7471, [10, 31, 6, 12]);
        for format in [FI_SOCKADDR, FI_SOCKADDR_IP, FI_SOCKADDR_IN] {
            assert_eq!(
                text(format, &address).as_deref(),
                Some("fi_sockaddr_in://10.31.6.12:7471")
            );
        }
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        let mut address = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        address.extend(80u16.to_be_bytes());
        address.extend([0; 4]);
        address.extend("fe80::6:12".parse::<Ipv6Addr>().unwrap().octets());
        address.extend([0; 4]);
        assert_eq!(
            text(FI_SOCKADDR, &address).as_deref(),
            Some("fi_sockaddr_in6://[fe80::6:12]:80")
        );
    }

    #[test]
    fn an_address_that_is_too_short_has_no_text() {
        for format in 0..=32 {
            for length in 0..2 {
                if !matches!(format, FI_ADDR_STR | FI_ADDR_MLX | FI_ADDR_UCX) {
                    assert_eq!(text(format, &vec![0; length]), None, "{format} {length}");
                }
            }
        }
        assert_eq!(text(FI_SOCKADDR_IN, &sockaddr_in(1, [1; 4])[..7]), None);
    }

    #[test]
    fn a_text_address_ends_at_its_nul() {
        assert_eq!(
            text(FI_ADDR_STR, b"fi_shm://7\0junk").as_deref(),
            Some("fi_shm://7")
        );
    }
}
