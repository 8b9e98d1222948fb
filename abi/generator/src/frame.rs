//! Fills a header's frame.
//!
//! A frame is C text with lines that start with `@`:
//!
//! - `@declarations`: forward declarations, constants and types of the header's module;
//! - `@prototype NAME [SUFFIX]`: the prototype of an exported function;
//! - `@call NAME OBJECT.TABLE.SLOT`: an inline wrapper that calls a slot;
//! - `@call? NAME OBJECT.TABLE.SLOT`: the same for a slot that older tables lack.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

use crate::constants::Constant;
use crate::declarations::Declarations;
use crate::layout;
use crate::source::Module;
use crate::wrappers::Call;

/// The header's text.
pub fn fill(frame: &str, module: &Module, declarations: &Declarations) -> Result<String> {
    let mut text = String::from(
        "/* Written by `make headers` from the abi crate. Change abi/, not this file. */\n\n",
    );
    for line in frame.lines() {
        let Some(directive) = line.strip_prefix('@') else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let (word, arguments) = directive.split_once(' ').unwrap_or((directive, ""));
        let filled = match word {
            "declarations" => module_text(module, declarations)?,
            "prototype" => prototype(arguments, declarations)?,
            "call" | "call?" => Call::parse(arguments, word.ends_with('?'))?
                .text(declarations)
                .with_context(|| line.to_owned())?,
            _ => bail!("unknown directive {line}"),
        };
        text.push_str(&filled);
    }
    Ok(text)
}

fn module_text(module: &Module, declarations: &Declarations) -> Result<String> {
    let types = declarations.of_module(module)?;
    let mut parts = Vec::new();
    let forward = forward_declarations(&types);
    if !forward.is_empty() {
        parts.push(forward);
    }
    if !module.constants.is_empty() {
        parts.push(constants_text(&module.constants));
    }
    parts.extend(types.iter().map(|text| (*text).to_owned()));
    Ok(parts.join("\n"))
}

/// Declares every structure that the types point to before it is defined.
fn forward_declarations(types: &[&str]) -> String {
    let mut defined = BTreeSet::new();
    let mut needed = BTreeSet::new();
    for text in types {
        for name in structures(text) {
            if text.contains(&format!("struct {name} {{")) {
                defined.insert(name);
            } else if !defined.contains(name) {
                needed.insert(name);
            }
        }
    }
    needed
        .into_iter()
        .map(|name| format!("struct {name};\n"))
        .collect()
}

/// Tags of the structures that a declaration names, without those in its comment.
fn structures(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split_once("*/").map_or(text, |(_, code)| code);
    code.split("struct ").skip(1).filter_map(|rest| {
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next()
            .filter(|name| !name.is_empty())
    })
}

fn constants_text(constants: &[Constant]) -> String {
    let mut text = String::new();
    for (index, constant) in constants.iter().enumerate() {
        if constant.opens_group && index > 0 && !text.ends_with("*/\n") {
            text.push('\n');
        }
        text.push_str(&layout::comment(&constant.comment));
        text.push_str(&define(&constant.name, &constant.value));
    }
    text
}

fn define(name: &str, value: &str) -> String {
    let tabs = 4usize.saturating_sub((name.len() + 8) / 8).max(1);
    format!("#define {name}{}{value}\n", "\t".repeat(tabs))
}

fn prototype(arguments: &str, declarations: &Declarations) -> Result<String> {
    let (name, suffix) = arguments.split_once(' ').unwrap_or((arguments, ""));
    let text = declarations.function(name)?;
    let text = text.trim_end().trim_end_matches(';');
    Ok(if suffix.is_empty() {
        format!("{text};\n")
    } else {
        format!("{text}\n\t{suffix};\n")
    })
}
