//! The queue against a model that keeps everything in two vectors and searches
//! them from the front, as the manuals describe matching.

use fabric_abi::FI_MULTI_RECV;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Buf {
    owner: u32,
    offset: usize,
    len: usize,
}

impl ReceiveBuffer for Buf {
    fn len(&self) -> usize {
        self.len
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len);
        Buf {
            owner: self.owner,
            offset: self.offset + offset,
            len,
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Post {
        context: usize,
        src: u64,
        tag: u64,
        ignore: u64,
        len: usize,
        multi: bool,
    },
    Arrive {
        src: u64,
        tag: u64,
        len: usize,
        keep: bool,
    },
    Peek(Filter),
    PeekClaim(Filter, usize),
    PeekDiscard(Filter),
    Claim(usize),
    Cancel(usize),
    CancelAll,
    FinishOldest,
    FinishNewest,
    Withdraw(usize),
    LosePeer(u64),
    Learn(u64),
    Forget(u64),
    LearnLink(u32, u64),
    EndLink(u32),
    SetMinimum(usize),
}

#[derive(Clone, Debug)]
struct ModelPosted {
    context: usize,
    src: u64,
    tag: u64,
    ignore: u64,
    buf: Buf,
    /// Minimum space, for a multi-receive buffer.
    min: Option<usize>,
    used: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct ModelMessage {
    src: u64,
    tag: u64,
    len: usize,
    number: u32,
}

/// Messages come on so many links in turn.
const LINKS: u32 = 3;

impl ModelMessage {
    fn of(message: &Message<u32>) -> Self {
        ModelMessage {
            src: message.src,
            tag: message.tag,
            len: message.len,
            number: message.payload,
        }
    }

    fn accepted_by(&self, src: u64, tag: u64, ignore: u64) -> bool {
        self.tag | ignore == tag | ignore && (src == ANY_SOURCE || src == self.src)
    }
}

#[derive(Default)]
struct Model {
    posted: Vec<ModelPosted>,
    unexpected: Vec<ModelMessage>,
    claimed: Vec<(usize, ModelMessage)>,
    /// Per buffer that still holds messages: how many, and whether it takes more.
    held: Vec<(u32, usize, bool)>,
}

impl Model {
    /// The receive for a message: its context and the memory.
    fn arrive(&mut self, message: &ModelMessage) -> Option<(usize, Buf)> {
        let at = self
            .posted
            .iter()
            .position(|p| message.accepted_by(p.src, p.tag, p.ignore))?;
        let posted = &mut self.posted[at];
        let Some(min) = posted.min else {
            let posted = self.posted.remove(at);
            return Some((posted.context, posted.buf));
        };
        let take = message.len.min(posted.buf.len - posted.used);
        let part = posted.buf.slice(posted.used, take);
        posted.used += take;
        let (context, open) = (posted.context, posted.buf.len - posted.used >= min.max(1));
        match self.held.iter_mut().find(|held| held.0 == part.owner) {
            Some(held) => *held = (held.0, held.1 + 1, open),
            None => self.held.push((part.owner, 1, open)),
        }
        if !open {
            self.posted.remove(at);
        }
        Some((context, part))
    }

    /// Whether the receive for a message has a buffer for one.
    fn is_for_single(&self, message: &ModelMessage) -> bool {
        let mut posted = self.posted.iter();
        let first = posted.find(|p| message.accepted_by(p.src, p.tag, p.ignore));
        first.is_some_and(|posted| posted.min.is_none())
    }

    /// Matches waiting messages against waiting receives, oldest message first.
    fn settle(&mut self) -> Vec<(usize, Buf, ModelMessage)> {
        let mut pairs = Vec::new();
        for message in std::mem::take(&mut self.unexpected) {
            match self.arrive(&message) {
                Some((context, buf)) => pairs.push((context, buf, message)),
                None => self.unexpected.push(message),
            }
        }
        pairs
    }

