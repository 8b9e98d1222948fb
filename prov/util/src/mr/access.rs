//! Peers' accesses to registered memory.

use super::index::{Found, Reader};
use super::{Job, Region};
use crate::buffer::Iov;
use crate::errno::{Errno, Result};
use crate::process_memory::OtherIov;

/// Who looks up regions, for one access at a time: each lane has its own, and
/// so has whoever works beside the lanes. No lock and no locked instruction is
/// in the way, and two accessors write to no common cache line.
pub struct Accessor {
    regions: Reader<Region>,
    target: &'static str,
}

/// A peer's access to memory, as [`Accessor::resolve`] granted it. It may be
/// kept: closing the region does not wait for it, but for those alone who
/// [`Accessor::hold`] the memory, which nobody can from then on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grant {
    key: u64,
    id: u64,
    /// In the region.
    offset: usize,
    len: usize,
    access: u64,
    counted: bool,
}

/// Granted memory whose region stays open while this lives: closing it waits.
/// Whoever holds memory must therefore neither block nor close a region.
pub struct Held<'a> {
    region: Found<'a, Region>,
    grant: Grant,
}

impl Accessor {
    pub(super) fn new(regions: Reader<Region>, target: &'static str) -> Self {
        Accessor { regions, target }
    }

    /// Where it logs.
    pub(super) fn target(&self) -> &'static str {
        self.target
    }

    /// The memory that a peer's request for `len` bytes at `addr` means, if
    /// the region with this key permits `access` (`FI_REMOTE_READ`,
    /// `FI_REMOTE_WRITE`) to all of it, to a peer that is one of `job`.
    /// `-FI_ENOKEY` for an unknown key, `-FI_EACCES` for what the region does
    /// not permit.
    #[inline]
    pub fn resolve(
        &mut self,
        key: u64,
        addr: u64,
        len: u64,
        access: u64,
        job: Job,
    ) -> Result<Grant> {
        let outcome = match self.regions.find(key, |region| !region.is_spent()) {
            Some(region) => grant(&region, addr, len, access, job),
            None => Err((Errno::ENOKEY, "unknown key")),
        };
        outcome.map_err(|(error, reason)| self.refuse(error, reason, addr, len))
    }

    #[cold]
    fn refuse(&self, error: Errno, reason: &str, addr: u64, len: u64) -> Errno {
        crate::warn_again!(
            target: self.target,
            "refused a peer's access to {len} bytes at {addr:#x}: {reason}"
        );
        error
    }

    /// Holds granted memory for this moment; `None` once its region is closed.
    #[inline]
    pub fn hold(&mut self, grant: &Grant) -> Option<Held<'_>> {
        let region = self
            .regions
            .find(grant.key, |region| region.id() == grant.id)?;
        Some(Held {
            region,
            grant: *grant,
        })
    }

    /// Tells the counters bound to the region that the access is complete.
    #[inline]
    pub fn complete(&mut self, grant: &Grant) {
        if grant.counted
            && let Some(held) = self.hold(grant)
        {
            held.region.count(grant.access, grant.len);
        }
    }
}

/// See [`Accessor::resolve`]; an error comes with the reason.
#[inline(always)]
fn grant(
    region: &Region,
    addr: u64,
    len: u64,
    access: u64,
    job: Job,
) -> std::result::Result<Grant, (Errno, &'static str)> {
    let refuse = |reason| Err((Errno::EACCES, reason));
    if !region.is_for(job) {
        return refuse("the peer has another authorization key");
    }
    if access & !region.access() != 0 {
        return refuse("the region does not permit it");
    }
    if !region.is_enabled() {
        return refuse("the region is not enabled");
    }
    let Some((offset, len)) = range(region, addr, len) else {
        return refuse("it is not within the region");
    };
    if !region.spend() {
        return Err((Errno::ENOKEY, "unknown key"));
    }
    Ok(Grant {
        key: region.key(),
        id: region.id(),
        offset,
        len,
        access,
        counted: region.is_counted(),
    })
}

/// The part of a region that a peer means: offset and bytes.
#[inline(always)]
fn range(region: &Region, addr: u64, len: u64) -> Option<(usize, usize)> {
    let offset = usize::try_from(addr.checked_sub(region.base())?).ok()?;
    let len = usize::try_from(len).ok()?;
    // More than one operation may move is no memory's part.
    let is_within = offset.checked_add(len)? <= region.len() && len <= isize::MAX as usize;
    is_within.then_some((offset, len))
}

impl Grant {
    /// Bytes that are accessed.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is not one byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Held<'_> {
    /// The memory, all that was granted.
    #[inline]
    pub fn memory(&self) -> Iov<'_> {
        self.part(0, self.grant.len)
    }

    /// `len` bytes from `offset` on, both cut to what was granted.
    ///
    /// ```
    /// # use fabric_abi::FI_REMOTE_READ;
    /// # use prov_util::mr::{Config, Job, Memory, MrTable, Request};
    /// # let table = MrTable::new(&Config::default());
    /// # let mut bytes = *b"abc";
    /// # let piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 3 };
    /// # // SAFETY: the bytes outlive the region.
    /// # let memory = unsafe { Memory::new(&[piece]) }.unwrap();
    /// # let region = table.register(Request::new(memory, FI_REMOTE_READ, 1)).unwrap();
    /// # let mut accessor = table.accessor();
    /// let grant = accessor.resolve(region.key(), 0, 3, FI_REMOTE_READ, Job::NONE).unwrap();
    /// let held = accessor.hold(&grant).unwrap();
    /// let part = held.part(1, 2);
    /// let mut copy = [0; 2];
    /// part.read_at(0, &mut copy);
    /// assert_eq!(&copy, b"bc");
    /// ```
    ///
    /// They are not used when the region is no longer held, and may be closed:
    ///
    /// ```compile_fail,E0505
    /// # use prov_util::mr::{Accessor, Grant};
    /// # fn read(accessor: &mut Accessor, grant: &Grant) {
    /// let held = accessor.hold(grant).unwrap();
    /// let part = held.part(1, 2);
    /// drop(held);
    /// let mut copy = [0; 2];
    /// part.read_at(0, &mut copy);
    /// # }
    /// ```
    #[inline]
    pub fn part(&self, offset: usize, len: usize) -> Iov<'_> {
        let offset = offset.min(self.grant.len);
        let len = len.min(self.grant.len - offset);
        let memory = self.region.memory();
        // What was granted is within the region.
        memory
            .slice(self.grant.offset + offset, len)
            .unwrap_or(Iov::EMPTY)
    }

    /// Whether another process can copy the memory, if that is certain. It is
    /// looked at once per region, at the ends of its pieces.
    pub fn can_be_copied(&self) -> bool {
        self.region.can_be_copied()
    }

    /// Adds the memory, sealed until the region is closed, to what another
    /// process may copy; `false` where it does not fit, and without a seal.
    pub fn offer(&self, list: &mut OtherIov) -> bool {
        let seal = self.region.seal();
        seal.is_some_and(|seal| list.push_own(&self.memory(), Some(seal.token())))
    }
}
