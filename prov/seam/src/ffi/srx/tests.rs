//! Tests owner and importer against each other, and the importer against an owner in the style of
//! the C library.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use fabric_abi::*;
use parking_lot::Mutex;

use super::super::object::Handle;
use super::*;
use crate::ffi::srx::ForeignQueue;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_base::sync::{Lock, LockKind};
use prov_objects::matching::{ANY_SOURCE, Filter, Message, Receive};

/// The contexts of multi-receive buffers whose release was reported, and the messages that were
/// received in one step.
#[derive(Default)]
struct Releases(Mutex<Vec<usize>>, Mutex<Vec<WholeReceive>>);

impl QueueOwner for Arc<Releases> {
    fn buffer_released(&self, context: *mut c_void) {
        self.0.lock().push(context.addr());
    }

    fn received(&self, received: &WholeReceive) {
        self.1.lock().push(*received);
    }
}

fn owner(kind: LockKind) -> (Arc<OwnedQueue>, Arc<Releases>) {
    let releases = Arc::new(Releases::default());
    let queue = OwnedQueue::new(kind, 8, Box::new(releases.clone()));
    (queue, releases)
}

/// A peer's completion: context, source, tag and number of bytes received.
type Report = (usize, u64, u64, usize);

/// A provider that imports a queue. Its messages are byte strings.
struct Peer {
    lane: Lock<Lane>,
}

struct Lane {
    queue: ForeignQueue<Vec<u8>>,
    reports: Vec<Report>,
    /// Number of messages that the owner discarded.
    discarded: usize,
    /// Descriptor of the last receive.
    descriptor: usize,
}

impl Peer {
    fn import(context: &mut fi_peer_srx_context) -> Result<Arc<Peer>> {
        // SAFETY: the context describes a queue that the tests close after its peers.
        let owner = unsafe { ImportedSrx::import((&raw mut *context).cast()) }?;
        Ok(Arc::new_cyclic(|this: &Weak<Peer>| Peer {
            lane: Lock::new(
                LockKind::Real,
                Lane {
                    queue: ForeignQueue::new(owner, this.clone()),
                    reports: Vec::new(),
                    discarded: 0,
                    descriptor: 0,
                },
            ),
        }))
    }

    fn of(shared: &Handle<SharedQueue>) -> Arc<Peer> {
        let mut context = fi_peer_srx_context {
            size: size_of::<fi_peer_srx_context>(),
            srx: shared.as_c(),
        };
        Peer::import(&mut context).unwrap()
    }

    /// A message arrives while the owner drives the peer.
    fn arrives(&self, tagged: bool, src: u64, tag: u64, bytes: &[u8]) {
        let mut lane = self.lane.lock();
        let message = Message {
            src,
            tag,
            len: bytes.len(),
            data: 0,
            flags: 0,
            payload: bytes.to_vec(),
        };
        match lane.queue.arrive(tagged, src, tag, bytes.len()).unwrap() {
            Arrival::Received(receive) => lane.deliver(message, receive),
            Arrival::Unexpected(unexpected) => {
                lane.queue
                    .keep(origin(&message.payload), unexpected, message)
                    .unwrap();
            }
        }
    }

    fn reports(&self) -> Vec<Report> {
        std::mem::take(&mut self.lane.lock().reports)
    }

    fn waiting(&self) -> usize {
        self.lane.lock().queue.len()
    }
}

impl Lane {
    fn deliver(&mut self, message: Message<Vec<u8>>, receive: Received) {
        let len = receive.buffers().unwrap().write_at(0, &message.payload);
        let context = receive.context().addr();
        self.descriptor = receive.descriptor(0).addr();
        assert!(receive.descriptor(IOV_LIMIT).is_null());
        self.reports.push((context, message.src, message.tag, len));
    }
}

impl StartReceives for Peer {
    fn start(&self, started: Started) -> Result {
        let mut lane = self.lane.lock();
        let (message, receive) = lane.queue.start(started)?;
        lane.deliver(message, receive);
        Ok(())
    }

    fn discard(&self, discarded: Discarded) -> Result {
        let mut lane = self.lane.lock();
        lane.queue.discard(discarded)?;
        lane.discarded += 1;
        Ok(())
    }
}

