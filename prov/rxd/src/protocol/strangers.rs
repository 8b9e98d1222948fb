//! Peers that come by themselves: strangers until they have sent a packet with the number that they were
//! told, guests from then on.
//!
//! A request that anybody can send costs memory: that of one of a limited number of strangers. While
//! there are so many, a peer of this library is sent a cookie, of which nothing is kept, and has room of
//! its own when it returns it.
//!
//! Nobody shuts others out by coming with many endpoints: each host has a share of the places, and who has
//! more gives way to who has less ([`Host::host_of`]).

use std::collections::{HashMap, VecDeque};

use super::endpoint::{Endpoint, Shared};
use super::host::{Datagram, Failure, Host, Name, Payload, PeerId, Time};
use super::peer::{AckDue, Peer, Setup};
use super::wire::{Hello, SetupAnswer, SetupRequest};

/// Time after which a guest that is idle gives way to one of a host that has its share already.
const GUEST_IDLE: Time = 60_000_000_000;
/// Number of hosts among which all places are divided: one that has more than its share gives way to
/// others.
const SHARES: usize = 4;
/// Age at which a stranger gives way to another one.
const STRANGER_AGE: Time = 1_000_000_000;
/// Most paths that are held for cookies which have been sent.
pub const COOKIE_PATHS: usize = 32;

/// The places that hosts have.
struct Shares {
    counts: HashMap<Name, usize>,
    share: usize,
    /// Whether the host of the peer that wants a place has no more than its share with it.
    is_within: bool,
}

