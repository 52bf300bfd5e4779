//! Whose the node at a path of our choice is (docs/protocol.md#persistent-node).

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
    /// The node is not there, as far as is known: it is being created, or there is no session or
    /// connection to create it in. Or it is there by an earlier session of this client, which the
    /// servers have not expired yet.
    Absent,
    /// The node was there, and this session's, when a server answered last.
    Present,
    /// The path has a node of another process, or a node that is not ephemeral. It is left alone;
    /// when it goes, this client creates its own. Or another handle of this client has the path,
    /// whether its node is there or not; this one has it when that is closed or dropped.
    Conflict,
    /// The servers refuse to create, read or write the node. They are asked again from time to
    /// time.
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

/// Returns the state by a node that is at the path: `Present` if it is of this session, by this
/// task's create; `Absent` if it is of an earlier session of this client; `Conflict` if it is of
/// another process or task, or persistent. `created` is whether this task has created a node in
/// this session, or may have.
pub(crate) fn state_by(
    ephemeral_owner: i64,
    session: i64,
    earlier: &[i64],
    created: bool,
) -> PersistentNodeState {
    if ephemeral_owner == session && created {
        PersistentNodeState::Present
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
