//! Reporting of operations to the application: completion queues and counters.

use std::ptr::null_mut;
use std::sync::Arc;

use fabric_abi::{
    FI_CLAIM, FI_COMPLETION, FI_MSG, FI_MULTI_RECV, FI_PEER_TRANSFER, FI_RECV, FI_REMOTE_CQ_DATA,
    FI_REMOTE_READ, FI_REMOTE_WRITE, FI_TAGGED,
};
use prov_base::buffer::{AppIov, Iov};
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_base::warn_again;
use prov_util::av::Av;
use prov_util::cntr::Cntr;
use prov_util::cq::{Completion, Cq, ErrorCompletion};
use prov_util::endpoint::{Bindings, Counters, SharedReceive};
use prov_util::ffi::Use;
use prov_util::ffi::srx;
use prov_util::matching::{ANY_SOURCE, Cancelled, Message, Single};
use prov_util::request::{Receive, Select, Transmit};
use prov_util::transfers::Transfers;

use crate::operation::EpKey;
use crate::operation::{Context, Op, OpClass};
use crate::receipt::Receipt;

/// An endpoint's completion queues and counters.
#[derive(Clone, Default)]
pub struct Reports {
    pub tx_cq: Option<Use<Cq>>,
    pub rx_cq: Option<Use<Cq>>,
    pub counters: Counters,
    /// Translates sources to what completions report.
    pub av: Option<Use<Av>>,
    /// Records the ends of a peer provider's transfers.
    pub transfers: Option<Arc<Transfers>>,
}

/// The completion of an operation that has succeeded.
#[inline(always)]
pub fn completion_of(op: &Op) -> Completion {
    Completion::new(op.context.pointer(), op.class.completion_flags())
}

fn receive_flags(tagged: bool) -> u64 {
    FI_RECV | if tagged { FI_TAGGED } else { FI_MSG }
}

#[inline(always)]
fn completion_of_plain(
    (context, buf): (usize, &AppIov),
    src: u64,
    tagged: bool,
    tag: u64,
    len: usize,
) -> Completion {
    Completion {
        context: Context(context).pointer(),
        flags: receive_flags(tagged),
        len,
        buf: buf.address(),
        data: 0,
        tag,
        src,
    }
}

impl Reports {
    /// Creates the reports for the objects that the application has bound.
    pub fn to<S: SharedReceive>(bindings: &Bindings<S>) -> Self {
        Reports {
            tx_cq: bindings.tx_cq.clone(),
            rx_cq: bindings.rx_cq.clone(),
            counters: bindings.counters.clone(),
            av: bindings.av.clone(),
            transfers: bindings.transfers.clone(),
        }
    }

    #[inline(always)]
    fn counter(&self, class: OpClass) -> Option<&Cntr> {
        let counter = match class {
            OpClass::Send | OpClass::TaggedSend => &self.counters.send,
            OpClass::Read | OpClass::FetchAtomic => &self.counters.read,
            // A peer provider's transfers are handled by the callers.
            OpClass::Write | OpClass::Atomic | OpClass::Transfer => &self.counters.write,
        };
        counter.as_deref()
    }

    /// Returns whether the application is informed when an operation ends, at least if it fails.
    #[inline]
    pub fn tells_of(&self, op: &Op) -> bool {
        let is_forgotten = op.is_inject && !op.report;
        !is_forgotten && self.tx_cq.is_some()
            || self.counter(op.class).is_some()
            || op.class == OpClass::Transfer
    }

    /// Returns what completions report for a source.
    #[inline]
    pub fn source(&self, src: u64) -> u64 {
        match &self.av {
            Some(av) if src != ANY_SOURCE => av.reported(src),
            _ => src,
        }
    }

    /// Reports that a message without `FI_PEER_TRANSFER` was sent.
    #[inline(always)]
    pub fn plain_message(&self, ep: EpKey, message: &Transmit) {
        let op = Op::of_plain(ep, message);
        self.count(&op);
        if op.report
            && let Some(cq) = &self.tx_cq
        {
            cq.write_with(
                #[inline(always)]
                || completion_of(&op),
            );
        }
    }

