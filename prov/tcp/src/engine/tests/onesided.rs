//! Writes and reads that the initiator carries out alone, whatever the owner of the memory does.

use crate::local::neighbour::Subject;
use fabric_abi::{
    FI_COMMIT_COMPLETE, FI_REMOTE_CQ_DATA, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SUM, FI_UINT64,
};
use libc::iovec;
use prov_util::cntr::{Cntr, CntrEvents};
use prov_util::mr::{Memory, Region, RemoteEvents, Request};
use prov_util::request::{Access, Atomic, AtomicKind, RemoteAccess, RemotePiece};

use super::direct::{KEY, Stranger, register, remote};
use super::nearby::{exchange, has_moved, nearby_of, pattern};
use super::*;
use crate::engine::link::access::Regions;
use crate::params::Local;
use crate::wire::header::{self, Header, Op};

/// Lengths that take all paths of data within a host.
const LENGTHS: [usize; 8] = [0, 1, 8, 96, 5000, 20_000, 70_000, 1 << 20];

/// Creates two sides that have left their socket; the first has opened the second one's region
/// table. The second is not driven from then on, unless a test does so.
fn pair() -> (Side, Side) {
    let (a, b) = nearby_of(Params::default());
    until([&a, &b], || has_moved(&a) && has_moved(&b) && is_lent(&a));
    clear(&a, &b);
    (a, b)
}

fn clear(a: &Side, b: &Side) {
    for side in [a, b] {
        side.done.borrow_mut().clear();
    }
}

/// Whether a side has opened its peer's region table.
fn is_lent(side: &Side) -> bool {
    let core = side.engine.core();
    let mut all = core.conns.values().map(|conn| &conn.local.onesided.regions);
    all.all(|regions| !matches!(regions, Regions::Unknown))
}

fn request(kind: Access, key: u64, bytes: &mut [u8]) -> RemoteAccess {
    RemoteAccess {
        access: kind,
        remote: RemotePiece {
            addr: 0,
            len: bytes.len() as u64,
            key,
        }
        .into(),
        local: memory(bytes),
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: FI_COMPLETION,
        context: std::ptr::null_mut(),
    }
}

fn post(side: &Side, access: &mut RemoteAccess) {
    side.engine.core().access(side.ep, access).unwrap();
}

fn access(side: &Side, kind: Access, key: u64, bytes: &mut [u8]) {
    post(side, &mut request(kind, key, bytes));
}

/// Returns the number of operations of a side that have completed since, without a call of its
/// peer's.
fn completed(side: &Side) -> usize {
    side.drive();
    assert!(side.failed.borrow().is_empty());
    side.done.borrow_mut().drain(..).count()
}

fn error(side: &Side) -> Option<Errno> {
    side.drive();
    assert!(side.done.borrow().is_empty());
    side.failed.borrow_mut().pop().map(|failed| failed.err)
}

fn region(side: &Side, key: u64, access: u64, pieces: &mut [&mut [u8]]) -> Arc<Region> {
    let list: Vec<iovec> = pieces
        .iter_mut()
        .map(|piece| iovec {
            iov_base: piece.as_mut_ptr().cast(),
            iov_len: piece.len(),
        })
        .collect();
    // SAFETY: the tests keep the bytes as long as the region that refers to them.
    let memory = unsafe { Memory::new(&list) }.unwrap();
    side.memory
        .register(Request::new(memory, access, key))
        .unwrap()
}

/// What a peer reads comes without a call of this side, in whichever order it has connected and
/// registered memory.
#[test]
fn memory_that_is_registered_after_the_connection_is_read_without_a_call_of_its_owner() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    exchange(&a, &b, 0);
    until([&a, &b], || has_moved(&a) && has_moved(&b) && is_lent(&a));
    for _ in 0..100 {
        a.drive();
        b.drive();
    }
    let mut place = [7; 8];
    let _region = region(&b, KEY, FI_REMOTE_READ, &mut [&mut place]);
    let mut into = [0; 8];
    clear(&a, &b);
    access(&a, Access::Read, KEY, &mut into);
    until([&a, &a], || completed(&a) == 1);
    assert_eq!(into, [7; 8]);
}

