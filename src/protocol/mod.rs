//! The decisions of the protocol. Pure: no I/O, task, clock or random number, so that models and
//! simulations can drive it.

pub(crate) mod acquire;
pub(crate) mod counter;
#[cfg(test)]
mod counter_model;
pub(crate) mod downgrade;
pub(crate) mod failure;
pub(crate) mod hold;
#[cfg(feature = "metrics")]
pub(crate) mod labels;
pub(crate) mod late;
pub(crate) mod lease;
pub(crate) mod local_queue;
pub(crate) mod moment;
pub(crate) mod node_name;
pub(crate) mod numbers;
pub(crate) mod once;
mod own_nodes;
pub(crate) mod path_state;
#[cfg(test)]
mod path_state_model;
pub(crate) mod permits;
#[cfg(test)]
mod permits_model;
pub(crate) mod persistent_node;
pub(crate) mod queue;
pub(crate) mod server_timeout;
#[cfg(test)]
mod simulation;
pub(crate) mod waiters;
pub(crate) mod without_list;
