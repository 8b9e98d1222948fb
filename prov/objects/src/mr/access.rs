//! Accesses of peers to registered memory.

use super::index::{Found, Reader};
use super::{Job, Region};
use prov_base::buffer::Iov;
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::OtherIov;

/// The look-up of regions, for one access at a time. Each lane has its own, and so has each thread
/// that works beside the lanes. It takes no lock and executes no atomic read-modify-write, and two
/// accessors write to no common cache line.
pub struct Accessor {
    regions: Reader<Region>,
    target: &'static str,
}

/// A peer's access to memory, as granted by [`Accessor::resolve`]. It may be stored: closing the
/// region does not wait for it, but only for users that [`Accessor::hold`] the memory, which fails
/// afterwards.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grant {
    key: u64,
    id: u64,
    /// Offset in the region.
    offset: usize,
    len: usize,
    access: u64,
    counted: bool,
}

/// Granted memory whose region stays open while this value lives: closing the region waits. The
/// holder must therefore neither block nor close a region.
pub struct Held<'a> {
    region: Found<'a, Region>,
    grant: Grant,
}

impl Accessor {
    pub(super) fn new(regions: Reader<Region>, target: &'static str) -> Self {
        Accessor { regions, target }
    }

    /// Returns the log target.
    pub(super) fn target(&self) -> &'static str {
        self.target
    }

    /// Returns the memory of a peer's request for `len` bytes at `addr`, if the region with this
    /// key permits `access` (`FI_REMOTE_READ`, `FI_REMOTE_WRITE`) to all of it, to a peer that
    /// belongs to `job`.
    ///
    /// # Errors `-FI_EACCES` for an unknown key and for an access that the region does not permit.
    /// Where the C library reports a refusal to the initiator, that is its error in both cases, and
    /// programs that end expect it of peers that have closed their regions already.
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
            None => Err((Errno::EACCES, "unknown key")),
        };
        outcome.map_err(|(error, reason)| self.refuse(error, reason, addr, len))
    }

    #[cold]
    fn refuse(&self, error: Errno, reason: &str, addr: u64, len: u64) -> Errno {
        prov_base::warn_again!(
            target: self.target,
            "refused a peer's access to {len} bytes at {addr:#x}: {reason}"
        );
        error
    }

    /// Holds granted memory for the duration of an access; `None` once its region is closed.
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

    /// Informs the counters bound to the region that the access is complete.
    #[inline]
    pub fn complete(&mut self, grant: &Grant) {
        if grant.counted
            && let Some(held) = self.hold(grant)
        {
            held.region.count(grant.access, grant.len);
        }
    }
}

/// See [`Accessor::resolve`]; an error includes the reason.
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
        return Err((Errno::EACCES, "unknown key"));
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

/// Returns the part of a region that a peer means: offset and length.
#[inline(always)]
fn range(region: &Region, addr: u64, len: u64) -> Option<(usize, usize)> {
    let offset = usize::try_from(addr.checked_sub(region.base())?).ok()?;
    let len = usize::try_from(len).ok()?;
    // No memory contains more bytes than `isize::MAX`.
    let is_within = offset.checked_add(len)? <= region.len() && len <= isize::MAX as usize;
    is_within.then_some((offset, len))
}

impl Grant {
    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Held<'_> {
    /// Returns all of the granted memory.
    #[inline]
    pub fn memory(&self) -> Iov<'_> {
        self.part(0, self.grant.len)
    }

    /// Returns `len` bytes from `offset` on, both limited to the granted memory.
    ///
    /// ```
    /// # use fabric_abi::FI_REMOTE_READ;
    /// # use prov_objects::mr::{Config, Job, Memory, MrTable, Request};
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
    /// The part cannot be used after the region has been released, when it may be closed:
    ///
    /// ```compile_fail,E0505
    /// # use prov_objects::mr::{Accessor, Grant};
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
        // The granted memory is within the region.
        memory
            .slice(self.grant.offset + offset, len)
            .unwrap_or(Iov::EMPTY)
    }

    /// Returns whether another process can copy the memory, if that is certain. It is determined
    /// once per region, at the ends of its pieces.
    pub fn can_be_copied(&self) -> bool {
        self.region.can_be_copied()
    }

    /// Adds the memory to a list that another process may copy, with a seal that is valid until the
    /// region is closed. Returns `false` if it does not fit, or there is no seal.
    pub fn offer(&self, list: &mut OtherIov) -> bool {
        let seal = self.region.seal();
        seal.is_some_and(|seal| list.push_own(&self.memory(), Some(seal.token())))
    }
}
