//! What the protocol asks of the engine.

use prov_base::buffer::{Fetched, Iov};
use prov_base::errno::Errno;
use prov_util::mr::{Accessor, Grants};
use prov_util::request::RemoteIov;

use super::Core;
use super::accessed::Served;
use super::below::{Load, NOWHERE, Path};
use super::link::{OpKey, ServedKey};
use super::posting::{FromDevice, Operation, Payload as Bytes};
use crate::LOG;
use crate::address::Address;
use crate::protocol::{
    Admission, AtomicArrival, Datagram, Failure, Host, MAX_MTU, MessageArrival, Name, Obstacle,
    Payload, PeerId, WriteArrival,
};

impl Host for Core {
    type Op = OpKey;
    type Response = ServedKey;
    type Path = Path;

    #[inline]
    fn transmit(&mut self, datagram: &Datagram<'_, Path, OpKey, ServedKey>) -> bool {
        let Some(below) = &mut self.below else {
            return true;
        };
        let (header, to) = (datagram.header, datagram.path);
        match datagram.payload {
            Payload::None => below.send(header, &Load::Own(&[]), to),
            Payload::Op { op, offset, len } => match self.operations.get_mut(op) {
                Some(operation) => match &operation.payload {
                    Bytes::App(memory) if memory.has_device() => {
                        let mut bytes = [0; MAX_MTU];
                        let bytes = bytes.get_mut(..len).unwrap_or_default();
                        let device = operation.device.get_or_insert_default();
                        match device.read(&memory.slice(offset, usize::MAX), offset, bytes) {
                            Ok(()) => below.send(header, &Load::Own(bytes), to),
                            Err(obstacle) => {
                                self.obstacle = obstacle;
                                false
                            }
                        }
                    }
                    Bytes::App(memory) => {
                        below.send(header, &Load::App(&memory.slice(offset, len)), to)
                    }
                    Bytes::Copied(copied) => {
                        let part = copied.bytes().get(offset..offset + len);
                        below.send(header, &Load::Own(part.unwrap_or_default()), to)
                    }
                },
                None => true,
            },
            Payload::Response {
                response,
                offset,
                len,
            } => match self.served.get_mut(response) {
                Some(Served::Memory(_, grants, device)) => {
                    let mut bytes = [0; MAX_MTU];
                    let part = bytes.get_mut(..len).unwrap_or_default();
                    if let Some(target) = &mut self.target
                        && let Err(obstacle) =
                            read(grants, &mut target.memory, device, offset, part)
                    {
                        self.obstacle = obstacle;
                        return false;
                    }
                    below.send(header, &Load::Own(part), to)
                }
                Some(Served::Values(values)) => {
                    let part = values.bytes().get(offset..offset + len);
                    below.send(header, &Load::Own(part.unwrap_or_default()), to)
                }
                None => true,
            },
        }
    }

    #[cold]
    fn obstacle(&mut self) -> Obstacle {
        std::mem::take(&mut self.obstacle)
    }

    fn canonical(&self, name: &Name) -> Name {
        let addr = Address(*name);
        let below = self.below.as_ref();
        below
            .map_or(addr, |below| addr.seen_from(&below.name.bound))
            .0
    }

    fn own_name(&self, peer: &Name) -> Option<Name> {
        self.below.as_ref()?.name.towards(peer)
    }

    fn resolve(&mut self, name: &Name) -> Option<Path> {
        self.path_of_stranger(&Address(*name))
    }

    fn is_unknown(from: Path) -> bool {
        from == NOWHERE
    }

    fn released(&mut self, path: Path) {
        if let Some(below) = &self.below
            && let Err(error) = below.addresses.remove(path)
        {
            log::debug!(target: LOG.av, "an address below cannot be removed: {error}");
        }
    }

    fn is_expected(&mut self, name: &Name) -> bool {
        self.is_known(&Address(*name))
    }

    fn is_gone(&mut self, name: &Name) -> bool {
        self.is_port_closed(name)
    }

    fn host_of(&self, name: &Name) -> Name {
        Address(*name).host().0
    }

    fn refused(&mut self, peer: PeerId) {
        self.stranger_is_refused(peer);
    }

    fn appeared(&mut self, peer: PeerId, name: &Name, _path: Path) {
        self.peers.add(peer, Address(*name));
        self.link_of(peer);
    }

    fn disappeared(&mut self, peer: PeerId, path: Path) {
        if let Some(key) = self.peers.remove(peer) {
            self.ended.push((key, Errno::ECONNRESET));
        }
        // It was inserted for this peer.
        self.released(path);
    }

    #[inline]
    fn message(&mut self, peer: PeerId, message: &MessageArrival, payload: &[u8]) -> Admission {
        self.message_begins(peer, message, payload)
    }

