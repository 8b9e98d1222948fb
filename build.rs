//! Soname, symbol versions, and the name under which programs ask for the
//! library.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a build script says what is wrong by a panic"
)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let dir = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    name_linker();
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

/// Names the linker: rustc passes a version script without names of versions, and GNU ld accepts no
/// other one beside it.
fn name_linker() {
    println!("cargo:rerun-if-env-changed=PATH");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    // The linker of zig is lld, under a driver that has no choice of linkers.
    let driver = env::var("RUSTC_LINKER").unwrap_or_default();
    if driver.contains("zig") {
        return;
    }
    let Some(folder) = lld_of_rust().or_else(lld_in_path) else {
        panic!(
            "libfabric.so.1 is linked with lld, and there is no ld.lld, neither with the Rust compiler \
             nor in the PATH: install the package lld"
        );
    };
    // A compiler for another architecture does not look for it in the PATH.
    println!("cargo:rustc-cdylib-link-arg=-B{}", folder.display());
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
}

/// The folder of the lld that comes with the Rust compiler, which links for every architecture.
fn lld_of_rust() -> Option<PathBuf> {
    let rustc = env::var_os("RUSTC")?;
    let host = env::var("HOST").ok()?;
    let sysroot = Command::new(rustc)
        .args(["--print", "sysroot"])
        .output()
        .ok()?;
    let sysroot = String::from_utf8(sysroot.stdout).ok()?;
    let folder = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(host)
        .join("bin/gcc-ld");
    has_lld(&folder).then_some(folder)
}

fn lld_in_path() -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).find(|folder| has_lld(folder))
}

fn has_lld(folder: &Path) -> bool {
    folder.join("ld.lld").exists()
}

/// Puts `libfabric.so.1` beside `libfabric.so` in the target directory, so
/// that `LD_LIBRARY_PATH=target/release` is enough to run a program on it.
fn link_soname() {
    let out = env::var("OUT_DIR").expect("cargo sets it");
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
