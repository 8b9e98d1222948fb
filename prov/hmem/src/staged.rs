//! Copies through pinned memory of the host, for interfaces whose runtimes copy between memory that they
//! know: bytes of the host pass through a buffer of theirs.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_base::device_memory::handles::{Allocation, Handle};
use prov_base::device_memory::{Copier, Fetching, Prepared, Underway};
use prov_base::errno::{Errno, Result};

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToHost,
    ToDevice,
    Within,
}

/// What copies for one device.
pub(crate) trait Engine: Send + Sync + 'static {
    /// `enum fi_hmem_iface`
    const INTERFACE: u32;

    /// A copy that was begun. One that is dropped before it is made goes on.
    type Begun: Outcome;

    /// Allocates pinned memory.
    ///
    /// # Errors
    /// The runtime's.
    fn pin(&self) -> Result<Pinned>;

    /// Begins to copy; memory of the host is pinned, at its address for the device.
    ///
    /// # Errors
    /// The runtime's; nothing was begun then.
    ///
    /// # Safety
    /// Both ranges are valid until the copy has been made, and of the kinds that the direction says.
    unsafe fn copy(
        &self,
        direction: Direction,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Self::Begun>;

    /// Makes a short copy at once, between the device and any memory of the host; `false` if there is no
    /// way that is faster than others, in which case nothing was copied.
    ///
    /// # Safety
    /// Both ranges are valid, and of the kinds that the direction says.
    unsafe fn short(
        &self,
        _direction: Direction,
        _from: *const u8,
        _to: *mut u8,
        _len: usize,
    ) -> bool {
        false
    }

    /// [`Copier::prepare`]
    fn prepare(&self, _address: usize, _len: usize) -> Option<Box<dyn Prepared>> {
        None
    }

    /// Returns the allocation that an address is in, for engines that make handles of it.
    fn allocation(&self, _address: usize) -> Option<Allocation> {
        None
    }

    /// Makes the handle by which other processes of this host open an allocation.
    ///
    /// # Errors
    /// `-FI_ENOSYS` without handles, and the runtime's.
    fn handle(&self, _allocation: Allocation) -> Result<Handle> {
        Err(Errno::ENOSYS)
    }
}

/// The outcome of a copy.
pub(crate) trait Outcome: Send + Sync {
    /// Returns it once the copy has been made or has failed; it is not asked again then.
    fn outcome(&mut self) -> Option<Result>;
}

/// Waits for the outcome of a copy.
fn wait(mut outcome: impl FnMut() -> Option<Result>) -> Result {
    /// Times that are asked before the processor is given to others: a short copy takes a few
    /// microseconds.
    const EAGER: u32 = 200;
    let mut asked = 0;
    loop {
        if let Some(outcome) = outcome() {
            return outcome;
        }
        asked = EAGER.min(asked + 1);
        match asked < EAGER {
            true => std::hint::spin_loop(),
            false => std::thread::yield_now(),
        }
    }
}

/// Pinned memory of the host, which exists as long as the process lives.
pub(crate) struct Pinned {
    bytes: *mut u8,
    /// Its address for the device.
    address: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to whoever has the value.
unsafe impl Send for Pinned {}
// SAFETY: through a shared reference it is only read, but by `fill`, which requires more.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Memory that a runtime has pinned.
    ///
    /// # Safety
    /// It has [`Pinned::LEN`] bytes, is never freed, and nothing else accesses it.
    pub unsafe fn new(bytes: *mut u8, address: *mut u8) -> Self {
        Pinned {
            bytes,
            address,
            len: Pinned::LEN,
        }
    }

    /// Bytes of each ([`prov_base::buffer::STAGED`]).
    pub const LEN: usize = prov_base::buffer::STAGED;

    /// Divides it.
    fn split(&self) -> impl Iterator<Item = Pinned> {
        let (bytes, address) = (self.bytes, self.address);
        (0..self.len / SMALL).map(move |number| Pinned {
            bytes: bytes.wrapping_add(number * SMALL),
            address: address.wrapping_add(number * SMALL),
            len: SMALL,
        })
    }

    /// Returns the address that the runtime copies from and to.
    pub fn for_device(&self) -> *mut u8 {
        self.address
    }

