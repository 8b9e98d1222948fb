//! Writes the C headers from the `fabric-abi` crate.
//!
//! `fabric-headers ABI_DIR INCLUDE_DIR` writes every header; with `--check` in front it writes
//! nothing and fails when a header differs from what it would write.
//!
//! Structures, unions, enumerations and prototypes come from cbindgen. Constants do not: their C
//! type matters (`FI_MSG` is 64 bits wide, so that `~FI_MSG` is), and cbindgen drops it.
//! Declarations that exist only in C (inline wrappers, function-like macros) are in `headers/*.in`,
//! into which the others are inserted.

mod constants;
mod declarations;
mod frame;
mod layout;
mod source;
mod wrappers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context, Result, bail};

/// The headers, in an order in which each includes only earlier ones.
const HEADERS: [&str; 18] = [
    "fi_errno.h",
    "fabric.h",
    "fi_xpu.h",
    "fi_eq.h",
    "fi_domain.h",
    "fi_endpoint.h",
    "fi_cm.h",
    "fi_rma.h",
    "fi_tagged.h",
    "fi_atomic.h",
    "fi_collective.h",
    "fi_trigger.h",
    "fi_profile.h",
    "fi_xpu_device.h",
    "providers/fi_prov.h",
    "providers/fi_log.h",
    "providers/fi_peer.h",
    "fi_ext.h",
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fabric-headers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let check = arguments.first().is_some_and(|a| a == "--check");
    if check {
        arguments.remove(0);
    }
    let [abi, include] = arguments.as_slice() else {
        bail!("usage: fabric-headers [--check] ABI_DIR INCLUDE_DIR");
    };
    let mut stale = Vec::new();
    for (path, text) in generate(Path::new(abi))? {
        let target = Path::new(include).join("rdma").join(&path);
        let same = fs::read_to_string(&target).is_ok_and(|present| present == text);
        if same {
            continue;
        }
        if check {
            stale.push(target.display().to_string());
            continue;
        }
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&target, text).with_context(|| target.display().to_string())?;
    }
    if !stale.is_empty() {
        bail!(
            "not what the abi crate says (run `make headers`): {}",
            stale.join(", ")
        );
    }
    Ok(())
}

/// Every header's path below `rdma/` and text.
fn generate(abi: &Path) -> Result<Vec<(PathBuf, String)>> {
    let modules = HEADERS
        .iter()
        .map(|header| source::Module::read(abi, header))
        .collect::<Result<Vec<_>>>()?;
    let declarations = declarations::Declarations::from_modules(abi, &modules)?;
    HEADERS
        .iter()
        .zip(&modules)
        .map(|(header, module)| {
            let frame = abi.join("headers/rdma").join(format!("{header}.in"));
            let frame = fs::read_to_string(&frame).with_context(|| frame.display().to_string())?;
            let text = frame::fill(&frame, module, &declarations).context(*header)?;
            Ok((PathBuf::from(header), text))
        })
        .collect()
}
