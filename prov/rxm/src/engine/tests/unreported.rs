//! Remote writes with immediate data, for which no receive is posted.

use fabric_abi::{FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE};
use prov_message::Sleeper;
use prov_util::below::Region;
use prov_util::request::{Access, RemoteAccess, RemoteIov, RemotePiece};

use super::*;

/// Number of writes of one peer.
const WRITES: u64 = 200;
/// Limit of completions per read below.
const BATCH: usize = 64;

/// A writer, and a side whose receive queue has room for this many completions.
fn limited(room: usize) -> ([Side; 2], Use<Cq>) {
    limit(pair(Params::default), room)
}

/// Limits the second side's receive queue to this many completions.
fn limit(sides: [Side; 2], room: usize) -> ([Side; 2], Use<Cq>) {
    let cq = open(
        Cq::new(CqConfig {
            unasked: room,
            ..CqConfig::default()
        })
        .unwrap(),
    );
    let mut core = sides[1].engine.core();
    let ep = sides[1].ep;
    core.endpoints().get_mut(ep).unwrap().reports.rx_cq = Some(cq.clone());
    drop(core);
    (sides, cq)
}

/// Registers memory for peers.
fn register(side: &Side, bytes: &mut [u8]) -> Region {
    let core = side.engine.core();
    let domain = &core.below.as_ref().unwrap().setting.domain;
    let piece = (bytes.as_mut_ptr().expose_provenance(), bytes.len());
    let region = domain.register(
        [piece].into_iter(),
        FI_REMOTE_WRITE,
        3,
        0,
        prov_base::device_memory::Kind::HOST,
    );
    region.unwrap()
}

/// Posts writes of 8 bytes with consecutive data, and drives the writer until all have completed
/// there.
fn write_many(a: &Side, region: &Region, bytes: &mut [u8], count: u64) {
    let before = a.count();
    for data in 0..count {
        let mut remote = RemoteIov::default();
        remote.push(RemotePiece {
            addr: 0,
            len: bytes.len() as u64,
            key: region.key(),
        });
        let mut access = RemoteAccess {
            access: Access::Write,
            local: memory_of(bytes),
            remote,
            desc: Descs::NONE,
            peer: 0,
            data,
            flags: FI_COMPLETION | FI_REMOTE_CQ_DATA,
            context: std::ptr::null_mut(),
        };
        loop {
            let posted = a.engine.core().access(a.ep, &mut access);
            match posted {
                Err(Errno::EAGAIN) => a.drive(),
                posted => break posted.unwrap(),
            }
        }
    }
    assert_eq!(a.errors(), []);
    until(&[a], || a.count() == before + count as usize);
}

fn taken(cq: &Cq) -> Vec<u64> {
    let mut all = Vec::new();
    let _ = cq.take(1000, |one| all.push(one.data));
    all
}

/// Establishes the connection, so that the test can drive one side alone.
fn connect(sides: &[Side; 2], cq: &Cq) {
    let [a, b] = sides;
    let (mut out, mut place) = ([1; 8], [0; 8]);
    b.receive(&mut place, 1);
    a.send(&mut out, 1);
    let mut received = 0;
    until(&[a, b], || {
        received += taken(cq).len();
        a.count() == 1 && received == 1
    });
    a.forget();
}

fn is_full(side: &Side) -> bool {
    side.engine.core().is_full()
}

/// A side whose queue is full of unread completions, with as many more waiting.
fn filled(room: usize, bytes: (&mut [u8], &mut [u8])) -> ([Side; 2], Use<Cq>, Region) {
    let (sides, cq) = limited(room);
    let region = fill(&sides, &cq, bytes);
    (sides, cq, region)
}

fn fill(sides: &[Side; 2], cq: &Cq, bytes: (&mut [u8], &mut [u8])) -> Region {
    connect(sides, cq);
    let region = register(&sides[1], bytes.1);
    write_many(&sides[0], &region, bytes.0, WRITES);
    let b = &sides[1];
    until(&[b], || is_full(b));
    region
}

#[test]
fn remote_writes_wait_until_the_queue_is_read_and_nothing_is_lost() {
    const ROOM: usize = 8;
    let (mut out, mut place) = ([7; 8], [0; 8]);
    let ([_a, b], cq, region) = filled(ROOM, (&mut out, &mut place));
    let mut all = Vec::new();
    while all.len() < WRITES as usize {
        (0..100).for_each(|_| b.drive());
        let waiting = b.engine.core().unreported.len();
        assert!(waiting < ROOM + BATCH, "{waiting} wait");
        let more = taken(&cq);
        assert!(more.len() <= ROOM && !more.is_empty(), "{}", more.len());
        all.extend(more);
    }
    assert!(all.into_iter().eq(0..WRITES));
    region.close().unwrap();
    assert_eq!(place, out);
}

