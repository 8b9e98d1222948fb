//! The layer in whose name a provider is asked, which log lines mention.
//!
//! A layered provider that is asked for its results calls fi_getinfo(3) itself. The lines that this
//! inner call causes have the name of the layer before that of the provider.

use std::cell::Cell;

thread_local! {
    /// The provider that this thread is asking, or an empty text.
    static ASKED: Cell<&'static str> = const { Cell::new("") };
    /// The layered provider in whose call of fi_getinfo(3) this thread is, or an empty text.
    static LAYER: Cell<&'static str> = const { Cell::new("") };
}

/// Returns the name of the layer for a line that this thread writes; empty if there is none.
pub fn current() -> &'static str {
    LAYER.get()
}

/// Asks a provider.
pub fn asking<T>(provider: &'static str, ask: impl FnOnce() -> T) -> T {
    let before = ASKED.replace(provider);
    let answer = ask();
    ASKED.set(before);
    answer
}

/// Carries out a call of fi_getinfo(3): of the provider that is being asked, or of an application.
pub fn calling<T>(call: impl FnOnce() -> T) -> T {
    let before = LAYER.replace(ASKED.get());
    let answer = call();
    LAYER.set(before);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_within_a_call_have_a_layer() {
        let inner = || calling(|| asking("tcp", current));
        let (outer, inner, after) = calling(|| {
            let outer = asking("tcp", current);
            (outer, asking("ofi_rxm", inner), current())
        });
        assert_eq!((outer, inner, after, current()), ("", "ofi_rxm", "", ""));
    }
}
