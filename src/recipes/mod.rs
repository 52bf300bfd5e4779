//! Recipes that are made of locks and nodes: elections, jobs that run once, counters, persistent
//! nodes, groups. No other part of the library uses them. Recipes never decide who is granted a
//! lock: they hold locks as users do, and their own decisions are in `protocol`.

pub(crate) mod atomic_long;
pub(crate) mod election;
pub(crate) mod group_member;
pub(crate) mod leader_latch;
pub(crate) mod leader_selector;
pub(crate) mod once;
pub(crate) mod persistent_node;
