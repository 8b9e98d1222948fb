//! Functions in which a thread may sleep. The C library ends a cancelled thread by unwinding its
//! stack (pthread_cancel(3)), and Rust frames must not be unwound in that way. So no Rust frame is on
//! the stack during the call below: the entry point is in assembly, it calls a Rust function before,
//! then the function of the object below, and then a Rust function after. What these two share is in
//! the [`Frame`], which has no destructor.

use std::ffi::{c_int, c_void};

use prov_base::arch::FRAME_REST;

/// The stack frame of a blocking call.
#[repr(C)]
pub(super) struct Frame {
    /// The application's arguments; the upper half of an `int` is undefined.
    pub arguments: [usize; 6],
    /// The object below.
    pub below: *mut c_void,
    /// The result, as it is in the register.
    pub result: usize,
    /// What the hook has returned before the call.
    pub before: u64,
}

/// Stack frame size in bytes: the [`Frame`], and what the architecture adds.
pub(super) const FRAME: usize = size_of::<Frame>().next_multiple_of(16) + FRAME_REST;

/// Member offsets for the assembly.
pub(super) mod offsets {
    use super::Frame;
    use std::mem::offset_of;

    pub const BELOW: usize = offset_of!(Frame, below);
    pub const RESULT: usize = offset_of!(Frame, result);
}

/// A type of arguments that a register holds.
pub(super) trait Word: Copy {
    fn of(register: usize) -> Self;
}

impl Word for usize {
    fn of(register: usize) -> Self {
        register
    }
}

impl Word for u64 {
    fn of(register: usize) -> Self {
        register as u64
    }
}

impl Word for c_int {
    fn of(register: usize) -> Self {
        register as c_int
    }
}

impl<T> Word for *mut T {
    fn of(register: usize) -> Self {
        std::ptr::with_exposed_provenance_mut(register)
    }
}

impl<T> Word for *const T {
    fn of(register: usize) -> Self {
        std::ptr::with_exposed_provenance(register)
    }
}

/// A function that shows its call to the hook and passes it to the object below, without a frame of
/// its own that could not be unwound.
macro_rules! blocking {
    (
        $table:ident, $offset:expr, $slot:ident, $operation:ident,
        ($first:ident: $first_type:ty $(, $argument:ident: $type:ty)*) -> $result:ty
    ) => {
        #[unsafe(naked)]
        pub(in super::super) unsafe extern "C" fn $slot(
            $first: $first_type,
            $($argument: $type,)*
        ) -> $result {
            prov_base::pass_on_blocking!(
                frame: $crate::wrap::blocking::FRAME,
                below: $crate::wrap::blocking::offsets::BELOW,
                result: $crate::wrap::blocking::offsets::RESULT,
                enter: $slot::enter,
                leave: $slot::leave,
            )
        }

        mod $slot {
            use super::*;
            use $crate::wrap::blocking::{Frame, Word};

            /// Returns the function to call, or null for a call that ends here with the result in
            /// the frame.
            ///
            /// # Safety
            /// `frame` is that of a call, with the application's arguments.
            pub(super) unsafe extern "C" fn enter(frame: *mut Frame) -> *const c_void {
                let _uncancelled = Uncancelled::begin();
                // SAFETY: the frame is the caller's alone, and the arguments are as the interface
                // asks.
                unsafe {
                    let [object, words @ ..] = (*frame).arguments;
                    let object = <*mut fid>::of(object);
                    let core = Wrapped::of(object);
                    let mut words = words.into_iter();
                    $(let $argument = <$type>::of(words.next().unwrap_or_default());)*
                    let values = [$($argument.value(),)*];
                    let call = Call::new(Operation::$operation, object.addr(), core, &values);
                    (*frame).result = <$result>::MISSING.to_register();
                    let Some(before) = core.enter(&call) else {
                        return std::ptr::null();
                    };
                    (*frame).before = before;
                    (*frame).below = core.below.cast();
                    match slot!(core.below, $offset, $table, $slot) {
                        Some(function) => function as *const c_void,
                        None => {
                            core.leave(&call, before, <$result>::MISSING.shown());
                            std::ptr::null()
                        }
                    }
                }
            }

            /// # Safety
            /// `frame` is that of a call which has returned.
            pub(super) unsafe extern "C" fn leave(frame: *mut Frame) {
                let _uncancelled = Uncancelled::begin();
                // SAFETY: as above.
                unsafe {
                    let [object, words @ ..] = (*frame).arguments;
                    let object = <*mut fid>::of(object);
                    let core = Wrapped::of(object);
                    let mut words = words.into_iter();
                    $(let $argument = <$type>::of(words.next().unwrap_or_default());)*
                    let values = [$($argument.value(),)*];
                    let call = Call::new(Operation::$operation, object.addr(), core, &values);
                    let result = <$result>::from_register((*frame).result);
                    special::settle(&call, object, result.shown());
                    core.leave(&call, (*frame).before, result.shown());
                }
            }
        }
    };
}
