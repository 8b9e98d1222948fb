//! What all declared types have in common: zero is a value of each.

/// Gives each struct or union a `Default` whose bytes are all zero: null pointers, absent
/// functions, the `UNSPEC` enumerators.
macro_rules! zero_is_valid {
    ($($name:ident),* $(,)?) => {
        $(
            impl Default for $name {
                fn default() -> Self {
                    // SAFETY: the type consists of integers, raw pointers, optional function
                    // pointers and arrays, structs and unions of those; all-zero bytes are a
                    // value of each.
                    unsafe { ::core::mem::MaybeUninit::zeroed().assume_init() }
                }
            }
        )*
    };
}

/// A `Debug` that names a union and shows nothing of it: which member is live is not known here.
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
