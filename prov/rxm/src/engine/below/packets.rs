//! Posting packets: each is put together in a slot, or in a buffer from which it is injected.

use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_message::Ticket;
use prov_message::peers::Bytes as Payload;
use prov_util::below::{Endpoint, Local, Refused, Size, Slot, Slots};

use super::{Below, What};
use crate::engine::keys::LinkKey;
use crate::engine::link::{Link, copy};
use crate::wire::packet::{HEAD, Head};

/// Size in bytes of the slots for packets with short messages, or without a message.
pub const SMALL: usize = HEAD + 256;
/// Limit in bytes up to which payloads are copied instead of sent from their memory.
pub(super) const COPIED: usize = 1024;

/// The part of a packet after its header.
pub enum Load<'a> {
    /// The application's memory, from which it is sent.
    App(&'a AppIov, &'a Local),
    /// Bytes that are copied into the packet.
    Copy(Payload<'a>),
}

/// An operation that could not be posted, with its error.
pub type Unposted = (Errno, What);

impl Below {
    /// Sends a packet, whose completion is reported.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room, and others of the provider below.
    pub fn send(
        &mut self,
        link: &mut Link,
        head: &Head,
        load: &Load<'_>,
        flags: u64,
        what: What,
    ) -> std::result::Result<(), Unposted> {
        let (behind, local, copied) = match load {
            Load::App(memory, local) => (*memory, *local, None),
            Load::Copy(bytes) => (&AppIov::EMPTY, &Local::NONE, Some(bytes)),
        };
        let len = HEAD + copied.map_or(0, Payload::len);
        let fill = |packet: &mut [u8]| {
            if let Some((front, behind)) = packet.split_first_chunk_mut::<HEAD>() {
                head.write(front);
                if let Some(bytes) = copied {
                    copy(bytes, behind);
                }
            }
        };
        self.post(link, size_for(len), what, fill, |below, slots, slot| {
            below.send(slots, slot, len, behind, local, flags)
        })
    }

    /// [`Below::send`] for a message that fits into a small slot and is reported.
    ///
    /// # Errors
    /// Those of [`Below::send`].
    #[inline]
    pub fn send_quickly(
        &mut self,
        link: &mut Link,
        key: LinkKey,
        head: &Head,
        message: &AppIov,
        ticket: Ticket,
    ) -> std::result::Result<(), Unposted> {
        let what = What::Op(key, ticket, None);
        let len = HEAD + message.len();
        let fill = |packet: &mut [u8]| put_together(head, message, packet);
        self.post(link, Size::Small, what, fill, |below, slots, slot| {
            below.send_slot(slots, slot, len)
        })
    }

    /// Returns whether a packet with this many bytes after its header may be injected, which
    /// completes the message for the application, if that wants a completion.
    #[inline(always)]
    pub fn may_inject(&self, link: &Link, len: usize, is_reported: bool) -> bool {
        // Short messages to a peer must complete in order.
        HEAD + len <= self.scratch.len()
            && (!is_reported || self.ends_when_copied && link.lent == 0)
    }

    /// Sends a packet that is copied by the call and whose completion is not reported.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room, and others of the provider below.
    #[inline(always)]
    pub fn inject(&mut self, link: &Link, head: &Head, message: &AppIov) -> Result {
        let len = HEAD + message.len();
        let packet = self.scratch.get_mut(..len).ok_or(Errno::EMSGSIZE)?;
        put_together(head, message, packet);
        link.below.inject(packet)?;
        self.injected();
        Ok(())
    }

    /// [`Below::inject`] for any kind of payload.
    ///
    /// # Errors
    /// Those of [`Below::inject`].
    pub fn inject_copy(&mut self, link: &Link, head: &Head, bytes: &Payload<'_>) -> Result {
        let len = HEAD + bytes.len();
        let packet = self.scratch.get_mut(..len).ok_or(Errno::EMSGSIZE)?;
        if let Some((front, behind)) = packet.split_first_chunk_mut::<HEAD>() {
            head.write(front);
            copy(bytes, behind);
        }
        link.below.inject(packet)?;
        self.injected();
        Ok(())
    }

    /// Records that a packet was injected. The provider below may hold back all packets but the
    /// first, for coalescing or for want of room, until its queue is read. They are sent by the
    /// application's next read of a queue, which may find completions and would otherwise not drive
    /// the lane.
    #[inline(always)]
    fn injected(&mut self) {
        if std::mem::replace(&mut self.has_injected, true) {
            self.signals.drive_next();
        }
    }

    /// Posts an operation with a slot: `fill` writes to the slot, `call` posts it.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room, and others of the provider below; with the data of the
    /// operation.
    #[inline(always)]
    pub fn post(
        &mut self,
        link: &mut Link,
        size: Size,
        what: What,
        fill: impl FnOnce(&mut [u8]),
        call: impl FnOnce(&Endpoint, &mut Slots<What>, Slot) -> std::result::Result<(), Refused>,
    ) -> std::result::Result<(), Unposted> {
        let slot = match self.slots.take(size) {
            Ok(slot) => slot,
            Err(error) => return Err((error, what)),
        };
        fill(self.slots.bytes_mut(&slot));
        self.slots.set(&slot, what);
        match call(&link.below, &mut self.slots, slot) {
            Ok(()) => {
                link.lent += 1;
                Ok(())
            }
            Err(Refused { error, slot }) => {
                let what = self.slots.what(&slot);
                self.slots.give_back(slot);
                Err((error, what.unwrap_or(What::Packet(None))))
            }
        }
    }
}

/// Returns the slot size for a packet of this many bytes.
fn size_for(len: usize) -> Size {
    match len <= SMALL {
        true => Size::Small,
        false => Size::Large,
    }
}

/// Assembles a packet with an application's message in a buffer that is long enough.
#[inline(always)]
#[allow(clippy::indexing_slicing, reason = "limited to the shorter one")]
fn put_together(head: &Head, message: &AppIov, place: &mut [u8]) {
    if let Some((front, behind)) = place.split_first_chunk_mut::<HEAD>() {
        head.write(front);
        let len = message.len().min(behind.len());
        message.read_at(0, &mut behind[..len]);
    }
}
