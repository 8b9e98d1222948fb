//! Turns the published facts into Rust assertions for `tests/layout.rs`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a build script says what is wrong by a panic"
)]

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use serde_json::Value;

const FACTS: &str = "../facts/libfabric-2.7.json";

/// Second names of members that C reaches through anonymous unions.
const SECOND_NAMES: [(&str, &str); 2] = [
    ("fi_domain_attr", "data_progress"),
    ("fi_mr_attr", "dmabuf"),
];

fn main() {
    println!("cargo:rerun-if-changed={FACTS}");
    let facts = fs::read_to_string(FACTS).expect("the facts are part of the tree");
    let facts: Value = serde_json::from_str(&facts).expect("the facts are JSON");
    let mut code = String::new();
    layouts(&facts["structs"], &mut code);
    constants(&facts, &mut code);
    let out = env::var("OUT_DIR").expect("set by cargo");
    fs::write(Path::new(&out).join("facts.rs"), code).expect("OUT_DIR is writable");
}

/// `layouts()`: the actual and the published value, and its name, for every size and offset.
fn layouts(structs: &Value, code: &mut String) {
    code.push_str("fn layouts() -> Vec<(usize, usize, &'static str)> { vec![\n");
    for (name, facts) in object(structs) {
        line(
            code,
            &format!("size_of::<{name}>()"),
            &facts["size"],
            &format!("size of {name}"),
        );
        line(
            code,
            &format!("align_of::<{name}>()"),
            &facts["align"],
            &format!("alignment of {name}"),
        );
        for field in facts["fields"].as_array().expect("a list of fields") {
            let member = field[0].as_str().expect("a name");
            if SECOND_NAMES.contains(&(name, member)) {
                continue;
            }
            // A member of a union stands at the union's offset, which has its own entry.
            if member.contains('.') {
                continue;
            }
            let rust = if member == "type" { "type_" } else { member };
            line(
                code,
                &format!("offset_of!({name}, {rust})"),
                &field[1],
                &format!("offset of {name}.{member}"),
            );
        }
    }
    code.push_str("] }\n");
}

/// `constants()`: the same for every enumerator and constant.
fn constants(facts: &Value, code: &mut String) {
    code.push_str("fn constants() -> Vec<(i64, i64, &'static str)> { vec![\n");
    for (_, enumeration) in object(&facts["enums"]) {
        for (name, value) in object(&enumeration["values"]) {
            line(code, &format!("{name} as i64"), value, name);
        }
    }
    for (name, constant) in object(&facts["macros"]) {
        line(code, &format!("{name} as i64"), &constant["value"], name);
    }
    code.push_str("] }\n");
}

fn line(code: &mut String, is: &str, should: &Value, what: &str) {
    writeln!(code, "({is}, {should}, {what:?}),").expect("writing to a string");
}

fn object(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let object = value.as_object().expect("an object");
    object.iter().map(|(name, value)| (name.as_str(), value))
}
