//! Two vectors that are searched from the front.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buf {
    pub owner: u32,
    pub offset: usize,
    pub len: usize,
}

impl ReceiveBuffer for Buf {
    fn len(&self) -> usize {
        self.len
    }

    fn split_to(&mut self, len: usize) -> Self {
        assert!(len <= self.len);
        let front = Buf { len, ..*self };
        self.offset += len;
        self.len -= len;
        front
    }

    fn assign(&mut self, other: &mut Self) {
        *self = *other;
    }

    fn take(&mut self) -> Self {
        *self
    }
}

#[derive(Clone, Debug)]
pub struct ModelPosted {
    pub context: usize,
    pub src: u64,
    pub tag: u64,
    pub ignore: u64,
    pub buf: Buf,
    /// Minimum space, for a multi-receive buffer.
    pub min: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelMessage {
    pub src: u64,
    pub tag: u64,
    pub len: usize,
    pub number: u32,
}

impl ModelMessage {
    pub fn of(message: &Message<u32>) -> Self {
        ModelMessage {
            src: message.src,
            tag: message.tag,
            len: message.len,
            number: message.payload,
        }
    }

    pub fn accepted_by(&self, src: u64, tag: u64, ignore: u64) -> bool {
        self.tag | ignore == tag | ignore && (src == ANY_SOURCE || src == self.src)
    }
}

#[derive(Default)]
pub struct Model {
    pub posted: Vec<ModelPosted>,
    pub unexpected: Vec<ModelMessage>,
    pub claimed: Vec<(usize, ModelMessage)>,
    /// Per buffer that still holds messages: how many, and whether it takes more.
    pub held: Vec<(u32, usize, bool)>,
}

impl Model {
    /// The receive for a message: its context and the memory.
    pub fn arrive(&mut self, message: &ModelMessage) -> Option<(usize, Buf)> {
        let at = self
            .posted
            .iter()
            .position(|p| message.accepted_by(p.src, p.tag, p.ignore))?;
        let posted = &mut self.posted[at];
        let Some(min) = posted.min else {
            let posted = self.posted.remove(at);
            return Some((posted.context, posted.buf));
        };
        let take = message.len.min(posted.buf.len);
        let part = posted.buf.split_to(take);
        let (context, open) = (posted.context, posted.buf.len >= min.max(1));
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
    pub fn is_for_single(&self, message: &ModelMessage) -> bool {
        let mut posted = self.posted.iter();
        let first = posted.find(|p| message.accepted_by(p.src, p.tag, p.ignore));
        first.is_some_and(|posted| posted.min.is_none())
    }

    /// Matches waiting messages against waiting receives, oldest message first.
    pub fn settle(&mut self) -> Vec<(usize, Buf, ModelMessage)> {
        let mut pairs = Vec::new();
        for message in std::mem::take(&mut self.unexpected) {
            match self.arrive(&message) {
                Some((context, buf)) => pairs.push((context, buf, message)),
                None => self.unexpected.push(message),
            }
        }
        pairs
    }

    pub fn peek(&self, filter: Filter) -> Option<usize> {
        self.unexpected
            .iter()
            .position(|m| m.accepted_by(filter.src, filter.tag, filter.ignore))
    }

    pub fn cancel(&mut self, at: usize) -> (usize, Option<Buf>) {
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

    pub fn finish(&mut self, owner: u32) -> bool {
        let Some(held) = self.held.iter_mut().find(|held| held.0 == owner) else {
            return false;
        };
        held.1 -= 1;
        held.1 == 0 && !held.2
    }
}
