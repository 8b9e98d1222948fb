//! Data that leaves on the peer's request, or when its channel has space.

use prov_base::buffer::Iov;
use prov_base::errno::{Errno, Result};
use prov_message::peers::{Bytes, Deferred};
use prov_message::{Op, RmaTarget};
use prov_util::mr::Grants;
use prov_util::request::RemoteIov;

use super::payload::Payload;
use super::pending::PendingKey;
use super::{At, LinkOf, Links};
use crate::channel::Head;

/// A reply with its bytes.
pub struct Answer {
    pub head: Head,
    pub bytes: Vec<u8>,
}

/// Data that a peer reads and that is sent in parts.
pub struct ReadReply {
    pub offer: PendingKey,
    /// The peer's name for the read.
    pub to: u64,
    pub done: usize,
    pub len: usize,
}

/// A write that is sent in parts.
pub struct Writing {
    pub name: PendingKey,
    pub payload: Payload,
    pub remote: RemoteIov,
    pub data: Option<u64>,
    pub done: usize,
    pub len: usize,
}

/// Keeps an operation until the operations that were posted before it on a link are complete.
///
/// # Errors
/// `-FI_EAGAIN` if the endpoint has too many operations in progress.
pub(super) fn wait_behind<L: Links>(
    lane: &mut L,
    key: LinkOf<L>,
    op: Op,
    request: impl FnOnce() -> Deferred,
) -> Result {
    let At {
        link,
        endpoints,
        lists,
        ..
    } = lane.at(key).ok_or(Errno::EAGAIN)?;
    let ticket = endpoints.begin(op)?;
    link.wait_behind(request(), ticket);
    link.waits_for_space(key, lists);
    Ok(())
}

/// Fills `to` with the bytes of a request.
pub(super) fn copy(bytes: &Bytes<'_>, to: &Iov<'_>) {
    match bytes {
        Bytes::App(memory) => memory.copy_to(to),
        Bytes::Own(bytes) => to.write_at(0, bytes),
    };
}

/// Copies registered memory from an offset on, filling `to`.
pub(super) fn copy_part(grants: &Grants, target: &mut RmaTarget, offset: usize, to: &Iov<'_>) {
    let mut done = 0;
    while done < to.len() {
        let room = to.slice(done, usize::MAX);
        let part = grants.part(&mut target.memory, offset + done, room.len(), |from| {
            from.copy_to(&room);
        });
        let (len, copied) = part;
        if copied.is_none() {
            room.slice(0, len).fill(0);
        }
        if len == 0 {
            return;
        }
        done += len;
    }
}