fn receive(context: usize, buf: &mut [u8], flags: u64) -> Receive<AppIov> {
    Receive {
        context,
        // SAFETY: the tests keep their buffers until messages are received.
        buf: unsafe { AppIov::from_raw(buf.as_mut_ptr(), buf.len()) },
        src: ANY_SOURCE,
        tag: 0,
        ignore: 0,
        flags,
    }
}

fn tagged(tag: u64, receive: Receive<AppIov>) -> Receive<AppIov> {
    Receive { tag, ..receive }
}

/// The origin of a message: here, each first letter has its own link.
fn origin(payload: &[u8]) -> u32 {
    payload.first().map_or(0, |&letter| letter.into())
}

#[test]
fn a_message_goes_to_the_receive_that_waits() {
    let (queue, _) = owner(LockKind::Real);
    let shared = queue.share();
    let peer = Peer::of(&shared);
    let mut buf = [[b'.'; 6]; 2];
    let (plain, other) = buf.split_at_mut(1);
    let owner = queue.enter();
    owner
        .post(true, tagged(7, receive(2, &mut other[0], 0)))
        .unwrap();
    owner.post(false, receive(1, &mut plain[0], 0)).unwrap();
    peer.arrives(false, 5, 0, b"plain");
    peer.arrives(true, 6, 7, b"tag");
    assert_eq!(peer.reports(), [(1, 5, 0, 5), (2, 6, 7, 3)]);
    assert_eq!(&buf, &[*b"plain.", *b"tag..."]);
    assert_eq!((owner.posted_len(), peer.waiting()), (0, 0));
}

#[test]
fn the_receive_that_takes_a_queued_message_has_the_peer_start_it() {
    for kind in [LockKind::Real, LockKind::Elided] {
        let (queue, _) = owner(kind);
        let shared = queue.share();
        let peer = Peer::of(&shared);
        let mut buf = [b'.'; 4];
        let owner = queue.enter();
        peer.arrives(true, 5, 1, b"one");
        peer.arrives(true, 5, 2, b"two");
        owner
            .post(true, tagged(2, receive(9, &mut buf, 0)))
            .unwrap();
        assert_eq!(peer.reports(), [(9, 5, 2, 3)]);
        assert_eq!((&buf, peer.waiting()), (b"two.", 1));
        owner.shut();
        assert_eq!((peer.waiting(), peer.lane.lock().discarded), (0, 1));
    }
}

#[test]
fn messages_of_all_peers_stand_in_one_order() {
    let (queue, _) = owner(LockKind::Real);
    let shared = [queue.share(), queue.share()];
    let peers = [Peer::of(&shared[0]), Peer::of(&shared[1])];
    let mut buf = [[0; 4]; 3];
    let owner = queue.enter();
    peers[1].arrives(false, 1, 0, b"a");
    peers[0].arrives(false, 1, 0, b"b");
    peers[1].arrives(false, 1, 0, b"c");
    for (i, buf) in buf.iter_mut().enumerate() {
        owner.post(false, receive(i, buf, 0)).unwrap();
    }
    assert_eq!(buf.map(|buf| buf[0]), *b"abc");
    assert_eq!(peers[0].reports(), [(1, 1, 0, 1)]);
    assert_eq!(peers[1].reports(), [(0, 1, 0, 1), (2, 1, 0, 1)]);
}

#[test]
fn a_message_longer_than_the_receive_is_truncated_by_the_peer() {
    let (queue, _) = owner(LockKind::Real);
    let shared = queue.share();
    let peer = Peer::of(&shared);
    let mut buf = [0; 2];
    let owner = queue.enter();
    peer.arrives(false, 1, 0, b"abc");
    owner.post(false, receive(1, &mut buf, 0)).unwrap();
    assert_eq!(peer.reports(), [(1, 1, 0, 2)]);
    assert_eq!(&buf, b"ab");
}

