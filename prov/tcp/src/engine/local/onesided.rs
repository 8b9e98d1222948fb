//! Writes and reads between two processes of one host that the initiator carries out alone,
//! whatever the target does meanwhile ([`prov_local::onesided`]).
//!
//! They are copied when they are posted, so that operations that are posted later come after them.
//! They are in order with earlier operations because accesses are requested from the peer, as if it
//! were on another host, until it has acted upon those.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;

use fabric_abi::FI_FENCE;

use crate::local::neighbour::{OutOfTurn, Remark, Subject};
use prov_base::errno::{Errno, Result};
use prov_local::onesided::table::RegionTable;
use prov_local::onesided::window::Window;
use prov_message::Op;
use prov_message::peers::Bytes;
use prov_util::request::{Access, RemoteAccess};

use crate::LOG;
use crate::engine::Core;
use crate::engine::link::access::Regions;
use crate::engine::link::connection::Connection;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::messages::Endpoints;
use crate::engine::link::post::Post;
use crate::wire::WireError;
use crate::wire::handshake::Features;
use crate::wire::header::{self, Header};

/// Reads in search of a peer's regions: the socket, which brings that the next bytes come through
/// memory, and the memory.
const LOOKS: u32 = 2;

impl Connection {
    /// Permits the peer of an endpoint for such accesses to make them directly, if that is possible.
    /// Returns what tells it that.
    pub(super) fn lend_regions(
        &mut self,
        endpoints: &Endpoints,
        regions: Option<&Arc<RegionTable>>,
    ) -> Option<Remark> {
        let is_for_rma = endpoints.get(self.ep()?)?.own.is_for_rma;
        if !is_for_rma || !self.features.has(Features::REGIONS) {
            return None;
        }
        let (holder, regions) = (self.local.neighbour.holder()?, regions?);
        let shortcut = self.local.shortcut.as_ref()?;
        let watching = regions.watch(shortcut.channel().flights_of_peer(), holder.pid());
        let watching = watching.inspect_err(|error| {
            log::info!(
                target: LOG.ep_ctrl,
                "process {} cannot access memory by itself: {error}", holder.pid()
            );
        });
        self.local.onesided.watching = Some(watching.ok()?);
        Some(Remark {
            subject: Subject::Regions,
            id: regions.descriptor().as_raw_fd().unsigned_abs().into(),
            word: 0,
        })
    }

    /// Handles the peer's offer of its region table.
    pub(super) fn regions_offered(&mut self, remark: &Remark) -> LinkResult {
        let regions = &mut self.local.onesided.regions;
        let is_known = !matches!(regions, Regions::Unknown);
        if is_known || self.local.shortcut.is_none() || !self.features.has(Features::REGIONS) {
            return Err(OutOfTurn.into());
        }
        *regions = Regions::Offered(remark.id);
        Ok(())
    }
}

impl Core {
    /// Carries out an access without the peer, if that is possible and in order; returns `false` if
    /// it has to be requested from the peer.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space for the message that informs the peer.
    pub(crate) fn access_alone(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        access: &RemoteAccess,
    ) -> Result<bool> {
        let Some(conn) = self.conns.get(key) else {
            return Ok(false);
        };
        if matches!(conn.local.onesided.regions, Regions::Unknown) {
            self.meet_for_accesses(key);
            self.look_for_regions(key);
        }
        // What was read may have ended the connection.
        let conn = self.conns.get_mut(key).ok_or(Errno::EAGAIN)?;
        match conn.local.onesided.regions {
            Regions::Open(_) => {}
            Regions::Offered(number) => open(conn, number),
            Regions::Unknown | Regions::Closed => return Ok(false),
        }
        let endpoint = self.endpoints.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let is_behind_messages = endpoint.own.msg_order & access.access.behind_messages() != 0
            || endpoint.own.has_fences && access.flags & FI_FENCE != 0;
        let has_room = self.check_room(key);
        let Some(conn) = self.conns.get_mut(key) else {
            return Ok(false);
        };
        if !conn.may_access(is_behind_messages) {
            return Ok(false);
        }
        let (onesided, socket) = (&mut conn.local.onesided, &conn.socket);
        let Regions::Open(window) = &mut onesided.regions else {
            return Ok(false);
        };
        let bytes = Bytes::App(&access.local);
        let has_room = || has_room.is_ok();
        let Some(accessed) = window.access(access, &bytes, socket.as_fd(), has_room)? else {
            return Ok(false);
        };
        if accessed.is_told {
            self.tell_of(key, access);
        }
        self.endpoints
            .report(&Op::of_access(ep, access), accessed.outcome);
        Ok(true)
    }

    /// Reads what a peer that shares memory has sent, which may be the offer of its regions. A peer
    /// that makes no more calls would not answer an access that is requested from it instead, and
    /// progress calls ask the poller only now and then.
    #[cold]
    fn look_for_regions(&mut self, key: ConnKey) {
        for _ in 0..LOOKS {
            let conn = self.conns.get(key);
            let is_of_use = conn.is_some_and(|conn| {
                conn.local.shortcut.is_some()
                    && matches!(conn.local.onesided.regions, Regions::Unknown)
            });
            if !is_of_use {
                return;
            }
            self.read(key, false);
        }
    }

    /// Informs the peer of an access that this process has carried out.
    fn tell_of(&mut self, key: ConnKey, access: &RemoteAccess) {
        let mut header = Header::new(header::Op::Accessed);
        let remote = access.remote.pieces();
        header.rma_count = remote.len() as u8;
        header.op_data = match access.access {
            Access::Write => header::HAS_WRITTEN,
            Access::Read => header::HAS_READ,
        };
        header.carry(access.immediate());
        let conn = self.conns.get(key);
        let was_settled = conn.is_some_and(Connection::is_as_settled);
        self.post(key, Post::own(header, remote, &[]));
        if let Some(conn) = self.conns.get_mut(key)
            && was_settled
        {
            conn.has_told();
        }
    }

    /// Handles the notification that the peer has accessed memory of this process directly.
    pub(crate) fn was_accessed(&mut self, key: ConnKey, header: &Header) -> LinkResult {
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        if conn.local.onesided.watching.is_none() {
            return Err(OutOfTurn.into());
        }
        let list = *conn.stream.rma();
        let data = header.immediate();
        if data.is_some() {
            self.look_for_source(key);
        }
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        let (target, visitor) = conn.visited(&mut self.target, &mut self.endpoints)?;
        match header.op_data {
            header::HAS_WRITTEN => target.has_been_written(&visitor, list.pieces(), data),
            header::HAS_READ => target.has_been_read(&visitor, list.pieces()),
            _ => return Err(Fault::Protocol(WireError::Field("access"))),
        }
        Ok(())
    }
}

/// Maps the peer's file with its regions.
fn open(conn: &mut Connection, number: u64) {
    let (Some(holder), Some(memory)) =
        (conn.local.neighbour.holder(), conn.local.neighbour.memory())
    else {
        // Whether its memory can be read is not determined yet.
        return;
    };
    let Some(shortcut) = &conn.local.shortcut else {
        return;
    };
    let opened = Window::open(
        &holder.files,
        number,
        shortcut.channel().flights(),
        memory.clone(),
    );
    conn.local.onesided.regions = match opened {
        Ok(window) => Regions::Open(Box::new(window)),
        Err(error) => {
            cannot_access(conn, error);
            Regions::Closed
        }
    };
}

fn cannot_access(conn: &Connection, error: Errno) {
    log::info!(
        target: LOG.ep_data,
        "{} is asked for each access to its memory: {error}", conn.peer_text()
    );
}