    fn write(&mut self, peer: PeerId, write: &WriteArrival, payload: &[u8]) -> Result<(), Errno> {
        self.write_begins(peer, write, payload)
    }

    fn segment(&mut self, peer: PeerId, offset: usize, bytes: &[u8], in_order: bool) -> bool {
        self.part(peer, offset, bytes, in_order)
    }

    fn finished(&mut self, peer: PeerId) -> Result<(), Errno> {
        self.parts_end(peer)
    }

    fn interrupted(&mut self, peer: PeerId, reason: Failure) {
        if let Some(key) = self.peers.link(peer) {
            self.ends(key, error_of(reason));
        }
    }

    fn read(&mut self, peer: PeerId, remote: &RemoteIov) -> Result<ServedKey, Errno> {
        self.read_begins(peer, remote)
    }

    fn atomic(
        &mut self,
        peer: PeerId,
        atomic: &AtomicArrival<'_>,
    ) -> Result<Option<ServedKey>, Errno> {
        self.atomic_arrives(peer, atomic)
    }

    fn responded(&mut self, _peer: PeerId, response: ServedKey, delivered: bool) {
        self.was_served(response, delivered);
    }

    fn result(&mut self, op: OpKey, offset: usize, bytes: &[u8]) {
        if let Some(operation) = self.operations.get(op) {
            operation.result.write_at(offset, bytes);
        }
    }

    #[inline]
    fn done(&mut self, op: OpKey, outcome: Result<(), Failure>) {
        match self.is_quiet {
            false => self.operation_done(op, outcome),
            true => {
                self.postponed.push((op, outcome));
                debug_assert!(self.postponed.len() <= self.operations.len());
            }
        }
    }
}

impl FromDevice {
    /// Copies the first bytes of `memory`, which are at an offset of what is sent.
    ///
    /// # Errors
    /// [`Obstacle::NotYet`] and [`Obstacle::Unreadable`].
    #[cold]
    fn read(&mut self, memory: &Iov<'_>, offset: usize, bytes: &mut [u8]) -> Result<(), Obstacle> {
        match memory.read_part_ahead(offset as u64, bytes, &mut self.0) {
            Ok(Fetched::All) => Ok(()),
            Ok(Fetched::Later) => Err(Obstacle::NotYet),
            Err(_) => Err(Obstacle::Unreadable),
        }
    }
}

/// Copies registered memory from an offset on.
///
/// # Errors
/// As for [`FromDevice::read`].
fn read(
    grants: &Grants,
    memory: &mut Accessor,
    device: &mut Option<Box<FromDevice>>,
    offset: usize,
    bytes: &mut [u8],
) -> Result<(), Obstacle> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done;
        let room = bytes.get_mut(done..).unwrap_or_default();
        let wanted = room.len();
        let (len, outcome) = grants.part(memory, at, usize::MAX, |part| {
            let room = room.get_mut(..wanted.min(part.len())).unwrap_or_default();
            match part.has_device() {
                true => device.get_or_insert_default().read(part, at, room),
                false => {
                    part.read_at(0, room);
                    Ok(())
                }
            }
        });
        outcome.unwrap_or(Ok(()))?;
        if len == 0 {
            break;
        }
        done += len.min(wanted);
    }
    Ok(())
}

impl Core {
    /// Ends an operation, and the link if its peer is gone.
    #[inline]
    pub(super) fn operation_done(&mut self, op: OpKey, outcome: Result<(), Failure>) {
        let Some(operation) = self.take_operation(op) else {
            return;
        };
        let Err(failure) = outcome else {
            return self.finish_operation(operation, Ok(()));
        };
        let error = error_of(failure);
        let is_gone = matches!(failure, Failure::Silent | Failure::Restarted);
        let last = self.ended.last();
        if is_gone && last.is_none_or(|(key, _)| *key != operation.link) {
            self.ends(operation.link, error);
        }
        self.finish_operation(operation, Err(error));
    }

    /// Reports an operation, whose result a device may not have yet.
    #[inline]
    fn finish_operation(&mut self, operation: Operation, outcome: Result<(), Errno>) {
        let Operation { ticket, result, .. } = operation;
        match result.has_device() {
            true => self.endpoints.finish_read(ticket, result, outcome),
            false => self.endpoints.finish(ticket, outcome),
        }
    }
}

/// The error with which operations fail.
fn error_of(failure: Failure) -> Errno {
    match failure {
        Failure::Silent => Errno::ETIMEDOUT,
        Failure::Restarted => Errno::ECONNRESET,
        Failure::Refused(error) => error,
        Failure::Abandoned => Errno::ECANCELED,
        Failure::Unreadable => Errno::EIO,
    }
}
