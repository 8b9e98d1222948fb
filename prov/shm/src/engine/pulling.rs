//! Copies from a peer's memory ([`prov_local::copies`]). Where that cannot be
//! read, the bytes are asked for.

use prov_local::channel::Head;
use prov_local::copies::{self, Goal, Transfer};
use prov_util::errno::{Errno, Result};
use prov_util::process_memory::OtherIov;

use super::Core;
use super::keys::{LinkKey, to_peer};
use super::link::{Coming, Fault, Placing, Shm, Then};
use super::records::FETCH;

/// A copy from a peer's memory.
pub type Pulling = copies::Copying<Shm>;

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
        let transfer = Transfer {
            goes_first: matches!(placing.then, Then::RemoteWrite { .. }),
            to: placing.into(),
            from,
            name: Some(name),
        };
        if link.pulls.push(transfer) {
            self.copier.add(key);
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
        let (links, endpoints) = (&mut self.links, &mut self.endpoints);
        let next = self.copier.next(|key, transfers| {
            let link = links.get_mut(key)?;
            let memory = link.memory?;
            link.pulls.take(transfers)?;
            transfers[0].make_room(endpoints);
            Some((link.ep, memory))
        });
        if next.is_some() {
            self.idle_calls = 0;
        }
        next
    }

    /// Copies have been made, or not.
    pub(super) fn pulled(&mut self, pulling: Pulling) {
        let key = pulling.link();
        let pulls = self.links.get_mut(key).map(|link| &mut link.pulls);
        let (mut transfers, mut outcome) = self.copier.back(pulling, pulls);
        if let Some(link) = self.links.get_mut(key) {
            if let [only] = &transfers[..]
                && outcome.is_ok()
                && !only.is_whole()
            {
                transfers
                    .drain(..)
                    .for_each(|transfer| link.pulls.put_back(transfer));
            }
            for transfer in &transfers {
                link.pulls.ended(transfer);
            }
            if !link.pulls.is_empty() {
                self.copier.add(key);
            }
        } else {
            outcome = Err(Errno::ESHUTDOWN);
        }
        for transfer in transfers.drain(..) {
            self.copied(key, transfer, outcome);
        }
        self.copier.emptied(transfers);
        self.drain_if_ended(key);
    }

    fn copied(&mut self, key: LinkKey, transfer: Transfer<Shm>, outcome: Result) {
        let (Goal::Place(mut placing), Some(name)) = (transfer.to, transfer.name) else {
            return;
        };
        let is_write = matches!(placing.then, Then::RemoteWrite { .. });
        match outcome {
            // Not all memory can be read by others, but all can be sent.
            Err(Errno::EFAULT | Errno::EPERM) if !is_write => {
                placing.done = 0;
                self.ask_for(key, *placing, name, transfer.from.len() as usize);
            }
            outcome => self.placed(key, *placing, name, outcome),
        }
    }

    /// Bytes are in their place, or not: what the peer has offered as `name`.
    pub(super) fn placed(&mut self, key: LinkKey, placing: Placing, name: u64, outcome: Result) {
        if placing.has_data() {
            self.find_source(key);
        }
        let link = self.links.get(key).map(|link| (link.ep, link.src));
        let (ep, src) = link.unwrap_or_default();
        let told = match placing.then {
            Then::Read(_) => Ok(()),
            Then::Receive(_) | Then::RemoteWrite { .. } => outcome,
        };
        self.endpoints
            .placed(&mut self.target, ep, src, placing, outcome);
        self.done(key, name, told);
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
        if !waits && link.pulls.is_empty() {
            self.break_link(key, Fault::Ended(Errno::ESHUTDOWN));
        }
    }
}
