//! Writes and reads that the initiator carries out, whatever the owner of the memory does.

use super::*;
use crate::engine::link::Fault;

/// Creates two sides with a link. Returns the first side's address of the second, too. The second
/// makes no progress from then on, unless a test makes it do so.
fn pair() -> (Side, Side, u64) {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = a.insert(&b.name);
    b.insert(&a.name);
    let mut out = [0; 8];
    a.core
        .transmit(a.ep, &mut message(to, 1, &mut out, FI_DELIVERY_COMPLETE))
        .unwrap();
    let mut into = [0; 8];
    b.core.receive(b.ep, &mut buffer(1, &mut into, 2)).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    assert_eq!(b.completions(), [2]);
    (a, b, to)
}

/// Returns a write with additional flags, and immediate data.
fn with(flags: u64, data: u64, access: RemoteAccess) -> RemoteAccess {
    RemoteAccess {
        flags: access.flags | flags,
        data,
        ..access
    }
}

/// Returns the remote writes that were reported to a side: lengths and data.
fn told(side: &Side) -> Vec<(usize, u64)> {
    let mut all = Vec::new();
    let note = |one: &Completion| {
        assert_eq!(one.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        all.push((one.len, one.data));
    };
    let _ = side.cq.read(1000, note);
    all
}

#[test]
fn writes_and_reads_of_any_number_and_length_do_not_need_the_owner() {
    let (a, b, to) = pair();
    let mut a = a;
    let mut region = vec![0; 300_000];
    b.register(3, &mut region);
    for (round, len) in LENGTHS.into_iter().cycle().take(5000).enumerate() {
        let (mut out, mut back) = (pattern(round, len), vec![0; len]);
        let mut write = access(Access::Write, to, 3, &mut out, 1);
        a.core.access(a.ep, &mut write).unwrap();
        assert_eq!(a.completions(), [1], "{len} bytes");
        let mut read = access(Access::Read, to, 3, &mut back, 2);
        a.core.access(a.ep, &mut read).unwrap();
        assert_eq!(a.completions(), [2]);
        assert!(back == out && region[..len] == out);
    }
}

#[test]
fn a_refusal_does_not_need_the_owner() {
    let (mut a, b, to) = pair();
    let mut region = vec![0; 64];
    // SAFETY: `region` lives until the test ends.
    let piece = unsafe { Memory::new(memory(&mut region).pieces()) }.unwrap();
    let request = mr::Request::new(piece, FI_REMOTE_READ, 3);
    let closed = b.register(4, &mut [0; 64]);
    b.table.register(request).unwrap();
    b.table.close(&closed).unwrap();
    let mut bytes = [7; 8];
    for (kind, key, addr, error) in [
        (Access::Write, 3, 0, Errno::EACCES),
        (Access::Read, 3, 57, Errno::EACCES),
        (Access::Read, 3, u64::MAX - 3, Errno::EACCES),
        (Access::Read, 4, 0, Errno::EACCES),
        (Access::Write, 5, 0, Errno::EACCES),
    ] {
        let mut wrong = access(kind, to, 0, &mut bytes, 1);
        wrong.remote = RemotePiece { addr, len: 8, key }.into();
        a.core.access(a.ep, &mut wrong).unwrap();
        assert_eq!(a.error(), Some(error), "{kind:?} of {key} at {addr}");
    }
    // A write of no bytes does nothing; with data, the data would be lost.
    for (data, flags) in [(None, 0), (Some(5), FI_REMOTE_CQ_DATA)] {
        let write = access(Access::Write, to, 5, &mut [], 9);
        let mut write = with(flags, data.unwrap_or(0), write);
        a.core.access(a.ep, &mut write).unwrap();
        assert_eq!(a.completions().len(), usize::from(data.is_none()));
        assert_eq!(a.error(), data.map(|_| Errno::EACCES));
    }
    assert_eq!(region, [0; 64]);
}

#[test]
fn immediate_data_is_reported_after_the_bytes_are_written() {
    let (mut a, mut b, to) = pair();
    let (mut region, mut out) = (vec![0; EAGER + 1], pattern(1, EAGER + 1));
    b.register(3, &mut region);
    for (data, len) in [(7, 8), (8, EAGER + 1), (9, 0)] {
        let write = access(Access::Write, to, 3, &mut out[..len], 1);
        let mut write = with(FI_REMOTE_CQ_DATA, data, write);
        a.core.access(a.ep, &mut write).unwrap();
        assert_eq!(a.completions(), [1]);
    }
    assert!(region == out);
    let mut all = Vec::new();
    until(&mut [&mut b], |sides| {
        all.extend(told(sides[0]));
        all.len() == 3
    });
    assert_eq!(all, [(8, 7), (EAGER + 1, 8), (0, 9)]);
}

#[test]
fn data_of_a_region_that_was_closed_since_is_reported() {
    let (mut a, mut b, to) = pair();
    let mut region = [0; 8];
    let open = b.register(3, &mut region);
    let mut bytes = [5; 8];
    let write = access(Access::Write, to, 3, &mut bytes, 1);
    let mut write = with(FI_REMOTE_CQ_DATA, 7, write);
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!(a.completions(), [1]);
    b.table.close(&open).unwrap();
    let mut all = Vec::new();
    until(&mut [&mut b], |sides| {
        all.extend(told(sides[0]));
        !all.is_empty()
    });
    assert_eq!((all, region), (vec![(8, 7)], [5; 8]));
}

#[test]
fn an_access_without_space_for_its_notification_is_not_copied() {
    let (mut a, b, to) = pair();
    let mut region = [0; 8];
    b.register(3, &mut region);
    let mut last = 0;
    let refused = loop {
        last += 1;
        let mut out = u64::to_ne_bytes(last);
        let write = access(Access::Write, to, 3, &mut out, 1);
        let mut write = with(FI_REMOTE_CQ_DATA, last, write);
        if let Err(error) = a.core.access(a.ep, &mut write) {
            break error;
        }
    };
    assert_eq!(refused, Errno::EAGAIN);
    assert_eq!(u64::from_ne_bytes(region), last - 1);
    assert_eq!(a.completions().len() as u64, last - 1);
    // Without data, the owner is not notified.
    let mut bytes = [1; 8];
    let mut write = access(Access::Write, to, 3, &mut bytes, 1);
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!(region, [1; 8]);
}

/// Counts accesses.
#[derive(Default)]
struct Accesses(std::sync::atomic::AtomicUsize);

impl mr::RemoteEvents for Accesses {
    fn accessed(&self, bytes: usize) {
        self.0
            .fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn counters_of_a_region_count_direct_accesses_of_peers() {
    let (mut a, mut b, to) = pair();
    let mut region = [0; 8];
    let open = b.register(3, &mut region);
    for kind in [Access::Write, Access::Read] {
        let counted = match kind {
            Access::Write => FI_REMOTE_WRITE,
            Access::Read => FI_REMOTE_READ,
        };
        let counter = Arc::new(Accesses::default());
        b.table.count_in(&open, counted, counter.clone()).unwrap();
        let mut bytes = [3; 8];
        a.core
            .access(a.ep, &mut access(kind, to, 3, &mut bytes, 1))
            .unwrap();
        assert_eq!(a.completions(), [1]);
        let count = || counter.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(count(), 0);
        until(&mut [&mut b], |_| count() == 8);
    }
}

#[test]
fn a_counter_of_an_endpoint_counts_direct_accesses_of_peers() {
    use prov_util::cntr::{Cntr, CntrEvents};
    use prov_util::wait::Attachment;

    let (mut a, mut b, to) = pair();
    let mut region = [0; 8];
    b.register(3, &mut region);
    let counter = open(Cntr::new(CntrEvents::Completions, Attachment::None, None));
    let reports = &mut b.core.endpoints.get_mut(b.ep).unwrap().reports;
    reports.counters.remote_write = Some(counter.clone());
    b.table.count_all(reports.counters.remote());
    let mut bytes = [9; 8];
    let mut write = access(Access::Write, to, 3, &mut bytes, 1);
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!((a.completions(), counter.read()), (vec![1], 0));
    until(&mut [&mut b], |_| counter.read() == 1);
    // Reads are not counted, and the owner is not notified.
    let mut back = [0; 8];
    let mut read = access(Access::Read, to, 3, &mut back, 2);
    a.core.access(a.ep, &mut read).unwrap();
    assert_eq!(back, [9; 8]);
    (0..10).for_each(|_| b.drive());
    assert_eq!(counter.read(), 1);
}

#[test]
fn nothing_is_copied_ahead_of_a_request_that_the_owner_has_to_carry_out() {
    let (mut a, mut b, to) = pair();
    let (mut whole, mut halves) = ([0; 8], [[0; 4], [0; 4]]);
    b.register(3, &mut whole);
    let [first, second] = &mut halves;
    let parts = [memory(first), memory(second)].map(|part| part.pieces()[0]);
    // SAFETY: `parts` describes memory that lives until the test ends.
    let parts = unsafe { AppIov::from_iov(parts.as_ptr(), 2) }.unwrap();
    b.register_memory(4, &parts);
    // Only the owner can write to memory in several pieces.
    let mut bytes = [1; 8];
    let mut asked = access(Access::Write, to, 4, &mut bytes, 1);
    a.core.access(a.ep, &mut asked).unwrap();
    let (mut later, mut back) = ([2; 8], [0; 8]);
    a.core
        .access(a.ep, &mut access(Access::Write, to, 3, &mut later, 2))
        .unwrap();
    a.core
        .access(a.ep, &mut access(Access::Read, to, 3, &mut back, 3))
        .unwrap();
    assert_eq!((a.completions(), whole), (vec![], [0; 8]));
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 3), [1, 2, 3]);
    assert_eq!((halves, whole, back), ([[1; 4]; 2], [2; 8], [2; 8]));
    // Then the initiator copies again.
    let mut later = [4; 8];
    a.core
        .access(a.ep, &mut access(Access::Write, to, 3, &mut later, 4))
        .unwrap();
    assert_eq!((a.completions(), whole), (vec![4], later));
}

#[test]
fn a_write_with_commit_complete_is_carried_out_by_the_owner() {
    let (mut a, mut b, to) = pair();
    let mut region = [0; 8];
    b.register(3, &mut region);
    let mut bytes = [1; 8];
    let write = access(Access::Write, to, 3, &mut bytes, 1);
    let mut write = with(FI_COMMIT_COMPLETE, 0, write);
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!(a.completions(), []);
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    assert_eq!(region, [1; 8]);
}

#[test]
fn regions_that_find_no_place_in_the_table_are_reached_through_their_owner() {
    // The number is larger than that of the table's entries.
    const MANY: u64 = 6000;
    let (mut a, mut b, to) = pair();
    let mut memory = vec![0u8; MANY as usize];
    for (key, place) in memory.chunks_mut(1).enumerate() {
        b.register(key as u64, place);
    }
    for key in 0..MANY {
        let mut bytes = [key as u8 ^ 1];
        let mut write = access(Access::Write, to, key, &mut bytes, 1);
        a.core.access(a.ep, &mut write).unwrap();
        assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    }
    let right = |(key, byte): (usize, &u8)| *byte == key as u8 ^ 1;
    assert!(memory.iter().enumerate().all(right));
}

#[test]
fn a_region_that_is_set_up_first_is_found_when_it_is() {
    let (mut a, mut b, to) = pair();
    b.table = {
        let publisher = b.core.regions.clone().unwrap() as Arc<dyn Publisher>;
        Arc::new(MrTable::new(&mr::Config {
            mr_mode: FI_MR_ENDPOINT,
            publisher: Some(publisher),
            ..mr::Config::default()
        }))
    };
    let mut region = [0; 8];
    let open = b.register(3, &mut region);
    b.table.enable(&open).unwrap();
    let mut bytes = [1; 8];
    let mut write = access(Access::Write, to, 3, &mut bytes, 1);
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!((a.completions(), region), (vec![1], [1; 8]));
    b.table.close(&open).unwrap();
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!(a.error(), Some(Errno::EACCES), "and nothing is left of it");
    b.drive();
}

#[test]
fn a_side_that_permits_no_copies_makes_none() {
    let local = Local::new(Arc::new(without_cma())).for_domain();
    assert!(local.publisher().is_none());
    let local = Local::new(Arc::new(Params::default())).for_domain();
    assert!(local.publisher().is_some());
}

#[test]
fn where_one_side_does_not_let_the_other_it_is_asked() {
    for (mine, other) in [
        (without_cma(), Params::default()),
        (Params::default(), without_cma()),
    ] {
        let (mut a, mut b) = (Side::new(mine), Side::new(other));
        let to = a.insert(&b.name);
        let mut region = [0; 8];
        b.register(3, &mut region);
        for value in 1..4 {
            let mut bytes = [value; 8];
            let mut write = access(Access::Write, to, 3, &mut bytes, 1);
            a.core.access(a.ep, &mut write).unwrap();
            assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
            assert_eq!(region, [value; 8]);
            assert!(a.core.links.values().all(|link| link.window.is_none()));
        }
    }
}

#[test]
fn a_key_means_the_region_of_the_domain_that_the_peer_is_in() {
    let (mut a, mut b, to_b) = pair();
    let mut c = Side::new(Params::default());
    let to_c = a.insert(&c.name);
    let mut regions = [[0; 8]; 2];
    let [of_b, of_c] = &mut regions;
    b.register(3, of_b);
    let closed = c.register(3, of_c);
    for value in 1..4 {
        for (to, number) in [(to_b, 0), (to_c, 1)] {
            let mut bytes = [10 * number + value; 8];
            let mut write = access(Access::Write, to, 3, &mut bytes, 1);
            a.core.access(a.ep, &mut write).unwrap();
            // The first access of a link may wait until the link is open.
            assert_eq!(completed(&mut [&mut a, &mut b, &mut c], 0, 1), [1]);
            let mut back = [0; 8];
            let mut read = access(Access::Read, to, 3, &mut back, 2);
            a.core.access(a.ep, &mut read).unwrap();
            assert_eq!(completed(&mut [&mut a, &mut b, &mut c], 0, 1), [2]);
            assert_eq!(back, bytes);
        }
        assert_eq!(regions, [[value; 8], [10 + value; 8]]);
    }
    c.table.close(&closed).unwrap();
    let mut bytes = [9; 8];
    for to in [to_b, to_c] {
        let mut write = access(Access::Write, to, 3, &mut bytes, 1);
        a.core.access(a.ep, &mut write).unwrap();
    }
    assert_eq!((a.completions(), a.error()), (vec![1], Some(Errno::EACCES)));
    assert_eq!(regions, [[9; 8], [13; 8]]);
}

#[test]
fn a_peer_that_closes_its_endpoint_is_written_to_no_more() {
    let (mut a, mut b, to) = pair();
    let mut region = [0; 8];
    b.register(3, &mut region);
    b.core.close(b.ep);
    let mut bytes = [1; 8];
    let mut write = access(Access::Write, to, 3, &mut bytes, 1);
    a.core.access(a.ep, &mut write).unwrap();
    let mut error = None;
    until(&mut [&mut a], |sides| {
        error = error.or(sides[0].error());
        error.is_some()
    });
    assert_eq!((error, region), (Some(Errno::ESHUTDOWN), [0; 8]));
}

/// Posts an injected write of a byte eight times.
fn inject(side: &mut Side, to: u64, key: u64, value: u8) {
    let mut bytes = [value; 8];
    let mut write = with(FI_INJECT, 0, access(Access::Write, to, key, &mut bytes, 1));
    side.core.access(side.ep, &mut write).unwrap();
    assert_eq!(side.completions(), [1]);
}

fn read(side: &mut Side, to: u64, key: u64) -> [u8; 8] {
    let mut back = [0; 8];
    let mut read = access(Access::Read, to, key, &mut back, 2);
    side.core.access(side.ep, &mut read).unwrap();
    assert_eq!(side.completions(), [2]);
    back
}

fn in_ring(side: &Side) -> bool {
    side.core.links.values().any(|link| link.has_ring_writes)
}

/// A place in memory, which the owner and the initiator read and write in turn.
struct Place(Box<[u8; 8]>);

impl Place {
    fn value(&self) -> [u8; 8] {
        // SAFETY: the box is alive. The other side writes through addresses of it.
        unsafe { std::ptr::from_ref(&*self.0).read_volatile() }
    }

    fn set(&mut self, value: u8) {
        // SAFETY: as above.
        unsafe { std::ptr::from_mut(&mut *self.0).write_volatile([value; 8]) }
    }
}

#[test]
fn injected_writes_are_applied_by_an_owner_that_makes_progress() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    b.register(3, &mut *place.0);
    for value in 1..=200 {
        inject(&mut a, to, 3, value);
        assert!(in_ring(&a));
        b.drive();
        assert_eq!(place.value(), [value; 8]);
    }
    // A message does not overtake one.
    inject(&mut a, to, 3, 201);
    let (mut out, mut into) = ([0; 8], [0; 8]);
    a.core
        .transmit(a.ep, &mut message(to, 1, &mut out, 0))
        .unwrap();
    b.core.receive(b.ep, &mut buffer(1, &mut into, 2)).unwrap();
    until(&mut [&mut b], |sides| sides[0].completions() == [2]);
    assert_eq!(place.value(), [201; 8]);
}

