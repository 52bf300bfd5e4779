//! Nodes that several callers of one client share, one after the other (a room) or at once (readers).
//! `lock` and what is above it use it. It keeps books under mutexes that are never held across an await or
//! foreign code, and never sends a request.

pub(crate) mod shared_room;
