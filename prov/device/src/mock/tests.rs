//! Lanes on the mock device.

use std::ptr::{null_mut, without_provenance_mut};

use fabric_abi::{FI_COMPLETION, FI_VERSION};
use prov_base::sync::LockKind;
use prov_message::objects::Unanswered;
use prov_message::{OpClass, Reports};
use prov_util::attr::{Info, Opaque};
use prov_util::cq::{Cq, CqConfig};
use prov_util::endpoint::{Bindings, NoSharedReceive};
use prov_util::eq::Eq;
use prov_util::ffi::{Handle, Use};
use prov_util::progress::Progress as _;
use prov_util::wait::Attachment;

use super::*;
use crate::device::{
    CompletionQueue as _, Keys, Local as _, QueuePair as _, Remote, RemoteKind, Verb,
};
use crate::lane::{Operation, Shared, VAIN, Work};
use crate::lanes::{Membership, Sides};
use crate::posting::Sizes;
use crate::{Connected, Lane, Link, Posted, Seats};

prov_base::stand_in!();

const SIZE: usize = 8;

/// A queue pair with a lane of its own.
struct End {
    lane: Arc<Lane<Mock>>,
    pair: Arc<Pair>,
    seats: Seats<Mock>,
    link: Arc<Link>,
    cq: Use<Cq>,
}

impl End {
    fn new(adapter: &Arc<Adapter>, kind: LockKind, shared: Option<&Arc<Shared<Mock>>>) -> Self {
        let make = |size, wake: &[BorrowedFd<'_>]| Queue::new(adapter, size, wake);
        let lane = Lane::<Mock>::new(kind, 3, 1 << 12, NoEvents::new().unwrap(), make).unwrap();
        let pair = Pair::new(
            adapter,
            &PairConfig {
                send_queue: lane.queue(),
                receive_queue: lane.queue(),
                shared: shared.map(|shared| shared.queue().unwrap()),
                sends: SIZE,
                receives: SIZE,
            },
        );
        let cq = Cq::new(CqConfig::default()).unwrap();
        let cq = Use::of(&Handle::new(cq, null_mut(), Vec::new()));
        let link = Arc::<Link>::default();
        let sides = Sides {
            send: Some(lane.clone()),
            receive: Some(lane.clone()),
            any: lane.clone(),
        };
        let reports = Reports {
            tx_cq: Some(cq.clone()),
            rx_cq: Some(cq.clone()),
            ..Reports::default()
        };
        let member = Membership {
            pair: &pair,
            sizes: &Sizes {
                sends: SIZE,
                receives: SIZE,
                send_pieces: 1,
                receive_pieces: 1,
                inline: 64,
                longest: 1 << 20,
            },
            shared,
            link: Some(link.clone()),
            receive_link: Some(link.clone()),
            skipped: 0,
            is_shared_pair: false,
        };
        End {
            seats: sides.join(&reports, member).unwrap(),
            lane,
            pair,
            link,
            cq,
        }
    }

    /// Posts a message of no bytes, whose success is reported if `flags` say so.
    fn send_with(&self, context: usize, flags: u64) -> Result {
        self.post(context, flags, Verb::Send)
    }

    fn send(&self, context: usize) -> Result {
        self.send_with(context, FI_COMPLETION)
    }

    fn post(&self, context: usize, flags: u64, verb: Verb<'_, Mock>) -> Result {
        let seat = self.seats.sender().unwrap();
        let operation = Operation {
            class: OpClass::Send,
            flags,
            context: without_provenance_mut(context),
        };
        let work = Work {
            verb,
            local: &mut Lent::empty(),
            keys: Keys::NONE,
            len: 0,
            immediate: None,
        };
        seat.lane.send(seat.name, operation, work)
    }

    fn receive(&self, context: usize) -> Result {
        let seat = self.seats.receiver().unwrap();
        let posted = Posted::reported(context);
        seat.lane.receive(seat.name, &mut Lent::empty(), posted)
    }

    fn posted(&self) -> [usize; 2] {
        let (sender, receiver) = (self.seats.sender().unwrap(), self.seats.receiver().unwrap());
        let sent = SIZE - sender.lane.send_room(sender.name).unwrap();
        let received = receiver.lane.receive_room(receiver.name).unwrap_or(SIZE);
        [sent, SIZE - received]
    }

    /// Reads the queue: contexts of completions, and contexts and errors of failures.
    fn done(&self) -> (Vec<usize>, Vec<(usize, Errno)>) {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        loop {
            self.lane.progress();
            let read = self.cq.read(1, |one| done.push(one.context.addr()));
            match read {
                Ok(_) => {}
                Err(Errno::EAVAIL) => {
                    let error = self.cq.read_error().unwrap();
                    failed.push((error.completion.context.addr(), error.err));
                }
                Err(_) => return (done, failed),
            }
        }
    }

    /// Closes the endpoint; all space of its lane is free then.
    fn close(self) {
        let End {
            lane, pair, seats, ..
        } = self;
        pair.end();
        seats.leave(|| drop(pair));
        assert_eq!(lane.room(), lane.queue().size());
    }
}

fn connected(adapter: &Arc<Adapter>) -> [End; 2] {
    let ends = [(); 2].map(|()| End::new(adapter, LockKind::Real, None));
    for (one, other) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        one.pair.connect(other.pair.number());
        one.link.set_connected(true);
    }
    ends
}

