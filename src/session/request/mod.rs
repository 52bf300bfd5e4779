//! How a request is asked, retried and judged.
//! The rest of the session and the engine use it. It never retries without a bound.

pub(crate) mod ask;
pub(crate) mod judge;
pub(crate) mod retry;
