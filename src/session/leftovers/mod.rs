//! Deletes the nodes that no attempt and no guard needs any more. The engine submits orphans to
//! this module, and usually continues at once. These calls wait for deletions: a flush, a release,
//! a conversion that has lost its lock, a try behind a node that is to be deleted, and an attempt
//! at a path with a refused orphan. This module never deletes a node whose owner may still be
//! alive.
//!
//! 1. A guard, an attempt or a conversion ends, on any thread. Its orphans are submitted to
//!    [`cleanup`]: nodes by name, and creates without an answer by id. From then on no try of this
//!    client takes them for live contenders.
//! 2. The task of cleanup, on the session's thread, finds the nodes of the creates by a list that
//!    follows a write.
//! 3. Each node is deleted, or a transaction hands its lock over to the next attempt
//!    ([`deletion`]). A deletion without a definite answer is repeated until the session ends,
//!    because a node that is forgotten blocks its lock until then.
//! 4. The queue of the directory is notified how the node ended, the slot of the attempt is free,
//!    and the caller of `release` gets the result.

pub(crate) mod cleanup;
pub(crate) mod deletion;
