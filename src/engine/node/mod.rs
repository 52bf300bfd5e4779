//! The node of a hold, from its registration with the session to its deletion, and what is bound to it.
//! `kept` and what is above it use it. It applies the decisions of `protocol::hold`, makes none, and waits for
//! nothing.

pub(crate) mod bond;
pub(crate) mod held;
