//! Checks what is reported to the application, and what holds after every step and at the end.

use fabric_abi::{FI_MSG, FI_MULTI_RECV, FI_RECV, FI_REMOTE_CQ_DATA, FI_TAGGED};
use prov_base::errno::Errno;
use prov_message::Core;
use prov_util::cq::{Completion, ErrorCompletion};

use crate::model::{Given, LinkKey, MessageState, Number, ReceiveId};
use crate::provider::{Incoming, LOST};
use crate::step::Wanted;
use crate::world::{EPS, INBOXES, SHARED, SHARED_POSTER, World, poster_to};

/// How a receive ends that has matched a message.
#[derive(Clone, Copy)]
enum End {
    Received,
    /// Its buffer was too short.
    Cut,
    /// The message's link ended.
    Lost,
}

impl World {
    /// The invariants after every step.
    pub fn check(&mut self) {
        self.drain();
        let own = &self.own;
        assert_eq!(own.endpoints.kept_bytes(), own.model.kept());
        let mut throttled: Vec<LinkKey> = own.endpoints.throttled().collect();
        throttled.sort();
        let expected = own.links.iter().filter(|(_, link)| link.is_throttled);
        let expected: Vec<LinkKey> = expected.map(|(key, _)| key).collect();
        assert_eq!(throttled, expected);
        for (key, link) in &own.links {
            let kept = own.model.kept_of(key);
            assert!(!link.is_throttled || kept > own.model.share(key, false, 0) / 4);
            match link.incoming {
                Some(Incoming::Keep(number, ..)) => {
                    assert_eq!(own.model.messages[number].place, MessageState::Arriving);
                }
                Some(Incoming::Discard(number, 0)) if link.is_held_back => {
                    let message = &own.model.messages[number];
                    assert_eq!(message.place, MessageState::HeldBack);
                    assert!(!own.model.has_room(key, message.len, link.announces, 0));
                }
                _ => assert!(!link.is_held_back),
            }
        }
        assert_eq!(self.cancelled, []);
        for receive in &own.model.receives {
            if receive.multi {
                assert_eq!(receive.ended, !receive.open && receive.given.is_empty());
            }
        }
    }

    /// Reads all queues.
    pub fn drain(&mut self) {
        for at in 0..=EPS {
            let cq = match at {
                SHARED_POSTER => self.shared_cq.clone(),
                ep => self.own.eps[ep].cq.clone(),
            };
            loop {
                let mut completions = Vec::new();
                let outcome = cq.read(16, |completion| completions.push(*completion));
                for completion in &completions {
                    self.completed(at, completion);
                }
                match outcome {
                    Ok(_) => {}
                    Err(Errno::EAVAIL) => self.failed(at, &cq.read_error().unwrap()),
                    Err(error) => {
                        assert_eq!(error, Errno::EAGAIN);
                        break;
                    }
                }
            }
        }
    }

    fn completed(&mut self, at: usize, completion: &Completion) {
        if let Some((look, found)) = self.seen
            && completion.context.addr() == look + 1
        {
            let message = &self.own.model.messages[found.unwrap()];
            let seen = (completion.tag, completion.len, completion.src);
            assert_eq!(seen, (message.tag, message.len, message.src));
            self.seen = None;
            return;
        }
        let (id, number, given) = self.end_of(at, completion, End::Received);
        let message = &self.own.model.messages[number];
        assert!(message.len <= given.room);
        assert_eq!(completion.len, message.len);
        let flags = FI_RECV | if message.tagged { FI_TAGGED } else { FI_MSG };
        let flags = flags | message.data.map_or(0, |_| FI_REMOTE_CQ_DATA);
        assert_eq!(completion.flags & !FI_MULTI_RECV, flags);
        self.holds(id, number, given);
        self.own.model.messages[number].place = MessageState::Received;
    }

    fn failed(&mut self, at: usize, error: &ErrorCompletion) {
        let completion = &error.completion;
        match error.err {
            Errno::ENOMSG => {
                let (look, found) = self.seen.take().unwrap();
                assert_eq!((completion.context.addr(), found), (look + 1, None));
            }
            Errno::ETRUNC => {
                let (id, number, given) = self.end_of(at, completion, End::Cut);
                let message = &self.own.model.messages[number];
                assert_eq!(
                    (completion.len, error.olen),
                    (given.room, message.len - given.room)
                );
                self.holds(id, number, given);
                self.own.model.messages[number].place = MessageState::Received;
            }
            LOST => {
                let (_, number, _) = self.end_of(at, completion, End::Lost);
                self.own.model.messages[number].place = MessageState::Dropped;
            }
            other => {
                assert_eq!(other, Errno::ECANCELED);
                let id = self.receive_of(completion);
                let cancelled = &mut self.cancelled;
                let is_this =
                    |of: ReceiveId, cause: Errno| (of, cause.number()) == (id, error.prov_errno);
                let place = cancelled.iter().position(|&(of, cause)| is_this(of, cause));
                cancelled.remove(place.unwrap());
                let receive = &mut self.own.model.receives[id];
                assert!(receive.given.is_empty() && !receive.ended);
                receive.end();
            }
        }
    }

