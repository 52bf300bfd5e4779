//! The locks as users see them, and their common parts: guards, transactions, modes, fencing. Each
//! consists of names, options, documentation and examples over `engine`. `lock` has the type of
//! four of the locks; each guard has its own methods. Recipes may use these modules, which never
//! send a request and never decide who gets a lock.

pub(crate) mod fair_lock;
pub(crate) mod fence;
pub(crate) mod guard;
pub(crate) mod guard_set;
pub(crate) mod guards;
pub(crate) mod lock;
pub mod mode;
pub(crate) mod multi_lock;
pub(crate) mod mutex;
pub(crate) mod read_write_lock;
pub(crate) mod semaphore;
pub(crate) mod transaction;
