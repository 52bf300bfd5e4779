//! Nodes that are no locks: a counter's number, the records of jobs, persistent nodes, the members
//! of a group. Recipes use it. It never overwrites what another process wrote: each write names the
//! version that it replaces.

pub(crate) mod counter_requests;
pub(crate) mod group;
pub(crate) mod job_records;
pub(crate) mod kept_node;
