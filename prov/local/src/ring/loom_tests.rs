use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::fence;
use loom::thread;

use super::*;

/// A ring with its payloads, and a word in which the consumer announces that it sleeps.
struct Shared {
    slots: [AtomicU64; 2],
    payloads: [UnsafeCell<u32>; 2],
    done: AtomicU64,
    asleep: AtomicU64,
    woken: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared {
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            payloads: std::array::from_fn(|_| UnsafeCell::new(0)),
            done: AtomicU64::new(0),
            asleep: AtomicU64::new(0),
            woken: AtomicU64::new(0),
        })
    }

    fn put(&self, producer: &mut Producer, value: u32) -> bool {
        let Some(free) = producer.free_slot::<Shared>() else {
            producer.look(self).unwrap();
            return false;
        };
        // SAFETY: the slot is free, so the consumer does not access it; loom reports a violation.
        self.payloads[free.slot()].with_mut(|payload| unsafe { *payload = value });
        producer.publish(self, free, value);
        true
    }

    fn take(&self, consumer: &mut Consumer) -> Option<u32> {
        let (slot, half) = consumer.next(self)?;
        // SAFETY: the slot is published, so the producer does not write to it; loom reports a
        // violation.
        let value = self.payloads[slot].with(|payload| unsafe { *payload });
        assert_eq!(value, half);
        consumer.take();
        consumer.tell(self);
        Some(value)
    }
}

impl Words for Shared {
    const SLOTS: u64 = 2;

    fn published(&self, slot: usize) -> &AtomicU64 {
        &self.slots[slot]
    }

    fn done(&self) -> &AtomicU64 {
        &self.done
    }
}

#[test]
fn payloads_are_read_whole_and_slots_filled_when_they_are_free() {
    loom::model(|| {
        let shared = Shared::new();
        let far = shared.clone();
        let producer = thread::spawn(move || {
            let mut producer = Producer::default();
            for value in 1..=3 {
                while !far.put(&mut producer, value) {
                    thread::yield_now();
                }
            }
        });
        let mut consumer = Consumer::default();
        for expected in 1..=3 {
            loop {
                match shared.take(&mut consumer) {
                    Some(value) => break assert_eq!(value, expected),
                    None => thread::yield_now(),
                }
            }
        }
        producer.join().unwrap();
    });
}

#[test]
fn slots_that_an_answer_reports_as_received_can_be_overwritten() {
    loom::model(|| {
        let (there, back) = (Shared::new(), Shared::new());
        let area = Arc::new(UnsafeCell::new(0));
        let (far_there, far_back, far_area) = (there.clone(), back.clone(), area.clone());
        let answers = thread::spawn(move || {
            let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
            for expected in 1..=2 {
                while consumer.next(&*far_there).is_none() {
                    thread::yield_now();
                }
                // SAFETY: the payload is published, so the other side does not write to it; loom
                // reports a violation.
                let value = far_area.with(|value| unsafe { *value });
                assert_eq!(value, expected);
                consumer.take();
                assert!(far_back.put(&mut producer, consumer.taken() as u32));
            }
        });
        let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
        for value in 1..=2 {
            // SAFETY: the other side has taken the previous payload; loom reports a concurrent
            // access.
            area.with_mut(|place| unsafe { *place = value });
            assert!(there.put(&mut producer, value));
            let taken = loop {
                match back.take(&mut consumer) {
                    Some(taken) => break taken,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(producer.hear(taken.into()), Ok(producer.filled()));
        }
        answers.join().unwrap();
    });
}

#[test]
fn a_thread_that_goes_to_sleep_sees_the_message_or_is_woken() {
    loom::model(|| {
        let shared = Shared::new();
        let far = shared.clone();
        let producer = thread::spawn(move || {
            far.put(&mut Producer::default(), 7);
            // The light barrier: the effect that the kernel gives it.
            fence(Ordering::SeqCst);
            if far.asleep.load(Ordering::Relaxed) & 1 != 0 {
                far.woken.store(1, Ordering::Relaxed);
            }
        });
        shared.asleep.store(1, Ordering::Relaxed);
        // The heavy barrier.
        fence(Ordering::SeqCst);
        let has_come = Consumer::default().next(&*shared).is_some();
        producer.join().unwrap();
        assert!(has_come || shared.woken.load(Ordering::Relaxed) == 1);
    });
}

#[test]
fn a_side_that_waits_for_space_sees_it_or_is_woken_even_after_a_late_report() {
    loom::model(|| {
        let shared = Shared::new();
        let mut producer = Producer::default();
        assert!(shared.put(&mut producer, 1) && shared.put(&mut producer, 2));
        assert!(!shared.put(&mut producer, 3), "there is no room");
        let far = shared.clone();
        let consumer = thread::spawn(move || {
            let mut consumer = Consumer::default();
            for _ in 0..2 {
                assert!(consumer.next(&*far).is_some());
                consumer.take();
            }
            // Nothing arrives, so there is time to report.
            assert!(consumer.next(&*far).is_none());
            consumer.tell(&*far);
            fence(Ordering::SeqCst);
            if far.asleep.load(Ordering::Relaxed) & 1 != 0 {
                far.woken.store(1, Ordering::Relaxed);
            }
        });
        shared.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let has_room = producer.look(&*shared).unwrap() == 2;
        consumer.join().unwrap();
        assert!(has_room || shared.woken.load(Ordering::Relaxed) == 1);
    });
}
