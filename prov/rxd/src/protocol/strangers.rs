//! Peers that come by themselves: strangers until they have sent a packet with the number that they were
//! told, guests from then on.
//!
//! A request that anybody can send costs memory: that of one of a limited number of strangers. While
//! there are so many, a peer of this library is sent a cookie, of which nothing is kept, and has room of
//! its own when it returns it.

use std::collections::VecDeque;

use super::endpoint::{Endpoint, Shared};
use super::host::{Datagram, Host, Name, Payload, PeerId, Time};
use super::peer::{Peer, Setup};
use super::wire::{Hello, SetupAnswer, SetupRequest};

/// Time after which a guest that is idle gives way to another one.
const GUEST_IDLE: Time = 60_000_000_000;
/// Age at which a stranger gives way to another one.
const STRANGER_AGE: Time = 1_000_000_000;
/// Most paths that are held for cookies which have been sent.
const COOKIE_PATHS: usize = 32;

impl<H: Host> Shared<H> {
    /// The strangers that have returned a cookie, or the others.
    fn strangers_of(&mut self, is_proven: bool) -> &mut VecDeque<PeerId> {
        match is_proven {
            true => &mut self.proven,
            false => &mut self.strangers,
        }
    }

    /// The peer wants the request to be repeated with this cookie: at once if it is the first one.
    pub fn take_cookie(&mut self, now: Time, peer: &mut Peer<H>, cookie: u64) {
        if peer.cookie == 0 {
            match &mut peer.setup {
                Setup::Asking { next, .. } => *next = now,
                _ => peer.asks_again = peer.is_asked_again(),
            }
            self.serve(peer);
        }
        peer.cookie = cookie;
    }
}

impl<H: Host> Endpoint<H> {
    /// Makes a stranger a peer, if there is room for one.
    pub(super) fn admit(
        &mut self,
        now: Time,
        from: Option<H::Path>,
        request: &SetupRequest,
        host: &mut H,
    ) -> Option<PeerId> {
        // The address vector bounds how many of those there are.
        let is_expected = host.is_expected(&request.name);
        let is_proven = !is_expected && self.has_returned_cookie(now, request);
        if !is_expected && !self.has_room_for_stranger(now, is_proven, host) {
            if !is_proven {
                self.send_cookie(now, from, request, host);
            }
            return None;
        }
        let path = self.path_to(from, &request.name, host)?;
        let Some(id) = self.add(&request.name, path) else {
            host.released(path);
            return None;
        };
        if !is_expected {
            self.shared.strangers_of(is_proven).push_back(id);
            if let Some((peer, _)) = self.at(id) {
                peer.is_stranger = true;
                peer.since = now;
            }
        }
        host.appeared(id, &request.name, path);
        Some(id)
    }

    /// The path to a name that came from there; `None` if it is somebody else's.
    fn path_to(&mut self, from: Option<H::Path>, name: &Name, host: &mut H) -> Option<H::Path> {
        let cookies = &mut self.shared.cookies;
        let place = cookies.iter().position(|(known, _)| known == name);
        let path = match place.and_then(|place| cookies.remove(place)) {
            Some((_, path)) => path,
            None => host.resolve(name)?,
        };
        if from.is_some_and(|from| from != path && !H::is_unknown(from)) {
            host.released(path);
            return None;
        }
        Some(path)
    }

    /// Whether a request has the cookie that was sent to its path.
    fn has_returned_cookie(&self, now: Time, request: &SetupRequest) -> bool {
        let SetupRequest { address, name, .. } = request;
        let cookie = request.hello.map_or(0, |hello| hello.cookie);
        let secret = &self.shared.secret;
        cookie != 0 && secret.is_cookie(now, *address, name, cookie)
    }