#[test]
fn messages_wait_for_receives_and_complete_in_order() {
    let [one, other] = connected(&Adapter::new().unwrap());
    (1..=3).for_each(|context| one.send(context).unwrap());
    assert_eq!(one.done(), (vec![], vec![]));
    (11..=13).for_each(|context| other.receive(context).unwrap());
    assert_eq!(other.done(), (vec![11, 12, 13], vec![]));
    assert_eq!(one.done(), (vec![1, 2, 3], vec![]));
    one.close();
    other.close();
}

#[test]
fn a_full_queue_has_room_again_although_most_requests_have_no_completion() {
    let [one, other] = connected(&Adapter::new().unwrap());
    for round in 0..10 * SIZE {
        other.receive(0).unwrap();
        one.send_with(round, 0).unwrap();
        other.done();
    }
    one.done();
    (0..SIZE).for_each(|context| one.send(context).unwrap());
    assert_eq!(one.send(99), Err(Errno::EAGAIN));
    other.receive(1).unwrap();
    assert_eq!(other.done().0, [1]);
    one.send(99).unwrap();
    assert_eq!(one.send(99), Err(Errno::EAGAIN));
    (0..SIZE).for_each(|context| other.receive(context).unwrap());
    assert_eq!(other.done().0.len(), SIZE);
    assert_eq!(one.done(), ((0..SIZE).chain([99]).collect(), vec![]));
    assert_eq!(one.posted(), [0, 0]);
}

#[test]
fn a_request_that_fails_ends_the_connection_at_both_ends() {
    for status in [
        Status::RemoteAccess,
        Status::Unreachable,
        Status::LocalAccess,
    ] {
        let adapter = Adapter::new().unwrap();
        let [one, other] = connected(&adapter);
        adapter.hold(true);
        (1..=3).for_each(|context| one.send(context).unwrap());
        one.receive(4).unwrap();
        other.receive(5).unwrap();
        one.pair.fail_next(status);
        adapter.hold(false);
        let error = status.failure().unwrap().error;
        let flushed = Errno::ECANCELED;
        let expected = vec![(1, error), (2, flushed), (3, flushed), (4, flushed)];
        assert_eq!(one.done(), (vec![], expected));
        assert_eq!(other.done(), (vec![], vec![(5, flushed)]));
        assert!(one.pair.has_failed());
        assert_eq!(one.send(1), Err(Errno::ENOTCONN));
        one.close();
        other.close();
    }
}

#[test]
fn an_access_with_a_wrong_key_fails() {
    let [one, other] = connected(&Adapter::new().unwrap());
    let verb = Verb::Remote(Remote {
        address: 0,
        key: 4711,
        kind: RemoteKind::FetchAdd { add: 1 },
    });
    one.post(1, FI_COMPLETION, verb).unwrap();
    assert_eq!(one.done(), (vec![], vec![(1, Errno::EACCES)]));
    assert_eq!(other.send(1), Ok(()));
    assert_eq!(other.done(), (vec![], vec![(1, Errno::ECANCELED)]));
}

