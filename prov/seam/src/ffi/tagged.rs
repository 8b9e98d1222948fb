//! fi_tagged(3): messages with tags.

super::message::interface! {
    FI_TAGGED: fi_ops_tagged, fi_msg_tagged, TAGGED,
    send(tag) Tag::Value(tag),
    receive(tag, ignore) Select::Tagged { tag, ignore },
}

/// Returns the table with all functions.
pub(super) const fn all<E: Endpoint>() -> &'static fi_ops_tagged {
    Table::<E>::BOTH
}
