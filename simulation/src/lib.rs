//! Worlds of this library in virtual time: see README.md.

pub mod check;
pub mod coverage;
pub mod faults;
pub mod glue;
pub mod grants;
pub mod life;
pub mod plan;
pub mod report;
pub mod scenario;
pub mod soak;
pub mod two_locks;
pub mod world;
pub mod worlds;
