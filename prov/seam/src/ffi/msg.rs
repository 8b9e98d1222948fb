//! fi_msg(3): messages without tags.

super::message::interface! {
    FI_MSG: fi_ops_msg, fi_msg, MSG,
    send() Tag::None,
    receive() Select::Untagged,
}
