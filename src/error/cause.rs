//! What lies behind an error.

use std::error::Error;
use std::sync::Arc;

/// What ZooKeeper's client library said; opaque, so that its version is not part of our interface.
pub(crate) type Cause = Arc<dyn Error + Send + Sync>;
