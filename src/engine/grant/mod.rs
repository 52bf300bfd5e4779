//! A lock that a caller has: the hold behind its guards, and the reports of how a call ended.
//! What runs while a lock is held uses it, and faces. It never waits for a lock.

pub(crate) mod hold;
pub(crate) mod holdings;
pub(crate) mod observe;
