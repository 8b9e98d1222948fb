//! Announced messages (rendezvous): the receiver reads them from the sender's memory and reports
//! that, or it names memory of its own, to which the sender writes them.

use fabric_abi::{FI_READ, FI_REMOTE_WRITE};
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::{AppIov, Part};
use prov_base::errno::{Errno, Result};
use prov_message::Receipt;
use prov_util::below::{Local, Region, Size, Written};
use prov_util::request::{RemoteIov, RemotePiece};

use super::Core;
use super::below::What;
use super::keys::{FetchKey, LinkKey, PendingKey, from_peer, to_peer};
use super::link::{Action, Announced, Fault, Fetching, Out, Pending, Transfer};
use crate::wire::packet::{Head, Kind};
use crate::wire::part::{COUNTED_LIST, write_list};

impl Core {
    /// Carries out an action that a receive has caused for a link.
    pub(super) fn act_on(&mut self, action: Action) {
        match action {
            Action::Fetch(key, fetch) => {
                self.fetch(key, fetch.name, fetch.receipt, fetch.memory, fetch.len);
            }
            // The sender can release its memory.
            Action::Refuse(key, name, ..) => self.tell(key, Kind::ReadDone, name.message),
            Action::Redirect(key, course) => self.redirect(key, course),
            Action::Resume(key, course) => self.resume(key, course),
            // The protocol has no such acknowledgements and requests.
            Action::Acknowledge(..) | Action::Throttle(..) => {}
        }
    }

    pub(super) fn tell(&mut self, key: LinkKey, kind: Kind, message: u64) {
        if let Some(link) = self.links.get(key) {
            let head = Head::note(kind, link.far_id, message);
            self.answer(key, &head, &[]);
        }
    }

