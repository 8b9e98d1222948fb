//! What waits for a peer that dies.

use fabric_abi::FI_DELIVERY_COMPLETE;
use prov_util::desc::Descs;
use prov_util::request::{Access, RemoteAccess, RemoteIov};

use super::*;

fn directed_side() -> Side {
    let side = side_with(Params {
        connect_timeout: 500,
        ..Params::default()
    });
    side.engine
        .core()
        .endpoints
        .get_mut(side.ep)
        .unwrap()
        .directed = true;
    side
}

fn receive_from(side: &Side, bytes: &mut [u8], peer: u64, tag: u64) {
    let receive = Receive {
        select: Select::Tagged { tag, ignore: 0 },
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer,
        flags: FI_COMPLETION,
        context: std::ptr::without_provenance_mut(tag as usize),
    };
    side.engine.core().receive(side.ep, &receive).unwrap();
}

/// Both know each other, as 0, and are connected.
fn acquainted(a: &Side, b: &Side) {
    a.knows(b.addr);
    b.knows(a.addr);
    let (mut out, mut place) = ([1; 8], [0; 8]);
    receive(b, &mut place, 0x7fff);
    send(a, &mut out, 0x7fff);
    until([a, b], || a.count() == 1 && b.count() == 1);
    a.done.borrow_mut().clear();
    b.done.borrow_mut().clear();
}

/// Its sockets close, as the system closes those of a process that was killed.
fn kill(side: Side) {
    side.engine.core().close_endpoint(side.ep);
}

fn errors(side: &Side) -> Vec<usize> {
    let failed = side.failed.borrow();
    failed
        .iter()
        .map(|error| error.completion.context.addr())
        .collect()
}

#[test]
fn receives_that_name_a_peer_that_dies_fail_and_others_wait_on() {
    let (a, b, c) = (directed_side(), side(), side());
    acquainted(&a, &b);
    a.knows(c.addr);
    c.knows(a.addr);
    let mut places = [[0; 8]; 5];
    let [from_b, also_b, from_c, any, any_late] = &mut places;
    receive_from(&a, from_b, 0, 1);
    receive_from(&a, from_c, 1, 2);
    receive_from(&a, any, FI_ADDR_UNSPEC, 3);
    kill(b);
    until([&a, &c], || a.failed.borrow().len() == 1);
    assert_eq!(errors(&a), [1]);
    // One that is posted when the peer is known to be gone.
    receive_from(&a, also_b, 0, 4);
    receive_from(&a, any_late, FI_ADDR_UNSPEC, 5);
    until([&a, &c], || a.failed.borrow().len() == 2);
    assert_eq!(errors(&a), [1, 4]);
    let mut out = [7; 8];
    for tag in [2, 3, 5] {
        send(&c, &mut out, tag);
    }
    until([&a, &c], || a.count() == 3);
    assert_eq!(a.failed.borrow().len(), 2);
    assert_eq!(places, [[0; 8], [0; 8], [7; 8], [7; 8], [7; 8]]);
}

#[test]
fn a_receive_that_names_a_peer_that_was_lost_waits_if_it_is_back() {
    let (a, b) = (directed_side(), side());
    acquainted(&a, &b);
    let conn = b.engine.core().conns.keys().next().unwrap();
    b.engine.core().break_connection(conn, Errno::ECONNRESET);
    until([&a, &a], || a.engine.core().conns.is_empty());
    let (mut out, mut place) = ([7; 8], [0; 8]);
    receive_from(&a, &mut place, 0, 1);
    // Without a word from the peer.
    until([&a, &b], || {
        b.engine.core().conns.values().any(|conn| conn.is_open())
            && !a.engine.core().rdm(a.ep).unwrap().peers.any_lost()
    });
    send(&b, &mut out, 1);
    until([&a, &b], || a.count() == 1);
    assert_eq!((place, a.failed.borrow().len()), (out, 0));
}

#[test]
fn everything_under_way_to_a_peer_that_dies_ends_in_an_error() {
    for connected in [true, false] {
        let (a, b) = (directed_side(), side());
        if connected {
            acquainted(&a, &b);
        } else {
            a.knows(b.addr);
        }
        let mut bytes = vec![1; 32 << 20];
        let contexts: Vec<usize> = (1..=5).collect();
        // Larger than what the sockets take, so that it is not done.
        let sizes = [(8, FI_DELIVERY_COMPLETE), (32 << 20, 0), (1 << 20, 0)];
        let mut core = a.engine.core();
        for (context, (len, flags)) in (1..).zip(sizes) {
            let message = Transmit {
                tag: Tag::Value(1),
                buffers: memory(&mut bytes[..len]),
                desc: Descs::NONE,
                peer: 0,
                data: 0,
                flags: FI_COMPLETION | flags,
                context: std::ptr::without_provenance_mut(context),
            };
            core.transmit(a.ep, &message).unwrap();
        }
        for (context, access) in [(4, Access::Read), (5, Access::Read)] {
            let access = RemoteAccess {
                access,
                local: memory(&mut []),
                remote: RemoteIov::default(),
                desc: Descs::NONE,
                peer: 0,
                data: 0,
                flags: FI_COMPLETION,
                context: std::ptr::without_provenance_mut(context),
            };
            core.access(a.ep, &access).unwrap();
        }
        drop(core);
        kill(b);
        until([&a, &a], || a.failed.borrow().len() + a.count() == 5);
        let mut ended = errors(&a);
        ended.sort_unstable();
        // What the system had taken may be done.
        assert!(ended.iter().all(|context| contexts.contains(context)));
        assert!(ended.contains(&1) && ended.contains(&4) && ended.contains(&5));
        assert_eq!(a.outstanding(), 0);
        // A new operation fails, too.
        let before = a.failed.borrow().len();
        send(&a, &mut bytes[..8], 1);
        until([&a, &a], || a.failed.borrow().len() == before + 1);
    }
}