/// One that is accessed only while its owner makes progress needs no memory with a peer that it hardly
/// hears of.
#[test]
fn connections_for_announced_messages_alone_move_when_they_have_brought_something() {
    ONLY_RENDEZVOUS.set(true);
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let mut place = [7; 8];
    let _region = region(&b, KEY, FI_REMOTE_READ, &mut [&mut place]);
    exchange(&a, &b, 0);
    for _ in 0..1000 {
        a.drive();
        b.drive();
    }
    assert!(!has_moved(&a) && !has_moved(&b));
    let mut round = 1;
    until([&a, &b], || {
        exchange(&a, &b, round);
        round += 1;
        has_moved(&a) && has_moved(&b)
    });
    clear(&a, &b);
    let mut into = [0; 8];
    access(&a, Access::Read, KEY, &mut into);
    until([&a, &b], || completed(&a) == 1);
    assert_eq!(into, [7; 8]);
}

#[test]
fn any_number_of_writes_and_reads_of_any_length_need_no_call_of_the_target() {
    let (a, b) = pair();
    let mut place = vec![0; 1 << 20];
    let _region = register(&b, &mut place);
    for (round, len) in LENGTHS.into_iter().cycle().take(2000).enumerate() {
        let (mut out, mut back) = (pattern(len, round), vec![0; len]);
        access(&a, Access::Write, KEY, &mut out);
        assert_eq!(completed(&a), 1, "{len} bytes");
        access(&a, Access::Read, KEY, &mut back);
        assert_eq!(completed(&a), 1, "{len} bytes");
        assert!(back == out && place[..len] == out);
    }
}

#[test]
fn both_sides_may_do_so() {
    let (a, b) = pair();
    until([&a, &b], || is_lent(&b));
    let mut places = [[0; 64], [0; 64]];
    let [first, second] = &mut places;
    let _regions = [register(&a, first), register(&b, second)];
    let mut out = [7; 64];
    for side in [&a, &b] {
        access(side, Access::Write, KEY, &mut out);
        assert_eq!(completed(side), 1);
    }
    assert_eq!(places, [[7; 64], [7; 64]]);
}

#[test]
fn a_refusal_needs_no_call_of_the_target_either() {
    let (a, b) = pair();
    let (mut place, mut gone, mut bytes) = ([0; 64], [0; 64], [7; 8]);
    let closed = region(&b, KEY + 1, FI_REMOTE_READ, &mut [&mut gone]);
    b.memory.close(&closed).unwrap();
    let _region = region(&b, KEY, FI_REMOTE_READ, &mut [&mut place]);
    for (kind, key, addr, reason) in [
        (Access::Write, KEY, 0, Errno::EACCES),
        (Access::Read, KEY, 57, Errno::EACCES),
        (Access::Read, KEY, u64::MAX - 3, Errno::EACCES),
        (Access::Read, KEY + 1, 0, Errno::EACCES),
        (Access::Write, KEY + 2, 0, Errno::EACCES),
    ] {
        let mut wrong = request(kind, key, &mut bytes);
        wrong.remote = RemotePiece { addr, len: 8, key }.into();
        post(&a, &mut wrong);
        assert_eq!(error(&a), Some(reason), "{kind:?} of {key} at {addr}");
    }
    assert_eq!(place, [0; 64]);
}

/// Returns the notifications of remote writes that a side got: lengths and data.
fn told(side: &Side) -> Vec<(usize, u64)> {
    let mut all = Vec::new();
    side.engine.progress();
    let _ = side.cq.read(1000, |one| {
        assert_eq!(one.flags & FI_REMOTE_WRITE, FI_REMOTE_WRITE);
        all.push((one.len, one.data));
    });
    all
}

#[test]
fn immediate_data_is_reported_after_the_bytes_and_delays_nothing() {
    let (a, b) = pair();
    let (mut place, mut out) = (vec![0; 70_000], pattern(70_000, 1));
    let _region = register(&b, &mut place);
    // More than there are slots for in the shared memory.
    let lens: Vec<usize> = [8, 70_000, 0].into_iter().cycle().take(900).collect();
    for (data, &len) in lens.iter().enumerate() {
        let mut write = request(Access::Write, KEY, &mut out[..len]);
        write.flags |= FI_REMOTE_CQ_DATA;
        write.data = data as u64;
        post(&a, &mut write);
        assert_eq!(completed(&a), 1);
        // An access without data is not affected.
        let mut back = [0; 8];
        access(&a, Access::Read, KEY, &mut back);
        assert_eq!(completed(&a), 1);
    }
    assert!(place == out);
    let mut all = Vec::new();
    until([&a, &a], || {
        all.extend(told(&b));
        all.len() == lens.len()
    });
    let expected: Vec<(usize, u64)> = lens.into_iter().zip(0..).collect();
    assert_eq!(all, expected);
}

