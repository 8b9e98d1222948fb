//! Contexts of scalable endpoints: who is reached by an index, and as whom a context appears.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric_abi::FI_SOCKADDR_IN;
use prov_base::errno::Errno;
use prov_message::Core as _;
use prov_util::attr::{Info, version};
use prov_util::below::Fabric;
use prov_util::endpoint::Side as SideOf;
use prov_util::request::Transmit;

use super::{Params, Side, memory_of, open, side_with, transmit, until, with_addresses_exchanged};
use crate::listening::Listening;
use crate::{address, offer};

const BITS: u32 = 4;

/// The number that `fi_rx_addr` makes of the address with number 0.
fn context(index: u64) -> u64 {
    index << (u64::BITS - BITS)
}

/// An endpoint that is this context of a scalable endpoint.
fn side_of_context(index: u8) -> Side {
    side_of_context_with(index, Params::default())
}

/// The same; its operations end soon if their peer refuses.
fn impatient_side_of_context(index: u8) -> Side {
    let params = Params {
        connect_timeout: 3_000,
        ..Params::default()
    };
    side_of_context_with(index, params)
}

fn side_of_context_with(index: u8, params: Params) -> Side {
    let config = prov_util::av::Config {
        format: prov_util::av::format::Format::IN,
        rx_ctx_bits: BITS,
        ..prov_util::av::Config::default()
    };
    let av = open(prov_util::av::Av::open(&config).unwrap());
    let side = side_with(av, params, None, false);
    let ep = side.ep;
    side.engine.core().rdm(ep).unwrap().context = index;
    side
}

fn addr(side: &Side) -> SocketAddr {
    side.engine.core().below.as_ref().unwrap().addr
}

/// The address of the scalable endpoint whose context of this index the side is.
fn base(side: &Side, index: u16) -> SocketAddr {
    let mut at = addr(side);
    at.set_port(at.port() - index);
    at
}

fn send_to(side: &Side, bytes: &mut [u8], tag: u64, peer: u64) {
    let mut message = Transmit {
        peer,
        ..transmit(memory_of(bytes), tag)
    };
    side.engine.core().transmit(side.ep, &mut message).unwrap();
}

/// The source of the message with this tag that a side receives.
fn source(sides: [&Side; 2], at: &Side, tag: u64) -> u64 {
    let is_it = |done: &prov_util::cq::Completion| done.tag == tag && done.len == 8;
    until(&sides, || {
        at.seen
            .borrow()
            .iter()
            .any(|done| is_it(done) && done.flags & fabric_abi::FI_RECV != 0)
    });
    let found = at
        .seen
        .borrow()
        .iter()
        .copied()
        .find(|done| is_it(done) && done.flags & fabric_abi::FI_RECV != 0);
    at.forget();
    found.unwrap().src
}

#[test]
fn a_context_is_reached_by_its_index_and_known_by_the_number_of_its_endpoint() {
    let (a, b) = (side_of_context(2), side_of_context(1));
    a.inserts(base(&b, 1));
    b.inserts(base(&a, 2));
    let (mut out, mut place) = ([7; 8], [0; 8]);
    for tag in 1..4 {
        b.receive(&mut place, tag);
        send_to(&a, &mut out, tag, context(1));
        assert_eq!(source([&a, &b], &b, tag), 0);
        a.receive(&mut place, 100 + tag);
        send_to(&b, &mut out, 100 + tag, context(2));
        assert_eq!(source([&a, &b], &a, 100 + tag), 0);
    }
    // One connection serves both directions.
    assert_eq!(a.links().len(), 1);
}

#[test]
fn a_connection_to_a_context_is_refused_by_any_other_endpoint_at_its_port() {
    // Who listens there: a plain endpoint, or another context.
    for there in [0, 2] {
        let (a, b) = (impatient_side_of_context(0), side_of_context(there));
        a.inserts(base(&b, 1));
        let (mut out, mut place) = ([7; 8], [0; 8]);
        b.receive(&mut place, 1);
        send_to(&a, &mut out, 1, context(1));
        until(&[&a, &b], || !a.failed.borrow().is_empty());
        assert_eq!(a.errors(), [Errno::ECONNREFUSED]);
        assert_eq!((b.count(), a.outstanding()), (0, 0));
        assert!(b.engine.core().rdm(b.ep).unwrap().peers.is_empty());
    }
}

