//! Arriving datagrams are matched with posted receives (fi_msg(3)).

use std::os::fd::AsFd;

use fabric_abi::{FI_CLAIM, FI_DISCARD, FI_PEEK};
use prov_base::errno::Errno;
use prov_base::sockaddr;
use prov_message::EpKey;
use prov_util::matching::ANY_SOURCE;
use prov_util::request::Receive;

use super::Core;
use super::port::{SEVERAL, Senders};

/// Takes `FI_PEEK`, `FI_CLAIM` and `FI_DISCARD` from the receive, which are for tagged messages.
#[inline(always)]
pub fn forget_looks(receive: &mut Receive) {
    receive.flags &= !(FI_PEEK | FI_CLAIM | FI_DISCARD);
}

impl Core {
    /// Receives datagrams of an endpoint while it has posted receives. Returns whether a receive has
    /// completed.
    #[inline(always)]
    pub(super) fn take_in_at(&mut self, ep: EpKey) -> bool {
        if !self.endpoints.has_receives(ep) {
            return false;
        }
        let Some(port) = self.ports.get_mut(ep) else {
            return false;
        };
        let several = port.brought == SEVERAL;
        match port.arrivals.receive(port.socket.as_fd(), several) {
            Ok(()) => {
                port.brought = SEVERAL.min(port.brought + 1);
                port.is_drained = false;
                self.deliver(ep)
            }
            Err(error) => {
                port.brought = 0;
                // Any other error is that of a datagram that was sent, and is reported once.
                port.is_drained = error == Errno::EAGAIN;
                false
            }
        }
    }

    /// Copies the datagrams that were read into posted receives. Returns whether a receive has
    /// completed.
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

    /// Receives datagrams that arrived before a receive was posted: their event is over.
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
