//! Creates the library that the tools are linked against: with the soname, the symbols and the
//! versions of libfabric.so.1, and without contents.
//!
//! The tools need the real library only when they run. So they can be built before it, beside it or
//! without it, and cannot use a symbol that the published interface lacks.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a build script says what is wrong by a panic"
)]

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;

const FACTS: &str = "../abi/facts/libfabric-2.7.json";

fn main() {
    println!("cargo:rerun-if-changed={FACTS}");
    let folder = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let facts = fs::read_to_string(FACTS).expect("the facts are part of the tree");
    let facts: Value = serde_json::from_str(&facts).expect("the facts are JSON");
    link_library(&folder, &facts);
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=dylib=fabric");
    // The installed library beside the tools, or the one in the build directory.
    println!("cargo:rustc-link-arg-bins=-Wl,-rpath,$ORIGIN/../lib");
}

fn link_library(folder: &Path, facts: &Value) {
    let soname = facts["soname"].as_str().expect("a soname");
    // The last listed version of a symbol is the one that new programs are linked to.
    let mut newest = BTreeMap::new();
    for symbol in facts["symbols"].as_array().expect("a list of symbols") {
        let (name, version) = (symbol[0].as_str(), symbol[1].as_str());
        newest.insert(name.expect("a name"), version.expect("a version"));
    }
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, version) in newest {
        nodes.entry(version).or_default().push(name);
    }
    let mut code = String::new();
    let mut versions = String::new();
    for (version, names) in &nodes {
        versions.push_str(&format!("{version} {{ global: {}; }};\n", names.join("; ")));
        for name in names {
            code.push_str(&format!("void {name}(void) {{}}\n"));
        }
    }
    let source = folder.join("empty.c");
    let script = folder.join("empty.map");
    let library = folder.join("libfabric.so");
    fs::write(&source, code).expect("OUT_DIR is writable");
    fs::write(&script, versions).expect("OUT_DIR is writable");
    let status = cc::Build::new()
        .get_compiler()
        .to_command()
        .args(["-w", "-shared", "-nostdlib", "-fno-builtin"])
        .arg(format!("-Wl,-soname,{soname}"))
        .arg(format!("-Wl,--version-script={}", script.display()))
        .arg("-o")
        .arg(&library)
        .arg(&source)
        .status();
    let built = status.is_ok_and(|status| status.success());
    assert!(
        built,
        "the C compiler must be able to link a shared library"
    );
    // For unit tests, which cargo starts with this directory in the loader's path.
    let alias = folder.join(soname);
    let _ = fs::remove_file(&alias);
    symlink("libfabric.so", alias).expect("OUT_DIR is writable");
}
