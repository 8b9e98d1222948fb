//! Writes the wrapper's tables and the list of operations from the text of the interface's tables,
//! the structures `fi_ops*` of the abi crate, so that neither can lack a function.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a build script says what is wrong by a panic"
)]

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use quote::ToTokens;
use syn::{
    Field, Fields, GenericArgument, Item, ItemStruct, PathArguments, ReturnType, Type, TypeBareFn,
};

const ABI: &str = "../../abi/src";

/// The tables of objects that a layer wraps: the structure, the name of its operations, the object
/// and the member that point to it, and what the functions of the application begin with.
const TABLES: [(&str, &str, &str, &str, &str); 19] = [
    ("fi_ops", "Fid", "fid", "ops", "fi_"),
    ("fi_ops_fabric", "Fabric", "fid_fabric", "ops", "fi_"),
    ("fi_ops_domain", "Domain", "fid_domain", "ops", "fi_"),
    ("fi_ops_mr", "Mr", "fid_domain", "mr", "fi_mr_"),
    ("fi_ops_av", "Av", "fid_av", "ops", "fi_av_"),
    ("fi_ops_av_set", "AvSet", "fid_av_set", "ops", "fi_av_set_"),
    ("fi_ops_ep", "Ep", "fid_ep", "ops", "fi_"),
    ("fi_ops_cm", "Cm", "fid_ep", "cm", "fi_"),
    ("fi_ops_msg", "Msg", "fid_ep", "msg", "fi_"),
    ("fi_ops_tagged", "Tagged", "fid_ep", "tagged", "fi_t"),
    ("fi_ops_rma", "Rma", "fid_ep", "rma", "fi_"),
    ("fi_ops_atomic", "Atomic", "fid_ep", "atomic", "fi_"),
    (
        "fi_ops_collective",
        "Collective",
        "fid_ep",
        "collective",
        "fi_",
    ),
    ("fi_ops_cq", "Cq", "fid_cq", "ops", "fi_cq_"),
    ("fi_ops_cntr", "Cntr", "fid_cntr", "ops", "fi_cntr_"),
    ("fi_ops_eq", "Eq", "fid_eq", "ops", "fi_eq_"),
    ("fi_ops_wait", "Wait", "fid_wait", "ops", "fi_"),
    ("fi_ops_poll", "Poll", "fid_poll", "ops", "fi_"),
    (
        "fi_ops_xpu_ctx",
        "XpuCtx",
        "fid_xpu_ctx",
        "ops",
        "fi_xpu_ctx_",
    ),
];

/// Tables that belong to no object of a domain or fabric: those of the log and of memory monitors,
/// and those by which the owner and the peers of a shared object call each other (fi_peer(3)).
const LEFT_OUT: [&str; 10] = [
    "fi_ops_log",
    "fi_ops_mem_monitor",
    "fi_ops_mem_notify",
    "fi_ops_av_owner",
    "fi_ops_av_set_owner",
    "fi_ops_cntr_owner",
    "fi_ops_cq_owner",
    "fi_ops_srx_owner",
    "fi_ops_srx_peer",
    "fi_ops_transfer_peer",
];

/// Functions whose wrapper is written by hand.
const SPECIAL: [(&str, &str); 4] = [
    ("fi_ops", "close"),
    ("fi_ops_fabric", "eq_open"),
    ("fi_ops_fabric", "trywait"),
    ("fi_ops_cm", "join"),
];

/// Functions in which a thread may sleep and be cancelled.
const BLOCKING: [(&str, &str); 6] = [
    ("fi_ops_cq", "sread"),
    ("fi_ops_cq", "sreadfrom"),
    ("fi_ops_cntr", "wait"),
    ("fi_ops_eq", "sread"),
    ("fi_ops_wait", "wait"),
    ("fi_ops_poll", "poll"),
];

