//! The one engine under all recipes: the shared state of the handles of one path, attempts to get a
//! lock, and holds of it.

pub(crate) mod acquisition;
pub(crate) mod attempts;
pub(crate) mod call;
pub(crate) mod data;
pub(crate) mod granted;
pub(crate) mod held;
pub(crate) mod holdings;
pub(crate) mod lock;
pub(crate) mod multi_attempt;
pub(crate) mod request;
pub(crate) mod semaphore_limit;
pub(crate) mod shared_path;
pub(crate) mod shared_queue;
pub(crate) mod while_held;
pub(crate) mod who;
pub(crate) mod without_list;