#[test]
fn messages_to_a_peer_that_is_gone_fail() {
    let [one, other] = connected(&Adapter::new().unwrap());
    one.send(1).unwrap();
    assert_eq!(one.done(), (vec![], vec![]));
    other.close();
    assert_eq!(one.done(), (vec![], vec![(1, Errno::EIO)]));
    one.close();
}

#[test]
fn requests_that_another_thread_ends_are_reported_by_the_next_read() {
    for kind in [LockKind::Elided, LockKind::Real] {
        let adapter = Adapter::new().unwrap();
        let end = End::new(&adapter, kind, None);
        end.link.set_connected(true);
        end.receive(1).unwrap();
        end.send(2).unwrap();
        end.lane.with_lock_held(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| end.seats.abandon());
            });
        });
        assert_eq!(end.posted(), [1, 1], "{kind:?}");
        let flushed = vec![(1, Errno::ECANCELED), (2, Errno::ECANCELED)];
        assert_eq!(end.done(), (vec![], flushed), "{kind:?}");
        assert_eq!(end.posted(), [0, 0], "{kind:?}");
        assert_eq!(end.lane.room(), end.lane.queue().size());
        assert_eq!(end.receive(1), Err(Errno::ENODEV));
    }
}

#[test]
fn requests_end_with_their_device() {
    let adapter = Adapter::new().unwrap();
    let [one, other] = connected(&adapter);
    let elsewhere = connected(&Adapter::new().unwrap());
    for end in [&one, &other, &elsewhere[0]] {
        end.receive(1).unwrap();
    }
    adapter.remove();
    let flushed = (vec![], vec![(1, Errno::ECANCELED)]);
    assert!(!one.lane.prepare_wait());
    assert_eq!(one.done(), flushed);
    assert_eq!(one.receive(1), Err(Errno::ENODEV));
    (0..VAIN).for_each(|_| other.lane.progress());
    assert_eq!(other.done(), flushed);
    assert!(elsewhere[0].lane.prepare_wait());
    (0..VAIN).for_each(|_| elsewhere[0].lane.progress());
    assert_eq!(elsewhere[0].posted(), [0, 1]);
}

#[test]
fn a_sleeping_thread_is_woken_by_a_completion() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let [one, other] = connected(&Adapter::new().unwrap());
    let is_awake = || {
        let queue = &**other.lane.queue();
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(queue, PollFlags::IN)], Some(&now)).unwrap() != 0
    };
    other.receive(1).unwrap();
    for round in 0..3 {
        assert!(other.lane.prepare_wait());
        assert!(!is_awake());
        one.send(round).unwrap();
        assert!(is_awake());
        assert!(!other.lane.prepare_wait());
        assert_eq!(other.done().0, [1]);
        other.receive(1).unwrap();
    }
}

#[test]
fn a_shared_receive_is_reported_by_the_endpoint_that_got_the_message() {
    let adapter = Adapter::new().unwrap();
    let make = |size| Ok(SharedReceives::new(&adapter, size));
    let shared = Shared::<Mock>::new(SIZE, LockKind::Real, make).unwrap();
    let post = |context: usize| shared.post(&mut Lent::empty(), Posted::reported(context));
    let receivers = [(); 2].map(|()| End::new(&adapter, LockKind::Real, Some(&shared)));
    let senders = [(); 2].map(|()| End::new(&adapter, LockKind::Real, None));
    for (one, other) in senders.iter().zip(&receivers) {
        one.pair.connect(other.pair.number());
        other.pair.connect(one.pair.number());
        one.link.set_connected(true);
        other.link.set_connected(true);
    }
    (1..=SIZE).for_each(|context| post(context).unwrap());
    assert_eq!(post(0), Err(Errno::EAGAIN));
    for at in [1, 0, 1] {
        senders[at].send(7).unwrap();
    }
    assert_eq!(receivers[0].done().0, [2]);
    assert_eq!(receivers[1].done().0, [1, 3]);
    post(9).unwrap();
    // A connection that ends takes no receives with it.
    let [first, second] = receivers;
    first.close();
    (0..SIZE - 2).for_each(|_| senders[1].send(7).unwrap());
    assert_eq!(second.done().0, [4, 5, 6, 7, 8, 9]);
    second.close();
}

