//! Inputs to start fuzzing from: one of each message that a well-behaved peer sends, and a
//! conversation with all of them.

use prov_base::atomic_ops::Form;
use prov_tcp::wire::ByteOrder;
use prov_tcp::wire::atomic::AtomicWord;
use prov_tcp::wire::handshake::{Features, Kind, Message};
use prov_tcp::wire::header::{
    DELIVERY_COMPLETE, Header, MAX_HEADER, NAMED, Op, REMOTE_CQ_DATA, RmaIov, TAGGED,
};
use prov_tcp::wire::rdm::Identity;

/// Inputs for the `handshake` target.
pub fn handshakes() -> Vec<Vec<u8>> {
    let identity = Identity {
        version: 1,
        version_checked: true,
        behind_firewall: false,
        port: 4711,
        pid: 42,
    };
    let identity = identity.encode();
    let mut seeds = Vec::new();
    for (side, kind) in [(0, Kind::Request), (1, Kind::Accept), (1, Kind::Reject)] {
        for features in [Features::default(), Features::OURS] {
            for data in [&identity[..], b"", &[7; 256]] {
                let mut seed = vec![side];
                seed.extend(Message::new(kind, features, 99, data).encode());
                seeds.push(seed.clone());
                // From a host of the other byte order.
                seed[25..33].reverse();
                seeds.push(seed);
            }
        }
    }
    // From one context of a scalable endpoint to another.
    let data = [&identity[..], &[3]].concat();
    let request = Message::new(Kind::ContextRequest, Features::OURS, 99, &data);
    let mut seed = vec![3];
    seed.extend(request.from_context(2).encode());
    seeds.push(seed);
    seeds
}

/// Inputs for the targets that take a stream.
pub fn streams() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (choice, order) in [(0, ByteOrder::Native), (1, ByteOrder::Big)] {
        let mut conversation = vec![choice, 10];
        for (header, rma) in headers() {
            let mut encoded = [0; MAX_HEADER];
            let len = header.encode(&rma, order, 0, &mut encoded);
            let mut message = encoded[..len].to_vec();
            message.resize(len + header.payload, 0x5a);
            conversation.extend(&message);
            let mut seed = vec![choice, 3];
            seed.extend(&message);
            seeds.push(seed);
        }
        seeds.push(conversation);
    }
    seeds.push(asking());
    seeds
}

/// A C peer that requests the announced messages of an endpoint with operations in progress, and
/// acknowledges the received ones.
fn asking() -> Vec<u8> {
    let mut seed = vec![6, 255];
    let clear_to_send = |name| {
        let mut header = Header::new(Op::Cts);
        header.op_data = name;
        header
    };
    let ack = Header::ack();
    for header in [clear_to_send(2), ack, clear_to_send(1), ack, ack, ack] {
        let mut encoded = [0; MAX_HEADER];
        let len = header.encode(&[], ByteOrder::Native, 0, &mut encoded);
        seed.extend(&encoded[..len]);
    }
    seed
}

fn headers() -> Vec<(Header, Vec<RmaIov>)> {
    let part = RmaIov {
        addr: 0x1000,
        len: 8,
        key: 3,
    };
    let with = |op, change: fn(&mut Header)| {
        let mut header = Header::new(op);
        change(&mut header);
        let rma = vec![part; usize::from(header.rma_count)];
        (header, rma)
    };
    vec![
        with(Op::Msg, |h| h.payload = 20),
        with(Op::Msg, |h| {
            h.flags = REMOTE_CQ_DATA | DELIVERY_COMPLETE | NAMED;
            h.data = 5;
            h.id = 6;
        }),
        (Header::ack(), Vec::new()),
        with(Op::Tagged, |h| {
            h.tag = 77;
            h.payload = 8;
        }),
        with(Op::ReadRequest, |h| h.rma_count = 4),
        with(Op::ReadResponse, |h| h.payload = 32),
        with(Op::Write, |h| {
            h.rma_count = 2;
            h.payload = 16;
            h.flags = REMOTE_CQ_DATA;
            h.data = 9;
        }),
        with(Op::TaggedRts, |h| {
            h.op_data = 1;
            h.tag = 77;
            h.size = 1 << 20;
        }),
        with(Op::Cts, |h| h.op_data = 1),
        with(Op::Data, |h| {
            h.op_data = 1;
            h.payload = 40;
        }),
        with(Op::NamedAck, |h| h.id = 6),
        with(Op::WideRts, |h| {
            h.flags = TAGGED;
            h.tag = 77;
            h.size = 1 << 20;
            h.id = 8;
        }),
        with(Op::WideCts, |h| h.id = 8),
        with(Op::WideData, |h| {
            h.id = 8;
            h.payload = 40;
        }),
        with(Op::Throttle, |h| h.op_data = 1),
        with(Op::Throttle, |h| h.op_data = 2),
        with(Op::AtomicRequest, |h| {
            h.id = 1;
            h.rma_count = 1;
            h.payload = 16;
            h.word = AtomicWord {
                form: Form::Compare,
                op: 12,
                datatype: 7,
            }
            .pack();
        }),
        with(Op::AtomicResponse, |h| {
            h.id = 1;
            h.payload = 8;
        }),
        with(Op::Acquaint, |h| h.op_data = 1),
        with(Op::DirectMsg, |h| {
            h.id = 2;
            h.size = 64;
            h.payload = 32;
        }),
    ]
}
