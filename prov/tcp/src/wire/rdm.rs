//! The connection data that two RDM endpoints exchange in the handshake.

use super::WireError;

/// Size in bytes of the connection data of RDM endpoints.
pub const SIZE: usize = 8;

/// Newest version of the RDM protocol.
pub const VERSION: u8 = RENDEZVOUS;
/// The first version with rendezvous of tagged messages.
pub const RENDEZVOUS: u8 = 1;

/// Set by the accepting side to show that it has read the version.
const VERSION_CHECKED: u8 = 1 << 7;

/// The sender cannot be connected to; it has to connect to its peers.
const BEHIND_FIREWALL: u8 = 1 << 0;

/// The identity of the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Version of the RDM protocol: the highest one that the sender supports, or the one to use.
    pub version: u8,
    /// In an answer: whether the peer's version was read. If not, version 0 is used.
    pub version_checked: bool,
    /// See `FI_TCP_FIREWALL_ADDR`.
    pub behind_firewall: bool,
    /// Port at which the sender's endpoint listens. Together with the address from which the
    /// connection comes it is the address of the endpoint.
    pub port: u16,
    /// The sender's process.
    pub pid: u32,
}

impl Identity {
    /// Encodes the data.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut out = [0; SIZE];
        out[0] = self.version
            | if self.version_checked {
                VERSION_CHECKED
            } else {
                0
            };
        out[1] = if self.behind_firewall {
            BEHIND_FIREWALL
        } else {
            0
        };
        out[2..4].copy_from_slice(&self.port.to_be_bytes());
        out[4..8].copy_from_slice(&self.pid.to_be_bytes());
        out
    }

    /// Decodes the data; an error unless there are exactly [`SIZE`] bytes.
    pub fn decode(data: &[u8]) -> Result<Identity, WireError> {
        let &[version, features, p0, p1, i0, i1, i2, i3] = data else {
            return Err(WireError::DataTooLong(data.len()));
        };
        Ok(Identity {
            version: version & !VERSION_CHECKED,
            version_checked: version & VERSION_CHECKED != 0,
            behind_firewall: features & BEHIND_FIREWALL != 0,
            port: u16::from_be_bytes([p0, p1]),
            pid: u32::from_be_bytes([i0, i1, i2, i3]),
        })
    }

    /// The bytes of a request to this context of a scalable endpoint.
    pub fn encode_for(&self, context: u8) -> Vec<u8> {
        let mut data = self.encode().to_vec();
        data.push(context);
        data
    }

    /// Reads the bytes of a request to a context, and which that is; an error unless there is
    /// exactly one byte more than [`SIZE`].
    pub fn decode_for(data: &[u8]) -> Result<(Identity, u8), WireError> {
        let (context, identity) = data.split_last().ok_or(WireError::DataTooLong(0))?;
        Ok((Identity::decode(identity)?, *context))
    }

    /// Returns the version to use, as the accepting side answers it.
    pub fn agreed(&self) -> u8 {
        self.version.min(VERSION)
    }

    /// Returns the version to use, as the connecting side reads it in this answer.
    pub fn answered(&self) -> u8 {
        if self.version_checked {
            self.version
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_decoded_as_it_was_encoded() {
        let sent = Identity {
            version: 1,
            version_checked: true,
            behind_firewall: true,
            port: 0x1234,
            pid: 99,
        };
        assert_eq!(sent.encode(), [0x81, 1, 0x12, 0x34, 0, 0, 0, 99]);
        assert_eq!(Identity::decode(&sent.encode()), Ok(sent));
    }

    #[test]
    fn a_request_to_a_context_contains_its_index() {
        let sent = Identity::decode(&[1, 0, 0x12, 0x34, 0, 0, 0, 99]).unwrap();
        let data = sent.encode_for(7);
        assert_eq!(Identity::decode_for(&data), Ok((sent, 7)));
        for wrong in [&data[..8], &[data.as_slice(), &[0]].concat(), &[]] {
            assert!(Identity::decode_for(wrong).is_err());
        }
    }

    #[test]
    fn data_of_another_length_is_refused() {
        assert!(Identity::decode(&[1; 7]).is_err());
        assert!(Identity::decode(&[1; 9]).is_err());
    }

    #[test]
    fn a_newer_peer_is_answered_with_our_version() {
        let newer = Identity::decode(&[9, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(newer.agreed(), VERSION);
    }
}
