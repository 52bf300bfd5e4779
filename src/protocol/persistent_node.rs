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
    /// The node is not there, as far as is known: it is being created, or there is no session or connection
    /// to create it in. Or it is there by an earlier session of this client, which the servers have not
    /// expired yet.
    Absent,
    /// The node was there, and this session's, when a server answered last.
    Present,
    /// The path has a node of another process, or a node that is not ephemeral. It is left alone; when it
    /// goes, this client creates its own. Or another handle of this client has the path, whether its node is
    /// there or not; this one has it when that is closed or dropped.
    Conflict,
    /// The servers refuse to create, read or write the node. They are asked again from time to time.
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

/// Whose node it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Of this session, by this task's create.
    Ours,
    /// Of an earlier session of this client.
    Earlier,
    /// Any other's: of another process, of another task of this client, or persistent.
    Another,
}

/// Returns whose a node is. `created` is whether this task has created it in this session, or may have: a node of
/// this session otherwise is of another task.
pub(crate) fn owner(ephemeral_owner: i64, session: i64, earlier: &[i64], created: bool) -> Owner {
    if ephemeral_owner == session {
        if created { Owner::Ours } else { Owner::Another }
    } else if earlier.contains(&ephemeral_owner) {
        Owner::Earlier
    } else {
        Owner::Another
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_shown_by_a_word() {
        use PersistentNodeState::{Absent, Closed, Conflict, Present, Refused};
        let words = [Absent, Present, Conflict, Refused, Closed].map(|state| state.to_string());
        assert_eq!(words, ["absent", "present", "conflict", "refused", "closed"]);
    }

    // Shows: persistent-node
    #[test]
    fn a_node_is_ours_only_if_this_task_may_have_created_it() {
        assert_eq!(owner(7, 7, &[], true), Owner::Ours);
        assert_eq!(owner(7, 7, &[], false), Owner::Another);
        assert_eq!(owner(5, 7, &[4, 5], true), Owner::Earlier);
        assert_eq!(owner(6, 7, &[4, 5], true), Owner::Another);
        assert_eq!(owner(0, 7, &[4, 5], true), Owner::Another, "a persistent node");
    }
}