#[test]
fn sends_complete_while_the_receive_queue_is_not_read() {
    let (sides, cq) = limited(150);
    connect(&sides, &cq);
    let [a, b] = &sides;
    let (mut out, mut place) = ([7; 8], [0; 8]);
    let region = register(b, &mut place);
    write_many(a, &region, &mut out, WRITES);
    until(&[b], || !b.engine.core().unreported.is_empty());
    // In one packet, in several, and by rendezvous.
    for (tag, len) in (5..).zip([8, 10_000, 3 << 20]) {
        let (mut sent, mut received) = (vec![tag as u8; len], vec![0; len]);
        a.forget();
        b.forget();
        a.receive(&mut received, tag);
        b.send(&mut sent, tag);
        until(&[a, b], || a.count() == 1 && b.count() == 1);
        assert!(received == sent);
    }
    assert_eq!(taken(&cq).len(), 150);
    until(&[b], || b.engine.core().unreported.is_empty());
    assert_eq!(taken(&cq).len(), WRITES as usize - 150);
    region.close().unwrap();
}

#[test]
fn sends_complete_while_the_receive_queue_is_full() {
    let (mut out, mut place) = ([7; 8], [0; 8]);
    let ([a, b], cq, region) = filled(8, (&mut out, &mut place));
    // In one packet that is injected, in one that is not, and in several.
    for (tag, len) in (5..).zip([8, 10_000, 100_000]) {
        let (mut sent, mut received) = (vec![tag as u8; len], vec![0; len]);
        a.forget();
        b.forget();
        a.receive(&mut received, tag);
        b.send(&mut sent, tag);
        until(&[&a, &b], || a.count() == 1 && b.count() == 1);
        assert!(received == sent);
        assert!(is_full(&b));
    }
    let mut count = 0;
    until(&[&b], || {
        count += taken(&cq).len();
        count == WRITES as usize
    });
    region.close().unwrap();
}

#[test]
fn a_sleeping_thread_is_not_woken_by_operations_without_room() {
    let sides = [false, true].map(|has_sleepers| side_of(Params::default(), None, has_sleepers));
    let (sides, cq) = limit(with_addresses_exchanged(sides), 8);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    let region = fill(&sides, &cq, (&mut out, &mut place));
    let [a, b] = &sides;
    until(&[b], || b.engine.core().may_sleep(Sleeper::Thread));
    let is_woken = || {
        let core = b.engine.core();
        let poller = core.poller().unwrap();
        let mut fds = [rustix::event::PollFd::new(
            &poller,
            rustix::event::PollFlags::IN,
        )];
        let timeout = Default::default();
        rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
    };
    assert!(!is_woken(), "it spins");
    // It is woken by completions of its sends, and when there is room again.
    let (mut sent, mut received) = (vec![5; 100_000], vec![0; 100_000]);
    a.forget();
    b.forget();
    a.receive(&mut received, 5);
    b.send(&mut sent, 5);
    until(&[a], || {
        if b.engine.core().may_sleep(Sleeper::Thread) && !is_woken() {
            return a.count() == 1 && b.count() == 1;
        }
        b.drive();
        false
    });
    let mut count = 0;
    while count < WRITES as usize {
        count += taken(&cq).len();
        b.drive();
    }
    until(&[b], || b.engine.core().may_sleep(Sleeper::Thread));
    assert!(!is_woken());
    a.send(&mut out, 6);
    until(&[a], is_woken);
    region.close().unwrap();
}

#[test]
fn an_endpoint_closes_with_its_receive_queue_unread() {
    let (mut out, mut place) = ([7; 8], [0; 8]);
    let ([a, b], _cq, region) = filled(8, (&mut out, &mut place));
    let (mut sent, mut received) = (vec![1; 10_000], vec![0; 10_000]);
    a.receive(&mut received, 5);
    b.send(&mut sent, 5);
    let deadline = Instant::now() + Duration::from_secs(20);
    while b.engine.core().send_last(b.ep).is_some() {
        assert!(Instant::now() < deadline, "it does not end");
    }
    region.close().unwrap();
    drop(b);
    until(&[&a], || {
        !a.done.borrow().is_empty() && a.links().is_empty()
    });
    assert_eq!(received, sent);
}

#[test]
fn messages_before_a_disconnect_are_received_once_the_full_queue_is_read() {
    let (mut out, mut place) = ([7; 8], [0; 8]);
    let ([a, b], cq, region) = filled(8, (&mut out, &mut place));
    let (mut sent, mut received) = ([3; 8], [0; 8]);
    b.receive(&mut received, 5);
    a.forget();
    a.send(&mut sent, 5);
    until(&[&a], || a.count() == 1);
    drop(a);
    // It notices the end, and has not handled what was sent before.
    let deadline = Instant::now() + Duration::from_secs(20);
    while b
        .engine
        .core()
        .links
        .values()
        .all(|link| link.ending.is_none())
    {
        b.drive();
        assert!(Instant::now() < deadline, "the link does not end");
    }
    let mut count = 0;
    until(&[&b], || {
        count += taken(&cq).len();
        count == WRITES as usize + 1 && b.links().is_empty()
    });
    region.close().unwrap();
    assert_eq!(received, sent);
}
