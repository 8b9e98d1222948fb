//! The Rust modules that declare one header, in a form that cbindgen reads.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, File, Item, Token, Type, Visibility, braced};

use crate::constants::{self, Constant};

/// What the abi crate declares for one header.
pub struct Module {
    /// Names of the types, in source order.
    pub types: Vec<String>,
    pub constants: Vec<Constant>,
    /// The types as Rust that cbindgen reads: enumerations as real enumerations.
    pub rust: TokenStream,
}

impl Module {
    /// Reads the module of `header` (a path below `rdma/`) and its submodules. A header whose
    /// declarations exist only in C has none.
    pub fn read(abi: &Path, header: &str) -> Result<Module> {
        let mut module = Module {
            types: Vec::new(),
            constants: Vec::new(),
            rust: TokenStream::new(),
        };
        let file = abi.join("src").join(header).with_extension("rs");
        let prefix = header.replace(['/', '.'], "_");
        if file.exists() {
            module.add(&file, &prefix)?;
        }
        Ok(module)
    }

    fn add(&mut self, file: &Path, prefix: &str) -> Result<()> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        self.constants.extend(constants::read(&text));
        let tree: File = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        for item in tree.items {
            match item {
                Item::Mod(inner) if inner.content.is_none() => {
                    let path: PathBuf = file.with_extension("").join(format!("{}.rs", inner.ident));
                    self.add(&path, prefix)?;
                }
                Item::Struct(mut item) => {
                    rename_keywords(|r| r.visit_item_struct_mut(&mut item));
                    self.declare(&item.ident, quote!(#item));
                }
                Item::Union(item) => self.declare(&item.ident, quote!(#item)),
                Item::Type(item) => self.declare(&item.ident, quote!(#item)),
                Item::Macro(item) if item.mac.path.is_ident("c_enum") => {
                    let body: Enumeration = item.mac.parse_body()?;
                    let name = body.name.unwrap_or_else(|| {
                        format_ident!("anonymous_{prefix}_{}", self.types.len())
                    });
                    let (attributes, variants) = (&body.attributes, &body.variants);
                    self.declare(
                        &name,
                        quote!(#(#attributes)* #[repr(C)] pub enum #name { #variants }),
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn declare(&mut self, name: &Ident, rust: TokenStream) {
        self.types.push(name.to_string());
        self.rust.extend(rust);
    }
}

/// The exported functions as Rust that cbindgen reads.
pub fn functions(abi: &Path) -> Result<TokenStream> {
    let file = abi.join("src/symbols.rs");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let tree: File = syn::parse_file(&text)?;
    let mut rust = TokenStream::new();
    for item in tree.items {
        if let Item::ForeignMod(mut item) = item {
            rename_keywords(|r| r.visit_item_foreign_mod_mut(&mut item));
            rust.extend(quote!(#item));
        }
    }
    Ok(rust)
}

/// The body of a `c_enum!` invocation.
struct Enumeration {
    attributes: Vec<Attribute>,
    name: Option<Ident>,
    variants: TokenStream,
}

impl Parse for Enumeration {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let _: Visibility = input.parse()?;
        input.parse::<Token![enum]>()?;
        let name = input.parse().ok();
        input.parse::<Token![:]>()?;
        input.parse::<Type>()?;
        let body;
        braced!(body in input);
        let variants = body.parse()?;
        Ok(Enumeration {
            attributes,
            name,
            variants,
        })
    }
}

/// Gives names that Rust reserves their C spelling.
fn rename_keywords(visit: impl FnOnce(&mut Rename)) {
    visit(&mut Rename);
}

struct Rename;

impl VisitMut for Rename {
    fn visit_ident_mut(&mut self, ident: &mut Ident) {
        if *ident == "type_" {
            *ident = Ident::new_raw("type", Span::call_site());
        }
        visit_mut::visit_ident_mut(self, ident);
    }
}