    fn receive_of(&self, completion: &Completion) -> ReceiveId {
        let mut receives = self.own.model.receives.iter();
        let context = completion.context.addr();
        receives
            .position(|receive| receive.context == context)
            .unwrap()
    }

    /// The receive and the message that a completion belongs to.
    fn end_of(
        &mut self,
        at: usize,
        completion: &Completion,
        end: End,
    ) -> (ReceiveId, Number, Given) {
        let id = self.receive_of(completion);
        let (model, links) = (&mut self.own.model, &self.own.links);
        let place_of = |number: Number| match model.messages[number].place {
            MessageState::Given(given) => given,
            other => panic!("message {number} is {other:?}"),
        };
        let receive = &model.receives[id];
        let is_this = |&number: &Number| {
            let (message, given) = (&model.messages[number], place_of(number));
            let buf = receive.buffer.as_ptr().wrapping_add(given.offset);
            message.ep == at
                && given.receive == id
                && match end {
                    End::Received => true,
                    End::Cut => message.len > given.room,
                    End::Lost => !links.contains_key(message.link),
                }
                && completion.len == message.len.min(given.room)
                && (completion.tag, completion.src) == (message.tag, message.src)
                && completion.data == message.data.unwrap_or(0)
                && (given.room == 0 || completion.buf.cast_const().cast() == buf)
        };
        let found = receive.given.iter().copied().find(is_this);
        let number = found.expect("the message is the receive's");
        let given = place_of(number);
        let receive = &mut model.receives[id];
        receive.given.retain(|&other| other != number);
        // The release of a multi-receive buffer in a shared inbox may be read first, because it is
        // on the queue of the endpoint that received the last message.
        let ends = !receive.multi || completion.flags & FI_MULTI_RECV != 0;
        assert!(!(receive.ended && ends), "it completes twice");
        assert!(receive.multi || completion.flags & FI_MULTI_RECV == 0);
        receive.ended |= ends;
        (id, number, given)
    }

    fn holds(&self, id: ReceiveId, number: Number, given: Given) {
        let sent = self.own.model.messages[number].bytes(number);
        let len = sent.len().min(given.room);
        let place = &self.own.model.receives[id].buffer[given.offset..][..len];
        assert!(place == &sent[..len], "message {number}");
    }

    /// Every message that was sent has been received, unless everything is being closed; then
    /// nothing is kept.
    pub fn finish(mut self) {
        self.own.end_at = None;
        if !self.own.model.messages.len().is_multiple_of(3) {
            self.receive_all();
            assert_eq!(self.own.endpoints.kept_bytes(), 0);
            assert_eq!(self.own.endpoints.throttled().count(), 0);
            for (number, message) in self.own.model.messages.iter().enumerate() {
                let place = message.place;
                assert!(
                    matches!(place, MessageState::Received | MessageState::Dropped),
                    "{number}: {place:?}"
                );
                if self.own.links.contains_key(message.link) {
                    assert_eq!(message.acknowledged, message.ack.min(1), "message {number}");
                }
            }
        }
        for ep in 0..EPS {
            self.close(ep);
            self.check();
        }
        assert!(self.own.links.is_empty());
        assert_eq!(self.own.endpoints.kept_bytes(), 0);
        let shared = self.own.inboxes[SHARED];
        self.own.endpoints.close_inbox(shared);
        self.own.follow_up();
        self.check();
        for receive in &self.own.model.receives {
            assert!(receive.given.is_empty(), "a receive never completed");
        }
    }

    fn receive_all(&mut self) {
        for id in 0..self.own.model.receives.len() {
            self.cancel(id);
            self.check();
        }
        loop {
            for key in self.own.links.keys().collect::<Vec<_>>() {
                self.own.rush(key);
                self.own.follow_up();
                self.check();
            }
            let mut is_done = true;
            while self.claimed() > 0 {
                is_done = false;
                self.claim(0, Some(100));
                self.check();
            }
            for inbox in 0..INBOXES {
                let at = poster_to(inbox);
                for tagged in [false, true] {
                    let waiting = self.own.model.queue(inbox, tagged).unexpected.len();
                    is_done &= waiting == 0;
                    for _ in 0..waiting {
                        let wanted = Wanted {
                            tagged,
                            tag: 0,
                            ignore: u64::MAX,
                            src: None,
                        };
                        self.post(at, wanted, 5000, false);
                        self.check();
                    }
                }
            }
            let links = &mut self.own.links.values();
            if is_done && links.all(|link| link.incoming.is_none() && link.sent.is_empty()) {
                return;
            }
        }
    }

    fn claimed(&self) -> usize {
        let queues = self.own.model.queues.iter().flatten();
        queues.map(|queue| queue.claimed.len()).sum()
    }
}
