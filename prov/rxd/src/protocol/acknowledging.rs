//! Acknowledgements that the host asks for: those that wait for company, those of an endpoint that is
//! closed, and those that are repeated for a host that stays away.
//!
//! A peer whose acknowledgement was lost repeats what it has sent, and is answered when that is
//! handled. The host handles nothing while its application does not call it, which may be for good once
//! the last message is here. So the last acknowledgement is repeated meanwhile, a few times, unless
//! it went with a packet, which is repeated itself until it has arrived.

use super::endpoint::{Endpoint, Shared};
use super::host::{Host, Time};
use super::peer::{AckDue, Peer, Setup};

/// Number of times that an acknowledgement is repeated. With the first, it is sent as often as when an
/// endpoint is closed.
const REPEATS: u8 = 7;
/// Time until it is repeated, which is doubled each time: 1.3 s in all.
const REPEAT_AFTER: Time = 10_000_000;

impl<H: Host> Peer<H> {
    /// When the last acknowledgement is repeated, if it is known neither to have arrived nor to be
    /// repeated with a packet.
    fn ack_repeats_at(&self) -> Option<Time> {
        let receiving = &self.receiving;
        let may_be_lost = self.setup == Setup::Open
            && self.is_confirmed
            && receiving.acked_at != 0
            && receiving.acked_at >= receiving.newest_at
            && receiving.repeats < REPEATS;
        may_be_lost.then(|| receiving.acked_at + (REPEAT_AFTER << receiving.repeats))
    }
}

impl<H: Host> Shared<H> {
    /// Sends the last acknowledgement once more, if it is due.
    fn repeat_ack(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) {
        if peer.ack_repeats_at().is_some_and(|due| due <= now) {
            let repeats = peer.receiving.repeats + 1;
            if self.send_ack(now, peer, host).is_ok() {
                peer.receiving.repeats = repeats;
            }
        }
    }
}

impl<H: Host> Endpoint<H> {
    /// Returns whether acknowledgements may wait for company. If [`Endpoint::transmit`] is not going
    /// to be called soon, [`Endpoint::acknowledge_all`] sends them.
    #[inline]
    pub fn may_hold_acks(&self, now: Time) -> bool {
        self.shared.acks_wait_until > now
    }

    /// Sends all acknowledgements that wait for company.
    pub fn acknowledge_all(&mut self, now: Time, host: &mut H) {
        let are = |peer: &Peer<H>| matches!(peer.receiving.ack, AckDue::At(_));
        self.acknowledge(AckDue::Now, are);
        self.transmit(now, host);
    }

    /// Repeats the last acknowledgements, for a host that does not handle what arrives. Returns whether
    /// they are to be repeated again: the host calls it then until they are not.
    pub fn repeat_acks(&mut self, now: Time, host: &mut H) -> bool {
        if !self.shared.config.retry {
            return false;
        }
        let mut again = false;
        for peer in self.peers.iter_mut().flatten() {
            self.shared.repeat_ack(now, peer, host);
            again |= peer.ack_repeats_at().is_some();
        }
        again
    }

    /// Acknowledges to all peers what they have sent, also again, before the endpoint is closed, and
    /// tells those of this library that nobody answers afterwards: what they have sent beyond that
    /// fails. A host calls it a few times, since datagrams get lost.
    pub fn acknowledge_last(&mut self, now: Time, host: &mut H) {
        let are = |peer: &Peer<H>| peer.setup == Setup::Open && peer.is_confirmed;
        self.acknowledge(AckDue::Last, are);
        self.transmit(now, host);
    }

    /// Has acknowledgements sent to these peers.
    fn acknowledge(&mut self, ack: AckDue, are: impl Fn(&Peer<H>) -> bool) {
        for index in 0..self.peers.len() {
            if let Some((peer, shared)) = self.at_index(index as u32)
                && are(peer)
            {
                peer.receiving.ack = ack;
                shared.serve(peer);
            }
        }
    }
}
