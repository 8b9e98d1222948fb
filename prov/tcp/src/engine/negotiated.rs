//! Operations beyond the C library's protocol. Whether a peer knows them shows
//! only once it has answered a connection request, and they are refused when
//! they are posted: so they wait for the connection with the application.

use prov_util::errno::{Errno, Result};

use super::Core;
use super::endpoint::Kind;
use super::keys::{ConnKey, EpKey};
use super::rdm::Awaited;
use super::sending::Destination;
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
    pub(super) fn negotiated(
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
            Kind::Rdm(rdm) => rdm.known_connection(addr)?,
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
        let patience = self.params.connect_timeout();
        if let Some(rdm) = self.rdm(ep) {
            let peer = rdm.route(addr)?;
            let known = rdm.peers.get_mut(peer).ok_or(Errno::EINVAL)?;
            match std::mem::replace(&mut known.awaited, Awaited::Yes) {
                // What failed long ago is no answer to this call.
                Awaited::Failed(at, error) if at.elapsed() < patience => {
                    known.awaited = Awaited::No;
                    return Err(error);
                }
                _ => {}
            }
        }
        let Destination::Open(key) = self.destination(ep, addr)? else {
            return Ok(None);
        };
        let peer = self.conns.get(key).and_then(|conn| conn.peer);
        if let Some(rdm) = self.rdm(ep)
            && let Some(known) = peer.and_then(|peer| rdm.peers.get_mut(peer))
        {
            known.awaited = Awaited::No;
        }
        Ok(Some(key))
    }

    #[cold]
    fn not_negotiated(&mut self, key: ConnKey, what: &str) -> Result<ConnKey> {
        let conn = self.conns.get_mut(key).ok_or(Errno::ENOTCONN)?;
        if !std::mem::replace(&mut conn.is_refused, true) {
            log::warn!(
                "{} has no {what}: its library does not know them",
                conn.peer_text()
            );
        }
        Err(Errno::EOPNOTSUPP)
    }
}
