//! Inline wrappers: functions that call one slot of an object's table.

use anyhow::{Context, Result, bail};

use crate::declarations::Declarations;
use crate::layout;

/// What a wrapper calls: `fid_ep.msg.send` is slot `send` of the table that member `msg` of
/// `struct fid_ep` points to.
pub struct Call<'a> {
    pub name: &'a str,
    pub object: &'a str,
    pub table: &'a str,
    pub slot: &'a str,
    /// The slot is younger than the table: a provider's table may end before it.
    pub checked: bool,
}

impl<'a> Call<'a> {
    pub fn parse(arguments: &'a str, checked: bool) -> Result<Call<'a>> {
        let (name, path) = arguments.split_once(' ').context("@call NAME PATH")?;
        let mut parts = path.split('.');
        let (Some(object), Some(table), Some(slot), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            bail!("{path}: not OBJECT.TABLE.SLOT");
        };
        Ok(Call {
            name,
            object,
            table,
            slot,
            checked,
        })
    }

    /// The C function.
    pub fn text(&self, declarations: &Declarations) -> Result<String> {
        let operations = self.operations(declarations)?;
        let (returns, parameters) = signature(declarations.type_text(operations)?, self.slot)
            .with_context(|| format!("{operations} has no slot {}", self.slot))?;
        let names: Vec<&str> = parameters.iter().map(|p| name_of(p)).collect();
        let first = *names.first().context("a slot takes its object")?;
        // A slot that serves several kinds of object takes a fid_t.
        let object = if parameters[0].starts_with("fid_t ") {
            format!("((struct {} *){first})", self.object)
        } else {
            first.to_owned()
        };
        let table = format!("{object}->{}", self.table);
        let call = format!("{table}->{}({})", self.slot, names.join(", "));
        let body = if self.checked {
            format!(
                "\tif (!FI_CHECK_OP({table}, struct {operations}, {}))\n\
                 \t\treturn -FI_ENOSYS;\n\treturn {call};",
                self.slot
            )
        } else if returns == "void" {
            format!("\t{call};")
        } else {
            format!("\treturn {call};")
        };
        let head = layout::wrap_parameters(&format!("{}({})", self.name, parameters.join(", ")));
        let body: Vec<String> = body.lines().map(layout::wrap_parameters).collect();
        Ok(format!(
            "static inline {returns}\n{head}\n{{\n{}\n}}\n",
            body.join("\n")
        ))
    }

    /// Name of the structure that the table member points to.
    fn operations<'d>(&self, declarations: &'d Declarations) -> Result<&'d str> {
        let end = format!(" *{};", self.table);
        declarations
            .type_text(self.object)?
            .lines()
            .find_map(|line| line.trim().strip_prefix("struct ")?.strip_suffix(&end))
            .with_context(|| format!("{} has no table {}", self.object, self.table))
    }
}

/// Return type and parameters of a function pointer member.
fn signature(structure: &str, slot: &str) -> Option<(String, Vec<String>)> {
    let marker = format!("(*{slot})(");
    let at = structure.find(&marker)?;
    let line = structure[..at].rfind(['\t', ';', '{'])? + 1;
    let returns = structure[line..at].trim().to_owned();
    let rest = &structure[at + marker.len()..];
    let parameters = rest[..rest.find(");")?]
        .split(',')
        .map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    Some((returns, parameters))
}

fn name_of(parameter: &str) -> &str {
    parameter.rsplit([' ', '*']).next().unwrap_or(parameter)
}