#[test]
fn a_context_refuses_connections_that_are_for_a_plain_endpoint() {
    let (a, b) = (impatient_side_of_context(0), side_of_context(3));
    a.inserts(addr(&b));
    let (mut out, mut place) = ([7; 8], [0; 8]);
    b.receive(&mut place, 1);
    send_to(&a, &mut out, 1, 0);
    until(&[&a, &b], || !a.failed.borrow().is_empty());
    assert_eq!(a.errors(), [Errno::ECONNREFUSED]);
    assert_eq!(b.count(), 0);
}

#[test]
fn an_index_without_a_context_is_an_error_of_the_call() {
    let a = side_of_context(0);
    a.inserts("127.0.0.1:65535".parse().unwrap());
    // No port is behind the last.
    let mut message = Transmit {
        peer: context(1),
        ..transmit(memory_of(&mut [7; 8]), 1)
    };
    let posted = a.engine.core().transmit(a.ep, &mut message);
    assert_eq!(posted, Err(Errno::EINVAL));
    assert!(a.engine.core().rdm(a.ep).unwrap().peers.is_empty());
}

#[test]
fn the_other_side_of_a_context_goes_on_when_one_is_closed() {
    let [a, b] = with_addresses_exchanged([side_of_context(0), side_of_context(0)]);
    let (mut short, mut long, mut place) = ([7; 8], vec![1; 3 << 20], [0; 8]);
    // Complete for the application.
    b.receive(&mut place, 1);
    a.send(&mut short, 1);
    until(&[&a, &b], || a.count() == 1);
    a.engine.core().close_side(a.ep, SideOf::Transmit);
    until(&[&a, &b], || b.count() == 1);
    assert_eq!((b.errors(), place), (vec![], short));
    assert_eq!(a.links().len(), 1);
    b.forget();
    // A message that is not received ends, and its memory is the application's again.
    a.forget();
    a.send(&mut long, 2);
    until(&[&a, &b], || a.outstanding() == 1 && a.links().len() == 1);
    a.engine.core().close_side(a.ep, SideOf::Transmit);
    a.read();
    assert_eq!((a.errors(), a.outstanding()), (vec![Errno::ECANCELED], 0));
    // The connection ends with it, and what peers send arrives on another one.
    until(&[&a, &b], || b.links().is_empty());
    a.forget();
    let mut place = [0; 8];
    a.receive(&mut place, 3);
    b.send(&mut short, 3);
    until(&[&a, &b], || a.count() == 1);
    assert_eq!((a.errors(), place), (vec![], short));
}

#[test]
fn receives_of_a_context_that_is_closed_end_and_its_sends_go_on() {
    let [a, b] = with_addresses_exchanged([side_of_context(0), side_of_context(0)]);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    a.receive(&mut place, 1);
    a.engine.core().close_side(a.ep, SideOf::Receive);
    a.read();
    assert_eq!(a.errors(), [Errno::ECANCELED]);
    b.receive(&mut place, 2);
    a.send(&mut out, 2);
    until(&[&a, &b], || b.count() == 1);
    assert_eq!(place, out);
}

#[test]
fn contexts_listen_at_ports_in_a_row() {
    let params = Params::default();
    let info = Info {
        src_addr: address::bytes(&"127.0.0.1:0".parse().unwrap()),
        addr_format: FI_SOCKADDR_IN,
        ..Info::default()
    };
    let mut core = offer::below(version(2, 0), &info, Some("tcp"), &params).unwrap();
    core.fabric.api_version = version(2, 0);
    let fabric = Arc::new(Fabric::open(&core).unwrap());
    let at = |one: &Listening| address::read(&one.passive.address().unwrap()).unwrap();
    for count in [1, 4, 64] {
        let row = Listening::open_in_row(&fabric, &core, count).unwrap();
        let first = at(&row[0]);
        assert_eq!(row.len(), count);
        for (behind, one) in (0..).zip(&row) {
            assert_eq!(at(one), address::at_port(first, first.port() + behind));
        }
    }
    // A port of the application's choice with one in use behind it.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut before = taken.local_addr().unwrap();
    before.set_port(before.port() - 1);
    core.src_addr = address::bytes(&before);
    let row = Listening::open_in_row(&fabric, &core, 2);
    assert!(row.is_err());
}