    /// Reports the end of an operation.
    #[inline]
    pub fn operation(&self, op: &Op, outcome: Result) {
        match outcome {
            Ok(()) if op.report => {
                self.count(op);
                if let Some(cq) = &self.tx_cq {
                    cq.write_with(
                        #[inline(always)]
                        || completion_of(op),
                    );
                }
            }
            Ok(()) if op.class == OpClass::Transfer => {
                self.transfer_done(completion_of(op), ANY_SOURCE, None);
            }
            Ok(()) => self.count(op),
            Err(error) => self.failed_operation(op, error),
        }
    }

    #[inline(always)]
    fn count(&self, op: &Op) {
        if let Some(counter) = self.counter(op.class) {
            counter.count(op.len);
        }
    }

    #[cold]
    fn failed_operation(&self, op: &Op, error: Errno) {
        self.fail(op, ErrorCompletion::new(completion_of(op), error));
    }

    /// Reports a successful transfer to the peer provider, of a receive with the number of the
    /// message's source.
    #[cold]
    #[inline(never)]
    fn transfer_done(&self, completion: Completion, src: u64, at: Option<&Cq>) {
        if let Some(transfers) = &self.transfers {
            transfers.done(completion, src, at);
        }
    }

    /// Reports a failed transfer to the peer provider.
    #[cold]
    #[inline(never)]
    fn transfer_failed(&self, error: ErrorCompletion, at: Option<&Cq>) {
        if let Some(transfers) = &self.transfers {
            transfers.failed(error, at);
        }
    }

    fn fail(&self, op: &Op, error: ErrorCompletion) {
        if op.class == OpClass::Transfer {
            return self.transfer_failed(error, None);
        }
        if let Some(counter) = self.counter(op.class) {
            counter.count_error();
        }
        if op.is_inject {
            warn_again!(
                target: UTIL.ep_data,
                "an injected operation of {} bytes is lost: {}", op.len, error.err
            );
        } else if let Some(cq) = &self.tx_cq {
            cq.write_error(error);
        }
    }

    /// Reports the failure of an operation on a device, with the device's own error number and
    /// error data.
    #[cold]
    pub fn failed_on_device(&self, op: &Op, error: Errno, prov_errno: i32, err_data: Box<[u8]>) {
        self.fail(
            op,
            ErrorCompletion {
                prov_errno,
                err_data,
                ..ErrorCompletion::new(completion_of(op), error)
            },
        );
    }

    /// Reports the end of a receive. `memory` is the part of the buffer for this message; with
    /// `release` a multi-receive buffer belongs to the application again.
    pub fn receive<A>(
        &self,
        receipt: &Receipt<A>,
        memory: &Iov<'_>,
        release: bool,
        outcome: Result,
    ) {
        let mut completion = self.completion_of_receive(receipt, memory);
        completion.flags |= receipt.flags & FI_CLAIM;
        if let Some(data) = receipt.data {
            completion.flags |= FI_REMOTE_CQ_DATA;
            completion.data = data;
        }
        if release {
            completion.flags |= FI_MULTI_RECV;
        }
        if receipt.flags & FI_PEER_TRANSFER != 0 {
            return self.end_transfer(completion, receipt.src, memory, outcome);
        }
        let wanted = receipt.flags & FI_COMPLETION != 0 || release;
        self.end_receive(completion, wanted, memory, outcome);
    }

    /// A receive has ended with a message from an address that the address vector does not
    /// have, and whose application wants to know the address (`FI_SOURCE_ERR`, fi_cq(3)).
    #[cold]
    pub fn receive_from_stranger<A>(
        &self,
        receipt: &Receipt<A>,
        memory: &Iov<'_>,
        release: bool,
        address: &[u8],
    ) {
        let mut completion = self.completion_of_receive(receipt, memory);
        if release {
            completion.flags |= FI_MULTI_RECV;
        }
        let excess = completion.len.saturating_sub(memory.len());
        if excess != 0 {
            return self.failed_receive(completion, Errno::ETRUNC, excess);
        }
        self.report_receive_in_error(ErrorCompletion {
            err_data: address.into(),
            ..ErrorCompletion::new(completion, Errno::EADDRNOTAVAIL)
        });
    }

