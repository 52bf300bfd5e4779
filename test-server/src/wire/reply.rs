//! The frames that the server sends.

use std::sync::Arc;

use super::jute::{Frame, Writer};
use super::{Stat, opcode};
use crate::error::ServerError;

pub(crate) const NOTIFICATION_XID: i32 = -1;
pub(crate) const PING_XID: i32 = -2;

/// Encodes the reply to a connect. If it is refused, timeout, session and password are zero.
/// `read_only` is `None` for a client that does not know the field.
pub(crate) fn connect(session: Option<(i64, i32, &[u8; 16])>, read_only: Option<bool>) -> Frame {
    let (id, timeout, password) = session.unwrap_or((0, 0, &[0; 16]));
    let mut writer = Writer::new();
    writer.i32(0);
    writer.i32(timeout);
    writer.i64(id);
    writer.buffer(Some(password));
    if let Some(read_only) = read_only {
        writer.bool(read_only);
    }
    writer.frame()
}

pub(crate) fn header(xid: i32, zxid: i64, error: i32) -> Writer {
    let mut writer = Writer::new();
    writer.i32(xid);
    writer.i64(zxid);
    writer.i32(error);
    writer
}

/// Encodes a watch event. The session's state in it is always `SyncConnected`.
pub(crate) fn notification(kind: i32, path: &str, zxid: i64) -> Frame {
    let mut writer = header(NOTIFICATION_XID, zxid, 0);
    writer.i32(kind);
    writer.i32(3);
    writer.string(path);
    writer.frame()
}

/// The body of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Empty,
    Path(String),
    PathStat(String, Stat),
    Stat(Stat),
    Data(Option<Arc<[u8]>>, Stat),
    Children(Vec<String>, Option<Stat>),
    Acl(Vec<super::Acl>, Stat),
    Multi(Vec<(i32, Result<Self, ServerError>)>),
    /// The results of a multi before an operation over which ZooKeeper trips: an error with a body.
    Broken(Vec<(i32, Result<Self, ServerError>)>),
    /// The null string, or the null buffer.
    Null,
    Strings(Vec<String>),
    Number(i32),
    Ids(Vec<(String, String)>),
}

impl Outcome {
    /// Returns the error code of the reply whose body this is.
    pub(crate) fn error(&self) -> i32 {
        if matches!(self, Self::Broken(_)) {
            ServerError::Marshalling.code()
        } else {
            0
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Empty => {}
            Self::Path(path) => writer.string(path),
            Self::PathStat(path, stat) => {
                writer.string(path);
                writer.stat(stat);
            }
            Self::Stat(stat) => writer.stat(stat),
            Self::Data(data, stat) => {
                writer.data(data.as_ref());
                writer.stat(stat);
            }
            Self::Children(names, stat) => {
                writer.strings(names.iter().map(String::as_str));
                if let Some(stat) = stat {
                    writer.stat(stat);
                }
            }
            Self::Acl(acl, stat) => {
                writer.acl(acl);
                writer.stat(stat);
            }
            Self::Strings(names) => writer.strings(names.iter().map(String::as_str)),
            Self::Number(number) => writer.i32(*number),
            Self::Ids(ids) => {
                writer.i32(super::jute::length(ids.len()));
                for (scheme, user) in ids {
                    writer.string(scheme);
                    writer.string(user);
                }
            }
            Self::Null => writer.buffer(None),
            Self::Multi(results) | Self::Broken(results) => {
                for (op, result) in results {
                    match result {
                        Ok(outcome) => {
                            multi_header(writer, *op, false, 0);
                            outcome.encode(writer);
                        }
                        Err(error) => {
                            multi_header(writer, opcode::ERROR, false, error.code());
                            writer.i32(error.code());
                        }
                    }
                }
                multi_header(writer, -1, true, -1);
            }
        }
    }
}

fn multi_header(writer: &mut Writer, op: i32, done: bool, error: i32) {
    writer.i32(op);
    writer.bool(done);
    writer.i32(error);
}
