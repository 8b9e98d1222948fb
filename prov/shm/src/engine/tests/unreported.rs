//! Completions of operations that consume no receive: which peers may cause them, and how many.

use prov_util::mr::Region;

use super::*;

/// Number of entries of a queue from which on peers are held back.
const ROOM: usize = 8;
/// Number of writes of one peer.
const WRITES: u64 = 200;
/// The key of the memory that is written to.
const KEY: u64 = 3;

/// Creates a side with a small queue.
fn limited(place: &mut [u8]) -> (Side, Arc<Region>) {
    let mut side = Side::new(Params::default());
    side.cq = open(
        Cq::new(CqConfig {
            unasked: ROOM,
            ..CqConfig::default()
        })
        .unwrap(),
    );
    let reports = &mut side.core.endpoints.get_mut(side.ep).unwrap().reports;
    reports.tx_cq = Some(side.cq.clone());
    reports.rx_cq = Some(side.cq.clone());
    let region = side.register(KEY, place);
    (side, region)
}

/// Creates a writer whose link with `b` is open.
fn writer(b: &mut Side) -> (Side, u64) {
    let mut a = Side::new(Params::default());
    let to = a.insert(&b.name);
    let mut out = [0; 8];
    let mut write = access(Access::Write, to, KEY, &mut out, 0);
    a.core.access(a.ep, &mut write).unwrap();
    assert_eq!(completed(&mut [&mut a, b], 0, 1), [0]);
    (a, to)
}

/// Posts writes of 8 bytes with immediate data that counts up from `first`.
fn write_many(a: &mut Side, to: u64, out: &mut [u8], first: u64) {
    for data in first..first + WRITES {
        let write = access(Access::Write, to, KEY, out, data as usize);
        let mut write = RemoteAccess {
            data,
            flags: write.flags | FI_REMOTE_CQ_DATA,
            ..write
        };
        a.core.access(a.ep, &mut write).unwrap();
    }
    a.drive();
}

/// Returns the data of the remote writes that are in a side's queue.
fn taken(side: &Side) -> Vec<u64> {
    let mut all = Vec::new();
    let _ = side.cq.take(1000, |one| all.push(one.data));
    all
}

/// Calls `then` with a writer, and a side with a small queue that has not read the completions.
fn after_writes(then: impl FnOnce(&mut Side, &mut Side)) {
    let mut place = [0; 8];
    let (mut b, region) = limited(&mut place);
    let (mut a, to) = writer(&mut b);
    let mut out = [7; 8];
    write_many(&mut a, to, &mut out, 0);
    drive_without_reading(&mut [&mut a, &mut b]);
    then(&mut a, &mut b);
    b.table.close(&region).unwrap();
    assert_eq!(place, out);
}

fn drive_without_reading(sides: &mut [&mut Side]) {
    for _ in 0..300 {
        sides.iter_mut().for_each(|side| side.drive());
    }
}

#[test]
fn a_sleeping_thread_resumes_a_held_back_peer_when_the_queue_was_read_elsewhere() {
    after_writes(|a, b| {
        // There is nothing to do, so the thread may sleep.
        until(&mut [], |_| b.core.prepare_wait(Sleeper::Thread));
        let mut all = taken(b);
        // The next thread that is about to sleep finds space.
        while all.len() < WRITES as usize {
            let may_sleep = b.core.prepare_wait(Sleeper::Thread);
            let more = taken(b);
            assert!(more.len() <= ROOM && (!may_sleep || !more.is_empty()));
            all.extend(more);
            a.core.progress();
        }
        assert!(all.into_iter().eq(0..WRITES));
        assert!(b.core.lists.are_all_reported());
    });
}