#[test]
fn a_write_without_room_for_its_data_is_not_copied() {
    let (a, b) = pair();
    let mut place = [0; 8];
    let _region = register(&b, &mut place);
    let mut last = 0;
    let refused = loop {
        last += 1;
        let mut out = u64::to_ne_bytes(last);
        let mut write = request(Access::Write, KEY, &mut out);
        write.flags |= FI_REMOTE_CQ_DATA;
        if let Err(error) = a.engine.core().access(a.ep, &mut write) {
            break error;
        }
    };
    assert_eq!(refused, Errno::EAGAIN);
    assert_eq!(u64::from_ne_bytes(place), last - 1);
    // Without data there is no notification.
    let mut bytes = [1; 8];
    access(&a, Access::Write, KEY, &mut bytes);
    assert_eq!(place, [1; 8]);
}

/// Counts bytes.
#[derive(Default)]
struct Accesses(std::sync::atomic::AtomicUsize);

impl RemoteEvents for Accesses {
    fn accessed(&self, bytes: usize) {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        self.0.fetch_add(bytes, relaxed);
    }
}

#[test]
fn counters_of_regions_and_endpoints_count_accesses_that_peers_carry_out() {
    let (a, b) = pair();
    let (mut place, mut bytes) = ([0; 8], [3; 8]);
    let open_region = register(&b, &mut place);
    for (kind, counted) in [
        (Access::Write, FI_REMOTE_WRITE),
        (Access::Read, FI_REMOTE_READ),
    ] {
        let counter = Arc::new(Accesses::default());
        b.memory
            .count_in(&open_region, counted, counter.clone())
            .unwrap();
        let count = || counter.0.load(std::sync::atomic::Ordering::Relaxed);
        for _ in 0..3 {
            access(&a, kind, KEY, &mut bytes);
            assert_eq!(completed(&a), 1);
        }
        assert_eq!(count(), 0);
        until([&b, &b], || count() == 24);
    }
    let counter = open(Cntr::new(CntrEvents::Completions, Attachment::None, None));
    let mut core = b.engine.core();
    let reports = &mut core.endpoints.get_mut(b.ep).unwrap().reports;
    reports.counters.remote_write = Some(counter.clone());
    b.memory.count_all(reports.counters.remote());
    drop(core);
    access(&a, Access::Write, KEY, &mut bytes);
    assert_eq!((completed(&a), counter.read()), (1, 0));
    until([&b, &b], || counter.read() == 1);
}

/// Sets the order that an endpoint requests.
fn promise(side: &Side, order: u64) {
    let mut core = side.engine.core();
    core.endpoints.get_mut(side.ep).unwrap().own.msg_order = order;
}

#[test]
fn an_access_is_ordered_after_messages_only_if_requested() {
    for (kind, order) in [
        (Access::Write, FI_ORDER_WAS),
        (Access::Read, FI_ORDER_RAS),
        (Access::Write, FI_ORDER_RAS),
        (Access::Read, FI_ORDER_WAS),
    ] {
        let waits = (order == FI_ORDER_WAS) == matches!(kind, Access::Write);
        let (a, b) = pair();
        promise(&a, order);
        let mut place = [0; 8];
        let _region = register(&b, &mut place);
        let (mut out, mut into, mut bytes) = ([5; 8], [0; 8], [3; 8]);
        receive(&b, &mut into, 1);
        send(&a, &mut out, 1);
        assert_eq!(completed(&a), 1);
        access(&a, kind, KEY, &mut bytes);
        a.drive();
        let is_done = || match kind {
            Access::Write => place == [3; 8],
            Access::Read => bytes == [0; 8],
        };
        assert_eq!(is_done(), !waits, "{kind:?} {order:#x}");
        until([&a, &b], || b.count() == 1 && is_done());
    }
}

