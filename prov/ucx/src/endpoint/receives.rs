//! Receives of an endpoint (fi_msg(3), fi_tagged(3)): posted ones, messages that were peeked at, and
//! multi-receive buffers.
//!
//! UCP has no multi-receive buffers. One is posted as a receive of what is left of it, and again after
//! each message; meanwhile later receives without a tag wait, since UCP would give them messages
//! that belong into the buffer.

use std::collections::VecDeque;
use std::ffi::c_void;

use fabric_abi::*;
use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_message::reports::Seen;
use prov_message::{Buffer, Context, EpKey, InboxKey, Receipt};
use prov_util::matching::{self, ANY_SOURCE, Cancelled};
use prov_util::request::{Receive, Select};

use super::{Inner, Operation, PLAIN};
use crate::ucp::{self, Arrived, Done, Message};

/// A receive of the application.
#[derive(Clone, Copy)]
pub struct Posted {
    context: Context,
    flags: u64,
    is_tagged: bool,
    tag: u64,
    ignore: u64,
}

/// The state of an endpoint's receives.
#[derive(Default)]
pub struct Receives {
    /// Receives without a tag behind a multi-receive buffer, or about to be posted.
    waiting: VecDeque<(Posted, AppIov)>,
    /// Whether UCP has a multi-receive buffer.
    is_multi_posted: bool,
    /// Messages that the application has taken and not yet received (`FI_CLAIM`).
    claimed: Vec<Claimed>,
    /// `FI_OPT_MIN_MULTI_RECV`
    pub min_multi_recv: usize,
}

/// A message that the application has taken.
struct Claimed {
    arrived: Arrived,
    message: Message,
    context: Context,
}

impl Receives {
    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Receives::default();
    }

    fn take_claimed(&mut self, receive: &Posted) -> Option<Claimed> {
        let fits = |claimed: &Claimed| (claimed.arrived.tag ^ receive.tag) & !receive.ignore == 0;
        let is_it = |claimed: &Claimed| claimed.context == receive.context && fits(claimed);
        let found = self.claimed.iter().position(is_it);
        // The C library compares tags alone.
        let found = found.or_else(|| self.claimed.iter().position(fits));
        found.map(|found| self.claimed.remove(found))
    }
}

impl Posted {
    fn new(receive: &Receive) -> Self {
        let (is_tagged, tag, ignore) = match receive.select {
            Select::Untagged => (false, PLAIN, 0),
            Select::Tagged { tag, ignore } => (true, tag, ignore),
        };
        Posted {
            context: Context::of(receive.context),
            flags: receive.flags,
            is_tagged,
            tag,
            ignore,
        }
    }

    fn is_multi(&self) -> bool {
        !self.is_tagged && self.flags & FI_MULTI_RECV != 0
    }

    fn cancelled(&self, memory: AppIov) -> Cancelled<AppIov> {
        Cancelled {
            context: self.context.0,
            flags: self.flags,
            tag: if self.is_tagged { self.tag } else { 0 },
            buf: Some(memory),
        }
    }
}

impl Inner {
    /// Posts a receive, or looks at the messages that wait.
    pub fn receive(&mut self, receive: &mut Receive) -> Result {
        let posted = Posted::new(receive);
        if receive.flags & FI_PEEK != 0 {
            return self.peek(receive, &posted);
        }
        if receive.flags & FI_CLAIM != 0 {
            return self.claim(receive, posted);
        }
        if !posted.is_tagged
            && (posted.is_multi()
                || self.receives.is_multi_posted
                || !self.receives.waiting.is_empty())
        {
            self.receives
                .waiting
                .push_back((posted, receive.buffers.take()));
            self.post_waiting();
            return Ok(());
        }
        self.post(posted, &mut receive.buffers)
    }

    #[inline]
    fn post(&mut self, receive: Posted, memory: &mut AppIov) -> Result {
        let operation = Operation::Received(receive);
        let (tag, mask) = (receive.tag, !receive.ignore);
        let done = self.worker()?.receive(memory, tag, mask, operation)?;
        if receive.is_multi() && matches!(done, ucp::Posted::Pending) {
            self.receives.is_multi_posted = true;
        }
        self.posted(done);
        Ok(())
    }

    /// Posts the receives that wait, up to a multi-receive buffer.
    fn post_waiting(&mut self) {
        while !self.receives.is_multi_posted
            && let Some((receive, mut memory)) = self.receives.waiting.pop_front()
        {
            if let Err(error) = self.post(receive, &mut memory) {
                let cancelled = receive.cancelled(memory);
                self.reports.cancelled_receive(false, &cancelled, error);
            }
        }
    }