    /// Copies bytes into it, as many as fit.
    ///
    /// # Safety
    /// The source is valid for `len` bytes, and no copy from or to the memory is under way.
    pub unsafe fn fill(&self, from: *const u8, len: usize) {
        // SAFETY: the caller guarantees that the source is valid, and the memory is as long.
        unsafe { std::ptr::copy_nonoverlapping(from, self.bytes, len.min(self.len)) };
    }

    /// Copies bytes from an offset on, as many as there are.
    ///
    /// # Safety
    /// No copy to the memory is under way.
    pub unsafe fn read(&self, at: usize, to: &mut [u8]) {
        let at = at.min(self.len);
        let len = to.len().min(self.len - at);
        // SAFETY: the range is within the memory, to which nothing writes.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes.add(at), to.as_mut_ptr(), len) };
    }
}

/// One device.
pub(crate) struct Staged<E: Engine>(Arc<State<E>>);

struct State<E: Engine> {
    engine: E,
    number: u64,
    pool: Mutex<Pool<E>>,
}

impl<E: Engine> Staged<E> {
    /// Creates it for the device with this number.
    pub fn new(engine: E, number: usize) -> Self {
        Staged(Arc::new(State {
            engine,
            number: number as u64,
            pool: Mutex::new(Pool {
                idle: Vec::new(),
                small: Vec::new(),
                divided: 0,
                abandoned: Vec::new(),
                allocated: 0,
            }),
        }))
    }
}

/// Pinned memory.
struct Pool<E: Engine> {
    idle: Vec<Pinned>,
    /// Parts of buffers, of [`SMALL`] bytes.
    small: Vec<Pinned>,
    /// Buffers that were divided.
    divided: usize,
    /// That of copies that were given up while they were under way.
    abandoned: Vec<(E::Begun, Pinned)>,
    allocated: usize,
}

/// Buffers of pinned memory of one device for copies that nobody waits for, 8 MiB together.
const PINNED: usize = 32;
/// Bytes of a part of a buffer: those of a datagram fit.
const SMALL: usize = 16 << 10;
/// Buffers that are divided, 128 parts together: short copies leave the others to long ones.
const DIVIDED: usize = 8;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<E: Engine> Pool<E> {
    /// Takes an idle buffer.
    fn take(&mut self) -> Option<Pinned> {
        self.collect();
        self.idle.pop()
    }

    /// Takes a part of a buffer; divides one more, if none is idle.
    fn take_small(&mut self) -> Option<Pinned> {
        self.collect();
        if self.small.is_empty() && self.divided < DIVIDED {
            let whole = self.idle.pop()?;
            self.divided += 1;
            self.small.extend(whole.split());
        }
        self.small.pop()
    }

    /// Takes back the buffers of copies that were given up, and have been made.
    fn collect(&mut self) {
        let ended = |(begun, _): &mut (E::Begun, Pinned)| begun.outcome() == Some(Ok(()));
        let ended: Vec<_> = self.abandoned.extract_if(.., ended).collect();
        ended.into_iter().for_each(|(_, pinned)| self.keep(pinned));
    }

    fn keep(&mut self, pinned: Pinned) {
        match pinned.len {
            SMALL => self.small.push(pinned),
            _ => self.idle.push(pinned),
        }
    }
}

impl<E: Engine> State<E> {
    /// Returns a buffer; one more, if none is idle.
    fn pinned(&self) -> Result<Pinned> {
        let mut pool = locked(&self.pool);
        match pool.take() {
            Some(pinned) => Ok(pinned),
            None => self.add_to(&mut pool),
        }
    }

    /// Returns a buffer for so many bytes, or fewer, if one is idle or fewer exist than may.
    fn spare(&self, len: usize) -> Result<Option<Pinned>> {
        let mut pool = locked(&self.pool);
        if len <= SMALL
            && let Some(small) = pool.take_small()
        {
            return Ok(Some(small));
        }
        if let Some(pinned) = pool.take() {
            return Ok(Some(pinned));
        }
        if pool.allocated >= PINNED {
            return Ok(None);
        }
        let pinned = self.add_to(&mut pool)?;
        if len > SMALL || pool.divided == DIVIDED {
            return Ok(Some(pinned));
        }
        pool.idle.push(pinned);
        Ok(pool.take_small())
    }

