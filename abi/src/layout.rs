//! Traits that all declared types have: all-zero bytes are a valid value.

/// Gives each struct or union a `Default` whose bytes are all zero: null pointers, absent
/// functions, the `UNSPEC` enumerators.
macro_rules! zero_is_valid {
    ($($name:ident),* $(,)?) => {
        $(
            impl Default for $name {
                fn default() -> Self {
                    // SAFETY: the type consists of integers, raw pointers, optional function
                    // pointers, and arrays, structures and unions of those; all-zero bytes are a
                    // valid value of each.
                    unsafe { ::core::mem::MaybeUninit::zeroed().assume_init() }
                }
            }
        )*
    };
}

/// Implements a `Debug` that prints the name of a union only, since the active member is unknown.
macro_rules! opaque_debug {
    ($($name:ident),* $(,)?) => {
        $(
            impl ::core::fmt::Debug for $name {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.debug_struct(stringify!($name)).finish_non_exhaustive()
                }
            }
        )*
    };
}