#[test]
fn a_whole_message_is_received_in_one_step_by_a_receive_for_one_message() {
    let (queue, owner) = owner(LockKind::Real);
    let shared = queue.share();
    let peer = Peer::of(&shared);
    let (mut short, mut multi) = ([0; 2], [b'.'; 16]);
    let arrives = |tag, bytes: &[u8]| {
        let message = WholeMessage {
            tagged: true,
            src: 5,
            tag,
            len: bytes.len(),
        };
        let copy = |memory: &AppIov| assert_ne!(memory.write_at(0, bytes), 0);
        peer.lane.lock().queue.take_whole(message, copy)
    };
    let section = queue.enter();
    assert!(!arrives(1, b"abc"));
    section
        .post(true, tagged(2, receive(9, &mut multi, FI_MULTI_RECV)))
        .unwrap();
    let other = tagged(1, receive(7, &mut short, FI_COMPLETION));
    section.post(true, other).unwrap();
    assert!(!arrives(2, b"abc"));
    assert!(!arrives(3, b"abc"));
    assert!(arrives(1, b"abc"));
    assert!(!arrives(1, b"abc"));
    let received = owner.1.lock();
    let [
        WholeReceive {
            completion,
            flags,
            room,
        },
    ] = received[..]
    else {
        panic!("one message was received");
    };
    assert_eq!((completion.context.addr(), completion.src), (7, 5));
    assert_eq!((completion.tag, completion.len, room), (1, 3, 2));
    assert_eq!(completion.flags, FI_RECV | FI_TAGGED);
    assert_eq!((flags, &short), (FI_COMPLETION, b"ab"));
    assert_eq!(section.posted_len(), 1);
}

#[test]
fn a_receive_that_is_posted_quickly_is_like_others() {
    let (queue, _) = owner(LockKind::Real);
    let shared = queue.share();
    let peer = Peer::of(&shared);
    let mut bufs = [[0; 4]; 2];
    let section = queue.enter();
    let mut post = |context: usize| {
        let Receive { mut buf, .. } = receive(context, &mut bufs[context], 0);
        section.post_fast(false, (context, 0), Filter::ANY, &mut buf, 1)
    };
    // The queue gets its memory with the first receive.
    let posted = post(0);
    assert!(!post(1) || !posted);
    if !posted {
        let first = receive(0, &mut bufs[0], 0);
        section.post(false, first).unwrap();
    }
    peer.arrives(false, 1, 0, b"fast");
    assert_eq!(peer.reports(), [(0, 1, 0, 4)]);
    peer.arrives(false, 1, 0, b"wait");
    let Receive { mut buf, .. } = receive(1, &mut bufs[1], 0);
    assert!(!section.post_fast(false, (1, 0), Filter::ANY, &mut buf, 1));
    section.shut();
}

#[test]
fn a_multi_receive_buffer_is_released_after_its_last_message() {
    let (queue, releases) = owner(LockKind::Real);
    let shared = queue.share();
    let peer = Peer::of(&shared);
    let mut buf = [b'.'; 16];
    let owner = queue.enter();
    peer.arrives(false, 1, 0, b"abc");
    peer.arrives(false, 1, 0, b"de");
    owner
        .post(false, receive(4, &mut buf, FI_MULTI_RECV))
        .unwrap();
    assert_eq!(peer.reports(), [(4, 1, 0, 3), (4, 1, 0, 2)]);
    assert!(releases.0.lock().is_empty());
    peer.arrives(false, 1, 0, b"fghij");
    assert_eq!(*releases.0.lock(), [4]);
    assert_eq!(&buf, b"abcdefghij......");
    peer.arrives(false, 1, 0, b"no more");
    assert_eq!(peer.waiting(), 1);
    owner.shut();
}

#[test]
fn peeks_find_claim_and_discard_messages_of_peers() {
    let (queue, _) = owner(LockKind::Real);
    let shared = queue.share();
    let peer = Peer::of(&shared);
    let mut buf = [b'.'; 4];
    let owner = queue.enter();
    assert_eq!(owner.peek(true, Filter::ANY), None);
    for (tag, bytes) in [(1, &b"one"[..]), (2, b"two"), (3, b"three")] {
        peer.arrives(true, 5, tag, bytes);
    }
    let seen = owner.peek(true, Filter::ANY).unwrap();
    assert_eq!((seen.src, seen.tag, seen.len), (5, 1, 3));
    let seen = owner.peek_claim(true, Filter::ANY, 77).unwrap();
    assert_eq!(seen.tag, 1);
    assert_eq!(owner.peek_discard(true, Filter::ANY).unwrap().tag, 2);
    assert_eq!(peer.lane.lock().discarded, 1);
    owner.claim(true, 77, receive(77, &mut buf, 0)).unwrap();
    assert_eq!(peer.reports(), [(77, 5, 1, 3)]);
    assert_eq!(
        owner.claim(true, 77, receive(77, &mut buf, 0)),
        Err(Errno::ENOMSG)
    );
    owner.peek_claim(true, Filter::ANY, 78).unwrap();
    assert_eq!(owner.claim_discard(true, 78).unwrap().len, 5);
    assert_eq!((peer.waiting(), peer.lane.lock().discarded), (0, 2));
    assert_eq!(&buf, b"one.");
}

