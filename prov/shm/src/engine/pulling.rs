//! Copies from a peer's memory: who is to have the bytes makes them, without the
//! lane's lock, since a page of the peer's memory may be anywhere. Where it
//! cannot read that memory, it asks for them to be sent.

use prov_local::channel::Head;
use prov_local::process::OtherProcess;
use prov_message::lane::Errand;
use prov_message::{EpKey, Target};
use prov_util::errno::{Errno, Result};
use prov_util::process_memory::OtherIov;

use super::Core;
use super::keys::{LinkKey, to_peer};
use super::link::{Coming, Fault, Placing, Pull, Then};
use super::records::FETCH;

/// Bytes that are copied at once: meanwhile, the peer may wait for an answer.
const BYTES_PER_TURN: usize = 1 << 20;
/// Bytes after which there is time for another copy.
const SHORT: usize = 64 << 10;

/// A copy from a peer's memory.
pub struct Pulling {
    key: LinkKey,
    pull: Pull,
    memory: OtherProcess,
    target: Option<Target>,
    outcome: Result,
}

impl Errand for Pulling {
    fn run(&mut self) -> bool {
        let Pull { placing, from, .. } = &mut self.pull;
        let start = placing.done;
        let until = start + BYTES_PER_TURN;
        while placing.done < until && (placing.done as u64) < from.len() {
            let done = placing.done;
            let mut outcome = Ok(());
            let len = placing
                .place
                .part(&mut self.target, done, until - done, |to| {
                    let from = from.slice(done as u64, to.len() as u64);
                    outcome = self.memory.copy(&from, &to.slice(0, from.len() as usize));
                });
            if outcome.is_err() || len == 0 {
                self.outcome = outcome.and(Err(Errno::EFAULT));
                return false;
            }
            placing.done += len.min((from.len() - done as u64) as usize);
        }
        placing.done - start <= SHORT
    }
}

impl Core {
    /// Copies what a peer has, or asks for it: `len` bytes of its offer `name`.
    pub(super) fn pull_or_ask(
        &mut self,
        key: LinkKey,
        placing: Placing,
        from: OtherIov,
        name: u64,
        len: usize,
    ) {
        let memory = self.links.get(key).and_then(|link| link.memory);
        if len == 0 {
            self.placed(key, placing, name, Ok(()));
        } else if memory.is_some() && from.len() == len as u64 {
            self.pull(key, placing, from, name);
        } else {
            self.ask_for(key, placing, name, len);
        }
    }

    /// Copies from a peer's memory, in turn.
    pub(super) fn pull(&mut self, key: LinkKey, placing: Placing, from: OtherIov, name: u64) {
        let Some(link) = self.links.get_mut(key) else {
            return self.placed(key, placing, name, Err(Errno::ENOTCONN));
        };
        if link.memory.is_none() {
            // A peer that was not told so writes to it all the same.
            return self.placed(key, placing, name, Err(Errno::EPERM));
        }
        let pull = Pull {
            placing,
            from,
            name,
        };
        link.pulled_writes += usize::from(pull.is_write());
        link.pulls.push_back(pull);
        if link.pulls.len() == 1 && !link.is_pulling {
            self.pulling.push_back(key);
        }
    }

    /// Has the bytes sent.
    fn ask_for(&mut self, key: LinkKey, placing: Placing, name: u64, len: usize) {
        let Some(link) = self.links.get_mut(key) else {
            return self.placed(key, placing, name, Err(Errno::ENOTCONN));
        };
        let coming = link.coming.insert(Coming { placing, name, len });
        let head = Head {
            kind: FETCH,
            flags: 0,
            words: [name, to_peer(coming), len as u64],
        };
        self.answer(key, head, &[]);
    }

    /// The next copy, to be made without the lane's lock.
    #[cold]
    pub(super) fn next_pull(&mut self) -> Option<Pulling> {
        let target = self.copier.take()?;
        while let Some(key) = self.pulling.pop_front() {
            if let Some(link) = self.links.get_mut(key)
                && let Some(memory) = link.memory
                && let Some(pull) = link.pulls.pop_front()
            {
                link.is_pulling = true;
                self.copies_for = Some(link.ep);
                self.idle_calls = 0;
                return Some(Pulling {
                    key,
                    pull,
                    memory,
                    target: Some(target),
                    outcome: Ok(()),
                });
            }
        }
        self.copier = Some(target);
        None
    }

    /// Whether something is being copied for an endpoint.
    pub(super) fn is_copying_for(&self, ep: EpKey) -> bool {
        self.copies_for == Some(ep)
    }

    /// A copy has been made, or not.
    pub(super) fn pulled(&mut self, pulling: Pulling) {
        let Pulling {
            key,
            pull,
            target,
            outcome,
            ..
        } = pulling;
        self.copier = target;
        self.copies_for = None;
        let Some(link) = self.links.get_mut(key) else {
            return self.placed(key, pull.placing, pull.name, Err(Errno::ESHUTDOWN));
        };
        link.is_pulling = false;
        let is_whole = pull.placing.done as u64 == pull.from.len();
        if outcome.is_ok() && !is_whole {
            link.pulls.push_front(pull);
            return self.pulling.push_back(key);
        }
        link.pulled_writes -= usize::from(pull.is_write());
        if !link.pulls.is_empty() {
            self.pulling.push_back(key);
        }
        let Pull {
            mut placing,
            from,
            name,
        } = pull;
        match outcome {
            // Not all memory can be read by others, but all can be sent.
            Err(Errno::EFAULT | Errno::EPERM)
                if !matches!(placing.then, Then::RemoteWrite { .. }) =>
            {
                placing.done = 0;
                self.ask_for(key, placing, name, from.len() as usize);
            }
            outcome => self.placed(key, placing, name, outcome),
        }
        self.drain_if_ended(key);
    }

    /// Bytes are in their place, or not: what the peer has offered as `name`.
    pub(super) fn placed(&mut self, key: LinkKey, placing: Placing, name: u64, outcome: Result) {
        match placing.then {
            Then::Receive(receipt) => {
                let memory = placing.place.memory();
                self.endpoints.received(&receipt, &memory, outcome);
                self.done(key, name, outcome);
            }
            Then::Read(ticket) => {
                self.endpoints.finish(ticket, outcome);
                self.done(key, name, Ok(()));
            }
            Then::RemoteWrite { .. } => self.write_done(key, &placing, outcome),
        }
    }

    /// What was to come on a link that has ended, ends with it.
    pub(super) fn abandon(&mut self, placing: Placing, error: Errno) {
        match placing.then {
            Then::Receive(receipt) => {
                let memory = placing.place.memory();
                self.endpoints.received(&receipt, &memory, Err(error));
            }
            Then::Read(ticket) => self.endpoints.finish(ticket, Err(error)),
            Then::RemoteWrite { .. } => {}
        }
    }

    /// Takes in the last words of a peer that has ended, and ends the link when
    /// there are no more.
    pub(super) fn drain(&mut self, key: LinkKey) {
        while self.take_in_slowly(key) {}
        self.drain_if_ended(key);
    }

    pub(super) fn drain_if_ended(&mut self, key: LinkKey) {
        let Some(link) = self.links.get(key).filter(|link| link.has_ended) else {
            return;
        };
        let receiver = link.channel.as_ref().map(|channel| &channel.receiver);
        let waits = receiver.is_some_and(|receiver| receiver.has_next());
        if !waits && link.pulls.is_empty() && !link.is_pulling {
            self.break_link(key, Fault::Ended(Errno::ESHUTDOWN));
        }
    }
}
