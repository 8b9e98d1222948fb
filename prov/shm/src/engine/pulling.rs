//! Copies from a peer's memory ([`prov_local::copies`]), and help with a peer's
//! copies from this one. Where that cannot be read, the bytes are asked for.

use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_base::process_memory::OtherIov;
use prov_local::channel::Head;
use prov_local::copies::{
    Back, Copier, Copies, Copying, Goal, Helping, LEAST, Offer, Source, Transfer,
};

use super::Core;
use super::arrival::TURN;
use super::keys::{LinkKey, from_peer, to_peer};
use super::link::{Bytes, Coming, Fault, Link, Pending, Placing, Shm, Then};
use super::records::FETCH;

/// Turns for what a peer has left in its channel: that holds fewer messages.
const LAST_TURNS: usize = 4096 / TURN;

impl Core {
    /// Copies what a peer has, or asks for it: `len` bytes of its offer `name`.
    pub(super) fn pull_or_ask(
        &mut self,
        key: LinkKey,
        placing: Placing,
        from: &OtherIov,
        name: u64,
        len: usize,
    ) {
        let link = self.links.get(key);
        let is_readable = link.is_some_and(|link| link.memory.is_some());
        if len == 0 {
            self.placed(key, placing, name, Ok(()));
        } else if is_readable && from.len() == len as u64 {
            self.pull(key, placing, from, name);
        } else {
            self.ask_for(key, placing, name, len);
        }
    }

    /// Copies from a peer's memory, in turn.
    pub(super) fn pull(&mut self, key: LinkKey, placing: Placing, from: &OtherIov, name: u64) {
        let Some(link) = self.links.get_mut(key) else {
            return self.placed(key, placing, name, Err(Errno::ENOTCONN));
        };
        if link.memory.is_none() {
            // A peer that was not told so writes to it all the same.
            return self.placed(key, placing, name, Err(Errno::EPERM));
        }
        let transfer = Transfer {
            goes_first: false,
            to: placing.into(),
            from: Box::new(*from),
            name: Some(name),
            offer: Some(name),
        };
        if link.pulls.push(transfer) {
            self.copy_in_turn(key);
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

    /// A peer has been offered so many bytes: it may be helped to copy them.
    pub(super) fn has_offered(&mut self, key: LinkKey, len: usize) {
        if len as u64 >= LEAST
            && self
                .links
                .get(key)
                .is_some_and(|link| link.memory.is_some())
        {
            self.copier.may_help(key);
        }
    }

    fn pulled(&mut self, key: LinkKey, transfer: Transfer<Shm>, outcome: Result) {
        let (Goal::Place(mut placing), Some(name)) = (transfer.to, transfer.name) else {
            return;
        };
        match outcome {
            // Not all memory can be read by others, but all can be sent.
            Err(Errno::EFAULT | Errno::EPERM) => {
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
        for _ in 0..LAST_TURNS {
            if !self.take_in_slowly(key) {
                return self.drain_if_ended(key);
            }
        }
        self.break_link(key, Fault::Protocol("messages after the end"));
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

impl Copies for Core {
    fn copier(&mut self) -> &mut Copier<Shm> {
        &mut self.copier
    }

    fn wake_for_copies(&mut self) {
        if self.open.has_sleepers() {
            self.poller.wake_at(Instant::now());
        }
    }

    fn next_copy(&mut self) -> Option<Box<Copying<Shm>>> {
        let (links, endpoints) = (&mut self.links, &mut self.endpoints);
        self.copier.next(|key, batch| {
            let link = links.get_mut(key)?;
            let memory = link.memory.clone()?;
            link.pulls.take(batch)?;
            batch.make_room(endpoints);
            Some((link.ep, memory))
        })
    }

    fn next_help(&mut self) -> Option<Box<Helping>> {
        let links = &self.links;
        self.copier.next_help(
            |key| {
                let channel = links.get(key)?.channel.as_ref()?;
                Some(&channel.joint().far)
            },
            |key| links.get(key).is_some_and(Link::has_large_offers),
            |key, name| {
                let link = links.get(key)?;
                let bytes = match link.pending.get(from_peer(name))? {
                    Pending::Offer { bytes, .. } => bytes,
                    Pending::Op(_) | Pending::Result { .. } => return None,
                };
                Some(Offer {
                    ep: link.ep,
                    memory: link.memory.clone()?,
                    bytes: match bytes {
                        Bytes::App(memory) => Source::App(*memory),
                        Bytes::Registered(grants) => Source::Registered(*grants),
                        Bytes::Own(_) => return None,
                    },
                })
            },
        )
    }

    fn note_work(&mut self) {
        self.idle_calls = 0;
    }

    fn take_back(&mut self, copying: Box<Copying<Shm>>) -> Option<Back<Shm>> {
        let link = self.links.get_mut(copying.link());
        self.copier.back(copying, link.map(|link| &mut link.pulls))
    }

    fn copied(&mut self, key: LinkKey, transfers: &mut Vec<Transfer<Shm>>, mut outcome: Result) {
        if let Some(link) = self.links.get_mut(key) {
            if let [only] = &transfers[..]
                && outcome.is_ok()
                && !only.is_whole()
            {
                transfers
                    .drain(..)
                    .for_each(|transfer| link.pulls.put_back(transfer));
            }
            for transfer in &*transfers {
                link.pulls.ended(transfer);
            }
            if !link.pulls.is_empty() {
                self.copy_in_turn(key);
            }
        } else {
            outcome = Err(Errno::ESHUTDOWN);
        }
        for transfer in transfers.drain(..) {
            self.pulled(key, transfer, outcome);
        }
        self.drain_if_ended(key);
    }

    fn heard_late(&mut self, key: LinkKey, words: [u64; 3]) {
        self.is_done(key, words);
    }
}
