//! Nodes that are no locks. Recipes use these modules. None of them overwrites data of another
//! process that it has not read: each write of data names the version that it replaces.
//!
//! - `counter_requests`: a number in a persistent node, changed by optimistic transactions.
//! - `job_records`: the records of jobs that run once per occasion, written under a lock.
//! - `kept_node`: an ephemeral node that is created again in each session.
//! - `group`: the children of a directory as the members of a group, and a watch on them.
//!
//! The common difficulty is a request without an answer, which may have been carried out or may
//! still be (docs/protocol.md#unknown-outcome). Each module has its own way to find out: a version
//! that can be written only once, a name that can be created only once, or the owner of an
//! ephemeral node.

pub(crate) mod counter_requests;
pub(crate) mod group;
pub(crate) mod job_records;
pub(crate) mod kept_node;
