//! Authentication: peers prove that they have the key of an endpoint, and the endpoint proves it to
//! them, before a connection is requested ([`crate::wire::authentication`]).

use std::os::fd::AsFd;

use prov_base::errno::Errno;
use prov_base::random;

use crate::engine::Core;
use crate::engine::link::connection::{AuthState, Owner, Stage};
use crate::engine::link::fault::Fault;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::socket;
use crate::engine::setup::handshake::send_all;
use crate::wire::authentication::Key;
use crate::wire::handshake::{Features, Kind as MessageKind, Message};

impl Core {
    /// Returns the key that both ends of a connection must prove.
    fn key_of(&self, owner: Owner) -> Option<Key> {
        match owner {
            Owner::Ep(ep) => self.endpoints.get(ep)?.own.auth_key.clone(),
            Owner::Listener(listener) => self.listeners.get(listener)?.auth_key.clone(),
            Owner::Subflow(..) => None,
        }
    }

    /// Handles the other side's proof: if it is valid, this side sends its own proof and the
    /// connection request.
    pub(crate) fn challenged(&mut self, key: ConnKey, message: &Message) -> Result<(), Fault> {
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        let auth_key = self.key_of(conn.owner);
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let Stage::Proving { nonce, request } = &mut conn.stage else {
            return Ok(());
        };
        let proof = auth_key
            .and_then(|key| key.proof(message, nonce))
            .ok_or(Fault::Unproven("it has another key"))?;
        let mut bytes = proof.encode();
        bytes.append(request);
        send_all(conn.socket.as_fd(), &bytes)?;
        conn.stage = Stage::Requested;
        conn.setup.heard.clear();
        Ok(())
    }

    /// Handles hello or the proof of a peer that has connected.
    pub(crate) fn admit(&mut self, key: ConnKey, message: &Message) -> Result<(), Fault> {
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        let Some(auth_key) = self.key_of(conn.owner) else {
            self.refuse_for_key(key);
            return Err(Fault::Unproven("it has a key, and none is known here"));
        };
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let Stage::Accepted(auth) = &mut conn.stage else {
            return Ok(());
        };
        match *auth {
            AuthState::Open | AuthState::Proven | AuthState::Joining => Ok(()),
            AuthState::Closed => {
                let ours = random::bytes().map_err(Fault::Io)?;
                let (challenge, theirs) = auth_key
                    .challenge(message, &ours)
                    .ok_or(Fault::Unproven("its hello is none"))?;
                *auth = AuthState::Challenged { theirs, ours };
                conn.setup.heard.clear();
                send_all(conn.socket.as_fd(), &challenge.encode())
            }
            AuthState::Challenged { theirs, ours } => {
                if !auth_key.accepts(message, &theirs, &ours) {
                    return Err(Fault::Unproven("it has another key"));
                }
                *auth = AuthState::Proven;
                conn.setup.heard.clear();
                Ok(())
            }
        }
    }

    /// Whether a peer that has connected must do something else before its request.
    pub(crate) fn is_closed_to(&self, key: ConnKey) -> bool {
        let stage = self.conns.get(key).map(|conn| &conn.stage);
        matches!(
            stage,
            Some(Stage::Accepted(
                AuthState::Closed | AuthState::Challenged { .. }
            ))
        )
    }

    /// Rejects the request of a peer that has not proved the key.
    pub(crate) fn refuse_request(&self, key: ConnKey, request: &Message) -> Fault {
        // The C library would misinterpret a rejection.
        if request.features != Features::default() {
            self.refuse_for_key(key);
        }
        Fault::Unproven("it does not prove the key that is needed here")
    }

    /// Informs a peer of this library why there will be no connection.
    fn refuse_for_key(&self, key: ConnKey) {
        if let Some(socket) = self.socket(key) {
            let refusal = Message::new(MessageKind::Reject, Features::KEY, 0, &[]);
            // If it does not reach the peer, the end of the connection does.
            let _ = socket::send(socket, &refusal.encode());
        }
    }

    /// Returns the meaning of `fault` for a connection that ended when a proof of the other side
    /// was due.
    pub(crate) fn without_proof(&self, key: ConnKey, fault: Fault) -> Fault {
        match (self.conns.get(key).map(|conn| &conn.stage), fault) {
            (Some(Stage::Proving { .. }), Fault::Io(_)) => Fault::Io(Errno::EKEYREJECTED),
            (_, fault) => fault,
        }
    }
}
