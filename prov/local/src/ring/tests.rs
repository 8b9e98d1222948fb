use super::*;

struct Few {
    slots: [AtomicU64; 4],
    done: AtomicU64,
}

impl Few {
    fn new() -> Self {
        Few {
            slots: [const { AtomicU64::new(0) }; 4],
            done: AtomicU64::new(0),
        }
    }
}

impl Words for Few {
    const SLOTS: u64 = 4;

    fn published(&self, slot: usize) -> &AtomicU64 {
        &self.slots[slot]
    }

    fn done(&self) -> &AtomicU64 {
        &self.done
    }
}

#[test]
fn published_slots_are_read_in_order_lap_after_lap() {
    let (words, mut producer, mut consumer) =
        (Few::new(), Producer::default(), Consumer::default());
    for round in 0..10u32 {
        for number in 0..4 {
            let free = producer.free_slot::<Few>().unwrap();
            producer.publish(&words, free, round * 4 + number);
        }
        assert_eq!(producer.free_slot::<Few>(), None);
        for number in 0..4 {
            assert_eq!(
                consumer.next(&words),
                Some((number as usize, round * 4 + number))
            );
            consumer.take();
        }
        assert_eq!(consumer.next(&words), None);
        assert_eq!(producer.look(&words), Ok(u64::from(round) * 4));
        assert_eq!(producer.free_slot::<Few>(), None);
        consumer.tell(&words);
        assert_eq!(producer.look(&words), Ok(u64::from(round) * 4 + 4));
    }
}

#[test]
fn a_consumer_that_is_ahead_is_broken_and_one_that_goes_back_is_not_believed() {
    let (words, mut producer) = (Few::new(), Producer::default());
    for _ in 0..3 {
        let free = producer.free_slot::<Few>().unwrap();
        producer.publish(&words, free, 0);
    }
    words.done.store(2, Ordering::Relaxed);
    assert_eq!(producer.look(&words), Ok(2));
    for nonsense in [4, u64::MAX] {
        words.done.store(nonsense, Ordering::Relaxed);
        assert!(producer.look(&words).is_err());
        assert!(producer.hear(nonsense).is_err());
    }
    // The word may be older than a report received in another way.
    words.done.store(1, Ordering::Relaxed);
    assert_eq!(producer.look(&words), Ok(2));
    assert_eq!((producer.hear(3), producer.hear(2)), (Ok(3), Ok(3)));
    assert_eq!(producer.look(&words), Ok(3));
}
