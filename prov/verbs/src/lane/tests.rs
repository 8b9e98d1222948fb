use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_device::lane::{Name, Operation, Receiver, Sender, VAIN};
use prov_device::link::Link;
use prov_device::{CompletionQueue as _, Ear, Keys, Local as _, Posted, QueuePair as _};
use prov_message::Reports;
use prov_util::cntr::{Cntr, CntrEvents};
use prov_util::cq::{Cq, CqConfig};
use prov_util::endpoint::Counters;
use prov_util::ffi::{Handle, Use};
use prov_util::progress::Progress as _;
use prov_util::wait::Attachment;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use super::*;
use crate::device::{
    CompletionQueue, Context, Gather, PairConfig, Pairing, ProtectionDomain, QueuePair,
    SharedQueue, Verb, WorkCompletion, XrcDomain, fake,
};
use crate::sys::ibverbs::{IBV_WC_LOC_LEN_ERR, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR};

const SIZE: usize = 8;

/// `IBV_WC_REM_ACCESS_ERR`
const REMOTE_ACCESS: u32 = 10;

/// Never has events.
struct NoEvents(OwnedFd);

impl NoEvents {
    fn new() -> Arc<Self> {
        Arc::new(NoEvents(eventfd(0, EventfdFlags::CLOEXEC).unwrap()))
    }
}

impl Ear for NoEvents {
    fn hear(&self) {}

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Creates a queue pair that sends and receives, in a lane of its own.
pub fn endpoint(context: Context, kind: LockKind) -> (Arc<QueuePair>, Seats) {
    let lane = lane_of(context, kind, NoEvents::new());
    let pd = ProtectionDomain::new(context).unwrap();
    endpoint_of(&lane, &pd, None, None, Reports::default())
}

/// The same, over a connection.
pub fn endpoint_over(
    lane: &Arc<Lane>,
    pd: &Arc<ProtectionDomain>,
    link: &Arc<Link>,
) -> (Arc<QueuePair>, Seats) {
    endpoint_of(lane, pd, Some(link), None, Reports::default())
}

/// Creates a queue pair in this lane, whose receives may be shared.
fn endpoint_of(
    lane: &Arc<Lane>,
    pd: &Arc<ProtectionDomain>,
    link: Option<&Arc<Link>>,
    shared: Option<&Arc<Shared>>,
    reports: Reports,
) -> (Arc<QueuePair>, Seats) {
    let config = PairConfig {
        pairing: Pairing::Connected,
        send_queue: lane.queue(),
        receive_queue: lane.queue(),
        shared: shared.map(|shared| shared.queue().unwrap()),
        sends: SIZE,
        receives: SIZE,
        send_pieces: 1,
        receive_pieces: 1,
        inline: SIZE,
    };
    let pair = Arc::new(QueuePair::new(pd, &config).unwrap());
    let link = link.cloned();
    let sender = Sender::new(pair.clone(), Reports::default(), link.clone(), SIZE, SIZE);
    let receiver = Receiver::new(pair.clone(), reports, link, shared.cloned(), SIZE);
    let (sender, receiver) = (sender.unwrap(), receiver.unwrap());
    let (send, receive) = (lane.add_sender(sender), lane.add_receiver(receiver));
    let seat = |name: Result<Name>| {
        let (lane, name) = (lane.clone(), name.unwrap());
        Some(Seat { lane, name })
    };
    let seats = Seats {
        send: seat(send),
        receive: seat(receive),
    };
    (pair, seats)
}

/// Posts a receive.
pub fn receive(seats: &Seats) -> Result {
    let seat = seats.receive.as_ref().unwrap();
    let mut local = Gather::empty();
    let posted = Posted::reported(0);
    seat.lane.receive(seat.name, &mut local, posted)
}

/// Posts a message of no bytes.
pub fn send(seats: &Seats) -> Result {
    let seat = seats.send.as_ref().unwrap();
    let operation = Operation {
        class: prov_message::OpClass::Send,
        flags: fabric_abi::FI_COMPLETION,
        context: null_mut(),
    };
    let mut local = Gather::empty();
    let work = Work {
        verb: Verb::Send,
        local: &mut local,
        keys: Keys::NONE,
        len: 0,
        immediate: None,
    };
    seat.lane.send(seat.name, operation, work)
}

fn posted(seats: &Seats) -> usize {
    let seat = seats.receive.as_ref().unwrap();
    SIZE - seat.lane.receive_room(seat.name).unwrap()
}

fn sent(seats: &Seats) -> usize {
    let seat = seats.send.as_ref().unwrap();
    SIZE - seat.lane.send_room(seat.name).unwrap()
}

fn read(seats: &Seats) {
    seats.receive.as_ref().unwrap().lane.progress();
}

/// Returns the number of posted receives, after a read of the application's queue.
pub fn waiting(seats: &Seats) -> usize {
    read(seats);
    posted(seats)
}

#[test]
fn objects_bound_later_get_later_completions() {
    let (_pair, seats) = endpoint(fake::context("fake"), LockKind::Real);
    receive(&seats).unwrap();
    send(&seats).unwrap();
    let counter = Cntr::new(CntrEvents::Completions, Attachment::None, None);
    let counter = Handle::new(counter, null_mut(), Vec::new());
    let reports = || Reports {
        counters: Counters {
            send: Some(Use::of(&counter)),
            recv: Some(Use::of(&counter)),
            ..Counters::default()
        },
        ..Reports::default()
    };
    let (sender, receiver) = (seats.send.as_ref(), seats.receive.as_ref());
    let (sender, receiver) = (sender.unwrap(), receiver.unwrap());
    sender.lane.report_sends(sender.name, reports()).unwrap();
    receiver
        .lane
        .report_receives(receiver.name, reports())
        .unwrap();
    seats.abandon();
    read(&seats);
    assert_eq!(counter.read_error(), 2);
    assert_eq!(counter.read(), 0);
}

#[test]
fn requests_end_with_their_device_even_if_its_removal_is_not_reported() {
    for is_about_to_sleep in [false, true] {
        let context = fake::context("fake");
        let (_pair, seats) = endpoint(context, LockKind::Elided);
        let (_other_pair, other) = endpoint(fake::context("other"), LockKind::Elided);
        for seats in [&seats, &other] {
            receive(seats).unwrap();
            send(seats).unwrap();
        }
        let lane = &seats.receive.as_ref().unwrap().lane;
        fake::remove(context);
        if is_about_to_sleep {
            assert!(!lane.prepare_wait());
        } else {
            for _ in 0..VAIN {
                assert_eq!(posted(&seats), 1);
                read(&seats);
            }
        }
        assert_eq!((posted(&seats), sent(&seats)), (0, 0));
        // Later requests are refused.
        assert_eq!(send(&seats), Err(Errno::ENODEV));
        assert_eq!(receive(&seats), Err(Errno::ENODEV));
        assert_eq!(lane.room(), lane.queue().size());
        assert_eq!(waiting(&seats), 0);
        for _ in 0..VAIN {
            read(&other);
        }
        assert_eq!((posted(&other), sent(&other)), (1, 1));
    }
}

/// Whether a thread that sleeps on the lane of these members would be woken.
fn is_awake(seats: &Seats) -> bool {
    let watch = &**seats.receive.as_ref().unwrap().lane.queue();
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&now)).unwrap() != 0
}

