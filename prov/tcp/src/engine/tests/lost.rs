//! Operations that wait for a peer that fails.

use fabric_abi::FI_DELIVERY_COMPLETE;
use prov_message::Linked as _;
use prov_util::desc::Descs;
use prov_util::request::{Access, RemoteAccess, RemoteIov};

use super::*;

fn directed_side() -> Side {
    directed_side_with(vector(None))
}

fn directed_side_with(av: Use<Av>) -> Side {
    let params = Params {
        connect_timeout: 500,
        ..Params::default()
    };
    let side = rdm_side(params, None, av);
    side.engine
        .core()
        .endpoints
        .get_mut(side.ep)
        .unwrap()
        .directed = true;
    side
}

fn receive_from(side: &Side, bytes: &mut [u8], peer: u64, tag: u64) {
    let mut receive = Receive {
        select: Select::Tagged { tag, ignore: 0 },
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer,
        flags: FI_COMPLETION,
        context: std::ptr::without_provenance_mut(tag as usize),
    };
    side.engine.core().receive(side.ep, &mut receive).unwrap();
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

#[test]
fn a_bad_address_hides_no_source_that_the_vector_has_learnt() {
    let (a, b) = (side(), directed_side());
    a.knows(b.addr);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    send(&a, &mut out, 3);
    until([&a, &b], || a.count() == 1 && b.kept() > 0);
    b.knows(a.addr);
    let mut nowhere = Transmit {
        peer: 1000,
        ..tagged(&mut out, 4)
    };
    let sent = b.engine.core().transmit(b.ep, &mut nowhere);
    assert_eq!(sent, Err(Errno::EINVAL));
    receive_from(&b, &mut place, 0, 3);
    until([&a, &b], || b.count() == 1);
    assert_eq!((place, b.done.borrow()[0].src), ([7; 8], 0));
}

/// Its sockets are closed, as the kernel closes those of a process that was killed.
fn kill(side: Side) {
    let mut core = side.engine.core();
    for key in core.links_of(side.ep) {
        core.drop_link(key);
    }
    drop(core);
    side.engine.close(side.ep);
}

fn errors(side: &Side) -> Vec<usize> {
    let failed = side.failed.borrow();
    failed
        .iter()
        .map(|error| error.completion.context.addr())
        .collect()
}

/// Whether a receive ended because of one of these causes: it looks as if it had been cancelled.
fn ends_because_of(error: &ErrorCompletion, causes: &[Errno]) -> bool {
    assert_eq!(error.err, Errno::ECANCELED);
    causes
        .iter()
        .any(|cause| cause.number() == error.prov_errno)
}

fn is_lost_connection(error: &ErrorCompletion) -> bool {
    ends_because_of(error, &[Errno::ECONNRESET, Errno::ESHUTDOWN])
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
    assert!(is_lost_connection(&a.failed.borrow()[0]));
    // One that is posted after the peer is known to be gone.
    receive_from(&a, also_b, 0, 4);
    receive_from(&a, any_late, FI_ADDR_UNSPEC, 5);
    until([&a, &c], || a.failed.borrow().len() == 2);
    assert_eq!(errors(&a), [1, 4]);
    assert!(ends_because_of(
        &a.failed.borrow()[1],
        &[Errno::ECONNREFUSED]
    ));
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
    until([&a, &a], || a.connections() == 0);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    receive_from(&a, &mut place, 0, 1);
    // Without any message of the peer.
    until([&a, &b], || {
        b.engine.core().conns.values().any(|conn| conn.is_open())
            && !a.engine.core().rdm(a.ep).unwrap().peers.any_lost()
    });
    send(&b, &mut out, 1);
    until([&a, &b], || a.count() == 1);
    assert_eq!((place, a.failed.borrow().len()), (out, 0));
}

#[test]
fn receives_from_an_unreachable_peer_fail_together_with_a_send_to_it() {
    let refusing = socket::bound(&"127.0.0.1:0".parse().unwrap(), &Params::default()).unwrap();
    let refusing_addr = socket::name(refusing.as_fd()).unwrap();
    // The kernel accepts the connection, and nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_addr = silent.local_addr().unwrap();
    for (addr, cause) in [
        (refusing_addr, Errno::ECONNREFUSED),
        (silent_addr, Errno::ETIMEDOUT),
    ] {
        let (a, b) = (directed_side(), side());
        a.knows(addr);
        a.knows(b.addr);
        b.knows(a.addr);
        let mut places = [[0; 8]; 4];
        let [from_nobody, from_b, any, late] = &mut places;
        receive_from(&a, from_nobody, 0, 1);
        receive_from(&a, from_b, 1, 2);
        receive_from(&a, any, FI_ADDR_UNSPEC, 3);
        let mut out = [7; 8];
        // Until an operation needs a connection, the peer may yet connect.
        for _ in 0..100 {
            a.drive();
        }
        assert_eq!(a.failed.borrow().len(), 0);
        send(&a, &mut out, 9);
        until([&a, &b], || a.failed.borrow().len() == 2);
        assert_eq!(errors(&a), [9, 1]);
        assert_eq!(a.failed.borrow()[0].err, cause);
        assert!(ends_because_of(&a.failed.borrow()[1], &[cause]));
        // So does one that is posted after this is known.
        receive_from(&a, late, 0, 4);
        until([&a, &b], || a.failed.borrow().len() == 3);
        assert_eq!(errors(&a)[2], 4);
        assert!(ends_because_of(&a.failed.borrow()[2], &[cause]));
        for tag in [2, 3] {
            send(&b, &mut out, tag);
        }
        until([&a, &b], || a.count() == 2);
        assert_eq!(a.failed.borrow().len(), 3);
    }
}

#[test]
fn receives_end_on_each_of_the_endpoints_that_share_an_address_vector() {
    let pid = std::process::id();
    let name = format!("prov-tcp-tests-{pid}");
    let name = prov_util::av::Name {
        name: &name,
        domain: "tests",
        read_only: false,
        count: 8,
    };
    let own = vector(None);
    // Vectors of two endpoints of one process, and of two processes.
    for vectors in [[own.clone(), own], [(); 2].map(|()| vector(Some(name)))] {
        let [a, also_a] = vectors.map(directed_side_with);
        let b = side();
        let (mut out, mut places) = ([1; 8], [[0; 8]; 2]);
        a.knows(b.addr);
        for (side, place) in [&a, &also_a].into_iter().zip(&mut places) {
            receive(&b, place, 0x7fff);
            send(side, &mut out, 0x7fff);
            until([side, &b], || side.count() == 1 && b.count() == 1);
            b.done.borrow_mut().clear();
        }
        let [place, also_place] = &mut places;
        receive_from(&a, place, 0, 1);
        receive_from(&also_a, also_place, 0, 2);
        kill(b);
        for (side, context) in [(&a, 1), (&also_a, 2)] {
            until([side, side], || side.failed.borrow().len() == 1);
            assert_eq!(errors(side), [context]);
            assert!(is_lost_connection(&side.failed.borrow()[0]));
        }
    }
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
        // Larger than the sockets buffer, so that it does not complete.
        let sizes = [(8, FI_DELIVERY_COMPLETE), (32 << 20, 0), (1 << 20, 0)];
        let mut core = a.engine.core();
        for (context, (len, flags)) in (1..).zip(sizes) {
            let mut message = Transmit {
                tag: Tag::Value(1),
                buffers: memory(&mut bytes[..len]),
                desc: Descs::NONE,
                peer: 0,
                data: 0,
                flags: FI_COMPLETION | flags,
                context: std::ptr::without_provenance_mut(context),
            };
            core.transmit(a.ep, &mut message).unwrap();
        }
        for (context, access) in [(4, Access::Read), (5, Access::Read)] {
            let mut access = RemoteAccess {
                access,
                local: memory(&mut []),
                remote: RemoteIov::default(),
                desc: Descs::NONE,
                peer: 0,
                data: 0,
                flags: FI_COMPLETION,
                context: std::ptr::without_provenance_mut(context),
            };
            core.access(a.ep, &mut access).unwrap();
        }
        drop(core);
        kill(b);
        until([&a, &a], || a.failed.borrow().len() + a.count() == 5);
        let mut ended = errors(&a);
        ended.sort_unstable();
        // Operations whose data the kernel had accepted may have completed.
        assert!(ended.iter().all(|context| contexts.contains(context)));
        assert!(ended.contains(&1) && ended.contains(&4) && ended.contains(&5));
        assert_eq!(a.outstanding(), 0);
        // A new operation fails, too.
        let before = a.failed.borrow().len();
        send(&a, &mut bytes[..8], 1);
        until([&a, &a], || a.failed.borrow().len() == before + 1);
    }
}
