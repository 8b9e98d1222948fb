//! The queue against a model that keeps everything in two vectors and searches
//! them from the front, as the manuals describe matching.

mod model;
mod steps;

use fabric_abi::FI_MULTI_RECV;
use proptest::prelude::*;

use super::*;
use model::{Buf, Model, ModelMessage, ModelPosted};
use steps::{LINKS, Step, steps};

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
                let mut buf = Buf {
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
                });
                let expected = self.model.settle();
                // Every other receive tries the fast path first, if there is
                // room for one of two.
                let number = self.next_number();
                let most = self.queue.posted_len() + usize::from(number.is_multiple_of(4));
                let filter = Filter { src, tag, ignore };
                if !multi
                    && number.is_multiple_of(2)
                    && self.queue.post_fast(context, 0, filter, &mut buf, most)
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
                let cancelled = self.queue.cancel_from(src, 0).into_iter();
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

proptest! {
    #![proptest_config(ProptestConfig {
        // Miri is slow.
        cases: if cfg!(miri) { 4 } else { 200 },
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
