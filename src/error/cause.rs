//! The cause of an error.

use std::error::Error;
use std::sync::Arc;

/// The error of ZooKeeper's client library; opaque, so that its version is not part of our interface.
pub(crate) type Cause = Arc<dyn Error + Send + Sync>;

/// The end of a message about a client to which an ACL denies something.
pub(super) fn credentials(has_credentials: Option<bool>) -> &'static str {
    match has_credentials {
        Some(true) => ", which has credentials, but not the right ones",
        Some(false) => ", which has no credentials (`ClientBuilder::auth`)",
        None => "",
    }
}
