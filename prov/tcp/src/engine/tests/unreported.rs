//! Completions for which no receive was posted: which peers may cause them, and how many.

use fabric_abi::{FI_REMOTE_CQ_DATA, FI_SUM, FI_UINT64};
use prov_base::atomic_ops::Form;
use prov_util::request::{Access, RemoteAccess, RemoteIov, RemotePiece};

use super::direct::{Stranger, register, remote};
use super::nearby::{has_moved, nearby_of};
use super::*;
use crate::params::Local;
use crate::wire::atomic::AtomicWord;
use crate::wire::header::{Header, Op, REMOTE_CQ_DATA, RmaIov};

/// Number of entries from which on peers are held back.
const ROOM: usize = 8;
/// Number of writes of one peer.
const WRITES: u64 = 200;

/// Gives a side a queue with little room, as if the application had opened it with that size.
fn limit(side: &mut Side, room: usize) {
    let cq = open(
        Cq::new(CqConfig {
            unasked: room,
            wait: Attachment::open(prov_util::wait::WaitKind::Unspec, None).unwrap(),
            ..CqConfig::default()
        })
        .unwrap(),
    );
    cq.add_source(side.engine.clone()).unwrap();
    let mut core = side.engine.core();
    core.endpoints.get_mut(side.ep).unwrap().reports.rx_cq = Some(cq.clone());
    drop(core);
    side.cq = cq;
}

/// Writes 8 bytes with immediate data; returns whether that could be posted.
fn write(side: &Side, bytes: &mut [u8], data: u64) -> bool {
    let mut remote = RemoteIov::default();
    remote.push(RemotePiece {
        addr: 0,
        len: bytes.len() as u64,
        key: super::direct::KEY,
    });
    let mut access = RemoteAccess {
        access: Access::Write,
        local: memory(bytes),
        remote,
        desc: Descs::NONE,
        peer: 0,
        data,
        flags: FI_COMPLETION | FI_REMOTE_CQ_DATA,
        context: std::ptr::null_mut(),
    };
    match side.engine.core().access(side.ep, &mut access) {
        Err(Errno::EAGAIN) => false,
        posted => {
            posted.unwrap();
            true
        }
    }
}

/// Posts writes whose data counts up from `first`, and drives the writer until all of them have
/// completed there.
fn write_many(a: &Side, bytes: &mut [u8], first: u64) {
    let before = a.count();
    for data in first..first + WRITES {
        while !write(a, bytes, data) {
            a.drive();
        }
    }
    until([a, a], || a.count() == before + WRITES as usize);
}

/// Returns the data of the remote writes that are in a side's queue now.
fn taken(side: &Side) -> Vec<u64> {
    let mut all = Vec::new();
    let _ = side.cq.take(1000, |one| all.push(one.data));
    all
}

fn is_held_back(side: &Side) -> bool {
    side.held_back() != 0
}

/// Creates a writer and a side with a small queue, connected through a socket or through shared
/// memory.
fn pair(local: bool) -> (Side, Side) {
    let (a, mut b) = nearby_of(Params {
        local: match local {
            true => Local::Auto,
            false => Local::Off,
        },
        ..Params::default()
    });
    if local {
        until([&a, &b], || has_moved(&a) && has_moved(&b));
    }
    a.done.borrow_mut().clear();
    limit(&mut b, ROOM);
    (a, b)
}

/// Calls `then` with a writer, and a side with a small queue that has not read the completions:
/// once through a socket and once through memory.
fn after_writes(then: impl Fn(&Side, &Side)) {
    for local in [false, true] {
        let (a, b) = pair(local);
        let (mut out, mut place) = ([7; 8], [0; 8]);
        let region = register(&b, &mut place);
        write_many(&a, &mut out, 0);
        drive_without_reading(&b);
        then(&a, &b);
        b.memory.close(&region).unwrap();
        assert_eq!(place, out);
    }
}

/// Drives a side whose queue is not read until its peers are held back, and some more.
fn drive_without_reading(b: &Side) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_held_back(b) {
        b.engine.progress();
        assert!(Instant::now() < deadline, "nobody is held back");
    }
    (0..100).for_each(|_| b.engine.progress());
}

#[test]
fn a_blocking_read_resumes_a_held_back_peer() {
    after_writes(|_, b| {
        let mut all: Vec<u64> = Vec::new();
        while all.len() < WRITES as usize {
            // A blocking read does not wait for more than there is room for.
            let read =
                b.cq.read_blocking(100, 100, 20_000, |one| all.push(one.data));
            assert!(read.is_ok(), "{read:?} after {}", all.len());
        }
        assert!(all.into_iter().eq(0..WRITES));
        // Later messages take the fast path again.
        assert!(!is_held_back(b));
        let core = b.engine.core();
        assert!(core.conns.values().all(|conn| conn.detours.let_in()));
        drop(core);
    });
}

#[test]
fn a_sleeping_thread_resumes_a_held_back_peer_when_the_queue_was_read_elsewhere() {
    after_writes(|_, b| {
        // There is nothing to do, so it may sleep.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !b.engine.prepare_wait() {
            assert!(Instant::now() < deadline, "it does not sleep");
        }
        let mut all = taken(b);
        // The next thread that prepares to sleep finds room.
        while all.len() < WRITES as usize {
            b.engine.prepare_wait();
            let more = taken(b);
            assert!(more.len() <= ROOM);
            all.extend(more);
        }
        assert!(all.into_iter().eq(0..WRITES));
    });
}

/// A message of a peer that is in no address vector is refused: nothing is reported, and the peer
/// gets a refusal if it waits for an answer.
fn is_refused(header: &Header, list: &[RmaIov], payload: &[u8]) {
    let mut a = side();
    limit(&mut a, ROOM);
    let mut stranger = Stranger::of(&a);
    stranger.say(header, list, payload);
    let heard = stranger.hear(&a).unwrap().into_iter();
    let heard: Vec<Op> = heard.map(|(header, _)| header.op).collect();
    match header.op {
        Op::Write => assert_eq!(heard, [], "{list:?}"),
        _ => assert_eq!(heard, [Op::Refusal], "{list:?}"),
    }
    assert_eq!(taken(&a), [], "{header:?}, {list:?}");
    assert_eq!(a.count(), 0);
}

#[test]
fn a_stranger_without_a_key_causes_no_completion() {
    IS_FOR_RMA.set(false);
    let mut header = Header::new(Op::Write);
    (header.flags, header.data) = (REMOTE_CQ_DATA, 0xbad);
    is_refused(&header, &[], &[]);
    is_refused(&header, &[remote(0, 0)], &[]);
    is_refused(&header, &[remote(0, 0), remote(0, 0)], &[]);
    is_refused(&header, &[remote(0, 8)], &[1; 8]);
    header.op = Op::AtomicRequest;
    header.word = AtomicWord {
        form: Form::Base,
        op: FI_SUM as u8,
        datatype: FI_UINT64 as u8,
    }
    .pack();
    is_refused(&header, &[], &[]);
    is_refused(&header, &[remote(0, 0)], &[]);
    is_refused(&header, &[remote(0, 8)], &[1; 8]);
}