    /// Fetches an announced message for a receive that has matched it; it has `len` bytes, of
    /// which those are wanted that the buffer has room for.
    pub(super) fn fetch(
        &mut self,
        key: LinkKey,
        name: Announced,
        receipt: Receipt<()>,
        memory: AppIov,
        len: usize,
    ) {
        let (Some(link), Some(below)) = (self.links.get_mut(key), &mut self.below) else {
            self.endpoints
                .received(&receipt, memory, Err(Errno::ESHUTDOWN));
            return;
        };
        let wanted = memory.slice(0, len);
        if wanted.is_empty() || name.memory.len() < wanted.len() as u64 {
            let outcome = match wanted.is_empty() {
                true => Ok(()),
                false => Err(Errno::EPROTO),
            };
            self.endpoints.received(&receipt, memory, outcome);
            return self.tell(key, Kind::ReadDone, name.message);
        }
        let is_written = self.params.use_rndv_write;
        let prepared = match is_written {
            true => below
                .register(&wanted, FI_REMOTE_WRITE)
                .map(|regions| (Local::NONE, regions)),
            // The descriptors of the posted receive are not known here.
            false if below.setting.is_local || wanted.has_device() => below
                .register(&wanted, FI_READ)
                .map(|regions| (Local::of(&regions), regions)),
            false => Ok((Local::NONE, Vec::new())),
        };
        let (local, regions) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.endpoints.received(&receipt, memory, Err(error));
                return self.tell(key, Kind::ReadDone, name.message);
            }
        };
        let mut list = [0; COUNTED_LIST];
        if is_written {
            write_list(below.remote(&wanted, &regions).pieces(), &mut list);
        }
        let wanted_len = wanted.len();
        let fetch = link.fetches.insert(Fetching {
            message: name.message,
            receipt,
            memory,
            regions,
            reading: (!is_written).then(|| Transfer::new(name.memory, local, wanted_len)),
        });
        bounded!(link.fetches, OPERATIONS);
        if is_written {
            let head = Head::note(Kind::WriteTo, link.far_id, name.message);
            return self.answer(key, &head, &list);
        }
        match self.fetch_more(key, fetch) {
            Ok(()) => {}
            Err(Errno::EAGAIN) => self.queue_first(key, Out::Fetch(fetch)),
            Err(error) => self.ends(key, Fault::Ended(error)),
        }
    }

    /// Requests the rest of a message.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room.
    pub(super) fn fetch_more(&mut self, key: LinkKey, fetch: FetchKey) -> Result {
        let (Some(link), Some(below)) = (self.links.get_mut(key), &mut self.below) else {
            return Ok(());
        };
        loop {
            let Some(Fetching {
                memory,
                reading: Some(reading),
                ..
            }) = link.fetches.get_mut(fetch)
            else {
                return Ok(());
            };
            // Aside while the link is used.
            let memory = memory.take();
            let local = reading.local_of(&memory);
            let posted = reading.next(&memory).map(|(to, from)| {
                let what = What::Fetch(key, fetch);
                let posted = below.post(
                    link,
                    Size::Small,
                    what,
                    |_| {},
                    |below, slots, slot| below.read(slots, slot, &to, &local, &[from], 0),
                );
                posted.map(|()| to.len()).map_err(|(error, _)| error)
            });
            let Some(fetching) = link.fetches.get_mut(fetch) else {
                return Ok(());
            };
            fetching.memory = memory;
            let Some(posted) = posted.transpose()? else {
                return Ok(());
            };
            if let Some(reading) = &mut fetching.reading {
                reading.posted += posted;
                reading.left += 1;
            }
        }
    }

    /// Handles a part of a message that was read.
    pub(super) fn fetched(&mut self, key: LinkKey, fetch: FetchKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        let Some(Fetching {
            reading: Some(reading),
            ..
        }) = link.fetches.get_mut(fetch)
        else {
            return;
        };
        reading.left -= 1;
        if reading.left != 0 || reading.posted < reading.len {
            return;
        }
        self.has_come(key, fetch, Kind::ReadDone);
    }

    fn has_come(&mut self, key: LinkKey, fetch: FetchKey, kind: Kind) {
        let fetching = self.links.get_mut(key);
        let Some(fetching) = fetching.and_then(|link| link.fetches.remove(fetch)) else {
            return;
        };
        // The memory must not be accessible when it is returned to the application.
        drop(fetching.regions);
        self.endpoints
            .received(&fetching.receipt, fetching.memory, Ok(()));
        if kind == Kind::ReadDone {
            self.tell(key, kind, fetching.message);
        }
    }

    /// Handles the report that the peer has written a message.
    pub(super) fn write_done(
        &mut self,
        key: LinkKey,
        message: u64,
    ) -> std::result::Result<(), Fault> {
        let Some(link) = self.links.get(key) else {
            return Ok(());
        };
        let is_it = |fetching: &Fetching| fetching.message == message && fetching.reading.is_none();
        let mut fetches = link.fetches.iter();
        let fetch = fetches.find_map(|(fetch, fetching)| is_it(fetching).then_some(fetch));
        let fetch = fetch.ok_or(Fault::Protocol("name of a message"))?;
        self.has_come(key, fetch, Kind::WriteDone);
        Ok(())
    }

    /// Handles the report that the peer has read a message, or does not want it.
    pub(super) fn read_done(
        &mut self,
        key: LinkKey,
        message: u64,
    ) -> std::result::Result<(), Fault> {
        let Some(link) = self.links.get_mut(key) else {
            return Ok(());
        };
        let name = from_peer(message);
        match link.pending.get(name) {
            Some(Pending::Announced { writing: None, .. }) => {}
            _ => return Err(Fault::Protocol("name of a message")),
        }
        self.has_left(key, name);
        Ok(())
    }

    fn has_left(&mut self, key: LinkKey, name: PendingKey) {
        let pending = self.links.get_mut(key);
        if let Some(Pending::Announced {
            ticket, regions, ..
        }) = pending.and_then(|link| link.pending.remove(name))
        {
            drop::<Vec<Region>>(regions);
            self.endpoints.finish(ticket, Ok(()));
            self.note_what_is_awaited(key);
        }
    }

    /// Handles the peer's request to write a message to its memory.
    pub(super) fn write_to(
        &mut self,
        key: LinkKey,
        message: u64,
        remote: RemoteIov,
    ) -> std::result::Result<(), Fault> {
        let is_local = self
            .below
            .as_ref()
            .is_some_and(|below| below.setting.is_local);
        let Some(link) = self.links.get_mut(key) else {
            return Ok(());
        };
        let name = from_peer(message);
        let Some(Pending::Announced {
            memory,
            regions,
            writing: writing @ None,
            ..
        }) = link.pending.get_mut(name)
        else {
            return Err(Fault::Protocol("name of a message"));
        };
        let local = match is_local || memory.has_device() {
            true => Local::of(regions),
            false => Local::NONE,
        };
        // It may have room for only a part of it.
        let len = usize::try_from(remote.len()).unwrap_or(usize::MAX);
        let len = len.min(memory.len());
        *writing = Some(Transfer::new(remote, local, len));
        if len == 0 {
            self.has_written(key, name);
            return Ok(());
        }
        match self.push_more(key, name) {
            Ok(()) => Ok(()),
            Err(Errno::EAGAIN) => {
                self.queue_first(key, Out::Push(name));
                Ok(())
            }
            Err(error) => {
                self.ends(key, Fault::Ended(error));
                Ok(())
            }
        }
    }

    /// Writes the rest of a message.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room.
    pub(super) fn push_more(&mut self, key: LinkKey, name: PendingKey) -> Result {
        let (Some(link), Some(below)) = (self.links.get_mut(key), &mut self.below) else {
            return Ok(());
        };
        loop {
            let Some(Pending::Announced {
                memory,
                writing: Some(writing),
                ..
            }) = link.pending.get_mut(name)
            else {
                return Ok(());
            };
            // Aside while the link is used.
            let memory = memory.take();
            let local = writing.local_of(&memory);
            let posted = writing.next(&memory).map(|(from, to)| {
                let what = What::Push(key, name);
                let posted = below.post(
                    link,
                    Size::Small,
                    what,
                    |_| {},
                    |below, slots, slot| {
                        below.write(slots, slot, Written::App(&from, &local), &[to], 0, 0)
                    },
                );
                posted.map(|()| from.len()).map_err(|(error, _)| error)
            });
            let Some(Pending::Announced {
                memory: place,
                writing,
                ..
            }) = link.pending.get_mut(name)
            else {
                return Ok(());
            };
            *place = memory;
            let Some(posted) = posted.transpose()? else {
                return Ok(());
            };
            if let Some(writing) = writing {
                writing.posted += posted;
                writing.left += 1;
            }
        }
    }

    /// Handles a part of a message that was written.
    pub(super) fn pushed(&mut self, key: LinkKey, name: PendingKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        let Some(Pending::Announced {
            writing: Some(writing),
            ..
        }) = link.pending.get_mut(name)
        else {
            return;
        };
        writing.left -= 1;
        if writing.left != 0 || writing.posted < writing.len {
            return;
        }
        self.has_written(key, name);
    }

    /// Reports to the peer that all of the message that it has room for is written.
    fn has_written(&mut self, key: LinkKey, name: PendingKey) {
        self.tell(key, Kind::WriteDone, to_peer(name));
        self.has_left(key, name);
    }
}