/// Functions that applications call by another name than that of the slot.
const NAMES: [(&str, &str, &str); 23] = [
    ("fi_ops", "ops_open", "fi_open_ops"),
    ("fi_ops", "ops_set", "fi_set_ops"),
    ("fi_ops", "tostr", "fi_fid_tostr"),
    ("fi_ops_domain", "stx_ctx", "fi_stx_context"),
    ("fi_ops_domain", "srx_ctx", "fi_srx_context"),
    ("fi_ops_av", "av_set", "fi_av_set"),
    ("fi_ops_av_set", "set_union", "fi_av_set_union"),
    ("fi_ops_ep", "tx_ctx", "fi_tx_context"),
    ("fi_ops_ep", "rx_ctx", "fi_rx_context"),
    ("fi_ops_rma", "inject", "fi_inject_write"),
    ("fi_ops_rma", "injectdata", "fi_inject_writedata"),
    ("fi_ops_atomic", "write", "fi_atomic"),
    ("fi_ops_atomic", "writev", "fi_atomicv"),
    ("fi_ops_atomic", "writemsg", "fi_atomicmsg"),
    ("fi_ops_atomic", "inject", "fi_inject_atomic"),
    ("fi_ops_atomic", "readwrite", "fi_fetch_atomic"),
    ("fi_ops_atomic", "readwritev", "fi_fetch_atomicv"),
    ("fi_ops_atomic", "readwritemsg", "fi_fetch_atomicmsg"),
    ("fi_ops_atomic", "compwrite", "fi_compare_atomic"),
    ("fi_ops_atomic", "compwritev", "fi_compare_atomicv"),
    ("fi_ops_atomic", "compwritemsg", "fi_compare_atomicmsg"),
    ("fi_ops_collective", "msg", "fi_collectivemsg"),
    ("fi_ops_atomic", "writevalid", "fi_atomicvalid"),
];

/// One function of a table.
struct Slot {
    name: String,
    /// Names and types; the first one is the object.
    arguments: Vec<(String, String)>,
    result: String,
}

fn main() {
    println!("cargo:rerun-if-changed={ABI}");
    let mut found = Vec::new();
    read(Path::new(ABI), &mut found);
    let mut tables = String::new();
    let mut operations = Vec::new();
    for (table, prefix, object, member, api) in TABLES {
        let structure = found
            .iter()
            .find(|structure| structure.ident == table)
            .unwrap_or_else(|| panic!("the interface has no {table}"));
        let slots = slots(structure);
        write_table(&mut tables, table, prefix, (object, member), &slots);
        for slot in slots {
            let name = api_name(table, api, &slot.name);
            operations.push((prefix, name, slot));
        }
    }
    for structure in &found {
        let name = structure.ident.to_string();
        let is_known =
            TABLES.iter().any(|(table, ..)| *table == name) || LEFT_OUT.contains(&name.as_str());
        assert!(is_known, "{name} is a table that the hooks do not know");
    }
    let out = env::var("OUT_DIR").expect("set by cargo");
    let out = Path::new(&out);
    fs::write(out.join("tables.rs"), tables).expect("OUT_DIR is writable");
    fs::write(out.join("operations.rs"), write_operations(&operations))
        .expect("OUT_DIR is writable");
}

/// All tables of operations below a folder of the abi crate.
fn read(folder: &Path, found: &mut Vec<ItemStruct>) {
    for entry in fs::read_dir(folder).expect("the abi crate is part of the tree") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            read(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("readable");
            let file = syn::parse_file(&text).expect("Rust");
            found.extend(file.items.into_iter().filter_map(|item| match item {
                Item::Struct(item) if item.ident.to_string().starts_with("fi_ops") => Some(item),
                _ => None,
            }));
        }
    }
}

fn slots(structure: &ItemStruct) -> Vec<Slot> {
    let Fields::Named(fields) = &structure.fields else {
        panic!("{} has no named members", structure.ident);
    };
    fields.named.iter().filter_map(slot).collect()
}

/// A member of type `Option<unsafe extern "C" fn(...)>`.
fn slot(field: &Field) -> Option<Slot> {
    let name = field.ident.as_ref()?.to_string();
    let Type::Path(path) = &field.ty else {
        return None;
    };
    let option = path.path.segments.last()?;
    let PathArguments::AngleBracketed(inner) = &option.arguments else {
        return None;
    };
    let Some(GenericArgument::Type(Type::BareFn(function))) = inner.args.first() else {
        return None;
    };
    Some(Slot {
        name,
        arguments: arguments(function),
        result: match &function.output {
            ReturnType::Default => "()".to_owned(),
            ReturnType::Type(_, result) => text(result),
        },
    })
}

fn arguments(function: &TypeBareFn) -> Vec<(String, String)> {
    let named = function.inputs.iter().map(|argument| {
        let (name, _) = argument.name.as_ref().expect("arguments have names");
        (name.to_string(), text(&argument.ty))
    });
    named.collect()
}