    /// The fast path of [`Reports::receive`] for a complete message without immediate data that
    /// fits into a single-message buffer; the receive has the flag `FI_COMPLETION`. Out of line,
    /// where registers are free, and mostly without a call.
    #[inline(never)]
    pub fn plain_receive<const TAGGED: bool>(
        &self,
        buf: &AppIov,
        context: usize,
        src: u64,
        tag: u64,
        len: usize,
    ) {
        let is_counted = self.counters.recv.is_some();
        let is_renamed = self.av.as_ref().is_some_and(|av| av.has_user_ids());
        let written = !is_counted
            && !is_renamed
            && self.rx_cq.as_ref().is_some_and(
                #[inline(always)]
                |cq| {
                    cq.write_fast(
                        #[inline(always)]
                        || completion_of_plain((context, buf), src, TAGGED, tag, len),
                    )
                },
            );
        if !written {
            self.plain_receive_otherwise::<TAGGED>(buf, context, src, tag, len);
        }
    }

    #[inline(never)]
    fn plain_receive_otherwise<const TAGGED: bool>(
        &self,
        buf: &AppIov,
        context: usize,
        src: u64,
        tag: u64,
        len: usize,
    ) {
        if let Some(counter) = &self.counters.recv {
            counter.count(len);
        }
        if let Some(cq) = &self.rx_cq {
            let src = self.source(src);
            cq.write_with(
                #[inline(always)]
                || completion_of_plain((context, buf), src, TAGGED, tag, len),
            );
        }
    }

    /// [`Reports::plain_receive`] for any length of the message and any flags of the receive.
    #[inline(never)]
    pub fn whole_receive(
        &self,
        single: &Single<'_, AppIov>,
        src: u64,
        tagged: bool,
        tag: u64,
        len: usize,
    ) {
        let completion = completion_of_plain(
            (single.context, single.buf),
            self.source(src),
            tagged,
            tag,
            len,
        );
        if single.flags & FI_PEER_TRANSFER != 0 {
            return self.end_transfer(completion, src, single.buf, Ok(()));
        }
        let wanted = single.flags & FI_COMPLETION != 0;
        self.end_receive(completion, wanted, single.buf, Ok(()));
    }

    /// Reports the end of a peer provider's receive.
    #[cold]
    #[inline(never)]
    fn end_transfer(
        &self,
        mut completion: Completion,
        src: u64,
        memory: &Iov<'_>,
        outcome: Result,
    ) {
        let outcome = outcome.and(memory.take_failure());
        completion.flags |= FI_PEER_TRANSFER;
        let excess = completion.len.saturating_sub(memory.len());
        let at = self.rx_cq.as_deref();
        let error = match outcome {
            Ok(()) if excess == 0 => return self.transfer_done(completion, src, at),
            Ok(()) => ErrorCompletion {
                olen: excess,
                ..ErrorCompletion::new(completion, Errno::ETRUNC)
            },
            Err(error) => ErrorCompletion::new(completion, error),
        };
        self.transfer_failed(error, at);
    }

    fn completion_of_receive<A>(&self, receipt: &Receipt<A>, memory: &Iov<'_>) -> Completion {
        Completion {
            context: receipt.context.pointer(),
            flags: receive_flags(receipt.tagged),
            len: receipt.len,
            buf: memory.address(),
            data: 0,
            tag: receipt.tag,
            src: self.source(receipt.src),
        }
    }

