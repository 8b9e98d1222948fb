//! Messages that the application reads in the provider's buffer (`FI_BUFFERED_RECV`): a completion
//! reports each message when it has arrived, completely or in part, and the application claims it
//! with a receive, or discards it.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use fabric_abi::{FI_CLAIM, FI_DISCARD, FI_MORE, FI_PEER_TRANSFER, FI_RECV};
use prov_base::errno::{Errno, Result};
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::{Buffer, Context, Core as _, Reaching, Receipt};
use prov_util::cq::Completion;
use prov_util::ffi::FidRef;
use prov_util::ffi::buffered::Notice;
use prov_util::request::{Receive, Select};
use prov_util::transfers::Transfers;

use super::Core;
use super::keys::{EpKey, LinkKey};
use super::link::{Announced, Arrival, Charge};
use crate::wire::packet::{Envelope, Kind};

/// The limits of the part of a message that the application sees before it claims the message, in
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// At least this much of a longer message (`FI_OPT_BUFFERED_MIN`).
    pub least: usize,
    /// At most this much (`FI_OPT_BUFFERED_LIMIT`).
    pub most: usize,
}

/// The endpoint's state of such messages.
pub struct Buffered {
    pub bounds: Bounds,
    endpoint: FidRef,
    /// By the address of the application's handle.
    messages: HashMap<usize, Message>,
}

struct Message {
    notice: Notice,
    link: LinkKey,
    /// The data of the completion that reported it.
    receipt: Receipt<()>,
    /// The whole message, or the beginning.
    bytes: Box<[u8]>,
    /// The announcement of the rest, if the message is not complete.
    rest: Option<Announced>,
    charge: Charge,
}

impl Buffered {
    /// Creates the state of an endpoint, without messages.
    pub fn new(endpoint: FidRef, bounds: Bounds) -> Self {
        Buffered {
            bounds,
            endpoint,
            messages: HashMap::new(),
        }
    }

    /// Returns the part of an announced message that the application sees: a peer without this mode
    /// sends none of it, and bytes that it has not sent are zero.
    #[allow(clippy::indexing_slicing, reason = "limited to the shorter one")]
    pub(super) fn front(&self, envelope: &Envelope, sent: &[u8]) -> Box<[u8]> {
        let len = usize::try_from(envelope.len).unwrap_or(usize::MAX);
        let mut front = vec![0; self.bounds.least.min(len)];
        let has_come = front.len().min(sent.len());
        front[..has_come].copy_from_slice(&sent[..has_come]);
        front.into()
    }
}

impl Core {
    /// Reports a message, of which the whole or the beginning has arrived. If it cannot be
    /// reported, it is dropped, since it would never be claimed.
    #[inline(never)]
    pub(super) fn tell_of(
        &mut self,
        arrival: &Arrival,
        bytes: Box<[u8]>,
        rest: Option<Announced>,
        charge: Charge,
    ) {
        let (Some(buffered), Some(state)) =
            (&mut self.buffered, self.endpoints.get_mut(arrival.ep))
        else {
            return self.endpoints.discharge(charge);
        };
        if state.reports.rx_cq.is_none() {
            return self.disregard(arrival.link, rest, charge);
        }
        let has_more = rest.is_some() || arrival.len > buffered.bounds.most;
        let notice = Notice::new(&buffered.endpoint);
        let receipt = Receipt {
            inbox: state.inbox,
            ep: arrival.ep,
            tagged: arrival.tagged,
            context: Context::of(notice.address()),
            flags: if has_more { FI_MORE } else { 0 },
            buffer: Buffer::Single,
            src: arrival.src,
            tag: arrival.tag,
            data: arrival.data,
            len: arrival.len,
            ack: (),
        };
        state.reports.buffered(&receipt, &bytes);
        buffered.messages.insert(
            notice.address().addr(),
            Message {
                notice,
                link: arrival.link,
                receipt,
                bytes,
                rest,
                charge,
            },
        );
        bounded!(buffered.messages, OPERATIONS);
    }

    /// Drops a message that is not wanted.
    fn disregard(&mut self, link: LinkKey, rest: Option<Announced>, charge: Charge) {
        self.endpoints.discharge(charge);
        if let Some(rest) = rest {
            self.tell(link, Kind::ReadDone, rest.message);
        }
    }

    /// Claims or discards a message.
    ///
    /// # Errors
    /// `-FI_EINVAL` for a receive that does neither, `-FI_ENOMSG` if there is no such message.
    pub(super) fn take_buffered(&mut self, ep: EpKey, receive: &mut Receive) -> Result {
        let work = self.deferred(ep, receive);
        let Some(buffered) = &mut self.buffered else {
            return Err(Errno::EINVAL);
        };
        if receive.flags & (FI_CLAIM | FI_DISCARD) == 0 {
            return Err(Errno::EINVAL);
        }
        let name = work.as_ref().and_then(|work| work.name_of(receive.context));
        let name = name.unwrap_or(receive.context).addr();
        let found = buffered.messages.get(&name);
        let is_tagged = matches!(receive.select, Select::Tagged { .. });
        if found.is_none_or(|found| found.receipt.ep != ep || found.receipt.tagged != is_tagged) {
            return Err(Errno::ENOMSG);
        }
        let Some(message) = buffered.messages.remove(&name) else {
            return Err(Errno::ENOMSG);
        };
        let named = message.notice.context();
        match (receive.flags & FI_DISCARD, work) {
            (0, None) => self.claim(message, receive, named),
            (0, Some(work)) => {
                work.rename(receive.context, named);
                self.claim(message, receive, receive.context);
            }
            (_, work) => {
                self.disregard(message.link, message.rest, message.charge);
                if let Some(work) = work {
                    work.done(
                        Completion::new(receive.context, FI_RECV),
                        UNKNOWN_SOURCE,
                        None,
                    );
                }
            }
        }
        self.follow_up();
        Ok(())
    }

    /// Where a receive reports that is deferred work (fi_trigger(3)), which is posted with a context of its own.
    fn deferred(&mut self, ep: EpKey, receive: &mut Receive) -> Option<Arc<Transfers>> {
        match receive.flags & FI_PEER_TRANSFER {
            0 => None,
            _ => self.endpoints.get_mut(ep)?.reports.transfers.clone(),
        }
    }

    #[allow(clippy::indexing_slicing, reason = "limited to the shorter one")]
    fn claim(&mut self, message: Message, receive: &mut Receive, context: *mut c_void) {
        let memory = receive.buffers.take();
        // The address vector may have learnt or forgotten the peer since the message was reported.
        let link = self.links.get(message.link);
        let src = match link.map(|link| link.ep) {
            Some(ep) => {
                self.expects_one(ep);
                let link = self.links.get(message.link);
                link.map_or(UNKNOWN_SOURCE, |link| link.src)
            }
            None => message.receipt.src,
        };
        self.endpoints.discharge(message.charge);
        let receipt = Receipt {
            context: Context::of(context),
            flags: receive.flags | FI_CLAIM,
            src,
            ..message.receipt
        };
        match message.rest {
            None => {
                let fits = message.bytes.len().min(memory.len());
                memory.write_at(0, &message.bytes[..fits]);
                self.endpoints.received(&receipt, memory, Ok(()));
            }
            Some(name) => {
                let wanted = receipt.len;
                self.fetch(message.link, name, receipt, memory, wanted);
            }
        }
    }
}
