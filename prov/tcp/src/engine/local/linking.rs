//! The link of a connection between two processes of one host ([`prov_local::link`]): operations that are
//! posted once this side has left the socket go by it.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_local::copies::{Copier, Copies, Pulls, Transfer};
use prov_local::link::payload::Payload;
use prov_local::link::{self, At, Link, Links, Lists, StreamTurn};
use prov_local::onesided::table::RegionTable;
use prov_local::onesided::window::Window;
use prov_local::switch_points::{EAGER, WIDE};
use prov_message::EpKey;
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::reaching::DeferredOp;
use prov_util::request::{Atomic, RemoteAccess, Transmit};

use crate::LOG;
use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::keys::ConnKey;
use crate::engine::link::messages::{Endpoints, Tcp};
use crate::engine::link::ready::Why;
use crate::engine::transfer::ways::{ALWAYS_ANNOUNCED, SendPath};
use crate::local::neighbour::{OutOfTurn, Remark, Subject};
use crate::wire::WireError;
use crate::wire::handshake::Features;

/// Reads in search of a peer's regions: the socket, which brings that the next bytes come through
/// memory, and the memory.
const LOOKS: u32 = 2;

impl Core {
    /// Whether operations on a connection go by its link.
    #[inline]
    pub(crate) fn is_linked(&self, key: ConnKey) -> bool {
        let conn = self.conns.get(key);
        let shortcut = conn.and_then(|conn| conn.local.shortcut.as_ref());
        shortcut.is_some_and(|shortcut| shortcut.sends())
    }

    /// Whether something else may be posted to a link now: what left by the socket, or is about to leave
    /// by the stream, is not overtaken.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if not.
    fn check_link(&mut self, key: ConnKey) -> Result {
        let conn = self.conns.get(key).ok_or(Errno::ENOTCONN)?;
        if conn.is_cut_off() {
            return Err(Errno::EAGAIN);
        }
        if !conn.outbox.is_empty() {
            self.flush(key);
        }
        let conn = self.conns.get(key).ok_or(Errno::ENOTCONN)?;
        conn.outbox.is_empty().then_some(()).ok_or(Errno::EAGAIN)
    }

    /// Posts a message to a link.
    ///
    /// # Errors
    /// Those of [`link::post_message`].
    pub(crate) fn send_by_link(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        message: &mut Transmit,
    ) -> Result {
        let conn = self.conns.get(key).ok_or(Errno::ENOTCONN)?;
        if conn.needs_stream(message) {
            // Nor does it overtake what waits for space on the link.
            if conn.link().is_some_and(Link::holds_messages) {
                return Err(Errno::EAGAIN);
            }
            self.check_room(key)?;
            self.send_by(SendPath::Eager, ep, key, message, None);
            return Ok(());
        }
        self.check_link(key)?;
        link::post_message(self, ep, key, message)?;
        self.watch_link(key);
        self.note_link(key);
        Ok(())
    }

    /// Notes whether operations wait for space on a link.
    pub(crate) fn note_link(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        if conn.is_some_and(Connection::has_link_to_send) {
            self.note_stall(key, Why::Starved, true);
        }
    }

    /// Posts a read or a write to a link.
    ///
    /// # Errors
    /// Those of [`link::post_access`].
    pub(crate) fn access_by_link(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        access: &mut RemoteAccess,
    ) -> Result {
        self.check_link(key)?;
        self.look_for_regions(key);
        let conn = self.conns.get_mut(key).ok_or(Errno::EAGAIN)?;
        // Data of reads that were requested by the socket is taken from the memory later.
        if !conn.ops.reads.is_empty() {
            return Err(Errno::EAGAIN);
        }
        if let Some(number) = conn.local.regions.take() {
            open(conn, number);
        }
        link::post_access(self, ep, key, access)
    }

    /// Posts an atomic operation to a link.
    ///
    /// # Errors
    /// Those of [`link::post_atomic`].
    pub(crate) fn atomic_by_link(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        atomic: &mut Atomic,
    ) -> Result {
        self.check_link(key)?;
        let conn = self.conns.get(key).ok_or(Errno::EAGAIN)?;
        if !conn.ops.reads.is_empty() {
            return Err(Errno::EAGAIN);
        }
        link::post_atomic(self, ep, key, atomic)
    }

    /// Reads what a peer that shares memory has sent, which may be the offer of its regions. A peer
    /// that makes no more calls would not answer an access that is requested from it instead, and
    /// progress calls ask the poller only now and then.
    fn look_for_regions(&mut self, key: ConnKey) {
        for _ in 0..LOOKS {
            let link = self.conns.get(key).and_then(Connection::link);
            if link.is_none_or(|link| link.has_looked) {
                return;
            }
            self.read(key, false);
        }
        if let Some(link) = self.conns.get_mut(key).and_then(Connection::link_mut) {
            link.has_looked = true;
        }
    }
}

