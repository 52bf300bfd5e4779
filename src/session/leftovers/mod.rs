//! Deletes the nodes that no attempt and no guard needs any more. The engine submits orphans to
//! this module, and waits for it only in a flush. This module never deletes a node whose owner may
//! still be alive.

pub(crate) mod cleanup;
pub(crate) mod deletion;