#[test]
fn a_receive_that_was_cancelled_gets_nothing() {
    let (queue, _) = owner(LockKind::Real);
    let shared = queue.share();
    let peer = Peer::of(&shared);
    let mut buf = [0; 4];
    let owner = queue.enter();
    owner.post(false, receive(1, &mut buf, 0)).unwrap();
    assert_eq!(owner.cancel(1).map(|(_, gone)| gone.context), Some(1));
    assert!(owner.cancel(1).is_none());
    peer.arrives(false, 1, 0, b"late");
    assert_eq!((peer.reports().len(), peer.waiting()), (0, 1));
    owner.shut();
}

#[test]
fn a_peer_that_closes_takes_its_messages_along() {
    let (queue, _) = owner(LockKind::Real);
    let shared = [queue.share(), queue.share()];
    let (leaver, stays) = (Peer::of(&shared[0]), Peer::of(&shared[1]));
    let mut buf = [0; 4];
    let owner = queue.enter();
    leaver.arrives(false, 1, 0, b"gone");
    stays.arrives(false, 1, 0, b"here");
    drop(leaver);
    owner.post(false, receive(1, &mut buf, 0)).unwrap();
    assert_eq!((&buf, stays.reports().len()), (b"here", 1));
    assert_eq!(owner.peek(false, Filter::ANY), None);
}

#[test]
fn a_directed_receive_gets_a_message_once_its_source_is_known() {
    let (queue, _) = owner(LockKind::Real);
    let shared = [queue.share(), queue.share()];
    let (peer, other) = (Peer::of(&shared[0]), Peer::of(&shared[1]));
    let mut buf = [0; 4];
    let section = queue.enter();
    other.arrives(false, ANY_SOURCE, 0, b"othr");
    peer.arrives(false, ANY_SOURCE, 0, b"this");
    peer.arrives(false, ANY_SOURCE, 0, b"2nd.");
    let directed = Receive {
        src: 8,
        ..receive(1, &mut buf, 0)
    };
    section.post(false, directed).unwrap();
    assert_eq!(section.posted_len(), 1);
    drop(section);
    let news = peer
        .lane
        .lock()
        .queue
        .relabel([(origin(b"this"), 8, 8)].into_iter());
    news.tell();
    assert_eq!(peer.reports(), [(1, 8, 0, 4)]);
    assert_eq!(&buf, b"this");
    assert_eq!((peer.waiting(), other.waiting()), (1, 1));
    queue.enter().shut();
}

#[test]
fn a_source_that_arrived_too_late_changes_nothing() {
    let (queue, _) = owner(LockKind::Real);
    let shared = queue.share();
    let peer = Peer::of(&shared);
    let mut buf = [0; 4];
    let section = queue.enter();
    peer.arrives(false, ANY_SOURCE, 0, b"1st.");
    let news = peer
        .lane
        .lock()
        .queue
        .relabel([(origin(b"1st."), 8, 8)].into_iter());
    section.post(false, receive(1, &mut buf, 0)).unwrap();
    // The same entry and the same ticket, for another message.
    peer.arrives(false, ANY_SOURCE, 0, b"2nd.");
    drop(section);
    news.tell();
    let seen = queue.enter().peek(false, Filter::ANY).unwrap();
    assert_eq!(seen.src, ANY_SOURCE);
    queue.enter().shut();
}

#[test]
fn a_context_that_is_not_complete_is_refused() {
    let (queue, _) = owner(LockKind::Real);
    let shared = queue.share();
    let refused = |size, srx| {
        let mut context = fi_peer_srx_context { size, srx };
        Peer::import(&mut context).err() == Some(Errno::EINVAL)
    };
    let size = size_of::<fi_peer_srx_context>();
    assert!(refused(size, null_mut()));
    assert!(refused(size - 1, shared.as_c()));
    // SAFETY: no peer uses the queue, so that the test may change its header.
    unsafe { (*shared.as_c()).owner_ops = null_mut() }
    assert!(refused(size, shared.as_c()));
    // SAFETY: a null context is refused and not dereferenced.
    assert!(unsafe { ImportedSrx::import(null_mut()) }.is_err());
}