impl Connection {
    /// Whether a message leaves by the stream, since the peer fetches announced ones of its length whether a
    /// receive waits for them or not, and cannot where the payload would have to come in parts.
    fn needs_stream(&self, message: &Transmit) -> bool {
        let len = message.buffers.len();
        let is_unreadable = self.local.neighbour.memory().is_none();
        let is_announced = || self.link().is_some_and(|link| link.pending.offers_only());
        match self.is_msg() {
            true => len > EAGER && (is_unreadable || message.buffers.has_device()),
            false => is_unreadable && len > WIDE && len <= ALWAYS_ANNOUNCED && !is_announced(),
        }
    }

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
        let (pid, regions) = (self.local.neighbour.holder()?.pid(), regions?);
        let link = self.link_mut()?;
        let watching = regions.watch(link.channel.as_ref()?.flights_of_peer(), pid);
        let watching = watching.inspect_err(|error| {
            log::info!(
                target: LOG.ep_ctrl,
                "process {pid} cannot access memory by itself: {error}"
            );
        });
        link.watching = Some(watching.ok()?);
        Some(Remark {
            subject: Subject::Regions,
            id: regions.descriptor().as_raw_fd().unsigned_abs().into(),
            word: 0,
        })
    }

    /// Handles the peer's offer of its region table.
    pub(super) fn regions_offered(&mut self, remark: &Remark) -> LinkResult {
        let may_be = self.features.has(Features::REGIONS);
        let link = self.link_mut().filter(|link| may_be && !link.has_regions);
        let link = link.ok_or(OutOfTurn)?;
        (link.has_regions, link.has_looked) = (true, true);
        self.local.regions = Some(remark.id);
        Ok(())
    }
}

/// Maps the peer's file with its regions.
fn open(conn: &mut Connection, number: u64) {
    let (Some(holder), Some(memory)) =
        (conn.local.neighbour.holder(), conn.local.neighbour.memory())
    else {
        // Whether its memory can be read is not determined yet.
        conn.local.regions = Some(number);
        return;
    };
    let (files, memory) = (holder.files.clone(), memory.clone());
    let Some(link) = conn.link_mut() else {
        return;
    };
    let Some(channel) = &link.channel else {
        return;
    };
    match Window::open(&files, number, channel.flights(), memory) {
        Ok(window) => link.window = Some(window),
        Err(error) => log::info!(
            target: LOG.ep_data,
            "{} is asked for each access to its memory: {error}", conn.peer_text()
        ),
    }
}

impl Links for Core {
    #[inline(always)]
    fn at(&mut self, key: ConnKey) -> Option<At<'_, Tcp>> {
        let Core {
            conns,
            endpoints,
            target,
            lists,
            ..
        } = self;
        let shortcut = conns.get_mut(key)?.local.shortcut.as_mut()?;
        Some(At {
            link: &mut shortcut.link,
            endpoints,
            target,
            lists,
        })
    }

    #[inline(always)]
    fn lists(&mut self) -> &mut Lists<ConnKey> {
        &mut self.lists
    }

    #[inline]
    fn find_source(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        let is_ordered = |conn: &Connection| conn.link().is_some_and(|link| link.is_ordered);
        if conn.is_some_and(|conn| conn.src == UNKNOWN_SOURCE && !is_ordered(conn)) {
            self.look_for_source(key);
        }
    }

    fn is_message_deferred(&mut self, _key: ConnKey) -> Option<bool> {
        None
    }

    fn next_deferred(&mut self, _key: ConnKey) -> Option<DeferredOp> {
        None
    }

    fn breaks(&mut self, key: ConnKey, fault: link::Fault) {
        match fault {
            // The stream has ended if nothing of it waits.
            link::Fault::Ended(Errno::ESHUTDOWN) => self.read_later(key),
            link::Fault::Ended(error) => self.break_with(key, Fault::Io(error)),
            link::Fault::Refused => self.break_with(key, Fault::Gone),
            link::Fault::Protocol(what) => {
                self.break_with(key, Fault::Protocol(WireError::Field(what)));
            }
        }
    }

    fn take_in_stream(&mut self, key: ConnKey) -> StreamTurn {
        let any = self.read(key, false);
        let conn = self.conns.get(key);
        StreamTurn {
            any,
            waits: conn.is_some_and(Connection::is_paused),
        }
    }
}

impl Copies for Core {
    fn copier(&mut self) -> &mut Copier<Tcp> {
        &mut self.copier
    }

    fn wake_for_copies(&mut self) {
        if self.must_wake() {
            self.poller.wake_at(Instant::now());
        }
    }

    fn pulls(&mut self, key: ConnKey) -> Option<Pulls<'_, Tcp>> {
        let conn = self.conns.get_mut(key)?;
        let link = &mut conn.local.shortcut.as_mut()?.link;
        Some(Pulls {
            ep: link.ep,
            memory: conn.local.neighbour.memory(),
            transfers: &mut link.pulls,
            endpoints: &mut self.endpoints,
        })
    }

    fn offered(&self, key: ConnKey, name: u64) -> Option<&Payload> {
        self.conns.get(key)?.link()?.offered(name)
    }

    fn has_offers(&self, key: ConnKey) -> bool {
        let link = self.conns.get(key).and_then(Connection::link);
        link.is_some_and(Link::has_offers)
    }

    fn note_work(&mut self) {
        self.idle_calls = 0;
    }

    fn copied(&mut self, key: ConnKey, transfer: Transfer<Tcp>, outcome: Result) {
        link::copied(self, key, transfer, outcome);
    }
}