/// A listener that keeps the handles of its requests, as an event queue does.
#[derive(Clone)]
struct Asked(Arc<Connector>, Arc<std::sync::Mutex<Vec<usize>>>);

impl Listener for Asked {
    fn has_room(&self) -> bool {
        true
    }

    fn request(&self, incomer: Incomer, _: &[u8], _: &[u8]) {
        let handle = self.0.asking().add(incomer, &Unanswered::default());
        self.1.lock().unwrap().push(handle.expose_provenance());
    }
}

#[test]
fn calls_for_connections_are_refused_in_the_wrong_stage() {
    let connector = Connector::new().unwrap();
    let adapter = Adapter::new().unwrap();
    let handles = Arc::default();
    let bound = connector.bind_to(&any_address()).unwrap();
    bound.listen(Asked(connector.clone(), Arc::clone(&handles)));
    let open = |handle| {
        let info = Info {
            handle: Opaque(std::ptr::with_exposed_provenance_mut(handle)),
            ..Info::default()
        };
        Connected::<Connector>::open(&connector, &info, |_| Err(Errno::EINVAL))
    };
    let pair = || End::new(&adapter, LockKind::Real, None).pair;
    let eq = Eq::new(Attachment::None, FI_VERSION(2, 0));
    let eq = Use::of(&Handle::new(eq, null_mut(), Vec::new()));
    let tell = |endpoint: &Connected<Connector>| {
        let bindings = Bindings::<NoSharedReceive> {
            eq: Some(eq.clone()),
            ..Bindings::default()
        };
        endpoint.tell(eq.handle().named(), &bindings);
    };
    let asking = open(0).unwrap();
    assert_eq!(asking.shut_down(&connector), Err(Errno::ENOTCONN));
    assert_eq!(asking.name(&connector), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(asking.peer_name(&connector), Err(Errno::ENOTCONN));
    asking.set_name(&connector, &any_address()).unwrap();
    let own = asking.name(&connector).unwrap();
    let connect =
        |endpoint: &Connected<Connector>| endpoint.connect(&connector, pair(), &bound.name(), &[]);
    assert_eq!(connect(&asking), Err(Errno::ENOEQ));
    tell(&asking);
    connect(&asking).unwrap();
    assert_eq!(connect(&asking), Err(Errno::EOPBADSTATE));
    assert_eq!(asking.peer_name(&connector), Ok(bound.name()));
    let refused = asking.set_name(&connector, &any_address());
    assert_eq!(refused, Err(Errno::EOPBADSTATE));
    let handle = handles.lock().unwrap().pop().unwrap();
    let answering = open(handle).unwrap();
    // Another endpoint may not answer the same request.
    assert_eq!(open(handle).err(), Some(Errno::EINVAL));
    assert_eq!(answering.peer_name(&connector), Ok(own));
    tell(&answering);
    assert_eq!(connect(&answering), Err(Errno::EOPBADSTATE));
    answering.accept(&connector, pair(), &[]).unwrap();
    let again = answering.accept(&connector, pair(), &[]);
    assert_eq!(again, Err(Errno::EOPBADSTATE));
    assert!(asking.link().is_connected() && answering.link().is_connected());
    asking.shut_down(&connector).unwrap();
    assert!(!answering.link().is_connected());
    answering.close(&connector);
    asking.close(&connector);
    assert_eq!(asking.shut_down(&connector), Err(Errno::ENOTCONN));
}

fn any_address() -> Vec<u8> {
    let any = prov_base::sockaddr::encode(&"127.0.0.1:0".parse().unwrap());
    any.as_bytes().to_vec()
}
