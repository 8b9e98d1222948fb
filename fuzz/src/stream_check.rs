//! The properties of the parser of streams for arbitrary data of a peer. Shared by the fuzz target
//! and the provider's tests.

use prov_tcp::wire::atomic::AtomicWord;
use prov_tcp::wire::handshake::Features;
use prov_tcp::wire::header::{Header, MAX_HEADER, RmaIov, RmaList};
use prov_tcp::wire::stream::{Event, Stream};
use prov_tcp::wire::{ByteOrder, WireError};

/// The contents of a stream: its messages with the payload that arrived of each, and how it ended.
#[derive(Debug, PartialEq)]
struct Outcome {
    messages: Vec<(Header, Vec<RmaIov>, Vec<u8>)>,
    payload_left: usize,
    error: Option<WireError>,
}

/// The first byte selects byte order and features, the second how the stream is cut; the rest is
/// the stream.
pub fn check(input: &[u8]) {
    let &[choice, cut, ref bytes @ ..] = input else {
        return;
    };
    let order = match choice & 1 {
        0 => ByteOrder::Native,
        _ => ByteOrder::Big,
    };
    let features = match choice & 6 {
        0 => Features::OURS,
        2 => Features::default(),
        4 => Features::NAMED_ACKS,
        _ => Features::ATOMICS.or(Features::RENDEZVOUS),
    };
    let whole = read(bytes, bytes.len().max(1), order, features);
    let in_pieces = read(bytes, usize::from(cut) + 1, order, features);
    assert_eq!(whole, in_pieces, "depends on how the bytes arrive");
    for (header, rma, payload) in &whole.messages {
        assert!(header.encoded_len() <= MAX_HEADER);
        assert!(payload.len() <= header.payload);
        let _ = AtomicWord::unpack(header.word);
        let mut again = [0; MAX_HEADER];
        let len = header.encode(rma, order, 0, &mut again);
        let mut list = RmaList::default();
        let decoded = Header::decode(&again[..len], order, features, &mut list);
        assert_eq!(decoded, Ok((*header, len)));
        assert_eq!(list.pieces(), &rma[..]);
    }
}

fn read(bytes: &[u8], piece: usize, order: ByteOrder, features: Features) -> Outcome {
    let mut stream = Stream::new(order, features);
    let mut outcome = Outcome {
        messages: Vec::new(),
        payload_left: 0,
        error: None,
    };
    for piece in bytes.chunks(piece) {
        let mut rest = piece;
        loop {
            match stream.next(&mut rest) {
                Ok(Event::Need) => break,
                Ok(Event::Message(header)) => {
                    let rma = match has_list(&header) {
                        true => stream.rma().pieces().to_vec(),
                        false => Vec::new(),
                    };
                    assert!(!has_list(&header) || rma.len() == usize::from(header.rma_count));
                    outcome.messages.push((header, rma, Vec::new()));
                }
                Ok(Event::Payload(part)) => {
                    assert!(!part.is_empty());
                    let last = outcome.messages.last_mut();
                    last.expect("a message before its payload").2.extend(part);
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    outcome.error = Some(error);
                    return outcome;
                }
            }
        }
        assert!(rest.is_empty(), "bytes left while more are asked for");
    }
    outcome.payload_left = stream.payload_left();
    outcome
}

/// Whether the operation has a list of remote buffers: its header then grows
/// with the count.
fn has_list(header: &Header) -> bool {
    let mut one = *header;
    one.rma_count = 1;
    let mut none = *header;
    none.rma_count = 0;
    one.encoded_len() != none.encoded_len()
}