    fn peek(&self, filter: Filter) -> Option<usize> {
        self.unexpected
            .iter()
            .position(|m| m.accepted_by(filter.src, filter.tag, filter.ignore))
    }

    fn cancel(&mut self, at: usize) -> (usize, Option<Buf>) {
        let posted = self.posted.remove(at);
        let held = self
            .held
            .iter_mut()
            .find(|held| held.0 == posted.buf.owner && held.1 != 0);
        match held {
            Some(held) => {
                held.2 = false;
                (posted.context, None)
            }
            None => (posted.context, Some(posted.buf)),
        }
    }

    fn finish(&mut self, owner: u32) -> bool {
        let Some(held) = self.held.iter_mut().find(|held| held.0 == owner) else {
            return false;
        };
        held.1 -= 1;
        held.1 == 0 && !held.2
    }
}

struct Pair {
    queue: ReceiveQueue<Buf, u32>,
    model: Model,
    min: usize,
    number: u32,
    /// Matches into multi-receive buffers that have not completed.
    in_flight: Vec<(MultiId, u32)>,
    kept: Vec<(MessageId, u32)>,
    /// Messages that were complete when their link ended.
    ended: Vec<u32>,
}

impl Pair {
    fn new(tagged: bool) -> Self {
        Pair {
            queue: match tagged {
                true => ReceiveQueue::tagged(8),
                false => ReceiveQueue::untagged(8),
            },
            model: Model::default(),
            min: 8,
            number: 0,
            in_flight: Vec::new(),
            kept: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn next_number(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    fn seen(&mut self, matched: Matched<Buf>) -> (usize, Buf) {
        if let Some(id) = matched.multi {
            self.in_flight.push((id, matched.buf.owner));
        }
        (matched.context, matched.buf)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Post {
                context,
                src,
                tag,
                ignore,
                len,
                multi,
            } => {
                let buf = Buf {
                    owner: self.next_number(),
                    offset: 0,
                    len,
                };
                self.model.posted.push(ModelPosted {
                    context,
                    src,
                    tag,
                    ignore,
                    buf,
                    min: multi.then_some(self.min),
                    used: 0,
                });
                let expected = self.model.settle();
                // Every other receive tries the fast path first, if there is
                // room for one of two.
                let number = self.next_number();
                let most = self.queue.posted_len() + usize::from(number.is_multiple_of(4));
                let filter = Filter { src, tag, ignore };
                if !multi
                    && number.is_multiple_of(2)
                    && self.queue.post_fast(context, 0, filter, &buf, most)
                {
                    assert!(number.is_multiple_of(4) && expected.is_empty());
                    return;
                }
                let mut pair = self.queue.post(Receive {
                    context,
                    buf,
                    src,
                    tag,
                    ignore,
                    flags: if multi { FI_MULTI_RECV } else { 0 },
                });
                let mut pairs = Vec::new();
                while let Some((matched, message)) = pair {
                    let id = matched.multi;
                    let (context, buf) = self.seen(matched);
                    pairs.push((context, buf, ModelMessage::of(&message)));
                    pair = id.and_then(|id| self.queue.refill(id));
                }
                assert_eq!(pairs, expected);
            }
            Step::Arrive {
                src,
                tag,
                len,
                keep,
            } => {
                let message = ModelMessage {
                    src,
                    tag,
                    len,
                    number: self.next_number(),
                };
                let is_single = self.model.is_for_single(&message);
                let expected = self.model.arrive(&message);
                // Every other message tries the fast path first.
                let tries = message.number.is_multiple_of(2);
                let taken = |single: Single<'_, _>| (single.context, *single.buf);
                let single = match tries {
                    true => match self.queue.take_first(src, tag).map(taken) {
                        None => self.queue.take_single(src, tag).map(taken),
                        first => first,
                    },
                    false => None,
                };
                assert_eq!(single.is_some(), is_single && tries);
                let matched = match single {
                    Some(_) => single,
                    None => {
                        let matched = self.queue.arrive(src, tag, len);
                        matched.map(|matched| self.seen(matched))
                    }
                };
                assert_eq!(matched, expected);
                if matched.is_none() && keep {
                    let id = self.queue.keep_of(
                        message.number % LINKS,
                        Message {
                            src,
                            tag,
                            len,
                            data: 0,
                            flags: 0,
                            payload: message.number,
                        },
                    );
                    self.kept.push((id, message.number));
                    self.model.unexpected.push(message);
                }
            }
            Step::Peek(filter) => {
                let expected = self.model.peek(filter);
                let expected = expected.map(|at| self.model.unexpected[at].clone());
                assert_eq!(self.queue.peek(filter).map(ModelMessage::of), expected);
            }
            Step::PeekClaim(filter, context) => {
                let expected = self.model.peek(filter).map(|at| {
                    let message = self.model.unexpected.remove(at);
                    self.model.claimed.push((context, message.clone()));
                    message
                });
                let found = self.queue.peek_claim(filter, context);
                assert_eq!(found.map(ModelMessage::of), expected);
            }
            Step::PeekDiscard(filter) => {
                let expected = self.model.peek(filter);
                let expected = expected.map(|at| self.model.unexpected.remove(at));
                let found = self.queue.peek_discard(filter);
                assert_eq!(found.as_ref().map(ModelMessage::of), expected);
            }
            Step::Claim(context) => {
                let at = self.model.claimed.iter().position(|c| c.0 == context);
                let expected = at.map(|at| self.model.claimed.remove(at).1);
                let found = self.queue.claim(context);
                assert_eq!(found.as_ref().map(ModelMessage::of), expected);
            }
            Step::Cancel(context) => {
                let at = self.model.posted.iter().position(|p| p.context == context);
                let expected = at.map(|at| self.model.cancel(at));
                let cancelled = self.queue.cancel(context);
                assert_eq!(cancelled.map(|c| (c.context, c.buf)), expected);
            }
            Step::CancelAll => {
                let mut expected = Vec::new();
                while !self.model.posted.is_empty() {
                    expected.push(self.model.cancel(0));
                }
                let cancelled = self.queue.cancel_all().into_iter();
                let cancelled: Vec<_> = cancelled.map(|c| (c.context, c.buf)).collect();
                assert_eq!(cancelled, expected);
            }
            Step::FinishOldest if !self.in_flight.is_empty() => {
                let (id, owner) = self.in_flight.remove(0);
                assert_eq!(self.queue.finish_multi(id), self.model.finish(owner));
            }
            Step::FinishNewest => {
                if let Some((id, owner)) = self.in_flight.pop() {
                    assert_eq!(self.queue.finish_multi(id), self.model.finish(owner));
                }
            }
            Step::FinishOldest => {}
            Step::Withdraw(choice) => {
                let Some(&(id, number)) = self.kept.get(choice % self.kept.len().max(1)) else {
                    return;
                };
                let waiting = self.model.unexpected.iter();
                let waiting = waiting.clone().position(|m| m.number == number);
                let claimed = self.model.claimed.iter();
                let claimed = claimed.clone().position(|c| c.1.number == number);
                let expected = waiting
                    .map(|at| self.model.unexpected.remove(at))
                    .or_else(|| claimed.map(|at| self.model.claimed.remove(at).1));
                let payload = self.queue.payload_mut(id).copied();
                assert_eq!(payload, expected.as_ref().map(|m| m.number));
                let message = self.queue.withdraw(id);
                assert_eq!(message.as_ref().map(ModelMessage::of), expected);
            }
            Step::LosePeer(src) => {
                let model = &mut self.model;
                let mut expected: Vec<_> =
                    model.unexpected.extract_if(.., |m| m.src == src).collect();
                let claimed = model.claimed.extract_if(.., |c| c.1.src == src);
                expected.extend(claimed.map(|c| c.1));
                let gone = self.queue.withdraw_if(|message| message.src == src);
                let gone: Vec<_> = gone.iter().map(ModelMessage::of).collect();
                assert_eq!(gone, expected);
                let mut expected = Vec::new();
                while let Some(at) = self.model.posted.iter().position(|p| p.src == src) {
                    expected.push(self.model.cancel(at));
                }
                let cancelled = self.queue.cancel_from(src).into_iter();
                let cancelled: Vec<_> = cancelled.map(|c| (c.context, c.buf)).collect();
                assert_eq!(cancelled, expected);
            }
            Step::Learn(src) => self.relabel(ANY_SOURCE, src),
            Step::Forget(src) => self.relabel(src, ANY_SOURCE),
            Step::LearnLink(link, src) => {
                let claimed = self.model.claimed.iter_mut().map(|c| &mut c.1);
                for message in self.model.unexpected.iter_mut().chain(claimed) {
                    if message.number % LINKS == link && !self.ended.contains(&message.number) {
                        message.src = src;
                    }
                }
                let expected = self.model.settle();
                let pairs = self.queue.relabel_of(link, src);
                self.check_pairs(pairs, &expected);
            }
            Step::EndLink(link) => {
                // Every other message is not complete.
                let model = &mut self.model;
                let ended = &mut self.ended;
                let mut is_gone = |message: &ModelMessage| {
                    let number = message.number;
                    number % LINKS == link && !ended.contains(&number) && {
                        let complete = number.is_multiple_of(2);
                        if complete {
                            ended.push(number);
                        }
                        !complete
                    }
                };
                let gone = model.unexpected.extract_if(.., |m| is_gone(m));
                let mut expected: Vec<_> = gone.collect();
                let claimed = model.claimed.extract_if(.., |c| is_gone(&c.1));
                expected.extend(claimed.map(|c| c.1));
                expected.sort_by_key(|message| message.number);
                let gone = self
                    .queue
                    .withdraw_of(link, |m| !m.payload.is_multiple_of(2));
                let gone: Vec<_> = gone.iter().map(ModelMessage::of).collect();
                assert_eq!(gone, expected);
                self.queue.pass_on(link, HEIR | link);
            }
            Step::SetMinimum(bytes) => {
                self.min = bytes;
                self.queue.set_min_multi_recv(bytes);
            }
        }
        assert_eq!(self.queue.posted_len(), self.model.posted.len());
        assert_eq!(self.queue.unexpected_len(), self.model.unexpected.len());
        assert_eq!(self.queue.claimed_len(), self.model.claimed.len());
    }

    fn relabel(&mut self, from: u64, to: u64) {
        let claimed = self.model.claimed.iter_mut().map(|c| &mut c.1);
        for message in self.model.unexpected.iter_mut().chain(claimed) {
            if message.src == from {
                message.src = to;
            }
        }
        let expected = self.model.settle();
        let pairs = self
            .queue
            .relabel(|message| (message.src == from).then_some(to));
        self.check_pairs(pairs, &expected);
    }

    fn check_pairs(
        &mut self,
        pairs: Vec<(Matched<Buf>, Message<u32>)>,
        expected: &[(usize, Buf, ModelMessage)],
    ) {
        let pairs: Vec<_> = pairs
            .into_iter()
            .map(|(matched, message)| {
                let (context, buf) = self.seen(matched);
                (context, buf, ModelMessage::of(&message))
            })
            .collect();
        assert_eq!(pairs, expected);
    }
}

fn source() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0u64..5, 1 => Just(ANY_SOURCE)]
}

/// `spread`: how many tags there are.
fn filter(tagged: bool, spread: u64) -> impl Strategy<Value = Filter> {
    let ignore = prop_oneof![
        6 => Just(0),
        6 => Just(1 << 63),
        2 => Just(u64::MAX),
        2 => Just(3),
        1 => any::<u8>().prop_map(|bits| bits as u64),
    ];
    (source(), tag(tagged, spread), ignore).prop_map(move |(src, tag, ignore)| Filter {
        src,
        tag,
        ignore: if tagged { ignore } else { u64::MAX },
    })
}

fn tag(tagged: bool, spread: u64) -> impl Strategy<Value = u64> {
    (0..spread, any::<bool>()).prop_map(move |(low, high)| match tagged {
        true => low | (high as u64) << 63,
        false => 0,
    })
}

fn steps() -> impl Strategy<Value = (bool, Vec<Step>)> {
    let shape = (
        any::<bool>(),
        prop_oneof![Just(4u64), Just(1000)],
        1u32..20,
        1u32..20,
        any::<bool>(),
    );
    shape.prop_flat_map(|(tagged, spread, posts, arrivals, calm)| {
        let len = 0usize..40;
        let rare = if calm { 1 } else { 20 };
        let post = (
            0usize..40,
            filter(tagged, spread),
            0usize..200,
            prop::bool::weighted(0.1),
        )
            .prop_map(|(context, filter, len, multi)| Step::Post {
                context,
                src: filter.src,
                tag: filter.tag,
                ignore: filter.ignore,
                len,
                multi,
            });
        let arrive = (
            source(),
            tag(tagged, spread),
            len,
            prop::bool::weighted(0.95),
        )
            .prop_map(|(src, tag, len, keep)| Step::Arrive {
                src,
                tag,
                len,
                keep,
            });
        let step = prop_oneof![
            posts * 80 => post,
            arrivals * 80 => arrive,
            80 => filter(tagged, spread).prop_map(Step::Peek),
            40 => (filter(tagged, spread), 0usize..5).prop_map(|(f, c)| Step::PeekClaim(f, c)),
            2 * rare => filter(tagged, spread).prop_map(Step::PeekDiscard),
            40 => (0usize..5).prop_map(Step::Claim),
            40 => (0usize..40).prop_map(Step::Cancel),
            rare => prop::bool::weighted(0.1).prop_map(|all| match all {
                true => Step::CancelAll,
                false => Step::Cancel(0),
            }),
            80 => Just(Step::FinishOldest),
            80 => Just(Step::FinishNewest),
            rare => any::<usize>().prop_map(Step::Withdraw),
            rare => (0u64..5).prop_map(Step::LosePeer),
            rare => (0u64..5).prop_map(Step::Learn),
            rare => (0u64..5).prop_map(Step::Forget),
            rare => (0..LINKS, source()).prop_map(|(link, src)| Step::LearnLink(link, src)),
            rare => (0..LINKS).prop_map(Step::EndLink),
            rare => (0usize..30).prop_map(Step::SetMinimum),
        ];
        (Just(tagged), prop::collection::vec(step, 0..800))
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        max_shrink_iters: 20000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_queue_matches_as_the_model_does((tagged, steps) in steps()) {
        let mut pair = Pair::new(tagged);
        for step in steps {
            pair.step(step);
        }
    }
}

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

/// A queue with a hundred thousand messages of a stranger.
fn flooded() -> ReceiveQueue<Buf, u32> {
    let mut queue = ReceiveQueue::tagged(8);
    for tag in 0..100_000 {
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
    let lookups = |queue: &mut ReceiveQueue<Buf, u32>| {
        let before = queue.steps();
        for tag in 1 << 40..(1 << 40) + 1000 {
            for ignore in [0xff << 48, 0xff << 56] {
                let src = ANY_SOURCE;
                assert!(queue.peek(Filter { src, tag, ignore }).is_none());
            }
        }
        queue.steps() - before
    };
    // Each mask is learnt once.
    let first = lookups(&mut queue);
    assert!(first < 10 * 100_000, "{first}");
    // A message shares its bucket with a few others at most.
    let second = lookups(&mut queue);
    assert!(second < 2000 * 8, "{second}");
}
