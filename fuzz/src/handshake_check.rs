//! The properties of the parser of handshakes for arbitrary data of a peer. Shared by the fuzz
//! target and the provider's tests.

use prov_tcp::wire::ByteOrder;
use prov_tcp::wire::handshake::{self, Decoded, Kind, Message};
use prov_tcp::wire::rdm::{self, Identity};

/// The first byte selects the listening side, the rest is the data received.
pub fn check(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let expected: &[Kind] = match choice % 4 {
        0 => &[Kind::Request],
        1 => &[Kind::Accept, Kind::Reject],
        2 => &[Kind::Request, Kind::Accept, Kind::Reject],
        _ => &[Kind::Request, Kind::ContextRequest],
    };
    let mut asked_for = 0;
    for len in 0..=bytes.len().min(2 * handshake::MAX_MESSAGE) {
        match handshake::decode(&bytes[..len], expected) {
            Ok(Decoded::Need(more)) => {
                assert!(more > 0, "asks for nothing at {len}");
                assert!(len + more <= handshake::MAX_MESSAGE);
                assert!(len + more >= asked_for, "asks for less than before");
                asked_for = len + more;
            }
            Ok(Decoded::Complete(message)) => {
                assert_eq!(
                    len,
                    handshake::HEADER + message.data.len(),
                    "completes with the last byte"
                );
                return complete(&message, expected);
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let later = handshake::decode(bytes, expected);
                assert!(later.is_err(), "what was wrong becomes right");
                return;
            }
        }
    }
}

fn complete(message: &Message, expected: &[Kind]) {
    assert!(expected.contains(&message.kind));
    if message.order == ByteOrder::Native {
        let again = handshake::decode(&message.encode(), expected);
        assert!(matches!(again, Ok(Decoded::Complete(again)) if again == *message));
    }
    if let Ok(identity) = Identity::decode(&message.data) {
        assert!(identity.agreed() <= rdm::VERSION);
        let again = Identity {
            version: identity.version & 0x7f,
            ..identity
        };
        assert_eq!(Identity::decode(&again.encode()), Ok(again));
    }
    if let Ok((identity, context)) = Identity::decode_for(&message.data) {
        let again = Identity {
            version: identity.version & 0x7f,
            ..identity
        };
        let data = again.encode_for(context);
        assert_eq!(Identity::decode_for(&data), Ok((again, context)));
    }
}
