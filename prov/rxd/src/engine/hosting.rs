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
    Admission, AtomicArrival, Datagram, Failure, Host, MAX_MTU, MessageArrival, Name, Payload,
    PeerId, WriteArrival,
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
                            true => below.send(header, &Load::Own(bytes), to),
                            false => {
                                self.is_late = true;
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
                        && !read(grants, &mut target.memory, device, offset, part)
                    {
                        self.is_late = true;
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
    fn is_late(&mut self) -> bool {
        std::mem::take(&mut self.is_late)
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

    fn finished(&mut self, peer: PeerId) {
        self.parts_end(peer);
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
    /// Copies the first bytes of `memory`, which are at an offset of what is sent; `false` if the
    /// device has not read them yet. Those that it cannot read are zeros.
    #[cold]
    fn read(&mut self, memory: &Iov<'_>, offset: usize, bytes: &mut [u8]) -> bool {
        let read = memory.read_part_ahead(offset as u64, bytes, &mut self.ahead);
        if read.is_err() {
            bytes.fill(0);
            self.has_failed = true;
        }
        read != Ok(Fetched::Later)
    }
}

/// Copies registered memory from an offset on; `false` if a device has not read it yet.
fn read(
    grants: &Grants,
    memory: &mut Accessor,
    device: &mut Option<Box<FromDevice>>,
    offset: usize,
    bytes: &mut [u8],
) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done;
        let room = bytes.get_mut(done..).unwrap_or_default();
        let wanted = room.len();
        let (len, is_here) = grants.part(memory, at, usize::MAX, |part| {
            let room = room.get_mut(..wanted.min(part.len())).unwrap_or_default();
            match part.has_device() {
                true => device.get_or_insert_default().read(part, at, room),
                false => {
                    part.read_at(0, room);
                    true
                }
            }
        });
        if is_here == Some(false) {
            return false;
        }
        if len == 0 {
            break;
        }
        done += len.min(wanted);
    }
    true
}

impl Core {
    /// Ends an operation, and the link if its peer is gone.
    #[inline]
    pub(super) fn operation_done(&mut self, op: OpKey, outcome: Result<(), Failure>) {
        let Some(operation) = self.take_operation(op) else {
            return;
        };
        let Err(failure) = outcome else {
            if operation.has_device() {
                return self.device_operation_done(operation);
            }
            return self.endpoints.finish(operation.ticket, Ok(()));
        };
        let error = error_of(failure);
        let is_gone = matches!(failure, Failure::Silent | Failure::Restarted);
        let last = self.ended.last();
        if is_gone && last.is_none_or(|(key, _)| *key != operation.link) {
            self.ends(operation.link, error);
        }
        self.endpoints.finish(operation.ticket, Err(error));
    }

    /// The same for an operation on memory of a device, which may have failed, or not have the result
    /// yet.
    #[cold]
    fn device_operation_done(&mut self, operation: Operation) {
        let has_failed = operation.device.is_some_and(|device| device.has_failed);
        let outcome = if has_failed { Err(Errno::EIO) } else { Ok(()) };
        self.endpoints
            .finish_read(operation.ticket, operation.result, outcome);
    }
}

/// The error with which operations fail.
fn error_of(failure: Failure) -> Errno {
    match failure {
        Failure::Silent => Errno::ETIMEDOUT,
        Failure::Restarted => Errno::ECONNRESET,
        Failure::Refused(error) => error,
        Failure::Abandoned => Errno::ECANCELED,
    }
}
