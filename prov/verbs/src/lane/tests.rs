use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null_mut;

use prov_message::Reports;
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::device::{PairConfig, Pairing, ProtectionDomain, QueuePair, fake};

const SIZE: usize = 8;

/// Hears nothing.
struct Deaf(OwnedFd);

impl Deaf {
    fn new() -> Arc<Self> {
        Arc::new(Deaf(eventfd(0, EventfdFlags::CLOEXEC).unwrap()))
    }
}

impl Ear for Deaf {
    fn hear(&self) {}

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A queue pair that sends and receives, in a lane of its own.
pub fn endpoint(context: Context, kind: LockKind) -> (Arc<QueuePair>, Seats) {
    let lane = Lane::new(context, kind, 8, Deaf::new()).unwrap();
    let pd = ProtectionDomain::new(context).unwrap();
    let config = PairConfig {
        pairing: Pairing::Connected,
        send_queue: lane.queue(),
        receive_queue: lane.queue(),
        shared: None,
        sends: SIZE,
        receives: SIZE,
        send_pieces: 1,
        receive_pieces: 1,
        inline: SIZE,
    };
    let pair = Arc::new(QueuePair::new(&pd, &config).unwrap());
    let sender = Sender::new(pair.clone(), Reports::default(), None, SIZE, SIZE).unwrap();
    let receiver = Receiver::new(pair.clone(), Reports::default(), None, SIZE).unwrap();
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
    let local = Gather::empty();
    seat.lane
        .receive(seat.name, &local, null_mut(), null_mut(), true)
}

fn send(seats: &Seats) -> Result {
    let seat = seats.send.as_ref().unwrap();
    let operation = Operation {
        class: prov_message::OpClass::Send,
        flags: 0,
        is_reported: true,
        context: null_mut(),
    };
    let local = Gather::empty();
    let work = Work {
        verb: Verb::Send,
        local: &local,
        keys: Keys::NONE,
        len: 0,
        immediate: None,
    };
    seat.lane.send(seat.name, operation, &work)
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

/// Receives that wait, behind a read of the application's queue.
pub fn waiting(seats: &Seats) -> usize {
    read(seats);
    posted(seats)
}

#[test]
fn what_another_thread_ends_is_over_with_the_next_read() {
    for kind in [LockKind::Elided, LockKind::Real] {
        let (_pair, seats) = endpoint(fake::context("fake"), kind);
        receive(&seats).unwrap();
        send(&seats).unwrap();
        let lane = &seats.receive.as_ref().unwrap().lane;
        {
            // The application is inside.
            let _inside = lane.state.lock();
            std::thread::scope(|scope| {
                scope.spawn(|| seats.abandon());
            });
        }
        assert_eq!((posted(&seats), sent(&seats)), (1, 1), "{kind:?}");
        read(&seats);
        assert_eq!((posted(&seats), sent(&seats)), (0, 0), "{kind:?}");
        assert_eq!(lane.state.lock().members.room, lane.queue.size());
        assert_eq!(receive(&seats), Err(Errno::ENODEV));
    }
}

#[test]
fn requests_end_with_their_device_though_nobody_says_that_it_is_gone() {
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
        // What is posted to it all the same.
        let _ = send(&seats);
        assert_eq!(waiting(&seats), 0);
        assert_eq!(sent(&seats), 0);
        for _ in 0..VAIN {
            read(&other);
        }
        assert_eq!((posted(&other), sent(&other)), (1, 1));
    }
}
