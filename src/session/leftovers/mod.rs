//! Deletes the nodes that no attempt and no guard needs any more. The engine hands it orphans and
//! waits for it only in a flush. It never deletes a node whose owner may live.

pub(crate) mod cleanup;
pub(crate) mod deletion;
