//! Connection data in the format of the provider's peers: a length byte, then the data. Padding
//! that the system adds is removed. Between InfiniBand addresses a request begins with RDMA CM's
//! own header.

use crate::address::SocketAddress;

/// Largest number of bytes of connection data.
pub const DATA_LIMIT: usize = 55;

/// Number of bytes of RDMA CM's header.
const HEADER: usize = 36;

/// Returns the private data of a request to `peer`.
pub fn request(own: Option<&SocketAddress>, peer: Option<&SocketAddress>, data: &[u8]) -> Vec<u8> {
    let mut message = match (own, peer) {
        (Some(SocketAddress::Infiniband(own)), Some(SocketAddress::Infiniband(peer))) => {
            header(own, peer)
        }
        _ => Vec::new(),
    };
    message.append(&mut answer(data));
    message
}

/// Returns RDMA CM's header: a version, which the system fills in; an IP version, where 0 means
/// that there are no IP addresses; the sender's port and both GIDs.
fn header(own: &[u8; 48], peer: &[u8; 48]) -> Vec<u8> {
    // In a `sockaddr_ib` the GID follows 8 bytes, and the port is the end of the service id.
    let gid =
        |address: &'_ [u8; 48]| -> Vec<u8> { address.iter().skip(8).take(16).copied().collect() };
    let mut header = vec![0, 0];
    header.extend(own.iter().skip(30).take(2));
    header.extend(gid(own));
    header.extend(gid(peer));
    header
}

/// Returns the private data of an answer.
pub fn answer(data: &[u8]) -> Vec<u8> {
    let data = data.get(..DATA_LIMIT).unwrap_or(data);
    let mut message = vec![data.len() as u8];
    message.extend_from_slice(data);
    message
}

/// Returns the data in a request from `peer`.
pub fn of_request<'a>(peer: Option<&SocketAddress>, message: &'a [u8]) -> &'a [u8] {
    match peer {
        Some(SocketAddress::Infiniband(_)) => of_answer(message.get(HEADER..).unwrap_or(&[])),
        _ => of_answer(message),
    }
}

/// Returns the data in an answer.
pub fn of_answer(message: &[u8]) -> &[u8] {
    match message {
        [] => &[],
        &[len, ref rest @ ..] => {
            let len = usize::from(len).min(DATA_LIMIT);
            rest.get(..len).unwrap_or(rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_data_is_decoded_as_it_was_encoded_whatever_follows_it() {
        let all: Vec<u8> = (0..=255).collect();
        let addresses = [
            SocketAddress::Internet("10.0.0.1:1".parse().unwrap()),
            SocketAddress::Infiniband([27; 48]),
        ];
        for len in [0, 1, DATA_LIMIT, DATA_LIMIT + 1] {
            let expected = &all[..len.min(DATA_LIMIT)];
            for address in &addresses {
                let mut message = request(Some(address), Some(address), &all[..len]);
                message.resize(196, 0);
                assert_eq!(of_request(Some(address), &message), expected);
            }
            assert_eq!(of_answer(&answer(&all[..len])), expected);
        }
    }

    #[test]
    fn lengths_that_lie_are_cut() {
        assert_eq!(of_answer(&[]), &[]);
        assert_eq!(of_answer(&[200, 1, 2]), &[1, 2]);
        assert_eq!(of_answer(&[255; 100]).len(), DATA_LIMIT);
        let infiniband = SocketAddress::Infiniband([27; 48]);
        assert_eq!(of_request(Some(&infiniband), &[9; HEADER - 1]), &[]);
    }
}