impl Transfer {
    /// Creates a transfer of which nothing was requested.
    pub fn new(remote: RemoteIov, local: Local, len: usize) -> Self {
        Transfer {
            remote,
            local,
            len,
            posted: 0,
            left: 0,
        }
    }

    /// Returns the next part that is contiguous on both sides.
    fn next<'a>(&self, memory: &'a AppIov) -> Option<(Part<'a, 'static>, RemotePiece)> {
        if self.posted == self.len {
            return None;
        }
        let mut skip = self.posted as u64;
        let mut pieces = self.remote.pieces().iter();
        let piece = pieces.find(|piece| {
            let is_it = skip < piece.len;
            if !is_it {
                skip -= piece.len;
            }
            is_it
        })?;
        let left = (piece.len - skip).min((self.len - self.posted) as u64) as usize;
        let rest = memory.slice(self.posted, left);
        let first = rest.pieces().first()?.iov_len;
        let part = rest.narrow(0, first);
        let remote = RemotePiece {
            addr: piece.addr.wrapping_add(skip),
            len: first as u64,
            key: piece.key,
        };
        Some((part, remote))
    }

    /// Returns the descriptor of the segment that contains the next part.
    fn local_of(&self, memory: &AppIov) -> Local {
        self.local.from(self.posted, memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_one_piece_on_both_sides_and_make_up_the_whole() {
        let mut bytes = [[0_u8; 10], [0; 10]];
        let iov: Vec<libc::iovec> = bytes
            .iter_mut()
            .map(|piece| libc::iovec {
                iov_base: piece.as_mut_ptr().cast(),
                iov_len: piece.len(),
            })
            .collect();
        // SAFETY: the bytes outlive the memory's use.
        let memory = unsafe { AppIov::from_iov(iov.as_ptr(), 2) }.unwrap();
        let mut remote = RemoteIov::default();
        for (key, len) in [(1, 4), (2, 9), (3, 100)] {
            let addr = 1000 * key;
            remote.push(RemotePiece { addr, len, key });
        }
        let mut transfer = Transfer::new(remote, Local::NONE, 20);
        let mut parts = Vec::new();
        while let Some((part, remote)) = transfer.next(&memory) {
            assert_eq!(part.len() as u64, remote.len);
            parts.push((remote.key, remote.addr, remote.len));
            transfer.posted += part.len();
        }
        let expected = [(1, 1000, 4), (2, 2000, 6), (2, 2006, 3), (3, 3000, 7)];
        assert_eq!(parts, expected);
    }
}
