//! Soname, symbol versions, and the name under which programs ask for the
//! library.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a build script says what is wrong by a panic"
)]

use std::path::Path;

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfabric.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={dir}/libfabric.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--undefined-version");
    // A thread of a provider may be on its way out when the last object has
    // closed; the code must not disappear under it with dlclose(3).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The providers in it call its exported functions. With another libfabric in
    // the process, they must not call that one's.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    prov_external::system_calls();
    println!("cargo:rerun-if-changed=libfabric.map");
    println!("cargo:rerun-if-changed=build.rs");
    link_soname();
}

/// Puts `libfabric.so.1` beside `libfabric.so` in the target directory, so
/// that `LD_LIBRARY_PATH=target/release` is enough to run a program on it.
fn link_soname() {
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    // OUT_DIR is <target>/<profile>/build/<package>/out.
    let Some(profile) = Path::new(&out).ancestors().nth(3) else {
        return;
    };
    let link = profile.join("libfabric.so.1");
    if link.symlink_metadata().is_err()
        && let Err(error) = std::os::unix::fs::symlink("libfabric.so", &link)
    {
        println!("cargo:warning=no {}: {error}", link.display());
    }
}