#[test]
fn peers_ask_the_owner_for_its_option() {
    let (queue, _) = owner(LockKind::Real);
    let shared = queue.share();
    queue.enter().set_min_multi_recv(99);
    let (mut value, mut len) = (0usize, size_of::<usize>());
    // SAFETY: the table is complete, and `value` has the stated length.
    let status = unsafe {
        let srx = shared.as_c();
        (*(*srx).ep_fid.ops).getopt.unwrap()(
            srx.cast(),
            FI_OPT_ENDPOINT,
            FI_OPT_MIN_MULTI_RECV,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    assert_eq!((status, value), (0, 99));
}

/// Two threads: one drives the peers, at which messages arrive, the other posts.
#[test]
fn the_order_of_locks_holds_with_threads() {
    const COUNT: usize = 2000;
    let (queue, _) = owner(LockKind::Real);
    let shared = [queue.share(), queue.share()];
    let peers = [Peer::of(&shared[0]), Peer::of(&shared[1])];
    let done = AtomicBool::new(false);
    let mut bufs = vec![[0u8; 8]; COUNT];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..COUNT {
                let _driving = queue.enter();
                peers[i % 2].arrives(true, 1, (i % 7) as u64, &i.to_ne_bytes());
            }
        });
        scope.spawn(|| {
            // Simulates a thread that sends, and takes only the importer's lock.
            while !done.load(Ordering::Relaxed) {
                drop(peers[0].lane.lock());
            }
        });
        for (i, buf) in bufs.iter_mut().enumerate() {
            let receive = tagged((i % 7) as u64, receive(i, buf, 0));
            queue.enter().post(true, receive).unwrap();
        }
        while peers
            .iter()
            .map(|peer| peer.lane.lock().reports.len())
            .sum::<usize>()
            < COUNT
        {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    // Receive i and message i have the same tag and the same position.
    for (i, buf) in bufs.iter().enumerate() {
        assert_eq!(usize::from_ne_bytes(*buf), i);
    }
}

/// An owner without receives. Its entries do not contain their peer, and it asks every peer about
/// all of them.
mod plain_owner {
    use super::*;

    pub static FREED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn get(
        _: *mut fid_peer_srx,
        attr: *mut fi_peer_match_attr,
        place: *mut *mut fi_peer_rx_entry,
    ) -> i32 {
        // SAFETY: the test passes valid attributes and a writable location.
        unsafe {
            let mut entry: fi_peer_rx_entry = std::mem::zeroed();
            entry.addr = (*attr).addr;
            entry.flags = FI_TAGGED | FI_RECV;
            *place = Box::into_raw(Box::new(entry));
        }
        Errno::ENOENT.to_c()
    }

    unsafe extern "C" fn refuse(
        _: *mut fid_peer_srx,
        _: *mut fi_peer_match_attr,
        _: *mut *mut fi_peer_rx_entry,
    ) -> i32 {
        Errno::ENOSYS.to_c()
    }

    unsafe extern "C" fn queue(entry: *mut fi_peer_rx_entry) -> i32 {
        // SAFETY: the entry was allocated by this table's functions, and was not freed.
        unsafe {
            if (*entry).flags & FI_REMOTE_CQ_DATA != 0 && (*entry).cq_data == 13 {
                return Errno::ENOMEM.to_c();
            }
        }
        QUEUED.with_borrow_mut(|queued| queued.push(entry));
        0
    }

    unsafe extern "C" fn free(entry: *mut fi_peer_rx_entry) {
        // SAFETY: the entry was made above and is freed once.
        drop(unsafe { Box::from_raw(entry) });
        FREED.fetch_add(1, Ordering::Relaxed);
    }

    unsafe extern "C" fn for_each(
        _: *mut fid_peer_srx,
        get_addr: Option<unsafe extern "C" fn(*mut fi_peer_rx_entry) -> fi_addr_t>,
    ) {
        QUEUED.with_borrow(|queued| {
            for &entry in queued {
                // SAFETY: the entries were allocated by this table's functions, and were not freed.
                unsafe { (*entry).addr = get_addr.unwrap()(entry) }
            }
        });
    }

    thread_local! {
        pub static QUEUED: std::cell::RefCell<Vec<*mut fi_peer_rx_entry>> =
            const { std::cell::RefCell::new(Vec::new()) };
    }

    pub static OPS: fi_ops_srx_owner = fi_ops_srx_owner {
        size: size_of::<fi_ops_srx_owner>(),
        get_msg: Some(refuse),
        get_tag: Some(get),
        queue_msg: Some(queue),
        queue_tag: Some(queue),
        foreach_unspec_addr: Some(for_each),
        free_entry: Some(free),
    };
}

#[test]
fn owners_in_the_manner_of_c_are_served() {
    use plain_owner::{FREED, OPS, QUEUED};
    // SAFETY: zero is a valid value of the structure: a queue without functions.
    let mut srx: fid_peer_srx = unsafe { std::mem::zeroed() };
    srx.owner_ops = (&raw const OPS).cast_mut();
    let srx = &raw mut srx;
    let mut context = fi_peer_srx_context {
        size: size_of::<fi_peer_srx_context>(),
        srx,
    };
    let peer = Peer::import(&mut context).unwrap();
    let mut lane = peer.lane.lock();
    assert_eq!(lane.queue.arrive(false, 1, 0, 4).err(), Some(Errno::ENOSYS));
    let message = |data| Message {
        src: ANY_SOURCE,
        tag: 3,
        len: 4,
        data,
        flags: FI_REMOTE_CQ_DATA,
        payload: b"text".to_vec(),
    };
    let mut arrive = |data| {
        let Ok(Arrival::Unexpected(entry)) = lane.queue.arrive(true, ANY_SOURCE, 3, 4) else {
            panic!("there is no receive");
        };
        lane.queue.keep(data as u32, entry, message(data)).err()
    };
    assert_eq!(arrive(13), Some(Errno::ENOMEM));
    assert_eq!(FREED.load(Ordering::Relaxed), 1);
    assert_eq!([arrive(14), arrive(15), arrive(16)], [None; 3]);
    let news = lane.queue.relabel([(14, 14, 14), (15, 15, 15)].into_iter());
    drop(lane);
    let queued = QUEUED.take();

    // Another peer's entry, with contents that this one must not use.
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut strange: fi_peer_rx_entry = unsafe { std::mem::zeroed() };
    strange.peer_context = without_provenance_mut(1);
    QUEUED.set([&queued[..], &[&raw mut strange]].concat());
    news.tell();
    // SAFETY: the test owns the entries, which it has not freed.
    unsafe {
        let addr = |entry: *mut fi_peer_rx_entry| (*entry).addr;
        let addrs: Vec<u64> = QUEUED.take().into_iter().map(addr).collect();
        assert_eq!(addrs, [14, 15, FI_ADDR_UNSPEC, FI_ADDR_UNSPEC]);
        assert_eq!((*queued[0]).cq_data, 14);

        let ops = &*(*srx).peer_ops;
        let mut buf = [0u8; 4];
        let mut iov = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: 4,
        };
        let mut desc = without_provenance_mut(42);
        for &entry in &queued[..2] {
            (*entry).iov = &raw mut iov;
            (*entry).count = 1;
            (*entry).desc = &raw mut desc;
            (*entry).context = without_provenance_mut(6);
        }
        assert_eq!(ops.start_tag.unwrap()(queued[0]), 0);
        assert_eq!(&buf, b"text");
        assert_eq!(peer.reports(), [(6, 14, 3, 4)]);
        assert_eq!(peer.lane.lock().descriptor, 42);
        assert_eq!(FREED.load(Ordering::Relaxed), 2);
        // The owner frees an entry that it discards.
        assert_eq!(ops.discard_tag.unwrap()(queued[1]), 0);
        assert_eq!(ops.discard_tag.unwrap()(queued[1]), Errno::EINVAL.to_c());
        assert_eq!(ops.start_tag.unwrap()(queued[1]), Errno::EINVAL.to_c());
        assert_eq!(FREED.load(Ordering::Relaxed), 2);
        drop(Box::from_raw(queued[1]));
        assert_eq!(ops.start_tag.unwrap()(null_mut()), Errno::EINVAL.to_c());
    }
    assert_eq!(peer.waiting(), 1);
    drop(peer);
    assert_eq!(FREED.load(Ordering::Relaxed), 3);
}
