//! The number of steps that an operation takes in a queue that a stranger has flooded.

use super::*;

fn message(src: u64, tag: u64) -> Message<u32> {
    Message {
        src,
        tag,
        len: 0,
        data: 0,
        flags: 0,
        payload: 0,
    }
}

const STRANGER: u32 = 0;
const OTHER: u32 = 1;

/// So many that a search of the queue for each operation would be noticed. Miri is slow.
const MANY: usize = if cfg!(miri) { 300 } else { 100_000 };
/// Messages that are looked for, in vain.
const LOOKUPS: usize = if cfg!(miri) { 20 } else { 1000 };

/// A queue with many messages of a stranger.
fn flooded() -> ReceiveQueue<AppIov, u32> {
    let mut queue = ReceiveQueue::tagged(8);
    for tag in 0..MANY as u64 {
        queue.keep_of(STRANGER, message(ANY_SOURCE, tag));
    }
    queue
}

#[test]
fn the_end_of_a_link_visits_its_own_messages_only() {
    let mut queue = flooded();
    for tag in 0..3 {
        queue.keep_of(OTHER, message(7, tag));
    }
    let before = queue.steps();
    assert_eq!(queue.withdraw_of(OTHER, |_| true).len(), 3);
    assert!(queue.withdraw_of(2, |_| true).is_empty());
    assert_eq!(queue.steps() - before, 3);
}

#[test]
fn a_new_source_is_given_to_the_messages_of_its_link_only() {
    let mut queue = flooded();
    for tag in 0..3 {
        queue.keep_of(OTHER, message(ANY_SOURCE, tag));
    }
    let before = queue.steps();
    assert!(queue.relabel_of(OTHER, 7).is_empty());
    assert_eq!(queue.steps() - before, 3);
    let filter = Filter {
        src: 7,
        tag: 2,
        ignore: 0,
    };
    assert!(queue.peek(filter).is_some());
}

#[test]
fn messages_of_an_ended_link_are_found_when_another_one_has_its_number() {
    let mut queue = flooded();
    for tag in 0..3 {
        queue.keep_of(OTHER, message(ANY_SOURCE, tag));
    }
    queue.pass_on(OTHER, HEIR | 5);
    assert!(!queue.has_of(OTHER) && queue.has_of(HEIR | 5) && !queue.has_of(5));
    queue.keep_of(OTHER, message(ANY_SOURCE, 9));
    let before = queue.steps();
    assert!(queue.relabel_of(HEIR | 5, 7).is_empty());
    assert_eq!(queue.steps() - before, 3);
    let of_other = queue.withdraw_of(OTHER, |_| true);
    assert!(of_other.iter().map(|message| message.tag).eq([9]));
    let left = queue.withdraw_of(HEIR | 5, |message| message.src == 7);
    assert!(left.iter().map(|message| message.tag).eq(0..3));
    assert!(!queue.has_of(HEIR | 5));
}

#[test]
fn masks_that_do_not_contain_each_other_have_separate_tables() {
    let mut queue = flooded();
    let lookups = |queue: &mut ReceiveQueue<AppIov, u32>| {
        let before = queue.steps();
        for tag in 1 << 40..(1 << 40) + LOOKUPS as u64 {
            for ignore in [0xff << 48, 0xff << 56] {
                let src = ANY_SOURCE;
                assert!(queue.peek(Filter { src, tag, ignore }).is_none());
            }
        }
        queue.steps() - before
    };
    // Each mask is learnt once.
    let first = lookups(&mut queue);
    assert!(first < 10 * MANY, "{first}");
    // A message shares its bucket with a few others at most.
    let second = lookups(&mut queue);
    assert!(second < 2 * LOOKUPS * 8, "{second}");
}

/// Posts receives that name a tag each, with the tag as the context.
fn post(queue: &mut ReceiveQueue<AppIov, u32>, tags: std::ops::Range<usize>) {
    for tag in tags {
        let posted = queue.post(Receive {
            context: tag,
            buf: AppIov::EMPTY,
            src: ANY_SOURCE,
            tag: tag as u64,
            ignore: 0,
            flags: 0,
        });
        assert!(posted.is_none());
    }
}

#[test]
fn many_receives_are_found_by_tag_and_by_context_in_any_order() {
    let mut queue = ReceiveQueue::<AppIov, u32>::tagged(8);
    post(&mut queue, 0..MANY);
    let of = |single: Single<'_, AppIov>| single.context;
    // With a search of the queue for each, these would be 10^10 steps.
    for tag in (MANY / 2..MANY).rev() {
        assert_eq!(queue.take_single(ANY_SOURCE, tag as u64).map(of), Some(tag));
    }
    for tag in (0..MANY / 4).rev() {
        assert_eq!(
            queue.cancel(tag).map(|cancelled| cancelled.context),
            Some(tag)
        );
        assert!(queue.cancel(tag).is_none());
    }
    // The index grows with what is posted later.
    post(&mut queue, MANY..4 * MANY);
    for tag in (MANY..4 * MANY).rev() {
        assert_eq!(
            queue.cancel(tag).map(|cancelled| cancelled.tag),
            Some(tag as u64)
        );
    }
    assert_eq!(queue.posted_len(), MANY / 4);
    for tag in (MANY / 4..MANY / 2).rev() {
        assert_eq!(queue.take_single(ANY_SOURCE, tag as u64).map(of), Some(tag));
    }
    assert_eq!(queue.posted_len(), 0);
    // With the memory given back, receives are in a ring again.
    post(&mut queue, 0..3);
    for tag in [1, 0, 2] {
        assert_eq!(queue.take_single(ANY_SOURCE, tag as u64).map(of), Some(tag));
    }
}

#[test]
fn receives_that_are_cancelled_in_their_order_stay_in_the_ring() {
    let mut queue = ReceiveQueue::<AppIov, u32>::tagged(8);
    post(&mut queue, 0..MANY);
    for tag in 0..MANY {
        assert!(queue.cancel(tag).is_some());
    }
    let filter = Filter {
        src: ANY_SOURCE,
        tag: 0,
        ignore: 0,
    };
    assert!(queue.post_fast(0, 0, filter, &mut AppIov::default(), 1));
}

const FEW: usize = if cfg!(miri) { 50 } else { 2000 };

#[test]
fn receives_with_one_context_are_cancelled_oldest_first() {
    let mut queue = ReceiveQueue::<AppIov, u32>::tagged(8);
    post(&mut queue, 0..FEW);
    for tag in 0..FEW as u64 {
        queue.post(Receive {
            context: usize::MAX,
            buf: AppIov::EMPTY,
            src: ANY_SOURCE,
            tag,
            ignore: 0,
            flags: 0,
        });
    }
    for tag in 0..FEW as u64 {
        let cancelled = queue.cancel(usize::MAX);
        assert_eq!(cancelled.map(|cancelled| cancelled.tag), Some(tag));
    }
    assert!(queue.cancel(usize::MAX).is_none());
}
