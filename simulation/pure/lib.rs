//! The pure part of the library: `src/protocol` and some files of the session, with their unit
//! tests.

#![allow(
    warnings,
    arithmetic_overflow,
    unconditional_panic,
    reason = "most of what uses it is not here"
)]

#[path = "../../src/error"]
mod error {
    mod build;
    mod connect;
    mod lost;
    mod request;

    pub use build::BuildError;
    pub use connect::ConnectError;
    pub use lost::{Lost, LostReason};
    pub(crate) use request::{Cause, RequestFailure};
}
#[path = "../../src/protocol/mod.rs"]
mod protocol;
#[path = "../../src/session"]
mod session {
    pub(crate) mod contents {
        mod holds;
        mod unknown_creates;
    }
    pub(crate) mod dial {
        mod sasl;
        mod servers;
    }
    pub(crate) mod request {
        mod retry;
    }
    pub(crate) mod threads {
        pub(crate) mod clock;
        pub(crate) mod mutex;
    }
}
#[path = "../../src/values"]
mod values {
    pub(crate) mod path;
    pub(crate) mod path_segment;
    pub(crate) mod shown;
}
