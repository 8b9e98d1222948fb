//! Peers' accesses to registered memory (fi_rma(3), fi_atomic(3)).

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA};
use prov_base::device_memory::has_failures;
use prov_base::errno::Errno;
use prov_message::{AtomicRequest, Course, PayloadBuffer, Placing, RemoteData, Reports, Then};
use prov_util::mr::Grants;

use super::Core;
use super::copied::Copied;
use super::link::{EpKey, Incoming, LinkKey, Rxd, ServedKey};
use super::posting::FromDevice;
use crate::protocol::{AtomicArrival, Form, MAX_FOREIGN, PeerId, WriteArrival};
use prov_util::request::RemoteIov;

/// What a peer reads.
pub enum Served {
    /// Registered memory; the last part is for that of a device.
    Memory(LinkKey, Grants, Option<Box<FromDevice>>),
    /// The old values of an atomic operation.
    Values(Copied),
}

impl Core {
    /// Handles a write that begins, with its first bytes.
    pub(super) fn write_begins(
        &mut self,
        peer: PeerId,
        write: &WriteArrival,
        payload: &[u8],
    ) -> Result<(), Errno> {
        let key = self.link_of(peer).ok_or(Errno::ECONNRESET)?;
        if write.data.is_some() {
            self.find_source(key);
        }
        let link = self.links.get(key).ok_or(Errno::ECONNRESET)?;
        let (ep, src) = (link.ep, link.src);
        let state = self.endpoints.get_mut(ep).ok_or(Errno::ECONNRESET)?;
        let target = self.target.as_mut().ok_or(Errno::ECONNRESET)?;
        let (_, visitor) = state.visited(src);
        let pieces = write.remote.pieces();
        let grants = target.resolve(&visitor, FI_REMOTE_WRITE, pieces, write.data);
        let grants = grants.map_err(|refusal| refusal.error())?;
        grants.write_at(&mut target.memory, 0, payload);
        if has_failures() {
            grants.take_failure(&mut target.memory)?;
        }
        let placing = Placing::remote_write(grants, write.data, ());
        let len = usize::try_from(write.remote.len()).unwrap_or(usize::MAX);
        if payload.len() >= len {
            self.placed(key, placing);
        } else if let Some(link) = self.links.get_mut(key) {
            let course = Course::Place(Box::new(placing));
            link.incoming = Some(Incoming { course, len });
        }
        Ok(())
    }

    /// Handles the end of a write with immediate data: the application hears of it, as soon as its
    /// queue has room.
    pub(super) fn written_with_data(
        &mut self,
        ep: EpKey,
        key: LinkKey,
        mut placing: Placing<Rxd>,
        data: u64,
    ) {
        let src = self.links.get(key).map_or(u64::MAX, |link| link.src);
        let len = match &placing.place {
            PayloadBuffer::Registered(grants) => grants.len(),
            PayloadBuffer::App(_) => 0,
        };
        let reports = self.endpoints.get(ep).map(|state| &state.reports);
        let write = RemoteData { len, data, src };
        if self.unreported.has_to_wait(reports, write) {
            // The counters are told at once.
            placing.then = Then::RemoteWrite {
                data: None,
                ack: (),
            };
        }
        self.endpoints
            .placed(&mut self.target, ep, src, placing, Ok(()));
    }

    /// Reports immediate data that has waited, as far as there is room.
    #[cold]
    pub(super) fn report_written_before(&mut self) {
        while let Some(reports) = reports(&self.endpoints)
            && let Some(write) = self.unreported.next(Some(reports))
        {
            let RemoteData { len, data, src } = write;
            reports.immediate_data(FI_RMA | FI_REMOTE_WRITE, len, data, src);
        }
    }

    /// Returns whether no further datagrams are read until the application has read completions.
    /// The writes that wait are limited to the room in the queue plus one progress call: that many
    /// datagrams are read, so that peers' acknowledgements behind them arrive.
    pub(super) fn is_full(&self) -> bool {
        self.unreported.is_full(reports(&self.endpoints))
    }

    /// Handles a peer's read.
    pub(super) fn read_begins(
        &mut self,
        peer: PeerId,
        remote: &RemoteIov,
    ) -> Result<ServedKey, Errno> {
        let key = self.link_of(peer).ok_or(Errno::ECONNRESET)?;
        let link = self.links.get(key).ok_or(Errno::ECONNRESET)?;
        let (ep, src) = (link.ep, link.src);
        let state = self.endpoints.get_mut(ep).ok_or(Errno::ECONNRESET)?;
        let target = self.target.as_mut().ok_or(Errno::ECONNRESET)?;
        let (_, visitor) = state.visited(src);
        let grants = target.resolve(&visitor, FI_REMOTE_READ, remote.pieces(), None);
        let grants = grants.map_err(|refusal| refusal.error())?;
        debug_assert!(self.served.len() <= MAX_FOREIGN);
        Ok(self.served.insert(Served::Memory(key, grants, None)))
    }

    /// Performs a peer's atomic operation.
    pub(super) fn atomic_arrives(
        &mut self,
        peer: PeerId,
        atomic: &AtomicArrival<'_>,
    ) -> Result<Option<ServedKey>, Errno> {
        let key = self.link_of(peer).ok_or(Errno::ECONNRESET)?;
        if atomic.data.is_some() {
            self.find_source(key);
        }
        let link = self.links.get(key).ok_or(Errno::ECONNRESET)?;
        let (ep, src) = (link.ep, link.src);
        let state = self.endpoints.get_mut(ep).ok_or(Errno::ECONNRESET)?;
        let target = self.target.as_mut().ok_or(Errno::ECONNRESET)?;
        let (_, visitor) = state.visited(src);
        let request = AtomicRequest {
            form: atomic.form,
            op: atomic.op,
            datatype: atomic.datatype,
            operands: atomic.operands,
            data: atomic.data,
        };
        self.old_values.clear();
        target
            .atomic(
                &visitor,
                atomic.remote.pieces(),
                &request,
                &mut self.old_values,
            )
            .map_err(|refusal| refusal.error())?;
        Ok(match atomic.form {
            Form::Base => None,
            _ => {
                let values = Copied::of_slice(&self.old_values);
                Some(self.served.insert(Served::Values(values)))
            }
        })
    }

    /// Handles that a peer needs what it reads no longer.
    pub(super) fn was_served(&mut self, served: ServedKey, delivered: bool) {
        let Some(Served::Memory(link, grants, _)) = self.served.remove(served) else {
            return;
        };
        let link = self.links.get(link).filter(|_| delivered);
        if let Some(link) = link
            && let Some(state) = self.endpoints.get_mut(link.ep)
            && let Some(target) = &mut self.target
        {
            let (_, visitor) = state.visited(link.src);
            target.was_read(&visitor, &grants);
        }
    }
}

/// The reports of the endpoint.
fn reports(endpoints: &super::link::Endpoints) -> Option<&Reports> {
    endpoints.iter().next().map(|(_, state)| &state.reports)
}