#[test]
fn messages_that_the_peer_has_received_delay_nothing() {
    for len in [8, 3000, 40_000, 300_000] {
        let (a, b) = pair();
        let mut place = [0; 8];
        let _region = register(&b, &mut place);
        for round in 1..4 {
            let (mut out, mut into) = (pattern(len, 3), vec![0; len]);
            // With a receive for it, or without.
            if round != 2 {
                receive(&b, &mut into, round);
            }
            send(&a, &mut out, round);
            until([&a, &b], || a.count() == 1);
            if round == 2 {
                receive(&b, &mut into, round);
            }
            until([&a, &b], || b.count() == 1);
            clear(&a, &b);
            let mut bytes = [round as u8; 8];
            access(&a, Access::Write, KEY, &mut bytes);
            assert_eq!((completed(&a), place), (1, bytes), "{len} bytes");
        }
    }
}

#[test]
fn nothing_is_copied_ahead_of_a_message_that_is_being_copied() {
    let (a, b) = pair();
    let mut place = [0; 8];
    let _region = register(&b, &mut place);
    let (mut out, mut into) = (pattern(1 << 20, 1), vec![0; 1 << 20]);
    receive(&b, &mut into, 1);
    // It receives the message, and nobody copies while its core is in use.
    let mut core = b.engine.core();
    send(&a, &mut out, 1);
    until([&a, &a], || {
        core.progress();
        let mut conns = core.conns.values();
        conns.any(|conn| !conn.local.copies.transfers.is_empty())
    });
    let mut bytes = [3; 8];
    access(&a, Access::Write, KEY, &mut bytes);
    a.drive();
    assert_eq!(place, [0; 8]);
    drop(core);
    until([&a, &b], || a.count() == 2 && b.count() == 1);
    assert_eq!(place, [3; 8]);
    assert!(into == out);
}

#[test]
fn nothing_is_copied_ahead_of_a_request_that_the_owner_has_to_carry_out() {
    let (a, b) = pair();
    promise(&a, 0);
    let (mut whole, mut halves) = ([0; 8], [[0; 4], [0; 4]]);
    let [left, right] = &mut halves;
    let _whole = register(&b, &mut whole);
    // Memory of several segments is written by its owner only.
    let both = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let _parts = region(&b, KEY + 1, both, &mut [left, right]);
    let (mut first, mut later, mut back) = ([1; 8], [2; 8], [0; 8]);
    access(&a, Access::Write, KEY + 1, &mut first);
    access(&a, Access::Write, KEY, &mut later);
    access(&a, Access::Read, KEY, &mut back);
    a.drive();
    assert_eq!((whole, back), ([0; 8], [0; 8]));
    until([&a, &b], || a.count() == 3);
    assert_eq!((halves, whole, back), ([[1; 4]; 2], [2; 8], [2; 8]));
    clear(&a, &b);
    // Then accesses are copied by the initiator again.
    until([&a, &b], || {
        let core = a.engine.core();
        let mut shortcuts = core.conns.values().map(|conn| conn.local.shortcut.as_ref());
        shortcuts.all(|shortcut| shortcut.is_some_and(|it| it.is_settled()))
    });
    later = [4; 8];
    access(&a, Access::Write, KEY, &mut later);
    assert_eq!((completed(&a), whole), (1, [4; 8]));
}

#[test]
fn nothing_is_copied_ahead_of_an_atomic_operation() {
    let (a, b) = pair();
    promise(&a, 0);
    let mut place = 5u64.to_ne_bytes();
    let _region = register(&b, &mut place);
    let (mut one, mut old) = (1u64.to_ne_bytes(), [0; 8]);
    let mut add = Atomic {
        kind: AtomicKind::Fetch {
            result: memory(&mut old),
            result_desc: Descs::NONE,
        },
        datatype: FI_UINT64,
        op: FI_SUM,
        remote: remote(0, 8).into(),
        operand: memory(&mut one),
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: FI_COMPLETION,
        context: std::ptr::null_mut(),
    };
    a.engine.core().atomic(a.ep, &mut add).unwrap();
    let mut later = 77u64.to_ne_bytes();
    access(&a, Access::Write, KEY, &mut later);
    assert_eq!(u64::from_ne_bytes(place), 5);
    until([&a, &b], || {
        a.count() == 2 && u64::from_ne_bytes(place) == 77
    });
    assert_eq!(u64::from_ne_bytes(old), 5);
}

