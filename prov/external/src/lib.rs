//! Linking of a provider as a library of its own, `lib<name>-fi.so` (fi_provider(3)). Build scripts
//! of such libraries call [`link`].
//!
//! A provider calls the functions of the libfabric that loads it. It finds them like the C
//! library's own external providers: it needs a `libfabric.so.1`, which is the one that is already
//! loaded, even if that is not in the process's global scope (a plugin's, for instance). To be
//! loadable by old libraries as well as new ones, it requests each function under the oldest
//! version that has what the provider uses, so it cannot be linked with a library that has newer
//! ones. It is linked with a stand-in, generated here, that has exactly those.
//!
//! The build script of the library itself uses [`system_calls`], too.

#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a build script says what is wrong by a panic"
)]

use std::path::{Path, PathBuf};

/// The functions that a provider may call, under the versions that it requests. All are in
/// libfabric 1.17; the newest is that of fi_tostr_r(3).
///
/// `fi_getinfo` and related functions have later versions, for callers whose structures are longer;
/// providers do not use the additional fields of the provider below them.
const FUNCTIONS: [(&str, &[&str]); 4] = [
    (
        "FABRIC_1.0",
        &[
            "fi_log",
            "fi_log_enabled",
            "fi_param_define",
            "fi_param_get",
            "fi_strerror",
        ],
    ),
    ("FABRIC_1.1", &["fi_fabric"]),
    ("FABRIC_1.3", &["fi_getinfo", "fi_dupinfo", "fi_freeinfo"]),
    ("FABRIC_1.4", &["fi_tostr_r"]),
];

/// Functions of the C library that are cancellation points, which those of
/// `prov_base::arch` replace.
const SYSTEM_CALLS: [&str; 18] = [
    "accept4",
    "clock_nanosleep",
    "close",
    "connect",
    "getrandom",
    "open",
    "open64",
    "pause",
    "poll",
    "pread64",
    "pwrite64",
    "read",
    "recv",
    "recvmsg",
    "send",
    "sendmsg",
    "write",
    "writev",
];

/// Tells cargo to link a library in which no system call is a cancellation point. The sanitizers
/// have functions of their own for these, and so has the simulated network
/// (`fabtests/simulated`), for which rustix calls the C library, too.
pub fn system_calls() {
    let has_others = |cfg| std::env::var_os(cfg).is_some();
    if has_others("CARGO_CFG_SANITIZE") || has_others("CARGO_CFG_RUSTIX_USE_LIBC") {
        return;
    }
    for name in SYSTEM_CALLS {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}

/// The unwinder of libgcc_s.so.1, which is that of pthread_cancel(3), under its versions. All of it:
/// one function that is not here would come from zig's unwinder, with others beside it.
const UNWINDER: [(&str, &[&str]); 3] = [
    (
        "GCC_3.0",
        &[
            "_Unwind_DeleteException",
            "_Unwind_ForcedUnwind",
            "_Unwind_GetDataRelBase",
            "_Unwind_GetGR",
            "_Unwind_GetIP",
            "_Unwind_GetLanguageSpecificData",
            "_Unwind_GetRegionStart",
            "_Unwind_GetTextRelBase",
            "_Unwind_RaiseException",
            "_Unwind_Resume",
            "_Unwind_SetGR",
            "_Unwind_SetIP",
        ],
    ),
    (
        "GCC_3.3",
        &[
            "_Unwind_Backtrace",
            "_Unwind_FindEnclosingFunction",
            "_Unwind_GetCFA",
            "_Unwind_Resume_or_Rethrow",
        ],
    ),
    ("GCC_4.2.0", &["_Unwind_GetIPInfo"]),
];

/// Whether zig links, which it does for older versions of the C library.
#[must_use]
pub fn is_zig() -> bool {
    std::env::var("RUSTC_LINKER").is_ok_and(|driver| driver.contains("zig"))
}

/// Tells cargo to link with the system's unwinder. Zig would link its own one into the library, and
/// Rust's frames would ask that one while pthread_cancel(3) unwinds them with the system's.
pub fn unwinder() {
    if !is_zig() {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let library = stand_in(&out, "libgcc_s.so.1", &UNWINDER);
    println!("cargo:rustc-cdylib-link-arg={}", library.display());
}

/// Tells cargo how to link the external build of the provider `name`.
///
/// # Panics
/// Without a C compiler, which is what Rust links with, too.
pub fn link(name: &str) {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let stand_in = stand_in(&out, "libfabric.so.1", &FUNCTIONS);
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    system_calls();
    unwinder();
    println!("cargo:rustc-cdylib-link-arg={}", stand_in.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,lib{name}-fi.so");
    // A thread of the provider may still be ending when the library that loaded it closes it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

/// Creates a library that contains only the names of functions under their versions.
fn stand_in(out: &Path, soname: &str, functions: &[(&str, &[&str])]) -> PathBuf {
    let mut source = String::new();
    let mut versions = String::new();
    let mut parent = "";
    for (version, functions) in functions {
        for function in *functions {
            source.push_str(&format!("void {function}(void) {{}}\n"));
        }
        let names = functions.join("; ");
        versions.push_str(&format!("{version} {{ global: {names}; }} {parent};\n"));
        parent = version;
    }
    let file = |name: &str| out.join(name);
    let write = |name: &str, text: &str| {
        std::fs::write(file(name), text)
            .unwrap_or_else(|error| panic!("cannot write {name}: {error}"));
    };
    let (code, map) = (format!("{soname}.c"), format!("{soname}.map"));
    write(&code, &source);
    write(&map, &versions);
    let compiler = cc::Build::new().get_compiler();
    let library = file(soname);
    let done = compiler
        .to_command()
        .args(["-shared", "-fPIC", "-nostdlib"])
        .arg(format!("-Wl,-soname,{soname}"))
        .arg("-o")
        .arg(&library)
        .arg(format!("-Wl,--version-script={}", file(&map).display()))
        .arg(file(&code))
        .status();
    assert!(
        matches!(done, Ok(status) if status.success()),
        "{} makes no library: {done:?}",
        compiler.path().display()
    );
    library
}
