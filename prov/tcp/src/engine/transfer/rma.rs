//! Both sides of remote memory access (fi_rma(3)).

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::errno::{Errno, Result};
use prov_message::peers::{Deferred, Destination, Lent};
use prov_message::{Op, Reaching as _, Refusal, RmaTarget, Visitor};
use prov_util::request::{Access, RemoteAccess};

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::messages::{Endpoints, Placing};
use crate::engine::link::outstanding::PendingRead;
use crate::engine::link::post::Post;
use crate::engine::transfer::acknowledging::ack_of;
use crate::wire::WireError;
use crate::wire::header::refusal::Refused;
use crate::wire::header::{self, Header};

impl Core {
    /// Posts a read or a write.
    pub(crate) fn post_access(&mut self, ep: EpKey, access: &mut RemoteAccess) -> Result {
        self.params.sizes().check_access(access)?;
        self.check_fence(ep, access.flags)?;
        match self.destination(ep, access.peer)? {
            Destination::Open(conn) => {
                if self.access_alone(ep, conn, access)? {
                    return Ok(());
                }
                self.check_room(conn)?;
                self.start_access(ep, conn, access, None);
                Ok(())
            }
            Destination::Waits(peer) => {
                let op = Op::of_access(ep, access);
                self.defer(peer, op, || Deferred::access(access))
            }
        }
    }

    /// Starts a read or a write on an open connection.
    pub(crate) fn start_access(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        access: &mut RemoteAccess,
        copy: Option<&[u8]>,
    ) {
        let remote = &access.remote;
        let op = Op::of_access(ep, access);
        match access.access {
            Access::Write => {
                let mut header = Header::new(header::Op::Write);
                header.rma_count = remote.pieces().len() as u8;
                header.payload = access.local.len();
                header.carry(access.immediate());
                let op = self.ask_for_ack(key, &mut header, access.flags, op);
                self.post(
                    key,
                    Post {
                        header,
                        rma: remote.pieces(),
                        copy: access.is_inject(),
                        payload: Lent::of(&mut access.local, copy),
                        op,
                    },
                );
            }
            Access::Read => {
                let Some(conn) = self.conns.get_mut(key) else {
                    self.endpoints.report(&op, Err(Errno::ENOTCONN));
                    return;
                };
                let Some(ticket) = self.endpoints.count(op) else {
                    return;
                };
                conn.ops.reads.push_back(PendingRead {
                    ticket,
                    memory: access.local.take(),
                });
                bounded!(conn.ops.reads, OPERATIONS);
                let mut header = Header::new(header::Op::ReadRequest);
                header.rma_count = remote.pieces().len() as u8;
                self.post(key, Post::own(header, remote.pieces(), &[]));
            }
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.has_asked();
        }
        self.expects_answer(key);
    }

    /// Handles a peer's read of registered memory.
    pub(crate) fn read_requested(&mut self, key: ConnKey) -> LinkResult {
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        let list = *conn.stream.rma();
        let (target, visitor) = conn.visited(&mut self.target, &mut self.endpoints)?;
        let grants = match target.resolve(&visitor, FI_REMOTE_READ, list.pieces(), None) {
            Ok(grants) => grants,
            Err(refusal) => return self.refuse_access(key, Refused::Read, refusal),
        };
        let len = grants.len();
        let mut header = Header::new(header::Op::ReadResponse);
        header.payload = len;
        if let Err(error) = self.post_registered(key, header, &grants) {
            let piece = list.pieces().first().copied().unwrap_or_default();
            return self.refuse_access(key, Refused::Read, Refusal::Memory { error, piece });
        }
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        let (target, visitor) = conn.visited(&mut self.target, &mut self.endpoints)?;
        target.was_read(&visitor, &grants);
        Ok(())
    }

    /// Begins the data of the oldest read.
    pub(crate) fn read_answered(
        &mut self,
        key: ConnKey,
        header: &Header,
        bytes: &mut &[u8],
    ) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let expected = conn.ops.reads.front().map(|read| read.memory.len());
        if expected.is_some_and(|expected| expected != header.payload) {
            return Err(Fault::Protocol(WireError::Payload(header.payload as u64)));
        }
        let placing = conn.oldest_read()?;
        self.place(key, placing, header.payload, bytes)
    }

    /// Begins a peer's write to registered memory.
    pub(crate) fn write_begins(
        &mut self,
        key: ConnKey,
        header: &Header,
        bytes: &mut &[u8],
    ) -> LinkResult {
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        let list = *conn.stream.rma();
        let (target, visitor) = conn.visited(&mut self.target, &mut self.endpoints)?;
        let data = header.immediate();
        let grants = match target.resolve(&visitor, FI_REMOTE_WRITE, list.pieces(), data) {
            Ok(grants) => grants,
            Err(refusal) => {
                return self.refuse_write(key, ack_of(header), header.payload, refusal);
            }
        };
        let placing = Placing::remote_write(grants, data, ack_of(header))
            .persistent(header.flags & header::COMMIT_COMPLETE != 0);
        self.place(key, placing, header.payload, bytes)
    }
}

impl Connection {
    /// Returns the memory that the peer may access, and the peer.
    #[inline]
    pub(crate) fn visited<'a>(
        &self,
        target: &'a mut Option<RmaTarget>,
        endpoints: &'a mut Endpoints,
    ) -> std::result::Result<(&'a mut RmaTarget, Visitor<'a>), Fault> {
        let endpoint = self.ep().and_then(|ep| endpoints.get_mut(ep));
        let endpoint = endpoint.ok_or(Fault::Gone)?;
        let target = target.as_mut().ok_or(Fault::Gone)?;
        Ok((target, endpoint.visited(self.src).1))
    }
}
