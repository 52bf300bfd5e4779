//! The conditions that must hold in every world, a file each. A checker receives the events, and
//! returns an error for a violation.

pub mod broken;
pub mod closed;
pub mod counter;
pub mod ends;
pub mod errors;
pub mod exclusion;
pub mod fencing;
pub mod fifo;
pub mod herd;
pub mod history;
pub mod leases;
pub mod leftovers;
pub mod limits;
pub mod margin;
pub mod members;
pub mod multi;
pub mod notified;
pub mod once;
pub mod overlap;
pub mod panics;
pub mod persistent;
pub mod queries;
pub mod reads;
pub mod recovery;
pub mod register;
pub mod revoked;
pub mod slots;
pub mod stale;
pub mod tokens;
