//! Whole messages without immediate data, for which a receive is posted: the most frequent ones.

use fabric_abi::FI_COMPLETION;
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::AppIov;
use prov_util::matching::{ANY_SOURCE, Single};

use crate::endpoints::behind::Behind;
use crate::endpoints::inbox::Inbox;
use crate::endpoints::inbox::imported_srx::ImportedReceives;
use crate::endpoints::transport::Transport;
use crate::endpoints::whole::Whole;
use crate::endpoints::{Endpoint, Endpoints};
use crate::operation::{Context, EpKey};
use crate::receipt::{Buffer, Receipt};
use crate::reports::Reports;

/// The fast path for complete messages without immediate data or acknowledgement that arrive at one
/// endpoint.
///
/// It stays in registers: what is out of line gets a copy ([`Plain::again`]).
pub struct Plain<'a, T: Transport> {
    inbox: &'a mut Inbox<T>,
    ep: &'a Endpoint<T>,
    key: EpKey,
}

impl<T: Transport> Plain<'_, T> {
    /// Delivers a message to a posted receive; returns `false` if none matches.
    #[inline(always)]
    pub fn take(&mut self, src: u64, tag: Option<u64>, payload: &(impl Whole + ?Sized)) -> bool {
        // Tagged and untagged messages get separately specialised code.
        match tag {
            Some(tag) => self.take_one::<true>(src, tag, payload),
            None => self.take_one::<false>(src, 0, payload),
        }
    }

    #[inline(always)]
    fn take_one<const TAGGED: bool>(
        &mut self,
        src: u64,
        tag: u64,
        payload: &(impl Whole + ?Sized),
    ) -> bool {
        let Some(single) = self.inbox.queue(TAGGED).take_first(src, tag) else {
            return self.again().take_otherwise(src, TAGGED, tag, payload);
        };
        let len = payload.len();
        payload.copy_to(single.buf);
        if len <= single.buf.len() && single.flags & FI_COMPLETION != 0 && !single.buf.has_device()
        {
            let reports = &self.ep.reports;
            reports.plain_receive::<TAGGED>(single.buf, single.context, src, tag, len);
        } else {
            // A copy: what is passed by reference does not stay in registers.
            let Single {
                context,
                flags,
                buf,
            } = single;
            if buf.has_device() {
                let memory = buf.take();
                self.again()
                    .received_by_device((context, flags), memory, (src, TAGGED, tag), len);
                return true;
            }
            let single = Single {
                context,
                flags,
                buf,
            };
            let reports = &self.ep.reports;
            reports.whole_receive(&single, src, TAGGED, tag, len);
        }
        true
    }

    /// Reports a receive into a device's memory, or keeps it until the bytes are there.
    #[cold]
    #[inline(never)]
    fn received_by_device(
        self,
        (context, flags): (usize, u64),
        memory: AppIov,
        (src, tagged, tag): (u64, bool, u64),
        len: usize,
    ) {
        let receipt = Receipt {
            inbox: self.ep.inbox,
            ep: self.key,
            tagged,
            context: Context(context),
            flags,
            buffer: Buffer::Single,
            src,
            tag,
            data: None,
            len,
            ack: T::Ack::default(),
        };
        match memory.is_settled() {
            true => self.ep.reports.receive(&receipt, &memory, false, Ok(())),
            false => {
                let behind = Behind::receive(receipt, memory, Ok(()));
                self.inbox.behind.push(behind);
                bounded!(self.inbox.behind, OPERATIONS);
            }
        }
    }

    /// A copy.
    #[inline(always)]
    fn again(&mut self) -> Plain<'_, T> {
        Plain {
            inbox: self.inbox,
            ep: self.ep,
            key: self.key,
        }
    }

    /// Takes in a message without a tag from an address that the address vector does not
    /// have, which its receive reports as an error (`FI_SOURCE_ERR`); `false` if nobody waits
    /// for it.
    #[inline(always)]
    pub fn take_from_stranger(&mut self, address: &[u8], payload: &(impl Whole + ?Sized)) -> bool {
        self.again().take_from(address, payload)
    }

    #[cold]
    #[inline(never)]
    fn take_from(self, address: &[u8], payload: &(impl Whole + ?Sized)) -> bool {
        let report = |reports: &Reports, receipt: &Receipt<()>, memory: &AppIov, release| {
            reports.receive_from_stranger(receipt, memory, release, address);
        };
        self.take_any(ANY_SOURCE, false, 0, payload, report)
    }

    /// Delivers a message that the oldest receive does not accept, or that goes to a multi-receive
    /// buffer.
    #[inline(never)]
    fn take_otherwise(
        self,
        src: u64,
        tagged: bool,
        tag: u64,
        payload: &(impl Whole + ?Sized),
    ) -> bool {
        if self.inbox.imported().is_some() {
            return false;
        }
        if let Some(single) = self.inbox.queue(tagged).take_single(src, tag) {
            payload.copy_to(single.buf);
            let reports = &self.ep.reports;
            reports.whole_receive(&single, src, tagged, tag, payload.len());
            return true;
        }
        let report = |reports: &Reports, receipt: &Receipt<()>, memory: &AppIov, release| {
            reports.receive(receipt, memory, release, Ok(()));
        };
        self.take_any(src, tagged, tag, payload, report)
    }

    #[inline(always)]
    fn take_any(
        self,
        src: u64,
        tagged: bool,
        tag: u64,
        payload: &(impl Whole + ?Sized),
        report: impl FnOnce(&Reports, &Receipt<()>, &AppIov, bool),
    ) -> bool {
        let queue = self.inbox.queue(tagged);
        let Some(matched) = queue.arrive(src, tag, payload.len()) else {
            return false;
        };
        payload.copy_to(&matched.buf);
        let release = match matched.multi {
            None => false,
            Some(multi) => queue.finish_multi(multi),
        };
        let receipt = Receipt {
            inbox: self.ep.inbox,
            ep: self.key,
            tagged,
            context: Context(matched.context),
            flags: matched.flags,
            buffer: Buffer::of(matched.multi),
            src,
            tag,
            data: None,
            len: payload.len(),
            ack: (),
        };
        report(&self.ep.reports, &receipt, &matched.buf, release);
        true
    }
}