impl Shares {
    /// Whether the host has more than its share.
    fn has_more(&self, host: &Name) -> bool {
        self.counts
            .get(host)
            .is_some_and(|count| *count > self.share)
    }
}

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

    /// Whether a request has the cookie that was sent to its path.
    pub fn has_returned_cookie(&self, now: Time, request: &SetupRequest) -> bool {
        let SetupRequest { address, name, .. } = request;
        let cookie = request.hello.map_or(0, |hello| hello.cookie);
        cookie != 0 && self.secret.is_cookie(now, *address, name, cookie)
    }

    /// Asks who has sent a request for its repetition with a cookie, of which nothing is kept.
    pub fn ask_for_cookie(&self, now: Time, path: H::Path, request: &SetupRequest, host: &mut H) {
        let SetupRequest { address, name, .. } = request;
        let Some(own) = self.hello() else {
            return;
        };
        let answer = SetupAnswer {
            to: *address,
            address: 0,
            hello: Some(Hello {
                cookie: self.secret.cookie(now, *address, name),
                ..own
            }),
        };
        // If there is no room, it is as if it was lost.
        host.transmit(&Datagram {
            path,
            header: answer.write().bytes(),
            payload: Payload::None,
        });
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
        let is_proven = !is_expected && self.shared.has_returned_cookie(now, request);
        if !is_expected && !self.has_room_for_stranger(now, &request.name, is_proven, host) {
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

    /// Asks a stranger for which there is no room to repeat its request with a cookie.
    fn send_cookie(
        &mut self,
        now: Time,
        from: Option<H::Path>,
        request: &SetupRequest,
        host: &mut H,
    ) {
        if self.shared.accepted(request.hello).is_none() {
            return;
        }
        let Some(path) = self.path_to(from, &request.name, host) else {
            return;
        };
        self.shared.ask_for_cookie(now, path, request, host);
        // The provider below may still need the path.
        self.shared.cookies.push_back((request.name, path));
        if self.shared.cookies.len() > COOKIE_PATHS
            && let Some((_, path)) = self.shared.cookies.pop_front()
        {
            host.released(path);
        }
    }

    /// Whether one more stranger may come from there; the oldest one that has been there for some time gives
    /// way, or the oldest of a host that has more than its share. Only who has returned a cookie is known
    /// to be at its address.
    fn has_room_for_stranger(
        &mut self,
        now: Time,
        name: &Name,
        is_proven: bool,
        host: &mut H,
    ) -> bool {
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
        let place = match strangers.len() < most {
            true => None,
            false => {
                let shares = is_proven.then(|| self.shares(strangers.iter(), name, most, host));
                let gives_way = |id: &PeerId| {
                    let peer = self.peers.get(id.index()).and_then(Option::as_deref);
                    peer.is_none_or(|peer| {
                        now.saturating_sub(peer.since) >= STRANGER_AGE
                            || shares.as_ref().is_some_and(|shares| {
                                shares.is_within && shares.has_more(&host.host_of(&peer.name))
                            })
                    })
                };
                Some(strangers.iter().position(gives_way))
            }
        };
        let oldest = match place {
            Some(Some(place)) => strangers.remove(place),
            Some(None) | None => None,
        };
        *self.shared.strangers_of(is_proven) = strangers;
        if place == Some(None) {
            return false;
        }
        if let Some(oldest) = oldest
            && let Some(peer) = self.remove(oldest)
        {
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
        let name = peer.name;
        let is_full = shared.guests.len() >= shared.config.max_guests;
        if is_full && !self.make_room_for_guest(now, &name, host) {
            host.refused(id);
            self.dismiss(now, id, host);
            return false;
        }
        self.shared.guests.push(id);
        true
    }

    /// A guest gives way to the peer with this name, unless there is room. Returns whether there is.
    fn make_room_for_guest(&mut self, now: Time, name: &Name, host: &mut H) -> bool {
        let guests = std::mem::take(&mut self.shared.guests);
        let is_guest = |id: &PeerId| {
            let peer = self.peers.get(id.index()).and_then(Option::as_deref);
            peer.is_some_and(|peer| peer.id == *id && !host.is_expected(&peer.name))
        };
        self.shared.guests = guests.into_iter().filter(is_guest).collect();
        if self.shared.guests.len() < self.shared.config.max_guests {
            return true;
        }
        let Some(place) = self.guest_that_gives_way(now, name, host) else {
            return false;
        };
        let id = self.shared.guests.swap_remove(place);
        self.dismiss(now, id, host);
        true
    }

    /// The place of the guest that gives way to the peer with this name: the one that has been idle
    /// longest of those whose hosts have more than their share, or else of all. If none is idle, a
    /// peer whose host has less than its share takes the place of the one that has been silent longest
    /// of a host that has more.
    fn guest_that_gives_way(&self, now: Time, name: &Name, host: &H) -> Option<usize> {
        let most = self.shared.config.max_guests;
        let shares = self.shares(self.shared.guests.iter(), name, most, host);
        let guests = self.shared.guests.iter().enumerate();
        // Whether it goes only if nobody does who is named before, since when it is silent, and where it is.
        let rank = |(place, id): (usize, &PeerId)| {
            let peer = self.peers.get(id.index())?.as_deref()?;
            let has_more = shares.has_more(&host.host_of(&peer.name));
            let rank = match (peer.is_idle() && peer.receiving.ack == AckDue::No, has_more) {
                (true, true) => 0,
                (true, false)
                    if shares.is_within || now.saturating_sub(peer.silent_since) >= GUEST_IDLE =>
                {
                    1
                }
                (false, true) if shares.is_within => 2,
                _ => return None,
            };
            Some((rank, peer.silent_since, place))
        };
        let (_, _, place) = guests.filter_map(rank).min()?;
        Some(place)
    }

    /// How many of these peers each host has, for one more with this name, of `most` places.
    fn shares<'a>(
        &self,
        peers: impl Iterator<Item = &'a PeerId>,
        name: &Name,
        most: usize,
        host: &H,
    ) -> Shares {
        let mut counts = HashMap::new();
        for id in peers {
            if let Some(peer) = self.peers.get(id.index()).and_then(Option::as_deref) {
                *counts.entry(host.host_of(&peer.name)).or_insert(0) += 1;
            }
        }
        let own = counts.entry(host.host_of(name)).or_insert(0);
        *own += 1;
        let share = (most / SHARES).max(1);
        Shares {
            is_within: *own <= share,
            share,
            counts,
        }
    }

    /// Removes a peer that is to come again if it wants something.
    fn dismiss(&mut self, now: Time, id: PeerId, host: &mut H) {
        if let Some((peer, shared)) = self.at(id) {
            shared.part(now, peer, host);
            if !peer.is_idle() {
                shared.disconnect(now, peer, Failure::Restarted, host);
            }
        }
        if let Some(peer) = self.remove(id) {
            host.disappeared(id, peer.path);
        }
    }
}
