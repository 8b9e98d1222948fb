//! Acknowledgements that the host asks for: delayed ones, those of an endpoint that is closed, and those
//! of packets that a peer repeats while the application makes no calls.
//!
//! A peer whose acknowledgement was lost repeats what it has sent, and is answered when the repeated
//! packet is handled. The application may make no calls after its last receive. So the host looks at
//! what arrives for some time after an acknowledgement: [`Endpoint::receive_meanwhile`] handles what
//! has no effect on the application, and leaves the rest to its next call.

use super::congestion::RTO_MAX;
use super::endpoint::{Endpoint, Shared};
use super::host::{Host, Time};
use super::peer::{AckDue, Peer, Setup, WINDOW};
use super::wire::{Base, flag, kind};

/// Time after an acknowledgement within which its receiver may show that it was lost: twice the longest
/// time after which peers repeat what is not acknowledged.
const MAY_ASK_WITHIN: Time = 2 * RTO_MAX;

impl<H: Host> Shared<H> {
    /// An acknowledgement was sent on its own. One that goes with a packet is repeated with it.
    #[inline(always)]
    pub fn note_ack_sent(&mut self, now: Time) {
        self.may_be_asked_until = now + MAY_ASK_WITHIN;
    }
}

impl<H: Host> Peer<H> {
    /// Whether a packet of the connection only acknowledges, or has been here before, so that
    /// handling it has no effect on the application.
    fn is_without_effect(&self, base: &Base) -> bool {
        if self.sending.foreign != 0 {
            // The acknowledgement of a response may be reported (`FI_REMOTE_READ`).
            return false;
        }
        if base.kind == kind::ACK {
            return !self.is_extended() || base.flags & flag::CLOSING == 0;
        }
        let receiving = &self.receiving;
        let ahead = base.seq.wrapping_sub(receiving.next);
        let is_early = |seq| {
            let early = receiving.early.as_ref();
            early.is_some_and(|early| early.has(seq))
        };
        (ahead as i64) < 0
            || (ahead == 0 && receiving.is_held)
            || (ahead < u64::from(WINDOW) && is_early(base.seq))
    }
}

impl<H: Host> Endpoint<H> {
    /// Returns whether acknowledgements may be delayed, in order to be piggybacked on packets. If
    /// [`Endpoint::transmit`] is not going to be called soon, [`Endpoint::acknowledge_all`] sends them.
    #[inline]
    pub fn has_delayed_acks(&self, now: Time) -> bool {
        self.shared.acks_delayed_until > now
    }

    /// Sends all delayed acknowledgements. Returns whether the host had room.
    pub fn acknowledge_all(&mut self, now: Time, host: &mut H) -> bool {
        let are = |peer: &Peer<H>| matches!(peer.receiving.ack, AckDue::At(_));
        self.acknowledge(AckDue::Now, are);
        self.transmit(now, host)
    }

    /// Returns whether a peer may soon repeat packets because an acknowledgement was lost. A host whose
    /// application makes no calls uses [`Endpoint::receive_meanwhile`] from time to time until then.
    #[inline]
    pub fn may_be_asked(&self, now: Time) -> bool {
        self.shared.may_be_asked_until > now
    }

    /// Handles a datagram while the application makes no calls, if it is an acknowledgement or a repeated
    /// packet of a connection; [`Endpoint::transmit`] then acknowledges the latter again. Returns
    /// `false`, without any effect, for everything else, which is to be passed to
    /// [`Endpoint::receive`] when the application calls. The host is called for operations that are
    /// [done](Host::done) only.
    pub fn receive_meanwhile(
        &mut self,
        now: Time,
        from: Option<H::Path>,
        datagram: &[u8],
        host: &mut H,
    ) -> bool {
        let Some((mut base, rest)) = Base::read(datagram) else {
            // It is ignored in any case.
            return true;
        };
        if matches!(base.kind, kind::REQUEST | kind::ANSWER) {
            return false;
        }
        let index = self.shared.secret.index_of(base.number);
        let Some((peer, shared)) = self.at_index(index as u32) else {
            return false;
        };
        let is_connected = peer.setup == Setup::Open && peer.is_confirmed;
        let is_its_number =
            peer.terms.local as u32 == base.number || peer.first_number == Some(base.number);
        if !is_connected
            || !is_its_number
            || !peer.sends_from(from)
            || !shared.recognises(now, peer, &mut base, datagram, host)
            || !peer.is_without_effect(&base)
        {
            return false;
        }
        shared.packet(now, peer, &base, rest, datagram, host);
        shared.schedule(peer);
        true
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
