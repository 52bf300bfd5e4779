//! The engine of all locks: from the call that wants a lock, through the queue on the servers, to
//! the deletion of the node. Faces and recipes use this folder. The engine opens and renews no
//! session: it uses that of its client. The decisions of the protocol are in `protocol`, and the
//! engine carries them out.
//!
//! ```text
//!   a face: lock, try_lock, acquire_permits
//!      |
//!   acquisition: the call, its report      lock: the path lock, shared by the handles of a path
//!      |
//!   attempts: one attempt for the callers of a client that wait together (shared_path), or one for
//!      |      a try, a fair lock, the permits of a semaphore, a member of a multi-lock
//!      |         slot and turn (shared_queue) --> session --> create and list (request)
//!      |         --> wait for the predecessor --> list again --> first in the queue
//!      v
//!   shared_path: registers the hold (held), and passes the grant (granted) to the caller that has
//!      |         waited longest
//!      v
//!   a guard: work under the lock (while_held)
//!      |
//!      v
//!   release, drop or loss (held): the node goes to the next caller of this client (shared_path),
//!                                 or to the cleanup of the session, which deletes the node
//! ```
//!
//! Two values carry a lock. A `Grant` is its only owner, and its drop releases the lock. A `Held`
//! is its state, which is shared, and which the session, the heartbeat and the clock can end at any
//! time. An attempt is a task on the session's thread, and outlives its caller, which has a
//! `Pending` of it.
//!
//! The other files answer questions (who, holdings), skip the list where the number of a node
//! proves enough (without_list), or apply to other recipes: several locks as one (multi_attempt),
//! the limit of a semaphore (semaphore_limit), nodes that are no locks (data).

pub(crate) mod acquisition;
pub(crate) mod attempts;
pub(crate) mod data;
pub(crate) mod granted;
pub(crate) mod held;
pub(crate) mod holdings;
pub(crate) mod lock;
pub(crate) mod multi_attempt;
pub(crate) mod pending;
pub(crate) mod request;
pub(crate) mod semaphore_limit;
pub(crate) mod shared_path;
pub(crate) mod shared_queue;
pub(crate) mod while_held;
pub(crate) mod who;
pub(crate) mod without_list;