#[test]
fn an_access_behind_injected_writes_applies_them_first_and_the_owner_never_again() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    b.register(3, &mut *place.0);
    for value in (1..=200).step_by(2) {
        inject(&mut a, to, 3, value);
        inject(&mut a, to, 3, value + 1);
        assert_eq!(read(&mut a, to, 3), [value + 1; 8]);
        place.set(0);
        b.drive();
        assert_eq!(place.value(), [0; 8]);
    }
}

#[test]
fn an_injected_write_does_not_overtake_an_atomic_operation() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    b.register(3, &mut *place.0);
    let (mut one, mut written) = (1u64.to_ne_bytes(), [3; 8]);
    let mut write = with(FI_INJECT, 0, access(Access::Write, to, 3, &mut written, 1));
    let sum = access(Access::Write, to, 3, &mut one, 5);
    let mut sum = Atomic {
        kind: AtomicKind::Base,
        datatype: FI_UINT64,
        op: FI_SUM,
        operand: sum.local,
        desc: sum.desc,
        remote: sum.remote,
        peer: sum.peer,
        data: 0,
        flags: sum.flags,
        context: sum.context,
    };
    a.core.atomic(a.ep, &mut sum).unwrap();
    a.core.access(a.ep, &mut write).unwrap();
    // However long the owner takes, this side does not apply it.
    for _ in 0..1000 {
        a.drive();
    }
    assert_eq!(place.value(), [0; 8]);
    let mut done = a.completions();
    until(&mut [&mut a, &mut b], |sides| {
        done.extend(sides[0].completions());
        done.len() == 2
    });
    assert_eq!(place.value(), [3; 8]);
}

