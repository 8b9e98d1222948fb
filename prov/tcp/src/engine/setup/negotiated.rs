//! Operations beyond the C library's protocol. Whether a peer knows them shows
//! only once it has answered a connection request, and they are refused when
//! they are posted: so they wait for the connection with the application.

use prov_message::Reaching as _;
use std::time::Instant;

use prov_message::peers::Destination;
use prov_util::errno::{Errno, Result};

use crate::engine::Core;
use crate::engine::link::endpoint::Kind;
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::wire::handshake::Features;

impl Core {
    /// The connection for an operation of an endpoint that takes a peer with
    /// `features`, called `what` in the log.
    ///
    /// # Errors
    /// `-FI_EAGAIN` while the connection is being made, which this starts;
    /// once after that has failed, the reason. `-FI_EOPNOTSUPP` for a peer
    /// that does not have the features.
    #[inline]
    pub(crate) fn negotiated(
        &mut self,
        ep: EpKey,
        addr: u64,
        features: Features,
        what: &str,
    ) -> Result<ConnKey> {
        let key = match self.known_connection(ep, addr) {
            Some(key) => key,
            None => self.await_connection(ep, addr)?,
        };
        match self.conns.get(key) {
            Some(conn) if conn.features.has(features) => Ok(key),
            _ => self.not_negotiated(key, what),
        }
    }

    /// The open connection for an address, if it was used before.
    #[inline]
    fn known_connection(&self, ep: EpKey, addr: u64) -> Option<ConnKey> {
        let key = match &self.endpoints.get(ep)?.own.kind {
            Kind::Rdm(rdm) => rdm.peers.open_link(addr)?,
            Kind::Msg(msg) => msg.conn?,
        };
        self.conns.get(key)?.is_open().then_some(key)
    }

    #[cold]
    fn await_connection(&mut self, ep: EpKey, addr: u64) -> Result<ConnKey> {
        if let Some(key) = self.connection_or_failure(ep, addr)? {
            return Ok(key);
        }
        // The application may do nothing else but try again.
        self.do_what_is_ready();
        self.connection_or_failure(ep, addr)?.ok_or(Errno::EAGAIN)
    }

    fn connection_or_failure(&mut self, ep: EpKey, addr: u64) -> Result<Option<ConnKey>> {
        let peer = match self.destination(ep, addr)? {
            Destination::Open(key) => return Ok(Some(key)),
            Destination::Waits(peer) => peer,
        };
        let rdm = self.rdm(ep).ok_or(Errno::EOPBADSTATE)?;
        let step = rdm.peers.await_link(peer, Instant::now())?;
        self.take_step(ep, step);
        Ok(None)
    }

    #[cold]
    fn not_negotiated(&mut self, key: ConnKey, what: &str) -> Result<ConnKey> {
        let conn = self.conns.get_mut(key).ok_or(Errno::ENOTCONN)?;
        if !std::mem::replace(&mut conn.is_refused, true) {
            log::warn!(
                target: crate::LOG.ep_ctrl,
                "{} has no {what}: its library does not know them",
                conn.peer_text()
            );
        }
        Err(Errno::EOPNOTSUPP)
    }
}