#[test]
fn a_sleeping_thread_is_woken_for_requests_that_another_thread_ends() {
    let (_pair, seats) = endpoint(fake::context("fake"), LockKind::Real);
    let lane = &seats.receive.as_ref().unwrap().lane;
    for _ in 0..2 {
        assert!(lane.prepare_wait());
        assert!(!is_awake(&seats));
        std::thread::scope(|scope| {
            scope.spawn(|| seats.abandon());
        });
        assert!(is_awake(&seats));
        assert!(!lane.prepare_wait());
        read(&seats);
    }
}

#[test]
fn a_thread_can_sleep_without_the_device_and_be_woken() {
    let context = fake::context("fake");
    let (_pair, seats) = endpoint(context, LockKind::Real);
    let lane = &seats.receive.as_ref().unwrap().lane;
    receive(&seats).unwrap();
    fake::remove(context);
    assert!(is_awake(&seats));
    assert!(!lane.prepare_wait());
    assert_eq!(waiting(&seats), 0);
    assert!(lane.prepare_wait());
    assert!(!is_awake(&seats));
    // A member that is added too late.
    let pd = ProtectionDomain::new(context).unwrap();
    let (_late_pair, late) = endpoint_of(lane, &pd, None, None, Reports::default());
    assert!(is_awake(&seats));
    assert!(!lane.prepare_wait());
    read(&late);
    assert_eq!(receive(&late), Err(Errno::ENODEV));
    assert_eq!(send(&late), Err(Errno::ENODEV));
    assert!(lane.prepare_wait());
    assert!(!is_awake(&seats));
}

/// Two endpoints with a lane each, which share receives.
pub struct Sharing {
    pub context: Context,
    pd: Arc<ProtectionDomain>,
    shared: Arc<Shared>,
    cqs: [Use<Cq>; 2],
    pub ends: [(Arc<QueuePair>, Seats); 2],
}

impl Sharing {
    pub fn new() -> Self {
        Self::on(fake::context("fake"))
    }