#[test]
fn an_idle_owner_gets_injected_writes_nevertheless() {
    let (mut a, b, to) = pair();
    let mut place = Place(Box::default());
    b.register(3, &mut *place.0);
    inject(&mut a, to, 3, 1);
    until(&mut [&mut a], |_| place.value() == [1; 8]);
    // More than are kept.
    for round in 0..2000 {
        inject(&mut a, to, 3, round as u8);
    }
    assert_eq!(read(&mut a, to, 3), [(1999 % 256) as u8; 8]);
    inject(&mut a, to, 3, 9);
    a.core.may_sleep(prov_message::Sleeper::Helper);
    assert!(!in_ring(&a));
    assert_eq!(place.value(), [9; 8]);
}

#[test]
fn an_injected_write_to_a_region_that_is_closed_meanwhile_is_left_out() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    for by_owner in [true, false] {
        let region = b.register(3, &mut *place.0);
        inject(&mut a, to, 3, 7);
        b.table.close(&region).unwrap();
        if by_owner {
            b.drive();
        } else {
            until(&mut [&mut a], |sides| !in_ring(sides[0]));
        }
        assert_eq!(place.value(), [0; 8]);
    }
}

/// Posts an injected write that is complete when it is delivered; it is not yet.
fn inject_delivered(side: &mut Side, to: u64, key: u64, value: u8) {
    let mut bytes = [value; 8];
    let flags = FI_INJECT | FI_DELIVERY_COMPLETE;
    let mut write = with(flags, 0, access(Access::Write, to, key, &mut bytes, 1));
    side.core.access(side.ep, &mut write).unwrap();
    assert!(in_ring(side));
    assert_eq!(side.completions(), [0; 0]);
}

