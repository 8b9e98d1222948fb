//! How links to peers are established and end, and how that ends the requests that wait.

use std::time::{Duration, Instant};

use prov_base::errno::{Errno, Result};

use super::address_vector::AddressVector;
use super::answer::{ConnectStep, Ended, GivenUp};
use super::attempt::{Attempt, Failure, Stage};
use super::peer::{Asked, LinkState, Reach, Standing};
use super::{PeerKey, Peers, UNKNOWN_SOURCE};
use crate::receipt::Dependent;

/// The time for which a message is expected of a peer without a link before this side begins to
/// establish one: the peer establishes it with its first message, and two requests that cross cost
/// more than one. It is short compared with the time after which an application seems to hang.
pub(super) const EXPECTED_FOR: Duration = Duration::from_secs(1);

impl<L: Copy + Eq, V: AddressVector, W> Peers<L, V, W> {
    /// Makes sure that a link is being established.
    pub(super) fn connect(&mut self, key: PeerKey, now: Instant) -> Result<ConnectStep> {
        let patience = self.patience;
        let source = self.source(key);
        if source != UNKNOWN_SOURCE && self.av.as_ref().is_some_and(|av| av.only_calls(source)) {
            self.only_calls(key);
        }
        let peer = self.table.get_mut(key).ok_or(Errno::EINVAL)?;
        match (&peer.link, peer.reach) {
            (LinkState::Open(_) | LinkState::Attempted(_), _) => Ok(ConnectStep::Wait),
            (LinkState::None, Reach::PeerOnly) => Err(Errno::EFIREWALLADDR),
            (LinkState::None, Reach::Both) => {
                peer.link = LinkState::Attempted(Box::new(Attempt::begin(&patience, now)));
                Ok(ConnectStep::Start(key))
            }
        }
    }

    pub(super) fn stage(&mut self, key: PeerKey) -> Option<&mut Stage<L>> {
        match &mut self.table.get_mut(key)?.link {
            LinkState::Attempted(attempt) => Some(&mut attempt.stage),
            LinkState::None | LinkState::Open(_) => None,
        }
    }

    pub(super) fn attempt_failed(
        &mut self,
        key: PeerKey,
        failure: Failure,
        now: Instant,
    ) -> Ended<V::Address, W> {
        let patience = self.patience;
        let Some(peer) = self.table.get_mut(key) else {
            return Ended::Quietly;
        };
        let is_wanted = peer.is_wanted();
        // A peer that is slow to answer is waited for, as its message is.
        let is_slow = failure == Failure::Unreached(Errno::ETIMEDOUT)
            && peer.standing == Standing::Expected
            && !peer.is_needed();
        if is_wanted
            && let LinkState::Attempted(attempt) = &mut peer.link
            && let Some(at) = attempt.fail(failure, &patience, now)
        {
            return Ended::Again(at);
        }
        peer.link = LinkState::None;
        if is_slow {
            return Ended::Again(now + EXPECTED_FOR);
        }
        if is_wanted && let Some(given_up) = self.give_up(key, failure.error(), now) {
            return Ended::GivenUp(given_up);
        }
        self.forget_idle(key);
        Ended::Quietly
    }

    /// Fails the requests that have waited for a peer without a link.
    fn give_up(
        &mut self,
        key: PeerKey,
        error: Errno,
        now: Instant,
    ) -> Option<GivenUp<V::Address, W>> {
        let peer = self.table.get_mut(key)?;
        // Without operations and receives of the application, only transfers need the peer.
        let receives = match peer.standing == Standing::Expected && !peer.is_needed() {
            true => Dependent::Transfers,
            false => Dependent::All,
        };
        if peer.asked == Asked::Yes {
            peer.asked = Asked::Failed(now, error);
        }
        let given_up = GivenUp {
            addr: peer.addr.clone(),
            error,
            failed: std::mem::take(&mut peer.waiting),
            source: peer.known_source(),
            receives,
        };
        self.stand(key, Standing::Lost);
        self.forget_idle(key);
        Some(given_up)
    }

    /// Handles the end of a peer's open link. One that has closed its endpoint in good order is not
    /// lost: it is as if there had been no link.
    pub(super) fn lose(
        &mut self,
        key: PeerKey,
        failure: Failure,
        now: Instant,
    ) -> Ended<V::Address, W> {
        let (standing, receives) = match failure {
            Failure::Closed(_) => (Standing::Good, Dependent::Transfers),
            Failure::Unreached(_) | Failure::Refused(_) | Failure::Hopeless(_) => {
                (Standing::Lost, Dependent::All)
            }
        };
        self.stand(key, standing);
        let patience = self.patience;
        let Some(peer) = self.table.get_mut(key) else {
            return Ended::Quietly;
        };
        let source = peer.known_source();
        peer.link = LinkState::None;
        let mut again = None;
        if !peer.waiting.is_empty() {
            if peer.reach == Reach::PeerOnly {
                let given_up = self.give_up(key, Errno::EFIREWALLADDR, now);
                return given_up.map_or(Ended::Quietly, Ended::GivenUp);
            }
            // A pause keeps a link that ends as soon as it is open from being established in a
            // loop.
            let (attempt, at) = Attempt::begin_later(&patience, now);
            peer.link = LinkState::Attempted(Box::new(attempt));
            again = Some(at);
        }
        self.forget_idle(key);
        Ended::Lost {
            source,
            receives,
            again,
        }
    }

    pub(super) fn stand(&mut self, key: PeerKey, standing: Standing) {
        if let Some(peer) = self.table.get_mut(key) {
            let was_lost = peer.is_lost();
            peer.standing = standing;
            self.lost -= usize::from(was_lost);
            self.lost += usize::from(peer.is_lost());
        }
    }
}