    #[inline(never)]
    fn end_receive(&self, completion: Completion, wanted: bool, memory: &Iov<'_>, outcome: Result) {
        let outcome = outcome.and(memory.take_failure());
        let excess = completion.len.saturating_sub(memory.len());
        let error = match outcome {
            Ok(()) if excess == 0 => {
                if let Some(counter) = &self.counters.recv {
                    counter.count(completion.len);
                }
                if wanted && let Some(cq) = &self.rx_cq {
                    cq.write(&completion);
                }
                return;
            }
            Ok(()) => Errno::ETRUNC,
            Err(error) => error,
        };
        self.failed_receive(completion, error, excess);
    }

    #[cold]
    fn failed_receive(&self, mut completion: Completion, error: Errno, excess: usize) {
        completion.len -= excess.min(completion.len);
        self.report_receive_in_error(ErrorCompletion {
            olen: excess,
            ..ErrorCompletion::new(completion, error)
        });
    }

    fn report_receive_in_error(&self, error: ErrorCompletion) {
        if let Some(counter) = &self.counters.recv {
            counter.count_error();
        }
        if let Some(cq) = &self.rx_cq {
            cq.write_error(error);
        }
    }

    /// Reports a receive that ended without a message for this cause; `-FI_ECANCELED` if the
    /// application has cancelled it. The entry's `err` is `FI_ECANCELED` in either case, for
    /// programs that do not look at the cause, which is in `prov_errno`.
    pub fn cancelled_receive(&self, tagged: bool, cancelled: &Cancelled<AppIov>, cause: Errno) {
        let flags = receive_flags(tagged) | cancelled.flags & FI_MULTI_RECV;
        let completion = Completion {
            tag: cancelled.tag,
            ..Completion::new(Context(cancelled.context).pointer(), flags)
        };
        if cancelled.flags & FI_PEER_TRANSFER != 0 {
            return self.end_transfer(completion, ANY_SOURCE, &AppIov::EMPTY, Err(cause));
        }
        self.report_receive_in_error(ErrorCompletion {
            prov_errno: cause.number(),
            ..ErrorCompletion::new(completion, Errno::ECANCELED)
        });
    }

    /// Reports a receive that was accepted and could not be posted, to the counter if it `counts`.
    #[cold]
    pub fn refused_receive(&self, receive: &Receive, error: Errno, counts: bool) {
        let (tagged, tag) = match receive.select {
            Select::Untagged => (false, 0),
            Select::Tagged { tag, .. } => (true, tag),
        };
        let flags = receive_flags(tagged) | receive.flags & FI_MULTI_RECV;
        let completion = Completion {
            tag,
            ..Completion::new(receive.context, flags)
        };
        let error = ErrorCompletion::new(completion, error);
        if counts {
            self.report_receive_in_error(error);
        } else if let Some(cq) = &self.rx_cq {
            cq.write_error(error);
        }
    }

    /// Reports a message that the application may claim (`FI_BUFFERED_RECV`). Its receipt has no
    /// buffer; the receipt's flags are those of the completion. The application reads `front` until
    /// it claims the message.
    pub fn buffered<A>(&self, receipt: &Receipt<A>, front: &[u8]) {
        if let Some(cq) = &self.rx_cq {
            let address = match front {
                [] => std::ptr::null(),
                front => front.as_ptr(),
            };
            let data = receipt.data;
            cq.write(&Completion {
                flags: receive_flags(receipt.tagged)
                    | receipt.flags
                    | data.map_or(0, |_| FI_REMOTE_CQ_DATA),
                buf: address.cast_mut().cast(),
                data: data.unwrap_or(0),
                ..self.completion_of_receive(receipt, &AppIov::EMPTY)
            });
        }
    }

