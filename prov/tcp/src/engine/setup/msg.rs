//! Connections of connected endpoints (fi_cm(3)).

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use prov_base::errno::{Errno, Result};

use crate::engine::Core;
use crate::engine::link::connection::{Connection, Owner, Stage};
use crate::engine::link::endpoint::{Kind, Msg};
use crate::engine::link::keys::EpKey;
use crate::engine::link::listener::Incomer;
use crate::engine::link::socket;
use crate::local::host;
use crate::wire::handshake::{Kind as MessageKind, Message};

impl Core {
    fn unconnected(&mut self, ep: EpKey) -> Result<&mut Msg> {
        let state = self.endpoints.get_mut(ep).ok_or(Errno::EOPBADSTATE)?;
        match &mut state.own.kind {
            Kind::Msg(msg) if msg.conn.is_some() => Err(Errno::EISCONN),
            Kind::Msg(msg) if msg.ended => Err(Errno::EOPBADSTATE),
            Kind::Msg(msg) if msg.events.is_none() => Err(Errno::ENOEQ),
            Kind::Msg(msg) => Ok(msg),
            Kind::Rdm(_) => Err(Errno::ENOSYS),
        }
    }

    /// Returns whether the endpoint may get a connection: `-FI_EISCONN` if it has one,
    /// `-FI_EOPBADSTATE` if it had one, `-FI_ENOEQ` without an event queue.
    pub fn may_connect(&mut self, ep: EpKey) -> Result {
        self.unconnected(ep).map(|_| ())
    }

    /// Implements `fi_connect` (fi_cm(3)), with a `bound` socket or else from `source`.
    pub fn connect_msg(
        &mut self,
        ep: EpKey,
        bound: Option<OwnedFd>,
        source: Option<SocketAddr>,
        dest: &SocketAddr,
        data: &[u8],
    ) -> Result {
        self.unconnected(ep)?;
        let request = Message::new(MessageKind::Request, self.params.features(), 0, data)
            .from_host(host::mark());
        let socket = match bound {
            Some(socket) => socket::connect_bound(socket, dest, &self.params)?,
            None => socket::connect(source, dest, &self.params)?,
        };
        let request = request.encode();
        let deadline = Some(Instant::now() + self.params.connect_timeout());
        let stage = Stage::Connecting { request };
        let key = self.add_connection(Connection::new(socket, Owner::Ep(ep), stage, deadline))?;
        self.unconnected(ep)?.conn = Some(key);
        Ok(())
    }

    /// Implements `fi_accept` (fi_cm(3)).
    pub fn accept_msg(&mut self, ep: EpKey, incomer: Incomer, data: &[u8]) -> Result {
        self.unconnected(ep)?;
        let Incomer {
            socket, message, ..
        } = incomer;
        let features = message.features.and(self.params.features());
        let answer = Message::new(MessageKind::Accept, features, 0, data)
            .from_host(host::mark())
            .encode();
        let sent = socket::send(socket.as_fd(), &answer)?;
        if sent != answer.len() {
            return Err(Errno::ECONNABORTED);
        }
        let mut conn = Connection::new(socket, Owner::Ep(ep), Stage::Open, None);
        conn.open(&message, &self.params);
        let key = self.add_connection(conn)?;
        let msg = self.unconnected(ep)?;
        msg.conn = Some(key);
        if let Some(events) = &msg.events {
            events.connected(&[]);
        }
        self.has_begun(key, ep);
        self.read_later(key);
        Ok(())
    }

    /// Returns the socket at which an RDM endpoint listens, or that of a connected endpoint's
    /// connection, if it has one.
    pub fn socket_of(&self, ep: EpKey) -> Option<BorrowedFd<'_>> {
        match &self.endpoints.get(ep)?.own.kind {
            Kind::Rdm(rdm) => Some(self.listeners.get(rdm.listener?)?.socket.as_fd()),
            Kind::Msg(msg) => self.socket(msg.conn?),
        }
    }
}
