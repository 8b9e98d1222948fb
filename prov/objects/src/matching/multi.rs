//! Multi-receive buffers: one posted receive that accepts several messages, one after the other,
//! until its free space is low (`FI_MULTI_RECV` in fi_msg(3)).

use super::ReceiveBuffer;
use super::arena::{Arena, Key};

pub(super) type MultiKey = Key;

#[derive(Debug)]
struct Multi<B> {
    /// The bytes that no message occupies.
    buf: B,
    /// Free bytes below which the buffer accepts no more messages.
    min: usize,
    /// Number of messages in the buffer that have not completed.
    outstanding: u32,
    /// Whether the buffer accepts no more messages.
    closed: bool,
}

/// All multi-receive buffers that accept messages or contain some that have not completed.
#[derive(Debug)]
pub(super) struct MultiBuffers<B>(Arena<Multi<B>, 1>);

impl<B: ReceiveBuffer> MultiBuffers<B> {
    pub fn new() -> Self {
        MultiBuffers(Arena::new())
    }

    pub fn insert(&mut self, buf: B, min: usize) -> MultiKey {
        let index = self.0.insert(Multi {
            buf,
            // With a minimum of 0, a full buffer would never be released.
            min: min.max(1),
            outstanding: 0,
            closed: false,
        });
        self.0.key(index)
    }

    /// Assigns the next `len` bytes, or the rest, to a message. The flag tells whether the buffer
    /// is closed with it.
    pub fn place(&mut self, key: MultiKey, len: usize) -> Option<(B, bool)> {
        let index = self.0.find(key)?;
        let multi = self.0.get_mut(index)?;
        let left = multi.buf.len();
        let take = len.min(left);
        let part = multi.buf.split_to(take);
        multi.outstanding += 1;
        multi.closed = left - take < multi.min;
        Some((part, multi.closed))
    }

    /// Handles the completion of a message in the buffer. Returns whether it was the last one, so
    /// that the buffer is released to the application.
    pub fn finish(&mut self, key: MultiKey) -> bool {
        let Some(index) = self.0.find(key) else {
            return false;
        };
        let Some(multi) = self.0.get_mut(index) else {
            return false;
        };
        multi.outstanding = multi.outstanding.saturating_sub(1);
        let released = multi.closed && multi.outstanding == 0;
        if released {
            self.0.remove(index);
        }
        released
    }

    /// Returns whether a buffer accepts no more messages and contains some that have not completed.
    pub fn any_closed(&self) -> bool {
        self.0.iter().any(|(_, multi)| multi.closed)
    }

    /// Closes a buffer for further messages. Returns it if no message in it is outstanding;
    /// otherwise the last one that completes releases it.
    pub fn close(&mut self, key: MultiKey) -> Option<B> {
        let index = self.0.find(key)?;
        let multi = self.0.get_mut(index)?;
        multi.closed = true;
        if multi.outstanding != 0 {
            return None;
        }
        self.0.remove(index).map(|multi| multi.buf)
    }
}
