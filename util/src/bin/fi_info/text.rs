//! The output of fi_info, for people and for scripts that know the C library's fi_info.

use std::env;
use std::ffi::{CStr, OsStr};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use fabric_abi::{
    FI_MAJOR, FI_MINOR, FI_PARAM_BOOL, FI_PARAM_INT, FI_PARAM_SIZE_T, FI_PARAM_STRING,
};
use fabric_tools::fabric::{self, Info, InfoList, Parameter, Parameters};
use fabric_tools::provenance::Provenance;
use fabric_tools::why::Explanation;

use crate::contains;

/// Text before the source of a parameter's value.
const SOURCE: &str = "set by: ";

pub fn parameters(parameters: &Parameters, filter: Option<&str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for parameter in parameters.iter() {
        if !contains(parameter.name, filter) {
            continue;
        }
        let kind = kind(&parameter);
        print(
            &mut out,
            &[b"# ", parameter.name, b": ", kind.as_bytes(), b"\n"],
        )?;
        print(&mut out, &[b"# ", parameter.help, b"\n"])?;
        writeln!(out, "# {SOURCE}{}", provenance(&parameter).name())?;
        if let Some(value) = parameter.value {
            let quote: &[u8] = if value.contains(&b' ') { b"\"" } else { b"" };
            print(
                &mut out,
                &[parameter.name, b"=", quote, value, quote, b"\n"],
            )?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

pub fn all(list: &InfoList, filter: Option<&str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for text in list.iter().map(|info| info.text()) {
        if contains(&text, filter) {
            print(&mut out, &[b"---\n", &text])?;
        }
    }
    Ok(())
}

pub fn providers(list: &InfoList) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for info in list.iter() {
        print(&mut out, &[name(info.provider()), b":\n"])?;
        writeln!(out, "    version: {}", version(&info))?;
    }
    Ok(())
}

pub fn summary(list: &InfoList) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for info in list.iter() {
        print(&mut out, &[b"provider: ", name(info.provider()), b"\n"])?;
        print(&mut out, &[b"    fabric: ", name(info.fabric()), b"\n"])?;
        print(&mut out, &[b"    domain: ", name(info.domain()), b"\n"])?;
        writeln!(out, "    version: {}", version(&info))?;
        let (kind, protocol) = info.endpoint();
        print(
            &mut out,
            &[b"    type: ", &fabric::endpoint_type(kind), b"\n"],
        )?;
        print(
            &mut out,
            &[b"    protocol: ", &fabric::protocol(protocol), b"\n"],
        )?;
    }
    Ok(())
}

fn print(out: &mut impl Write, parts: &[&[u8]]) -> io::Result<()> {
    parts.iter().try_for_each(|part| out.write_all(part))
}

pub fn name(text: Option<&CStr>) -> &[u8] {
    text.map_or(b"(null)", CStr::to_bytes)
}

pub fn version(info: &Info) -> String {
    let version = info.provider_version();
    format!("{}.{}", FI_MAJOR(version), FI_MINOR(version))
}

/// Returns the type of a parameter, in the words of the C tool.
pub fn kind(parameter: &Parameter) -> &'static str {
    match parameter.kind {
        FI_PARAM_STRING => "String",
        FI_PARAM_INT => "Integer",
        FI_PARAM_SIZE_T => "size_t",
        FI_PARAM_BOOL => "Boolean (0/1, on/off, true/false, yes/no)",
        _ => "Unknown",
    }
}

/// Returns where the value of a parameter comes from.
pub fn provenance(parameter: &Parameter) -> Provenance {
    let environment = env::var_os(OsStr::from_bytes(parameter.name));
    Provenance::of(parameter.value, environment.as_deref())
}

/// One line for each reason, after the name of its provider.
pub fn explanation(explanation: &Explanation) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for verdict in &explanation.verdicts {
        let provider = &verdict.provider;
        if verdict.results > 0 {
            let plural = if verdict.results == 1 { "" } else { "s" };
            writeln!(
                out,
                "{provider}: offered, {} result{plural}",
                verdict.results
            )?;
        }
        for reason in &verdict.reasons {
            writeln!(out, "{provider}: {reason}")?;
        }
    }
    for reason in &explanation.missing {
        writeln!(out, "libfabric: {reason}")?;
    }
    Ok(())
}
