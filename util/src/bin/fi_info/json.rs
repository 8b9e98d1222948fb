//! The same as JSON (`--json`).

use fabric_tools::fabric::{InfoList, Parameters};
use fabric_tools::tree;
use fabric_tools::why::Explanation;
use serde_json::{Value, json};

use crate::{contains, text};

/// Returns everything about each entry, or about those that contain the filter.
pub fn entries(list: &InfoList, filter: Option<&str>) -> Value {
    let texts = list.iter().map(|info| info.text());
    let entries = texts
        .filter(|text| contains(text, filter))
        .map(|text| tree::of_info(&words(&text)));
    json!({ "results": entries.collect::<Vec<_>>() })
}

/// The providers and their versions.
pub fn providers(list: &InfoList) -> Value {
    let providers = list.iter().map(|info| {
        json!({ "name": words(text::name(info.provider())), "version": text::version(&info) })
    });
    json!({ "providers": providers.collect::<Vec<_>>() })
}

/// Returns the parameters, and where each value comes from.
pub fn parameters(parameters: &Parameters, filter: Option<&str>) -> Value {
    let shown = parameters
        .iter()
        .filter(|parameter| contains(parameter.name, filter));
    let shown = shown.map(|parameter| {
        json!({
            "name": words(parameter.name),
            "type": text::kind(&parameter),
            "help": words(parameter.help),
            "value": parameter.value.map(words),
            "set_by": text::provenance(&parameter).name(),
        })
    });
    json!({ "parameters": shown.collect::<Vec<_>>() })
}

/// Returns each provider's answer, and the reasons.
pub fn explanation(explanation: &Explanation) -> Value {
    let verdicts = explanation.verdicts.iter().map(|verdict| {
        json!({
            "name": verdict.provider,
            "results": verdict.results,
            "reasons": verdict.reasons,
        })
    });
    json!({ "providers": verdicts.collect::<Vec<_>>(), "libfabric": explanation.missing })
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
