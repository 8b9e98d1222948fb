//! The library under test, and C programs that use it.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the source tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns a directory with an up-to-date libfabric.so.1 of this tree. Cargo builds no cdylib for
/// the tests of its own package, so the first caller does.
pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "--quiet", "--package", "libfabric", "--lib"])
            .current_dir(root());
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success());
        let test = std::env::current_exe().expect("a test knows its path");
        let built = test
            .ancestors()
            .nth(2)
            .expect("tests are two levels down")
            .join("libfabric.so");
        let directory = scratch("libfabric");
        for name in ["libfabric.so.1", "libfabric.so"] {
            let _ = std::fs::remove_file(directory.join(name));
            std::os::unix::fs::symlink(&built, directory.join(name)).expect("a link");
        }
        directory
    })
}

/// Returns another libfabric.so.1 to compare with, in the directory `LIBFABRIC_COMPARE`, if that is
/// set.
pub fn other() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("LIBFABRIC_COMPARE")?).join("libfabric.so.1"))
}

/// An empty directory for this process and this purpose.
pub fn scratch(purpose: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{purpose}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a scratch directory");
    directory
}

/// Compiles a file of tests/c with the headers of this tree.
pub fn compile(source: &str, output: &Path, arguments: &[&str]) {
    let status = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-I"])
        .arg(root().join("include"))
        .arg("-o")
        .arg(output)
        .arg(root().join("tests/c").join(source))
        .arg("-L")
        .arg(directory())
        .args(arguments)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "{source} does not compile");
}