    fn add_to(&self, pool: &mut Pool<E>) -> Result<Pinned> {
        let pinned = self.engine.pin()?;
        pool.allocated += 1;
        Ok(pinned)
    }

    fn keep(&self, pinned: Pinned) {
        locked(&self.pool).keep(pinned);
    }

    /// Begins to copy from the device to a buffer.
    ///
    /// # Safety
    /// The range is memory of the device, and may be read until the copy has been made.
    unsafe fn fetch(
        self: &Arc<Self>,
        pinned: Pinned,
        from: *const u8,
        len: usize,
    ) -> Result<Copy<E>> {
        let to = pinned.for_device();
        // SAFETY: the caller guarantees that the source is valid, and the result has the buffer.
        let begun = unsafe { self.engine.copy(Direction::ToHost, from, to, len) };
        self.begun(begun, pinned)
    }

    /// Takes bytes into a buffer, and begins to copy them to the device.
    ///
    /// # Safety
    /// The source is valid during the call, the target until the copy has been made.
    unsafe fn bring(
        self: &Arc<Self>,
        pinned: Pinned,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Copy<E>> {
        // SAFETY: the caller guarantees that both ranges are valid, and the result has the buffer.
        let begun = unsafe {
            pinned.fill(from, len);
            let from = pinned.for_device().cast_const();
            self.engine.copy(Direction::ToDevice, from, to, len)
        };
        self.begun(begun, pinned)
    }

    /// Keeps the buffer with the copy; without one it is idle.
    fn begun(self: &Arc<Self>, begun: Result<E::Begun>, pinned: Pinned) -> Result<Copy<E>> {
        match begun {
            Ok(begun) => Ok(Copy {
                device: self.clone(),
                with: Some((begun, pinned)),
                is_done: false,
            }),
            Err(error) => {
                self.keep(pinned);
                Err(error)
            }
        }
    }

    /// Makes a copy in parts: the next one is under way while the processor is busy with the one
    /// before it. None is under way any more when this returns.
    fn in_parts(
        &self,
        len: usize,
        begin: impl Fn(Pinned, usize, usize) -> Result<Copy<E>>,
        end: impl Fn(&Copy<E>, usize, usize),
    ) -> Result {
        let (mut at, mut outcome) = (0, Ok(()));
        let mut before: Option<(Copy<E>, usize, usize)> = None;
        loop {
            let part = (len - at).min(Pinned::LEN);
            let mut next = None;
            if outcome.is_ok() && part != 0 {
                let begun = self.pinned().and_then(|pinned| begin(pinned, at, part));
                match begun {
                    Ok(copy) => next = Some((copy, at, part)),
                    Err(error) => outcome = Err(error),
                }
            }
            if let Some((mut copy, at, part)) = before.take() {
                let made = wait(|| copy.poll());
                if made.is_ok() {
                    end(&copy, at, part);
                }
                outcome = outcome.and(made);
            }
            if next.is_none() {
                return outcome;
            }
            (at, before) = (at + part, next);
        }
    }
}

/// A copy between a device and a buffer. After a failure the buffer is not used again.
struct Copy<E: Engine> {
    device: Arc<State<E>>,
    with: Option<(E::Begun, Pinned)>,
    is_done: bool,
}

impl<E: Engine> Underway for Copy<E> {
    fn poll(&mut self) -> Option<Result> {
        let Some((begun, _)) = self.with.as_mut().filter(|_| !self.is_done) else {
            return Some(Ok(()));
        };
        let outcome = begun.outcome()?;
        match outcome {
            Ok(()) => self.is_done = true,
            Err(_) => self.with = None,
        }
        Some(outcome)
    }
}

impl<E: Engine> Fetching for Copy<E> {
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        if let Some((_, pinned)) = self.with.as_ref().filter(|_| self.is_done) {
            // SAFETY: the copy has been made.
            unsafe { pinned.read(at, to) };
        }
    }
}

