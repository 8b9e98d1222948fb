//! Operations that are extensions of the C library's protocol. Whether a peer supports them is
//! known only after it has answered a connection request, and they must be refused when they are
//! posted: so the application retries them (`-FI_EAGAIN`) until there is a connection.

use prov_message::Reaching as _;
use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_message::peers::Destination;

use crate::engine::Core;
use crate::engine::link::endpoint::Kind;
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::wire::handshake::Features;

impl Core {
    /// Returns the connection for an operation that requires a peer with `features`; the log calls
    /// it `what`.
    ///
    /// # Errors
    /// `-FI_EAGAIN` while the connection is being established, which this call starts; the reason
    /// once after that has failed. `-FI_EOPNOTSUPP` for a peer without the features.
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

    /// Returns the open connection for an address, if the address was used before.
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
        // The application may do nothing but retry, so this call makes progress.
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
        if !std::mem::replace(&mut conn.logged.lacks_support, true) {
            log::warn!(
                target: crate::LOG.ep_ctrl,
                "{} has no {what}: its library does not know them",
                conn.peer_text()
            );
        }
        Err(Errno::EOPNOTSUPP)
    }
}
