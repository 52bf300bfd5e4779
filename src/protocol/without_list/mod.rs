//! The decisions of grants without a list (docs/protocol.md#succession). Pure. The mechanism and
//! how it is taken out are described in its other part, `engine/without_list.rs`, which alone uses
//! this one.

pub(crate) mod frontier;
#[cfg(test)]
mod frontier_model;