fn text(type_: &impl ToTokens) -> String {
    type_.to_token_stream().to_string()
}

fn api_name(table: &str, prefix: &str, slot: &str) -> String {
    let other = NAMES
        .iter()
        .find(|(of, name, _)| *of == table && *name == slot);
    match other {
        Some((.., name)) => (*name).to_owned(),
        None => match slot.strip_suffix("valid") {
            Some("readwrite") => "fi_fetch_atomicvalid".to_owned(),
            Some("compwrite") => "fi_compare_atomicvalid".to_owned(),
            _ => format!("{prefix}{slot}"),
        },
    }
}

fn variant(prefix: &str, slot: &str) -> String {
    let words = slot.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    prefix.to_owned() + &words.collect::<String>()
}

fn write_table(
    code: &mut String,
    table: &str,
    prefix: &str,
    (object, member): (&str, &str),
    slots: &[Slot],
) {
    let module = table.trim_start_matches("fi_");
    let name = module.to_uppercase();
    writeln!(
        code,
        "table! {{ {name} {module} {table} offset_of!({object}, {member});"
    )
    .expect("writing to a string");
    let is_of = |list: &[(&str, &str)], slot: &Slot| {
        list.iter()
            .any(|(of, name)| *of == table && *name == slot.name)
    };
    let sections = [
        ("plain", false, false),
        ("blocking", false, true),
        ("special", true, false),
    ];
    for (section, special, blocking) in sections {
        writeln!(code, "{section} {{").expect("writing to a string");
        for slot in slots {
            if is_of(&SPECIAL, slot) != special || is_of(&BLOCKING, slot) != blocking {
                continue;
            }
            let arguments: Vec<String> = slot
                .arguments
                .iter()
                .map(|(name, type_)| format!("{name}: {type_}"))
                .collect();
            writeln!(
                code,
                "{}({}) -> {} = {};",
                slot.name,
                arguments.join(", "),
                slot.result,
                variant(prefix, &slot.name)
            )
            .expect("writing to a string");
        }
        code.push_str("}\n");
    }
    code.push_str("}\n");
}

/// The enumeration of all operations, and the facts about each.
fn write_operations(operations: &[(&str, String, Slot)]) -> String {
    let count = operations.len();
    let variants: Vec<String> = operations
        .iter()
        .map(|(prefix, _, slot)| variant(prefix, &slot.name))
        .collect();
    let mut code = format!(
        "/// The functions of the interface's tables.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n\
         #[repr(u16)]\n\
         #[allow(missing_docs)]\n\
         pub enum Operation {{ {} }}\n\
         impl Operation {{\n\
             /// The number of operations.\n\
             pub const COUNT: usize = {count};\n\
             /// All operations, in the order of the tables.\n\
             pub const ALL: [Operation; {count}] = [{}];\n\
         }}\n\
         static FACTS: [Facts; {count}] = [\n",
        variants.join(", "),
        variants
            .iter()
            .map(|name| format!("Operation::{name}"))
            .collect::<Vec<_>>()
            .join(", "),
    );
    for (prefix, name, slot) in operations {
        let arguments = slot.arguments.get(1..).unwrap_or_default();
        let names: Vec<String> = arguments
            .iter()
            .map(|(name, _)| format!("{name:?}"))
            .collect();
        let place = |wanted: &dyn Fn(&str, &str) -> bool| {
            let place = arguments
                .iter()
                .position(|(name, type_)| wanted(name, type_));
            place.map_or("NONE".to_owned(), |place| place.to_string())
        };
        let named = |wanted: &'static str| place(&move |name, _| name == wanted);
        writeln!(
            code,
            "Facts {{ name: {name:?}, table: Table::{prefix}, arguments: &[{}], context: {}, \
             flags: {}, described: {}, len: {}, vector: {}, count: {}, opened: {}, datatype: {}, \
             buf: {}, event: {} }},",
            names.join(", "),
            named("context"),
            named("flags"),
            place(&|_, type_| type_.starts_with("* const fi_msg") || type_ == "* const fi_mr_attr"),
            named("len"),
            place(&|_, type_| type_ == "* const iovec" || type_ == "* const fi_ioc"),
            named("count"),
            place(&|_, type_| type_.starts_with("* mut * mut fid_")),
            named("datatype"),
            named("buf"),
            named("event"),
        )
        .expect("writing to a string");
    }
    code.push_str("];\n");
    code
}