    /// Reports a receive that has ended, and continues a multi-receive buffer.
    pub fn received(&mut self, receive: Posted, done: Done) {
        let Done {
            outcome,
            arrived,
            mut memory,
        } = done;
        let is_multi = receive.is_multi();
        if is_multi {
            self.receives.is_multi_posted = false;
        }
        if let Err(failure) = outcome
            && failure.is_cancelled()
        {
            let cancelled = receive.cancelled(memory);
            self.reports
                .cancelled_receive(receive.is_tagged, &cancelled, Errno::ECANCELED);
            return self.post_waiting();
        }
        let receipt = Receipt {
            inbox: InboxKey::default(),
            ep: EpKey::default(),
            tagged: receive.is_tagged,
            context: receive.context,
            flags: receive.flags & (FI_COMPLETION | FI_CLAIM),
            buffer: Buffer::Single,
            src: ANY_SOURCE,
            tag: if receive.is_tagged { arrived.tag } else { 0 },
            data: None,
            len: arrived.len,
            ack: (),
        };
        let left = memory.len().saturating_sub(arrived.len);
        let goes_on = is_multi && outcome.is_ok() && left >= self.receives.min_multi_recv.max(1);
        if goes_on {
            let part = memory.split_to(arrived.len);
            self.reports.receive(&receipt, &part, false, Ok(()));
            self.receives.waiting.push_front((receive, memory));
        } else {
            let outcome = outcome.map_err(Errno::from);
            self.reports.receive(&receipt, &memory, is_multi, outcome);
        }
        if is_multi {
            self.post_waiting();
        }
    }

    /// `FI_PEEK`
    fn peek(&mut self, receive: &Receive, posted: &Posted) -> Result {
        // What has come may not have been looked at, and who peeks in a loop may read no queue.
        self.progress();
        let takes = receive.flags & (FI_CLAIM | FI_DISCARD) != 0;
        let found = self.worker()?.probe(posted.tag, !posted.ignore, takes);
        let seen = found
            .as_ref()
            .map(|(arrived, _)| seen(posted, *arrived, receive.flags));
        self.reports.look(receive, seen.as_ref());
        let Some((arrived, message)) = found.filter(|_| takes) else {
            return Ok(());
        };
        if receive.flags & FI_CLAIM == 0 {
            return self.discard(message);
        }
        self.receives.claimed.push(Claimed {
            arrived,
            message,
            context: posted.context,
        });
        bounded!(self.receives.claimed, OBJECTS);
        Ok(())
    }

    /// `FI_CLAIM` without `FI_PEEK`
    fn claim(&mut self, receive: &mut Receive, posted: Posted) -> Result {
        let claimed = self.receives.take_claimed(&posted).ok_or(Errno::ENOMSG)?;
        if receive.flags & FI_DISCARD != 0 {
            let seen = seen(&posted, claimed.arrived, receive.flags);
            self.reports.look(receive, Some(&seen));
            return self.discard(claimed.message);
        }
        let operation = Operation::Received(posted);
        let worker = self.worker()?;
        let done = worker.receive_message(claimed.message, &mut receive.buffers, operation)?;
        self.posted(done);
        Ok(())
    }

    fn discard(&mut self, message: Message) -> Result {
        let worker = self.worker()?;
        worker.receive_message(message, &mut AppIov::default(), Operation::Nobodys)?;
        Ok(())
    }

    /// fi_cancel(3) of a receive.
    pub fn cancel(&mut self, context: *mut c_void) -> Result {
        let context = Context::of(context);
        let is_it = |receive: &Posted| receive.context == context;
        let is_posted = self.worker()?.cancel(
            |operation| matches!(operation, Operation::Received(receive) if is_it(receive)),
        );
        if is_posted {
            self.report();
            return Ok(());
        }
        let found = self
            .receives
            .waiting
            .iter()
            .position(|(receive, _)| is_it(receive));
        let found = found.and_then(|found| self.receives.waiting.remove(found));
        let (receive, memory) = found.ok_or(Errno::ENOENT)?;
        let cancelled = receive.cancelled(memory);
        self.reports
            .cancelled_receive(false, &cancelled, Errno::ECANCELED);
        Ok(())
    }
}

fn seen(posted: &Posted, arrived: Arrived, flags: u64) -> Seen {
    Seen::of(&matching::Message {
        src: ANY_SOURCE,
        tag: if posted.is_tagged { arrived.tag } else { 0 },
        len: arrived.len,
        data: 0,
        flags: flags & FI_CLAIM,
        payload: (),
    })
}
