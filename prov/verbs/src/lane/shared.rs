//! Receives that several endpoints share.

use std::ffi::c_void;
use std::sync::Arc;

use prov_util::errno::{Errno, Result};
use prov_util::sync::{Lock, LockKind};

use super::member::{NUMBER_MASK, SHARED};
use super::receiver::Posted;
use crate::device::{Gather, ProtectionDomain, ReceiveRequest, SharedQueue};

/// A shared queue, and what is left to tell of the receives in it. Endpoints of
/// any lane may use it.
pub struct Shared {
    queue: Arc<SharedQueue>,
    size: usize,
    posted: Lock<Table>,
}

struct Table {
    places: Box<[Option<Posted>]>,
    free: Vec<u32>,
    /// Its device is gone, and no place is free any more.
    is_abandoned: bool,
}

impl Shared {
    /// For up to `size` receives at once.
    pub fn new(
        pd: &Arc<ProtectionDomain>,
        size: usize,
        pieces: usize,
        kind: LockKind,
    ) -> Result<Arc<Self>> {
        let places = u32::try_from(size.max(1)).map_err(|_| Errno::EINVAL)?;
        if places > NUMBER_MASK {
            return Err(Errno::EINVAL);
        }
        Ok(Arc::new(Shared {
            queue: SharedQueue::new(pd, places as usize, pieces)?,
            size: places as usize,
            posted: Lock::new(
                kind,
                Table {
                    places: vec![None; places as usize].into(),
                    free: (0..places).rev().collect(),
                    is_abandoned: false,
                },
            ),
        }))
    }

    /// Whether this is the id of a request in a shared queue.
    #[inline(always)]
    pub fn is_named(id: u64) -> bool {
        id & SHARED != 0
    }

    /// The queue.
    pub fn queue(&self) -> &Arc<SharedQueue> {
        &self.queue
    }

    /// Receives that may wait at once.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Posts a receive, as [`Receiver::post`](super::Receiver::post). `-FI_EAGAIN`
    /// where there is no room, `-FI_ENODEV` where it has been abandoned.
    pub fn post(
        &self,
        local: &Gather,
        context: *mut c_void,
        address: *mut c_void,
        is_reported: bool,
    ) -> Result {
        let mut table = self.posted.lock();
        let Some(&number) = table.free.last() else {
            return Err(table.refusal());
        };
        // A message may come to it at once, and wait for the lock in `take`.
        self.queue.post(&ReceiveRequest {
            id: u64::from(number) | SHARED,
            local,
        })?;
        table.free.pop();
        table.places[number as usize] = Some(Posted::new(context, address, is_reported));
        Ok(())
    }

    /// Takes the receive that a request was posted for.
    pub(super) fn take(&self, id: u64) -> Option<Posted> {
        let number = id as u32 & NUMBER_MASK;
        let mut table = self.posted.lock();
        let posted = table.places.get_mut(number as usize)?.take()?;
        if !table.is_abandoned {
            table.free.push(number);
        }
        Some(posted)
    }

    /// Takes all receives that wait, for who reports them. There will be no more.
    #[cold]
    pub(super) fn abandon(&self) -> Vec<Posted> {
        let mut table = self.posted.lock();
        table.is_abandoned = true;
        table.free.clear();
        table.places.iter_mut().filter_map(Option::take).collect()
    }
}

impl Table {
    #[cold]
    fn refusal(&self) -> Errno {
        match self.is_abandoned {
            true => Errno::ENODEV,
            false => Errno::EAGAIN,
        }
    }
}
