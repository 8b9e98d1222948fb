//! The reasons why providers offer nothing: `fi_info --why`.
//!
//! The library writes them into its log, which fi_info reads during the query. This project's
//! library has a sentence for each reason, in messages of the function `fi_getinfo`. For other
//! libraries all messages of a provider during the query are used.

use crate::fabric::Message;

/// The function whose messages are this library's own sentences.
const SENTENCES: &str = "fi_getinfo";
/// The name of the library in its own messages.
const LIBRARY: &str = "core";

/// The answer of one provider.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The provider's own name.
    pub provider: String,
    /// Number of results that are its own.
    pub results: usize,
    /// The reasons why there are none, or not more.
    pub reasons: Vec<String>,
}

/// The result of a call of fi_getinfo(3).
#[derive(Debug, PartialEq, Eq)]
pub struct Explanation {
    pub verdicts: Vec<Verdict>,
    /// Messages about providers that the library does not have.
    pub missing: Vec<String>,
}

/// Combines what is known of each of the `providers`, from the library's messages and the full
/// names of the results' providers.
pub fn explain(providers: &[String], messages: &[Message], results: &[String]) -> Explanation {
    let is_sentence = |message: &&Message| message.function == SENTENCES;
    let has_sentences = messages.iter().any(|message| is_sentence(&message));
    let of = |name: &str| {
        let mut texts: Vec<String> = Vec::new();
        for message in messages {
            let counts = !has_sentences || is_sentence(&message);
            if counts && message.provider == name && !texts.contains(&message.text) {
                texts.push(message.text.clone());
            }
        }
        texts
    };
    let mut verdicts: Vec<Verdict> = Vec::new();
    for provider in providers {
        if verdicts.iter().any(|known| known.provider == *provider) {
            continue;
        }
        let mut verdict = Verdict {
            provider: provider.clone(),
            results: results
                .iter()
                .filter(|name| own_name(name) == provider)
                .count(),
            reasons: of(provider),
        };
        if verdict.results == 0 && verdict.reasons.is_empty() {
            verdict.reasons.push("it does not say why".to_owned());
        }
        verdicts.push(verdict);
    }
    Explanation {
        verdicts,
        // In other libraries these messages are about the whole initialization.
        missing: match has_sentences {
            true => of(LIBRARY),
            false => Vec::new(),
        },
    }
}

/// Returns the provider's own name, from a name with the providers that it is layered over.
fn own_name(full: &str) -> &str {
    full.rsplit(';').next().unwrap_or(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(provider: &str, function: &str, text: &str) -> Message {
        Message {
            provider: provider.into(),
            function: function.into(),
            text: text.into(),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn each_provider_has_its_results_and_the_sentences_about_it() {
        let said = [
            message(
                "tcp",
                "prov_objects::attr",
                "FI_EP_MSG: a part of the reason",
            ),
            message("shm", "fi_getinfo", "not offered: caps"),
            message("shm", "fi_getinfo", "not offered: caps"),
            message("core", "fabric::framework", "libfabric is loaded"),
            message("core", "fi_getinfo", "the hints name psm9"),
        ];
        let providers = names(&["ofi_rxm", "shm", "tcp", "tcp"]);
        let results = names(&["tcp", "tcp;ofi_rxm", "tcp"]);
        let explanation = explain(&providers, &said, &results);
        let found: Vec<_> = explanation
            .verdicts
            .iter()
            .map(|v| (v.provider.as_str(), v.results, v.reasons.join("|")))
            .collect();
        assert_eq!(
            found,
            [
                ("ofi_rxm", 1, String::new()),
                ("shm", 0, "not offered: caps".into()),
                ("tcp", 2, String::new())
            ]
        );
        assert_eq!(explanation.missing, ["the hints name psm9"]);
    }

    #[test]
    fn of_a_library_without_sentences_everything_counts() {
        let said = [
            message("tcp", "ofi_check_ep_type", "unsupported endpoint type"),
            message("core", "ofi_load", "a library"),
        ];
        let explanation = explain(&names(&["tcp", "shm"]), &said, &[]);
        assert_eq!(
            explanation.verdicts[0].reasons,
            ["unsupported endpoint type"]
        );
        assert_eq!(explanation.verdicts[1].reasons, ["it does not say why"]);
        assert!(explanation.missing.is_empty());
    }
}
