//! What of the library is pure: `src/protocol` and some files of the session, with their unit tests.

#![allow(warnings, arithmetic_overflow, unconditional_panic, reason = "most of what uses it is not here")]

#[path = "../../src/error"]
mod error {
    mod build;
    mod cause;
    mod lost;
    mod request;

    pub use build::BuildError;
    pub(crate) use cause::Cause;
    pub use lost::{Lost, LostReason};
    pub(crate) use request::RequestFailure;
}
#[path = "../../src/path.rs"]
mod path;
#[path = "../../src/path_segment.rs"]
mod path_segment;
#[path = "../../src/protocol/mod.rs"]
mod protocol;
#[path = "../../src/session"]
mod session {
    mod clock;
    mod holds;
    mod retry;
    mod sasl;
    mod servers;
    mod unknown_creates;
}
#[path = "../../src/shown.rs"]
mod shown;