/// The same for an endpoint whose receives belong to another provider.
pub struct PlainImported<'a, T: Transport>(&'a mut ImportedReceives<T>);

impl<T: Transport> PlainImported<'_, T> {
    /// Delivers a message of a link to a posted receive; returns `false` if none matches, or in another
    /// way than in one step.
    #[inline(always)]
    pub fn take(
        &mut self,
        link: T::Link,
        (src, tag): (u64, Option<u64>),
        payload: &(impl Whole + ?Sized),
    ) -> bool {
        self.0.take_whole(link, (src, tag), payload)
    }
}

impl<T: Transport> Endpoints<T> {
    /// Returns the fast path for complete plain messages to an endpoint whose receives belong to
    /// another provider, which drives the lane.
    #[inline]
    pub fn plain_imported(&mut self, key: EpKey) -> Option<PlainImported<'_, T>> {
        if self.is_deaf() {
            return None;
        }
        let inbox = self.eps.get(key)?.inbox;
        self.inboxes.get_mut(inbox)?.imported().map(PlainImported)
    }

    /// Whether an endpoint has receives without a tag that wait.
    #[inline]
    pub fn has_receives(&mut self, ep: EpKey) -> bool {
        let inbox = self.eps.get(ep).map(|ep| ep.inbox);
        let inbox = inbox.and_then(|inbox| self.inboxes.get_mut(inbox));
        inbox.is_some_and(|inbox| inbox.queue(false).posted_len() != 0)
    }

    /// Returns the fast path for complete plain messages to an endpoint.
    #[inline(always)]
    pub fn plain(&mut self, key: EpKey) -> Option<Plain<'_, T>> {
        let ep = self.eps.get(key)?;
        Some(Plain {
            inbox: self.inboxes.get_mut(ep.inbox)?,
            ep,
            key,
        })
    }
}
