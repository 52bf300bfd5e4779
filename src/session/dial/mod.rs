//! Establishes connections: the servers, TLS, SASL, and the reasons for a failed connection. Only
//! the session's setup and supervisor use this module, which never decides whether a lock is held.

pub(crate) mod connect;
pub(crate) mod earlier;
pub(crate) mod probe;
pub(crate) mod resources;
#[cfg(feature = "sasl-digest-md5")]
pub(crate) mod sasl;
pub(crate) mod servers;
pub(crate) mod spare;
#[cfg(feature = "tls")]
pub(crate) mod tls;
