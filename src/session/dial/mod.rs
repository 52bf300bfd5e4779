//! Establishes connections: the servers, TLS, SASL, and the reasons for a failed connection. Only
//! the session's setup and supervisor use this module, which never decides whether a lock is held.
//!
//! The client library tries the servers of a list until one creates a session, and reconnects that
//! session by itself. This module adds what the client library lacks:
//!
//! ```text
//!   setup ------> servers, tls, sasl: options are checked before any connection
//!   supervisor -> connect: a session, with a server timeout that fits the granted session timeout
//!                   |-- resources: waits until the process can make its first connection
//!                   |-- probe: asks each server why it creates no session
//!                   +-- earlier: ends the sessions before the current one on the servers
//!              -> spare: heartbeats while the client library has no connection
//! ```
//!
//! - `servers`: the list that the client library gets contains each server several times, because
//!   the client library pauses after each pass over its list, longer each time.
//! - `earlier`: the client library gives up a session by its clock while no server answers. The
//!   servers may have that session for longer, with its nodes, which block other clients.
//! - `spare`: a pause of the client library may be longer than the rest of the session lease.

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