    /// Reports the result of a peek (`FI_PEEK`).
    pub fn look(&self, receive: &Receive, seen: Option<&Seen>) {
        let (tagged, tag) = match receive.select {
            Select::Untagged => (false, 0),
            Select::Tagged { tag, .. } => (true, tag),
        };
        let completion = Completion {
            tag,
            ..Completion::new(receive.context, receive_flags(tagged))
        };
        let outcome = seen.map(|seen| Completion {
            flags: completion.flags | seen.flags,
            len: seen.len,
            data: seen.data,
            tag: seen.tag,
            src: self.source(seen.src),
            ..completion
        });
        let nothing = || ErrorCompletion::new(completion, Errno::ENOMSG);
        if receive.flags & FI_PEER_TRANSFER != 0 {
            let at = self.rx_cq.as_deref();
            return match outcome {
                None => self.transfer_failed(nothing(), at),
                Some(found) => {
                    let src = seen.map_or(ANY_SOURCE, |seen| seen.src);
                    self.transfer_done(found, src, at);
                }
            };
        }
        let Some(cq) = &self.rx_cq else {
            return;
        };
        match outcome {
            None => cq.write_error(nothing()),
            Some(found) if receive.flags & FI_COMPLETION != 0 => cq.write(&found),
            Some(_) => {}
        }
    }

    /// Reports that a peer has read `len` bytes of this process's memory.
    pub fn remote_read(&self, len: usize) {
        if let Some(counter) = &self.counters.remote_read {
            counter.count(len);
        }
    }

    /// Reports that a peer has written to this process's memory, with an operation of `kind`
    /// (`FI_RMA`, `FI_ATOMIC`) and possibly immediate data.
    pub fn remote_write(&self, kind: u64, len: usize, data: Option<u64>, src: u64) {
        if let Some(counter) = &self.counters.remote_write {
            counter.count(len);
        }
        self.remote_data(kind, len, data, src);
    }

    /// Reports only the immediate data of such an operation, if there is any.
    pub fn remote_data(&self, kind: u64, len: usize, data: Option<u64>, src: u64) {
        self.immediate(kind | FI_REMOTE_WRITE, len, data, src);
    }

    /// Reports a peer's read that may have immediate data, which only an atomic operation can have.
    pub fn remote_read_with(&self, kind: u64, len: usize, data: Option<u64>, src: u64) {
        self.remote_read(len);
        self.immediate(kind | FI_REMOTE_READ, len, data, src);
    }

    /// Returns whether the completion queue has room for a completion without a posted receive
    /// ([`Cq::has_room_unasked`]). If not, the link that brings the operation is held back until
    /// the application has read completions.
    #[inline]
    pub fn has_room_unasked(&self) -> bool {
        match &self.rx_cq {
            Some(cq) => cq.has_room_unasked(),
            None => true,
        }
    }

    /// The number of free entries that [`Reports::has_room_unasked`] compares.
    pub fn room_unasked(&self) -> usize {
        self.rx_cq.as_ref().map_or(usize::MAX, |cq| cq.unasked())
    }

    fn immediate(&self, flags: u64, len: usize, data: Option<u64>, src: u64) {
        if let Some(data) = data {
            self.immediate_data(flags, len, data, src);
        }
    }

    /// Reports immediate data that has come with a peer's operation; `flags` are those of the
    /// completion. The counters know of the operation.
    pub fn immediate_data(&self, flags: u64, len: usize, data: u64, src: u64) {
        if let Some(cq) = &self.rx_cq {
            cq.write(&Completion {
                len,
                data,
                src: self.source(src),
                ..Completion::new(null_mut(), flags | FI_REMOTE_CQ_DATA)
            });
        }
    }
}

/// The properties of a message that a peek reports.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    src: u64,
    tag: u64,
    len: usize,
    data: u64,
    flags: u64,
}

impl Seen {
    /// The properties of a message in a queue that providers share.
    pub fn of_queue(seen: &srx::Seen) -> Self {
        Seen {
            src: seen.src,
            tag: seen.tag,
            len: seen.len,
            data: seen.data,
            flags: seen.flags,
        }
    }

    /// The properties of a waiting message.
    pub fn of<U>(message: &Message<U>) -> Self {
        Seen {
            src: message.src,
            tag: message.tag,
            len: message.len,
            data: message.data,
            flags: message.flags,
        }
    }
}