    fn on(context: Context) -> Self {
        let pd = ProtectionDomain::new(context).unwrap();
        let make = |size| SharedQueue::new(&pd, size, 1);
        let shared = Shared::new(SIZE, LockKind::Real, make).unwrap();
        let cqs = [(); 2].map(|()| {
            let cq = Cq::new(CqConfig::default()).unwrap();
            Use::of(&Handle::new(cq, null_mut(), Vec::new()))
        });
        let ends = [0, 1].map(|number| {
            let lane = lane(context);
            let reports = Reports {
                rx_cq: Some(cqs[number].clone()),
                ..Reports::default()
            };
            endpoint_of(&lane, &pd, None, Some(&shared), reports)
        });
        Sharing {
            context,
            pd,
            shared,
            cqs,
            ends,
        }
    }

    /// Posts a receive.
    pub fn post(&self, number: usize) -> Result {
        let mut local = Gather::empty();
        self.shared.post(&mut local, Posted::reported(number))
    }

    /// Returns which receives have ended.
    pub fn ended(&self) -> Vec<usize> {
        self.ends.iter().for_each(|(_, seats)| read(seats));
        let mut ended: Vec<_> = self
            .cqs
            .iter()
            .flat_map(|cq| std::iter::from_fn(|| cq.read_error().ok()))
            .map(|error| {
                assert_eq!(error.err, Errno::ECANCELED);
                error.completion.context.addr()
            })
            .collect();
        ended.sort_unstable();
        ended
    }
}

#[test]
fn shared_receives_end_with_their_device_once_each() {
    for is_gone_for_good in [false, true] {
        let sharing = Sharing::new();
        for number in 1..=3 {
            sharing.post(number).unwrap();
        }
        assert!(sharing.ended().is_empty());
        if is_gone_for_good {
            fake::remove(sharing.context);
            for (_, seats) in &sharing.ends {
                seats.receive.as_ref().unwrap().lane.prepare_wait();
            }
        } else {
            sharing.ends.iter().for_each(|(_, seats)| seats.abandon());
        }
        assert_eq!(sharing.ended(), [1, 2, 3]);
        assert_eq!(sharing.post(4), Err(Errno::ENODEV));
        assert!(sharing.ended().is_empty());
        // The lanes have space for the completions of their own requests, and no more.
        for (_, seats) in &sharing.ends {
            let lane = &seats.receive.as_ref().unwrap().lane;
            assert_eq!(lane.room(), lane.queue().size() - SIZE);
        }
    }
}

#[test]
fn a_shared_receive_whose_message_arrives_while_its_endpoint_is_closed_is_reported() {
    let sharing = Sharing::on(fake::xrc::context("fake"));
    fake::xrc::receives();
    let (lane, pd) = (lane(sharing.context), sharing.pd.clone());
    let (all, _) = room(&lane);
    for round in 0..2 * SIZE {
        let reports = Reports {
            rx_cq: Some(sharing.cqs[0].clone()),
            ..Reports::default()
        };
        let (pair, seats) = endpoint_of(&lane, &pd, None, Some(&sharing.shared), reports);
        sharing.post(round).unwrap();
        let name = seats.receive.unwrap().name;
        let unsettled = lane.remove_receiver(name).unwrap();
        let completion = WorkCompletion {
            wr_id: fake::xrc::receives()[0],
            qp_num: pair.number(),
            status: IBV_WC_WR_FLUSH_ERR,
            ..WorkCompletion::default()
        };
        arrive(&lane, completion);
        assert_eq!(sharing.ended(), [round]);
        lane.settle(unsettled);
        assert_eq!(room(&lane).0, all);
    }
    (0..SIZE).for_each(|number| sharing.post(number).unwrap());
    assert_eq!(sharing.post(0), Err(Errno::EAGAIN));
}

/// Creates a lane of a device.
pub fn lane(context: Context) -> Arc<Lane> {
    lane_of(context, LockKind::Real, NoEvents::new())
}

fn lane_of(context: Context, kind: LockKind, ear: Arc<dyn Ear>) -> Arc<Lane> {
    let most = context.limits().unwrap().completions_per_queue;
    Lane::new(kind, 8, most, ear, |size, wake| {
        CompletionQueue::new(context, size, wake)
    })
    .unwrap()
}

#[test]
fn four_descriptors_that_watch_others_may_be_above_a_lanes() {
    // The kernel allows five: the queue's, those of the layered provider and of its queue, and the
    // application's own.
    let context = fake::context("fake");
    let manager = crate::manager::Manager::fake(context);
    let lane = lane_of(context, LockKind::Real, manager);
    let mut above: Vec<OwnedFd> = Vec::new();
    for _ in 0..4 {
        let watching = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let below = above.last().map_or(lane.queue().as_fd(), AsFd::as_fd);
        let data = epoll::EventData::new_u64(0);
        epoll::add(&watching, below, data, epoll::EventFlags::IN).unwrap();
        above.push(watching);
    }
}

