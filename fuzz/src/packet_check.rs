//! The properties of the parser of rxm's packets for arbitrary data of a peer. Shared by the fuzz
//! target and the provider's tests.

use prov_rxm::wire::connection::{Acceptance, Refusal, Request};
use prov_rxm::wire::packet::{Body, HEAD, Packet, Plain, RESULT_HEAD};
use prov_rxm::wire::part::{COUNTED_LIST, LIST, PARTS};

/// Parses bytes as each kind of data that a peer sends.
pub fn check(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
    if let Ok(acceptance) = Acceptance::decode(bytes) {
        assert_eq!(Acceptance::decode(&acceptance.encode()), Ok(acceptance));
    }
    Refusal::decode(bytes);
    let plain = Plain::read(bytes);
    let Ok(packet) = Packet::read(bytes) else {
        assert_eq!(plain, None, "what is no packet is no plain one");
        return;
    };
    let expected = match packet.body {
        Body::Eager(envelope, payload) if envelope.data.is_none() => Some(Plain {
            connection: packet.connection,
            tag: envelope.tag,
            payload,
        }),
        _ => None,
    };
    assert_eq!(plain, expected, "both ways of reading say the same");
    // The parsed parts lie within the packet.
    match packet.body {
        Body::Eager(envelope, payload) => {
            assert_eq!(envelope.len, payload.len() as u64);
            assert!(payload.len() + HEAD <= bytes.len());
        }
        Body::Segment(_, _, payload) => assert!(payload.len() + HEAD <= bytes.len()),
        Body::Announced(envelope, list, front) => {
            assert!((1..=PARTS).contains(&list.pieces().len()));
            assert!(front.len() as u64 <= envelope.len);
            assert!(front.is_empty() || front.len() + HEAD + COUNTED_LIST <= bytes.len());
        }
        Body::WriteTo(list) => assert!((1..=PARTS).contains(&list.pieces().len())),
        Body::Atomic(atomic) => {
            assert_eq!(atomic.memory.pieces().len(), atomic.elements.parts.into());
            assert!(atomic.operands.len() + HEAD + LIST <= bytes.len());
        }
        Body::AtomicResult(_, result) => {
            assert!(result.len() + HEAD + RESULT_HEAD <= bytes.len());
        }
        Body::ReadDone | Body::Credit | Body::Leave | Body::WriteDone => {}
    }
}