#[test]
fn injected_writes_with_delivery_are_complete_when_the_owner_has_applied_them() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    b.register(3, &mut *place.0);
    for value in 1..=100 {
        inject_delivered(&mut a, to, 3, value);
        b.drive();
        assert_eq!(place.value(), [value; 8]);
        until(&mut [&mut a], |sides| sides[0].completions() == [1]);
    }
}

#[test]
fn injected_writes_with_delivery_do_not_need_an_owner_that_makes_progress() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    b.register(3, &mut *place.0);
    inject_delivered(&mut a, to, 3, 1);
    until(&mut [&mut a], |sides| sides[0].completions() == [1]);
    assert_eq!(place.value(), [1; 8]);
    // The next ones are copied at once; then the ring is tried again.
    let mut copied = 0;
    loop {
        let mut bytes = [2; 8];
        let flags = FI_INJECT | FI_DELIVERY_COMPLETE;
        let mut write = with(flags, 0, access(Access::Write, to, 3, &mut bytes, 1));
        a.core.access(a.ep, &mut write).unwrap();
        if in_ring(&a) {
            break;
        }
        assert_eq!(a.completions(), [1]);
        copied += 1;
    }
    assert!(copied > 0);
    b.drive();
    until(&mut [&mut a], |sides| sides[0].completions() == [1]);
    assert_eq!(place.value(), [2; 8]);
}