/// Creates the lane members of an XRC endpoint.
pub fn seats_over(
    lane: &Arc<Lane>,
    pair: &Arc<QueuePair>,
    link: &Arc<Link>,
    shared: &Arc<Shared>,
) -> Seats {
    let (pair, link) = (pair.clone(), Some(link.clone()));
    let sender = Sender::new(pair.clone(), Reports::default(), link, SIZE, SIZE).unwrap();
    let sender = sender.without_silence();
    let receiver =
        Receiver::new(pair, Reports::default(), None, Some(shared.clone()), SIZE).unwrap();
    let seat = |name: Result<Name>| {
        let (lane, name) = (lane.clone(), name.unwrap());
        Some(Seat { lane, name })
    };
    Seats {
        send: seat(lane.add_sender(sender)),
        receive: seat(lane.add_receiver(receiver)),
    }
}

/// Returns the number of free completion entries of the lane's queue, and its size.
pub fn room(lane: &Lane) -> (usize, usize) {
    (lane.room(), lane.queue().size())
}

/// Completes the oldest request of a sender.
pub fn complete_oldest(lane: &Lane, name: Name, number: u32) {
    complete(lane, name.request(number), IBV_WC_SUCCESS);
}

/// The same, with a failure.
pub fn fail_oldest(lane: &Lane, name: Name, number: u32) {
    complete(lane, name.request(number), REMOTE_ACCESS);
}

/// The same, as flushed.
pub fn flush_oldest(lane: &Lane, name: Name, number: u32) {
    complete(lane, name.request(number), IBV_WC_WR_FLUSH_ERR);
}

/// [`fail_oldest`] for a receiver.
pub fn fail_oldest_receive(lane: &Lane, name: Name, number: u32) {
    complete(lane, name.receive(number), IBV_WC_LOC_LEN_ERR);
}

/// Has a completion polled.
fn arrive(lane: &Lane, completion: WorkCompletion) {
    fake::complete(lane.queue(), completion);
    lane.progress();
}

fn complete(lane: &Lane, wr_id: u64, status: u32) {
    arrive(
        lane,
        WorkCompletion {
            wr_id,
            status,
            ..WorkCompletion::default()
        },
    );
}

#[test]
fn receives_of_xrc_wait_for_their_queue_and_are_reported_whichever_endpoint_the_message_is_for() {
    let context = fake::xrc::context("fake");
    let pd = ProtectionDomain::new(context).unwrap();
    let domain = XrcDomain::open(context, None).unwrap();
    let shared = Shared::with_number(SIZE, LockKind::Real).unwrap();
    let post = |number: usize| shared.post(&mut Gather::empty(), Posted::reported(number));
    fake::xrc::receives();
    post(1).unwrap();
    post(2).unwrap();
    assert_eq!(fake::xrc::receives(), []);
    let lane = lane(context);
    let (all, _) = room(&lane);
    let make = |queue: &_, size| SharedQueue::of_xrc(&pd, &domain, queue, size, 1);
    let number = shared.complete_in(&lane, make).unwrap();
    assert_eq!(shared.complete_in(&lane, make), Ok(number));
    assert_eq!(room(&lane).0, all - SIZE);
    post(3).unwrap();
    let ids = fake::xrc::receives();
    assert_eq!(ids.len(), 3);
    let cq = Cq::new(CqConfig::default()).unwrap();
    let cq = Use::of(&Handle::new(cq, null_mut(), Vec::new()));
    let mut ends = [(); 2].map(|()| {
        let pair = Arc::new(QueuePair::path(&pd, 0));
        let reports = Reports {
            rx_cq: Some(cq.clone()),
            ..Reports::default()
        };
        let receiver = Receiver::new(pair, reports, None, Some(shared.clone()), SIZE).unwrap();
        Some(lane.add_receiver(receiver).unwrap())
    });
    let arrive = |id| {
        let completion = WorkCompletion {
            wr_id: id,
            // Of an unknown target.
            qp_num: 4711,
            status: IBV_WC_WR_FLUSH_ERR,
            ..WorkCompletion::default()
        };
        arrive(&lane, completion);
        cq.read_error().map(|error| error.completion.context.addr())
    };
    assert_eq!(arrive(ids[0]), Ok(1));
    for (end, expected) in [(0, Ok(2)), (1, Err(Errno::EAGAIN))] {
        let name = ends[end].take().unwrap();
        let unsettled = lane.remove_receiver(name).unwrap();
        lane.settle(unsettled);
        assert_eq!(arrive(ids[end + 1]), expected);
    }
    // Completions without a receiver free space for others, too.
    (0..SIZE).for_each(|number| post(number).unwrap());
    assert_eq!(post(0), Err(Errno::EAGAIN));
    assert_eq!(room(&lane).0, all - SIZE);
    drop(shared);
    assert_eq!(room(&lane).0, all);
}
