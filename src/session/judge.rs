//! The meaning of the client library's errors.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use zookeeper_client as zk;

use crate::error::LostReason;
use crate::protocol::failure::{Failure, FailureKind, Refusal};
use crate::session::log;
use crate::session::zk_session::{Session, cause};

impl Session {
    /// Returns the meaning of an error of the client library for the request that got it, with the error.
    pub(crate) fn failure(&self, error: zk::Error) -> Failure {
        let kind = self.judge(&error);
        log::debug!(%error, ?kind, "request failed");
        Failure { kind, cause: cause(error) }
    }

    /// Returns the meaning of an error of the client library for the request that got it
    /// (docs/protocol.md#unknown-outcome). An error that says that the session has ended ends it here too.
    pub(crate) fn judge(&self, error: &zk::Error) -> FailureKind {
        match error {
            zk::Error::NoNode => FailureKind::NoNode,
            zk::Error::NoAuth => FailureKind::Refused(Refusal::NoAuth),
            zk::Error::NodeExists => FailureKind::Refused(Refusal::NodeExists),
            zk::Error::BadVersion
            | zk::Error::NoChildrenForEphemerals
            | zk::Error::NotEmpty
            | zk::Error::InvalidAcl
            | zk::Error::QuotaExceeded
            | zk::Error::MarshallingError
            | zk::Error::Unimplemented
            | zk::Error::BadArguments(_) => FailureKind::Refused(Refusal::Other),
            zk::Error::Throttled | zk::Error::NotReadOnly => FailureKind::NotNow,
            zk::Error::SessionExpired => {
                self.expired();
                FailureKind::SessionGone
            }
            zk::Error::AuthFailed | zk::Error::ClientClosed => {
                self.end(LostReason::Closed);
                FailureKind::SessionGone
            }
            zk::Error::UnexpectedError(_) => {
                self.end_if_dead();
                if self.end_reason().is_some() { FailureKind::SessionGone } else { FailureKind::Unknown }
            }
            // ConnectionLoss, Custom, an unknown code, anything a later version adds.
            _ => FailureKind::Unknown,
        }
    }

    /// Ends the session if the task that serves it has died. Nothing reports that: the state does not change
    /// (docs/protocol.md#session-end). A live session never answers a request before it has been sent.
    fn end_if_dead(&self) {
        let Some(handle) = self.handle() else { return };
        let mut probe = pin!(handle.sync("/"));
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(Err(zk::Error::UnexpectedError(_))) = probe.as_mut().poll(&mut context) {
            let (session, session_id) = (self.number(), format!("{:#x}", self.session_id()));
            log::error!(session, session_id, "the task that serves the session has died");
            self.end(LostReason::SessionExpired);
        }
    }
}
