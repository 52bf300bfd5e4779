//! Who owns the node at the path of a persistent node (docs/protocol.md#persistent-node).
//!
//! A persistent node of Curator's is an ephemeral node that a client creates again after each
//! session. Another process may have a node at the same path, and so may an earlier session of this
//! client, until the servers expire it. The owner in the node's Stat distinguishes them: only a
//! node of this session, by this handle, is [present](PersistentNodeState::Present), and only a
//! node of an earlier session of this client is expected to go soon.

use std::fmt;

/// The state of the node of this client, as reported to its user.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::{PersistentNode, PersistentNodeState};
///
/// let node = PersistentNode::new(&client, "/services/web-1", "10.0.0.7:80")?;
/// node.wait_for_initial_create(Duration::from_secs(5)).await?;
/// let healthy = match node.state() {
///     PersistentNodeState::Present => true,
///     PersistentNodeState::Conflict => panic!("another process uses this name"),
///     _ => false,
/// };
/// assert!(healthy);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PersistentNodeState {
    /// The node does not exist, as far as is known: this client is creating it, or has no session
    /// or connection to create it in. Or an earlier session of this client, which the servers have
    /// not expired yet, still owns the node.
    Absent,
    /// The node existed, and this session owned it, when a server last answered.
    Present,
    /// The path has a node of another process, or a node that is not ephemeral. This client leaves
    /// that node alone, and creates its own when that is gone. Or another handle of this client has
    /// the path, whether its node exists or not; this handle has the path when the other is closed
    /// or dropped.
    Conflict,
    /// The servers refuse to create, read or write the node. This client asks them again from time
    /// to time.
    Refused,
    /// The node was closed, or its client was.
    Closed,
}

impl fmt::Display for PersistentNodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Present => f.write_str("present"),
            Self::Conflict => f.write_str("conflict"),
            Self::Refused => f.write_str("refused"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// Returns the state for an existing node at the path: `Present` if this task has created it in
/// this session; `Absent` if an earlier session of this client owns it; `Conflict` if another
/// process or task owns it, or if it is not ephemeral. `created` is whether this task has created a
/// node in this session, or may have.
pub(crate) fn state_by(
    ephemeral_owner: i64,
    session: i64,
    earlier: &[i64],
    created: bool,
) -> PersistentNodeState {
    // The owner alone does not show the task: another handle of this client, or a lock, may have
    // created a node of the same session at the path.
    if ephemeral_owner == session && created {
        PersistentNodeState::Present
    // The node goes with its session, so this client only has to wait. A deletion by its name could
    // hit the node of another owner that comes first.
    } else if ephemeral_owner != session && earlier.contains(&ephemeral_owner) {
        PersistentNodeState::Absent
    } else {
        PersistentNodeState::Conflict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_display_as_words() {
        use PersistentNodeState::{Absent, Closed, Conflict, Present, Refused};
        let words = [Absent, Present, Conflict, Refused, Closed].map(|state| state.to_string());
        assert_eq!(
            words,
            ["absent", "present", "conflict", "refused", "closed"]
        );
    }

    // Shows: persistent-node
    #[test]
    fn own_node_needs_a_possible_create() {
        use PersistentNodeState::{Absent, Conflict, Present};
        assert_eq!(state_by(7, 7, &[], true), Present);
        assert_eq!(state_by(7, 7, &[], false), Conflict);
        assert_eq!(state_by(5, 7, &[4, 5], true), Absent);
        assert_eq!(state_by(6, 7, &[4, 5], true), Conflict);
        assert_eq!(state_by(0, 7, &[4, 5], true), Conflict, "a persistent node");
    }
}
