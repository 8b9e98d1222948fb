//! Soname, symbol versions, and the name under which programs ask for the
//! library.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a build script says what is wrong by a panic"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What copies of this library find each other by (`prov_base::atomic_ops::split_lock`).
const OWN: &str = "fabric_split_updates";

fn main() {
    let dir = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let map = Path::new(&dir).join("libfabric.map");
    let linker = Linker::find();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfabric.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--undefined-version");
    // A thread of a provider may be on its way out when the last object has
    // closed; the code must not disappear under it with dlclose(3).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The providers in it call its exported functions. With another libfabric in
    // the process, they must not call that one's.
    match linker {
        Linker::Lld => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
            println!(
                "cargo:rustc-cdylib-link-arg=-Wl,--version-script={}",
                map.display()
            );
        }
        Linker::Zig => {
            // It has no such option for functions alone. The only data that is exported is found
            // by dlsym(3).
            println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
            let whole = whole_map(&map);
            println!(
                "cargo:rustc-cdylib-link-arg=-Wl,--version-script={}",
                whole.display()
            );
        }
    }
    prov_external::system_calls();
    prov_external::unwinder();
    println!("cargo:rerun-if-changed=libfabric.map");
    println!("cargo:rerun-if-changed=build.rs");
    link_soname();
}

/// What links the library.
enum Linker {
    /// lld, behind the driver of a C compiler. It takes the version script that rustc passes, without
    /// names of versions, and another one beside it; GNU ld does not.
    Lld,
    /// The driver of zig, which links for older versions of the C library (pkg/old-glibc). It has an
    /// lld of its own, and takes the last version script alone.
    Zig,
}

impl Linker {
    /// Finds out which one it is, and names it to the driver where that has a choice.
    fn find() -> Self {
        println!("cargo:rerun-if-env-changed=PATH");
        println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
        if prov_external::is_zig() {
            return Self::Zig;
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
        Self::Lld
    }
}

/// Writes a version script that needs no other one beside it: what has no version of the interface
/// is in it, too, and all else is local.
fn whole_map(map: &Path) -> PathBuf {
    let text = fs::read_to_string(map).expect("libfabric.map is part of the tree");
    let (nodes, end) = text.rsplit_once('}').expect("libfabric.map has nodes");
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    let whole = Path::new(&out).join("libfabric.map");
    let text = format!("{nodes}\t\t{OWN};\n\tlocal:\n\t\t*;\n}}{end}");
    fs::write(&whole, text).expect("OUT_DIR is writable");
    whole
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
