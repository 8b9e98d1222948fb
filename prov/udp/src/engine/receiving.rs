//! Datagrams that have come meet receives (fi_msg(3)).

use std::os::fd::AsFd;

use fabric_abi::{FI_CLAIM, FI_DISCARD, FI_PEEK};
use prov_base::errno::Errno;
use prov_base::sockaddr;
use prov_message::EpKey;
use prov_util::matching::ANY_SOURCE;
use prov_util::request::Receive;

use super::Core;
use super::port::Senders;

/// A receive without the flags of looks at messages that wait: those are for tagged messages,
/// and what waits here is in the socket.
#[inline(always)]
pub fn without_looks(receive: &Receive) -> Receive {
    Receive {
        flags: receive.flags & !(FI_PEEK | FI_CLAIM | FI_DISCARD),
        ..*receive
    }
}

impl Core {
    /// Takes in what has come to an endpoint, as far as it has receives; whether anything has.
    #[inline(always)]
    pub(super) fn take_in_at(&mut self, ep: EpKey) -> bool {
        if !self.endpoints.has_receives(ep) {
            return false;
        }
        let Some(port) = self.ports.get_mut(ep) else {
            return false;
        };
        match port.arrivals.receive(port.socket.as_fd(), port.has_brought) {
            Ok(()) => {
                port.has_brought = true;
                port.is_drained = false;
                self.deliver(ep)
            }
            Err(error) => {
                port.has_brought = false;
                // Any other one is of a datagram that was sent, and told once.
                port.is_drained = error == Errno::EAGAIN;
                false
            }
        }
    }

    /// Hands what is here to receives; whether any got something.
    #[inline(always)]
    fn deliver(&mut self, ep: EpKey) -> bool {
        let (Some(port), Some(mut plain)) = (self.ports.get_mut(ep), self.endpoints.plain(ep))
        else {
            return false;
        };
        let (peers, arrivals) = port.receiving();
        let mut any = false;
        while let Some(datagram) = arrivals.front() {
            let src = peers.source(datagram.from);
            let taken = match datagram.from {
                Some(from) if src == ANY_SOURCE && peers.senders == Senders::All => {
                    let address = sockaddr::encode(&from);
                    plain.take_from_stranger(address.as_bytes(), datagram.bytes)
                }
                _ => plain.take(src, None, datagram.bytes),
            };
            if !taken {
                break;
            }
            any = true;
            arrivals.pop();
        }
        any
    }

    /// Takes in what had come before a receive was posted, of which no event tells any more.
    #[cold]
    #[inline(never)]
    pub(super) fn take_in_for_sleepers(&mut self) {
        for at in 0..self.keys.len() {
            let Some(&ep) = self.keys.get(at) else {
                return;
            };
            if self.ports.get(ep).is_some_and(|port| !port.is_drained) {
                self.take_in_at(ep);
            }
        }
    }
}
