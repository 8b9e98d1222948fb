//! Connection requests of RDM endpoints in unusual orders.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use super::*;
use crate::engine::link::connection::{Connection, Owner, Stage};
use crate::wire::handshake::{Features, Kind as MessageKind, Message};
use crate::wire::rdm::Identity;

#[test]
fn an_unknown_peer_that_has_restarted_is_found_once_its_address_is_known() {
    let (a, before, after) = (side(), side(), side());
    // Its claimed port is the same.
    after.engine.core().rdm(after.ep).unwrap().addr = before.addr;
    let (mut out, mut place) = ([7; 8], [0; 8]);
    for (tag, peer) in [(1, &before), (2, &after)] {
        peer.knows(a.addr);
        receive(&a, &mut place, tag);
        send(peer, &mut out, tag);
        until([&a, peer], || a.count() == 1);
        assert_eq!(a.done.borrow_mut().pop().unwrap().src, u64::MAX);
    }
    a.knows(before.addr);
    receive(&after, &mut place, 3);
    send(&a, &mut out, 3);
    until([&a, &after], || after.count() == 2);
    receive(&a, &mut place, 4);
    send(&after, &mut out, 4);
    until([&a, &after], || a.count() == 2);
    assert_eq!(a.done.borrow_mut().pop().unwrap().src, 0);
}

/// A peer requests a connection to `a` from `port` and ends immediately; the attempt of `a` has
/// been given up for it.
fn give_way_in_vain(a: &Side, port: u16) {
    let (near, far) = UnixStream::pair().unwrap();
    drop(far);
    let identity = Identity {
        version: 0,
        version_checked: false,
        behind_firewall: false,
        port,
        pid: 1,
    };
    let request = Message::new(MessageKind::Request, Features::OURS, 1, &identity.encode());
    let mut core = a.engine.core();
    let rdm = core.rdm(a.ep).unwrap();
    let listener = rdm.listener.unwrap();
    let peer = rdm
        .peers
        .peer_at(&SocketAddr::from(([127, 0, 0, 1], port)).into());
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    let (owner, stage) = (Owner::Listener(listener), Stage::Requested);
    let conn = Connection::new(near.into(), owner, stage, deadline);
    let key = core.add_connection(conn).unwrap();
    core.accept_rdm(key, a.ep, peer, &request, &identity, false);
}

#[test]
fn operations_for_a_peer_that_requested_a_link_and_ended_fail() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap();
    let a = side_with(Params {
        connect_timeout: 500,
        ..Params::default()
    });
    a.knows(addr);
    let mut out = [7; 8];
    send(&a, &mut out, 1);
    give_way_in_vain(&a, addr.port());
    until([&a, &a], || a.failed.borrow().len() == 1);
    assert_eq!(a.outstanding(), 0);
}

#[test]
fn nothing_is_kept_of_strangers_that_requested_a_link_and_ended() {
    let a = side();
    for port in 1..100 {
        give_way_in_vain(&a, port);
    }
    let mut core = a.engine.core();
    assert!(core.rdm(a.ep).unwrap().peers.is_empty());
    assert!(core.conns.is_empty());
}

#[test]
fn a_refusal_is_not_taken_for_silence_because_time_is_over() {
    use rustix::event::{PollFd, PollFlags};
    let refusing = socket::bound(&"127.0.0.1:0".parse().unwrap(), &Params::default()).unwrap();
    let a = side_with(Params {
        // The attempt ends before there could be another one.
        connect_timeout: 1,
        ..Params::default()
    });
    a.knows(socket::name(refusing.as_fd()).unwrap());
    let mut out = [7; 8];
    send(&a, &mut out, 1);
    let mut core = a.engine.core();
    let key = core.conns.keys().next().unwrap();
    let socket = core.conns[key].socket.as_fd();
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    assert_eq!(rustix::event::poll(&mut fds, None), Ok(1));
    core.check_deadline(key, Instant::now() + Duration::from_secs(3600));
    drop(core);
    a.drive();
    assert_eq!(a.failed.borrow()[0].err, Errno::ECONNREFUSED);
}

/// A message to `b`, whose connection is in the first stage that `is` is true for; its time is over.
fn time_is_over_at(is: fn(&Stage) -> bool, answers: bool) {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    receive(&b, &mut place, 1);
    send(&a, &mut out, 1);
    let key = a.engine.core().conns.keys().next().unwrap();
    while !is(&a.engine.core().conns[key].stage) {
        a.drive();
    }
    while answers && b.open_connections().is_empty() {
        b.drive();
    }
    a.engine
        .core()
        .check_deadline(key, Instant::now() + Duration::from_secs(3600));
    until([&a, &b], || a.count() == 1 && b.count() == 1);
    assert_eq!((a.open_connections(), place), (vec![key], out));
}

#[test]
fn an_answer_that_has_arrived_is_not_taken_for_silence_because_time_is_over() {
    time_is_over_at(|stage| matches!(stage, Stage::Requested), true);
}

#[test]
fn a_peer_has_time_to_answer_what_this_side_sends_late() {
    for _ in 0..20 {
        time_is_over_at(|stage| matches!(stage, Stage::Connecting { .. }), false);
        time_is_over_at(|stage| matches!(stage, Stage::Requested), false);
    }
}
