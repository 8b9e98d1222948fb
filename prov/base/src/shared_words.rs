//! The atomic words of memory that processes share: std's; in models, loom's; and in a library that is built
//! for simulated networks (`--cfg simulated`, `fabtests/simulated/run`) std's behind a [`step`] each, so that a
//! test decides what happens between any two accesses.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(any(loom, simulated)))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(simulated)]
pub use std::sync::atomic::{Ordering, fence};

#[cfg(simulated)]
pub use self::stepped::{AtomicU64, step};

/// A place between two accesses to shared memory, where another thread or process may be first: before a
/// payload is copied, for example.
#[cfg(not(simulated))]
#[inline(always)]
pub fn step() {}

#[cfg(simulated)]
mod stepped {
    use std::ffi::c_void;
    use std::sync::OnceLock;
    use std::sync::atomic::{self, Ordering};

    /// The function `simulated_step` of the test, if it has one.
    static STEP: OnceLock<Option<extern "C" fn(bool)>> = OnceLock::new();

    /// See the other one, which is without a schedule.
    pub fn step() {
        step_of(true);
    }

    /// Most accesses are loads, in which a lane looks for something new: others are rarer, and the more
    /// interesting places.
    fn step_of(is_rare: bool) {
        let found = STEP.get_or_init(|| {
            // SAFETY: the name is a C string.
            let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"simulated_step".as_ptr()) };
            // SAFETY: what has this name takes a `bool` and returns nothing
            // (fabtests/simulated/steps.c).
            (!function.is_null()).then(|| unsafe {
                std::mem::transmute::<*mut c_void, extern "C" fn(bool)>(function)
            })
        });
        if let Some(function) = found {
            function(is_rare);
        }
    }

    /// std's, each access to which is a step.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct AtomicU64(atomic::AtomicU64);

    /// Functions of std's, behind a step.
    macro_rules! stepped {
        ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, $is_rare:expr;)*) => {
            $(
                /// That of std's, which is a step.
                pub fn $name(&self, $($argument: $kind),*) -> $result {
                    step_of($is_rare);
                    self.0.$name($($argument),*)
                }
            )*
        };
    }

    impl AtomicU64 {
        /// That of std's.
        pub const fn new(value: u64) -> Self {
            AtomicU64(atomic::AtomicU64::new(value))
        }

        /// That of std's.
        ///
        /// # Safety
        ///
        /// That of std's.
        pub const unsafe fn from_ptr<'a>(pointer: *mut u64) -> &'a AtomicU64 {
            // SAFETY: the type has the layout of std's, for which the caller promises the rest.
            unsafe { &*pointer.cast() }
        }

        stepped! {
            load(order: Ordering) -> u64, false;
            store(value: u64, order: Ordering) -> (), true;
            fetch_add(value: u64, order: Ordering) -> u64, true;
            fetch_or(value: u64, order: Ordering) -> u64, true;
            compare_exchange(old: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64>, true;
        }
    }
}
