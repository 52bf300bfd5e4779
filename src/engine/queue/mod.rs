//! What the attempts of one client at one path share: who creates next, who has slots, which lists are under way.
//! `lock` and what is above it use it. It never sends a request.

pub(crate) mod shared_queue;
pub(crate) mod slots;