#[test]
fn persistent_writes_are_made_by_the_owner() {
    let (a, b) = pair();
    let mut place = [0; 8];
    let _region = register(&b, &mut place);
    let mut bytes = [1; 8];
    let mut write = request(Access::Write, KEY, &mut bytes);
    write.flags |= FI_COMMIT_COMPLETE;
    post(&a, &mut write);
    assert_eq!((completed(&a), place), (0, [0; 8]));
    until([&a, &b], || a.count() == 1);
    assert_eq!(place, [1; 8]);
}

#[test]
fn a_peer_that_only_writes_maps_the_region_table() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let mut place = [0; 8];
    let _region = register(&b, &mut place);
    let is_open = |side: &Side| {
        let core = side.engine.core();
        let mut conns = core.conns.values();
        conns.any(|conn| matches!(conn.local.onesided.regions, Regions::Open(_)))
    };
    let mut bytes = [1; 8];
    until([&a, &b], || {
        access(&a, Access::Write, KEY, &mut bytes);
        is_open(&a)
    });
    until([&a, &b], || a.outstanding() == 0 && place == [1; 8]);
}

#[test]
fn where_one_side_does_not_share_memory_it_is_asked() {
    for (mine, other) in [(Local::Off, Local::Auto), (Local::Auto, Local::Off)] {
        let with = |local| {
            side_with(Params {
                local,
                ..Params::default()
            })
        };
        let (a, b) = (with(mine), with(other));
        a.knows(b.addr);
        b.knows(a.addr);
        let mut place = [0; 8];
        let _region = register(&b, &mut place);
        (0..8).for_each(|round| exchange(&a, &b, round));
        clear(&a, &b);
        for value in 1..4 {
            let mut bytes = [value; 8];
            access(&a, Access::Write, KEY, &mut bytes);
            until([&a, &b], || a.count() == 1 && place == bytes);
            clear(&a, &b);
        }
        let core = a.engine.core();
        let mut all = core.conns.values().map(|conn| &conn.local.onesided.regions);
        assert!(all.all(|regions| matches!(regions, Regions::Unknown)));
    }
}

#[test]
fn a_peer_that_closes_its_endpoint_is_written_to_no_more() {
    let (a, b) = pair();
    let (mut place, mut bytes) = ([0; 8], [1; 8]);
    let _region = register(&b, &mut place);
    access(&a, Access::Write, KEY, &mut bytes);
    assert_eq!((completed(&a), place), (1, [1; 8]));
    b.engine.close(b.ep);
    let mut write = [2; 8];
    let posted = {
        let mut write = request(Access::Write, KEY, &mut write);
        a.engine.core().access(a.ep, &mut write)
    };
    if posted.is_ok() {
        until([&a, &a], || a.outstanding() == 0);
    }
    assert_eq!(place, [1; 8]);
}

#[test]
fn a_peer_that_sends_regions_or_accessed_out_of_turn_loses_the_connection() {
    let a = side();
    let mut place = [0; 8];
    let _region = register(&a, &mut place);
    let mut peer = Stranger::of(&a);
    peer.acquaint(Subject::Regions.code(), 3, 0);
    assert_eq!(peer.hear(&a), None);
    for what in [header::HAS_WRITTEN, header::HAS_READ, 7] {
        let mut peer = Stranger::of(&a);
        let mut accessed = Header::new(Op::Accessed);
        accessed.op_data = what;
        peer.say(&accessed, &[remote(0, 8)], &[]);
        assert_eq!(peer.hear(&a), None);
    }
}

#[test]
fn a_file_that_has_no_regions_is_not_believed() {
    let (a, b) = nearby_of(Params::default());
    until([&a, &b], || has_moved(&a) && has_moved(&b) && is_lent(&a));
    let exe = std::fs::File::open("/proc/self/exe").unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&exe).unsigned_abs();
    let mut place = [0; 8];
    let _region = register(&b, &mut place);
    for number in [u64::MAX, 1 << 40, u64::from(number)] {
        let mut core = a.engine.core();
        for conn in core.conns.values_mut() {
            conn.local.onesided.regions = Regions::Offered(number);
        }
        drop(core);
        clear(&a, &b);
        let mut bytes = [number as u8; 8];
        access(&a, Access::Write, KEY, &mut bytes);
        until([&a, &b], || a.count() == 1 && place == bytes);
        let core = a.engine.core();
        let mut all = core.conns.values().map(|conn| &conn.local.onesided.regions);
        assert!(all.all(|regions| matches!(regions, Regions::Closed)));
    }
}
