//! C text of every type and exported function, from cbindgen.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use quote::quote;

use crate::layout;
use crate::source::{self, Module};

/// C declarations by name.
pub struct Declarations {
    types: HashMap<String, String>,
    functions: HashMap<String, String>,
    /// Names of the types in an order in which each follows what it contains.
    order: Vec<String>,
}

impl Declarations {
    pub fn from_modules(abi: &Path, modules: &[Module]) -> Result<Declarations> {
        let text = run_cbindgen(abi, modules)?;
        let mut found = Declarations {
            types: HashMap::new(),
            functions: HashMap::new(),
            order: Vec::new(),
        };
        for block in blocks(&text) {
            let (comment, code) = split_comment(&block);
            let comment = layout::comment(&comment);
            if let Some(name) = type_name(code) {
                let code = finish(name, code);
                found.order.push(name.to_owned());
                found
                    .types
                    .insert(name.to_owned(), format!("{comment}{code}\n"));
            } else if let Some(name) = function_name(code) {
                found.functions.insert(
                    name.to_owned(),
                    format!("{comment}{}\n", layout::wrap_parameters(code)),
                );
            }
        }
        Ok(found)
    }

    /// The types of one header in dependency order.
    pub fn of_module(&self, module: &Module) -> Result<Vec<&str>> {
        for name in &module.types {
            if !self.types.contains_key(name) {
                return Err(anyhow!("cbindgen wrote no {name}"));
            }
        }
        Ok(self
            .order
            .iter()
            .filter(|name| module.types.contains(name))
            .map(|name| self.types[name].as_str())
            .collect())
    }

    pub fn type_text(&self, name: &str) -> Result<&str> {
        let text = self.types.get(name);
        Ok(text.with_context(|| format!("no type {name}"))?)
    }

    pub fn function(&self, name: &str) -> Result<&str> {
        let text = self.functions.get(name);
        Ok(text.with_context(|| format!("no exported function {name}"))?)
    }
}

fn run_cbindgen(abi: &Path, modules: &[Module]) -> Result<String> {
    // Types of the system: named here so that cbindgen writes `struct iovec`, never printed.
    let mut rust = quote! {
        #[repr(C)] pub struct iovec { a: u8 }
        #[repr(C)] pub struct pollfd { a: u8 }
    };
    for module in modules {
        rust.extend(module.rust.clone());
    }
    rust.extend(source::functions(abi)?);

    let mut file = tempfile::Builder::new().suffix(".rs").tempfile()?;
    file.write_all(rust.to_string().as_bytes())?;

    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Tag,
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::C,
        braces: cbindgen::Braces::SameLine,
        line_length: 1000,
        tab_width: INDENT.len(),
        no_includes: true,
        ..Default::default()
    };
    config.export.include = modules.iter().flat_map(|m| m.types.clone()).collect();
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(file.path())
        .generate()?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    Ok(String::from_utf8(text)?)
}

/// The parts of cbindgen's output: separated by empty lines, each one declaration.
fn blocks(text: &str) -> Vec<String> {
    text.split("\n\n")
        .map(|block| block.trim_matches('\n').to_owned())
        .filter(|block| !block.is_empty())
        .collect()
}

/// The lines of a declaration's comment, without marks, and its code.
fn split_comment(block: &str) -> (Vec<String>, &str) {
    match block.split_once("*/\n") {
        Some((comment, code)) if block.starts_with("/*") => {
            let lines = comment
                .trim_start_matches("/*")
                .lines()
                .map(|line| line.trim().to_owned())
                .filter(|line| !line.is_empty())
                .collect();
            (lines, code)
        }
        _ => (Vec::new(), block),
    }
}

fn type_name(code: &str) -> Option<&str> {
    let mut words = code.split([' ', ';', '\n']);
    match words.next()? {
        "struct" | "union" | "enum" if code.contains('{') || code.ends_with(';') => {
            let name = words.next()?;
            (!code.contains('(') || code.contains('{')).then_some(name)
        }
        "typedef" => code.trim_end_matches(';').split([' ', '*']).next_back(),
        _ => None,
    }
}

fn function_name(code: &str) -> Option<&str> {
    code.split_once('(')?.0.split([' ', '*']).next_back()
}

/// Applies what cbindgen cannot express: anonymous enumerations and unions, flexible arrays; then
/// the layout of this project.
fn finish(name: &str, code: &str) -> String {
    let mut code = code.replace(INDENT, "\t").replace("[0];", "[];");
    if name.starts_with("anonymous_") {
        code = code.replacen(&format!("enum {name}"), "enum", 1);
    }
    for (owner, member, union) in ANONYMOUS_UNIONS {
        if *owner == name {
            code = code.replacen(member, union, 1);
        }
    }
    if code.contains("[];") {
        // C++ has no flexible arrays.
        code.insert_str(0, "__extension__ ");
    }
    code = member_comments(&code);
    code.lines()
        .map(layout::wrap_parameters)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Comments of members on one line.
fn member_comments(code: &str) -> String {
    let mut text = String::new();
    let mut rest = code;
    while let Some((before, comment)) = rest.split_once("\t/*\n") {
        let Some((comment, after)) = comment.split_once("*/\n") else {
            break;
        };
        let words: Vec<&str> = comment.split_whitespace().collect();
        text.push_str(before);
        text.push_str(&format!("\t/* {} */\n", words.join(" ")));
        rest = after;
    }
    text + rest
}

/// What cbindgen indents with.
const INDENT: &str = "        ";

/// Members that C reaches under two names: the structure, cbindgen's line, the line in C. Compilers
/// that know no anonymous unions in the standard that they check (C99) accept them as an extension.
const ANONYMOUS_UNIONS: &[(&str, &str, &str)] = &[
    (
        "fi_domain_attr",
        "enum fi_progress progress;",
        "__extension__ union {\n\t\tenum fi_progress data_progress;\n\t\tenum fi_progress progress;\n\t};",
    ),
    (
        "fi_mr_attr",
        "const struct iovec *mr_iov;",
        "__extension__ union {\n\t\tconst struct iovec *mr_iov;\n\t\tconst struct fi_mr_dmabuf *dmabuf;\n\t};",
    ),
];
