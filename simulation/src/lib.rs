//! Worlds of this library in virtual time: see README.md.

pub mod beside;
pub mod check;
pub mod day;
pub mod faults;
pub mod glue;
pub mod held;
pub mod plan;
pub mod report;
pub mod required;
pub mod scenario;
pub mod soak;
pub mod world;
pub mod worlds;
