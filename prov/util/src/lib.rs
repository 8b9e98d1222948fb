//! What every provider is built from.