impl<E: Engine> Drop for Copy<E> {
    fn drop(&mut self) {
        match self.with.take() {
            Some((_, pinned)) if self.is_done => self.device.keep(pinned),
            Some(with) => locked(&self.device.pool).abandoned.push(with),
            None => {}
        }
    }
}

/// Bytes of a device that are here, or a copy to it that has been made.
struct Made(Vec<u8>);

/// Bytes up to which [`Engine::short`] is asked for a copy that another buffer would be needed for.
const SHORT: usize = 4096;

impl Underway for Made {
    fn poll(&mut self) -> Option<Result> {
        Some(Ok(()))
    }
}

impl Fetching for Made {
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        for (to, from) in to.iter_mut().zip(self.0.get(at..).unwrap_or_default()) {
            *to = *from;
        }
    }
}

impl<E: Engine> Copier for Staged<E> {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        // SAFETY: the caller keeps the contract.
        if unsafe { self.0.engine.short(Direction::ToHost, from, to, len) } {
            return Ok(());
        }
        // SAFETY: the caller guarantees that both ranges are valid for `len` bytes, of which the parts
        // are.
        let begin = |pinned, at, part| unsafe { self.0.fetch(pinned, from.add(at), part) };
        let end = |copy: &Copy<E>, at, part| {
            // SAFETY: as above.
            copy.copy_out(0, unsafe {
                std::slice::from_raw_parts_mut(to.add(at), part)
            });
        };
        self.0.in_parts(len, begin, end)
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        // SAFETY: the caller keeps the contract.
        if unsafe { self.0.engine.short(Direction::ToDevice, from, to, len) } {
            return Ok(());
        }
        // SAFETY: the caller guarantees that both ranges are valid for `len` bytes, of which the parts
        // are.
        let begin =
            |pinned, at, part| unsafe { self.0.bring(pinned, from.add(at), to.add(at), part) };
        self.0.in_parts(len, begin, |_, _, _| {})
    }

    unsafe fn begin_write(
        &self,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Option<(usize, Box<dyn Underway>)>> {
        // SAFETY: the caller keeps the contract.
        if unsafe { self.0.engine.short(Direction::ToDevice, from, to, len) } {
            return Ok(Some((len, Box::new(Made(Vec::new())))));
        }
        let Some(pinned) = self.0.spare(len)? else {
            return Ok(None);
        };
        let len = len.min(pinned.len);
        // SAFETY: the caller keeps the contract.
        let copy = unsafe { self.0.bring(pinned, from, to, len)? };
        Ok(Some((len, Box::new(copy))))
    }

    unsafe fn begin_read(
        &self,
        from: *const u8,
        len: usize,
    ) -> Result<Option<(usize, Box<dyn Fetching>)>> {
        if len <= SHORT {
            let mut bytes = vec![0; len];
            let to = bytes.as_mut_ptr();
            // SAFETY: the caller keeps the contract, and the bytes are as long.
            if unsafe { self.0.engine.short(Direction::ToHost, from, to, len) } {
                return Ok(Some((len, Box::new(Made(bytes)))));
            }
        }
        let Some(pinned) = self.0.spare(len)? else {
            return Ok(None);
        };
        let len = len.min(pinned.len);
        // SAFETY: the caller keeps the contract.
        let copy = unsafe { self.0.fetch(pinned, from, len)? };
        Ok(Some((len, Box::new(copy))))
    }

    unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        // SAFETY: the caller guarantees that both ranges are valid, and the call waits for the copy.
        let mut begun = unsafe { self.0.engine.copy(Direction::Within, from, to, len)? };
        wait(|| begun.outcome())
    }

    fn prepare(&self, address: usize, len: usize) -> Option<Box<dyn Prepared>> {
        self.0.engine.prepare(address, len)
    }

    fn allocation(&self, address: usize) -> Option<Allocation> {
        self.0.engine.allocation(address)
    }

    fn handle(&self, allocation: Allocation) -> Result<Handle> {
        self.0.engine.handle(allocation)
    }

    fn family(&self) -> Option<u32> {
        Some(E::INTERFACE)
    }

    fn identity(&self) -> (u32, u64) {
        (E::INTERFACE, self.0.number)
    }
}