#[test]
fn an_injected_write_with_delivery_that_is_refused_fails_whoever_finds_out() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    for by_owner in [true, false] {
        let region = b.register(3, &mut *place.0);
        inject_delivered(&mut a, to, 3, 7);
        b.table.close(&region).unwrap();
        if by_owner {
            b.drive();
        }
        let mut failed = None;
        until(&mut [&mut a], |sides| {
            failed = sides[0].error();
            failed.is_some()
        });
        assert_eq!(failed, Some(Errno::EACCES));
        assert_eq!(place.value(), [0; 8]);
    }
}

#[test]
fn an_injected_write_with_delivery_to_a_peer_that_ends_fails() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    b.register(3, &mut *place.0);
    inject_delivered(&mut a, to, 3, 7);
    for link in a.core.links.values_mut() {
        link.window = None;
    }
    let ep = b.ep;
    b.core.close(ep);
    until(&mut [&mut a, &mut b], |sides| sides[0].error().is_some());
}

#[test]
fn an_injected_write_that_was_applied_before_the_link_ended_has_not_failed() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    b.register(3, &mut *place.0);
    inject_delivered(&mut a, to, 3, 7);
    b.drive();
    inject_delivered(&mut a, to, 3, 8);
    let keys: Vec<_> = a.core.links.keys().collect();
    for key in keys {
        a.core.break_link(key, Fault::Ended(Errno::ESHUTDOWN));
    }
    assert_eq!(
        (a.completions(), a.error()),
        (vec![1], Some(Errno::ESHUTDOWN))
    );
    assert_eq!(place.value(), [7; 8]);
}

#[test]
fn an_initiator_that_dies_while_it_applies_its_writes_holds_nothing_up() {
    let (mut a, mut b, to) = pair();
    let mut place = Place(Box::default());
    b.register(3, &mut *place.0);
    inject(&mut a, to, 3, 7);
    let mut out = [0; 8];
    a.core
        .transmit(a.ep, &mut message(to, 1, &mut out, 0))
        .unwrap();
    for link in a.core.links.values() {
        let words = link.channel.as_ref().unwrap().flights();
        // The initiator is at it, and has applied none.
        words
            .applied()
            .store(2, std::sync::atomic::Ordering::Release);
    }
    for _ in 0..100 {
        b.drive();
    }
    drop(a);
    let mut into = [0; 8];
    b.core.receive(b.ep, &mut buffer(1, &mut into, 2)).unwrap();
    until(&mut [&mut b], |sides| sides[0].core.links.is_empty());
    assert_eq!(b.completions(), [2]);
    assert_eq!(place.value(), [0; 8]);
}
