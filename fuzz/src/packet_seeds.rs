//! One of each kind of data that a well-behaved peer of rxm sends.

use prov_rxm::wire::connection::{Acceptance, FlowControl, Name, Refusal, Request};
use prov_rxm::wire::packet::{Elements, HEAD, Head, Kind, Operation, Position, result_head};
use prov_rxm::wire::part::{COUNTED_LIST, LIST, write_list, write_parts};
use prov_util::request::RemotePiece;

/// Connection data, and a packet of each kind.
pub fn packets() -> Vec<Vec<u8>> {
    let name = Name { pid: 4711, id: 3 };
    let flow_control = FlowControl::Off;
    let request = Request {
        port: 4712,
        flow_control,
        number: 0,
        eager_limit: 16384,
        receives: 4096,
        name,
        to: 0,
        from: 0,
        takes_leave: false,
    };
    let to_context = Request {
        to: 1,
        from: 2,
        takes_leave: true,
        ..request
    };
    let acceptance = Acceptance {
        name,
        receives: 4096,
        flow_control,
        takes_leave: true,
    };
    let mut seeds = vec![
        request.encode(),
        to_context.encode(),
        acceptance.encode(),
        Refusal::Already.encode().to_vec(),
    ];
    let head = |kind, operation, len| Head {
        operation,
        len,
        data: Some(7),
        tag: 8,
        ..Head::note(kind, 3, 9)
    };
    let parts = [RemotePiece {
        addr: 64,
        len: 2,
        key: 5,
    }; 2];
    let mut list = [0; COUNTED_LIST];
    write_list(&parts, &mut list);
    let mut elements = [0; LIST + 16];
    write_parts(&parts, &mut elements);
    let word = Elements {
        datatype: 7,
        op: 2,
        parts: 2,
    };
    let atomic = Head {
        data: None,
        tag: word.word(),
        ..head(Kind::Atomic, Operation::FetchAtomic, elements.len() as u64)
    };
    let result = [&result_head(0, 4)[..], &[1; 4]].concat();
    let segment = Head {
        segment: Some((5, 1, Position::Middle)),
        ..head(Kind::Segment, Operation::Message, 50)
    };
    let tagged = Operation::TaggedMessage;
    seeds.extend([
        packet(&head(Kind::Eager, tagged, 5), b"eager"),
        packet(&head(Kind::Eager, Operation::Message, 0), b""),
        packet(&segment, b"parts"),
        packet(&head(Kind::Announced, tagged, 4), &list),
        packet(&Head::note(Kind::ReadDone, 3, 9), b""),
        packet(&Head::note(Kind::WriteTo, 3, 9), &list),
        packet(&Head::note(Kind::WriteDone, 3, 9), b""),
        packet(&Head::note(Kind::Credit, 3, 9), b""),
        packet(&atomic, &elements),
        packet(&Head::note(Kind::AtomicResult, 3, 9), &result),
    ]);
    seeds
}

fn packet(head: &Head, behind: &[u8]) -> Vec<u8> {
    let mut bytes = [0; HEAD];
    head.write(&mut bytes);
    [&bytes, behind].concat()
}
