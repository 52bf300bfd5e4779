//! One session while it is alive: requests through it, its heartbeat and its lease. The rest of the
//! session and the engine use it. Apart from them, only `Client::request` reaches the client
//! library's handle.

pub(crate) mod heartbeat;
pub(crate) mod session_lease;
pub(crate) mod zk_session;