    /// Asks a stranger for which there is no room to repeat its request with a cookie.
    fn send_cookie(
        &mut self,
        now: Time,
        from: Option<H::Path>,
        request: &SetupRequest,
        host: &mut H,
    ) {
        let SetupRequest { address, name, .. } = request;
        let Some(own) = self.shared.hello() else {
            return;
        };
        if self.shared.accepted(request.hello).is_none() {
            return;
        }
        let Some(path) = self.path_to(from, name, host) else {
            return;
        };
        let answer = SetupAnswer {
            to: *address,
            address: 0,
            hello: Some(Hello {
                cookie: self.shared.secret.cookie(now, *address, name),
                ..own
            }),
        };
        // If there is no room, it is as if it was lost.
        host.transmit(&Datagram {
            path,
            header: answer.write().bytes(),
            payload: Payload::None,
        });
        // The provider below may still need the path.
        self.shared.cookies.push_back((*name, path));
        if self.shared.cookies.len() > COOKIE_PATHS
            && let Some((_, path)) = self.shared.cookies.pop_front()
        {
            host.released(path);
        }
    }

    /// Whether one more stranger may come; the oldest one that has been there for some time gives way.
    fn has_room_for_stranger(&mut self, now: Time, is_proven: bool, host: &mut H) -> bool {
        let most = self.shared.config.max_strangers;
        let strangers = self.shared.strangers_of(is_proven);
        if strangers.len() < most {
            return true;
        }
        let mut strangers = std::mem::take(strangers);
        strangers.retain(|id| {
            let peer = self.peers.get(id.index()).and_then(Option::as_deref);
            peer.is_some_and(|peer| peer.id == *id && peer.is_stranger)
        });
        let is_full = strangers.len() >= most;
        let oldest = strangers.front().copied();
        *self.shared.strangers_of(is_proven) = strangers;
        let Some(oldest) = oldest.filter(|_| is_full) else {
            return !is_full;
        };
        match self.at(oldest) {
            Some((peer, _)) if now.saturating_sub(peer.since) < STRANGER_AGE => return false,
            _ => {}
        }
        self.shared.strangers_of(is_proven).pop_front();
        if let Some(peer) = self.remove(oldest) {
            host.disappeared(oldest, peer.path);
        }
        true
    }

    /// A stranger has completed the set-up: it becomes a guest, if there is room for one. Otherwise it is
    /// removed, and `false` returned. Who only pretends to be somebody else does not get here, and so
    /// takes nobody's place.
    #[cold]
    pub(super) fn settle(&mut self, now: Time, index: u32, host: &mut H) -> bool {
        let Some((peer, shared)) = self.at_index(index) else {
            return false;
        };
        let id = peer.id;
        if host.is_expected(&peer.name) {
            return true;
        }
        if shared.guests.len() >= shared.config.max_guests && !self.make_room_for_guest(now, host) {
            host.refused(id);
            self.dismiss(now, id, host);
            return false;
        }
        self.shared.guests.push(id);
        true
    }

    /// The guest that has been idle longest gives way, unless there is room. Returns whether there is.
    fn make_room_for_guest(&mut self, now: Time, host: &mut H) -> bool {
        let guests = std::mem::take(&mut self.shared.guests);
        let is_guest = |id: &PeerId| {
            let peer = self.peers.get(id.index()).and_then(Option::as_deref);
            peer.is_some_and(|peer| peer.id == *id && !host.is_expected(&peer.name))
        };
        self.shared.guests = guests.into_iter().filter(is_guest).collect();
        if self.shared.guests.len() < self.shared.config.max_guests {
            return true;
        }
        let idle_since = |id: &PeerId| {
            let peer = self.peers.get(id.index()).and_then(Option::as_deref);
            peer.filter(|peer| peer.is_idle())
                .map(|peer| peer.silent_since)
        };
        let guests = self.shared.guests.iter().enumerate();
        let idle = guests.filter_map(|(place, id)| Some((idle_since(id)?, place)));
        match idle.min() {
            Some((since, place)) if now.saturating_sub(since) >= GUEST_IDLE => {
                let id = self.shared.guests.swap_remove(place);
                self.dismiss(now, id, host);
                true
            }
            _ => false,
        }
    }

    /// Removes a peer that is to come again if it wants something.
    fn dismiss(&mut self, now: Time, id: PeerId, host: &mut H) {
        if let Some((peer, shared)) = self.at(id) {
            shared.part(now, peer, host);
        }
        if let Some(peer) = self.remove(id) {
            host.disappeared(id, peer.path);
        }
    }
}
