//! The frames that clients send.

use super::jute::{Malformed, Reader};
use super::{Acl, opcode};

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connect {
    pub(crate) last_zxid_seen: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    /// Clients before 3.4 neither send the read-only flag nor understand it in the reply.
    pub(crate) knows_read_only: bool,
}

impl Connect {
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        let _protocol = reader.i32()?;
        let last_zxid_seen = reader.i64()?;
        let timeout_ms = reader.i32()?;
        let session = reader.i64()?;
        let password = reader.bytes()?.unwrap_or_default();
        let knows_read_only = !reader.is_empty();
        Ok(Self { last_zxid_seen, timeout_ms, session, password, knows_read_only })
    }
}

/// A create in any of its four forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) opcode: i32,
    pub(crate) path: String,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Vec<Acl>,
    pub(crate) flags: i32,
    pub(crate) ttl: i64,
}

/// A write, alone or in a multi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Create(Create),
    Delete { path: String, version: i32 },
    SetData { path: String, data: Option<Vec<u8>>, version: i32 },
    SetAcl { path: String, acl: Vec<Acl>, version: i32 },
    Check { path: String, version: i32 },
}

impl Write {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Create(create) => &create.path,
            Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. } => path,
        }
    }

    /// Decodes a write of a multi, where the flags of a create, not its opcode, decide on the kind of node.
    fn decode_in_multi(op: i32, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if op == opcode::SET_ACL {
            // Not part of a multi in ZooKeeper.
            return Err(Malformed);
        }
        let mut write = Self::decode(op, reader)?;
        if let Self::Create(create) = &mut write {
            create.opcode = match (create.flags, op) {
                (5 | 6, _) => opcode::CREATE_TTL,
                (4, _) => opcode::CREATE_CONTAINER,
                // Of no kind: refused.
                (..0 | 7.., opcode::CREATE_TTL) => opcode::CREATE_TTL,
                (_, opcode::CREATE2) => opcode::CREATE2,
                _ => opcode::CREATE,
            };
            if create.opcode != opcode::CREATE_TTL {
                create.ttl = -1;
            }
        }
        Ok(write)
    }

    fn decode(op: i32, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match op {
            opcode::CREATE | opcode::CREATE2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => {
                let path = reader.string()?;
                let data = reader.bytes()?;
                let acl = reader.acl()?;
                let flags = reader.i32()?;
                let ttl = if op == opcode::CREATE_TTL { reader.i64()? } else { -1 };
                Self::Create(Create { opcode: op, path, data, acl, flags, ttl })
            }
            opcode::DELETE => Self::Delete { path: reader.string()?, version: reader.i32()? },
            opcode::SET_DATA => {
                Self::SetData { path: reader.string()?, data: reader.bytes()?, version: reader.i32()? }
            }
            opcode::SET_ACL => {
                Self::SetAcl { path: reader.string()?, acl: reader.acl()?, version: reader.i32()? }
            }
            opcode::CHECK => Self::Check { path: reader.string()?, version: reader.i32()? },
            _ => return Err(Malformed),
        })
    }
}

/// A read that may be part of a multi-read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Data { path: String, watch: bool },
    Children { path: String, watch: bool, stat: bool },
}

impl Read {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Data { path, .. } | Self::Children { path, .. } => path,
        }
    }
}

/// The watches that a client sets again after it has reconnected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetWatches {
    pub(crate) relative_zxid: i64,
    pub(crate) data: Vec<String>,
    pub(crate) exist: Vec<String>,
    pub(crate) child: Vec<String>,
    pub(crate) persistent: Vec<String>,
    pub(crate) recursive: Vec<String>,
}

/// Any request after the connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Write(Write),
    Multi(Vec<Write>),
    Read(Read),
    MultiRead(Vec<Read>),
    Exists { path: String, watch: bool },
    GetAcl { path: String },
    Sync { path: String },
    Ping,
    RemoveWatches { path: String, kind: i32, check_only: bool },
    SetWatches(SetWatches),
    AddWatch { path: String, mode: i32 },
    Auth { scheme: String, data: Vec<u8> },
    WhoAmI,
    GetEphemerals { prefix: String },
    GetAllChildrenNumber { path: String },
    CloseSession,
    Unimplemented,
}

impl Request {
    /// Decodes the body of a request for an operation.
    pub(crate) fn decode(op: i32, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match op {
            opcode::CREATE
            | opcode::CREATE2
            | opcode::CREATE_CONTAINER
            | opcode::CREATE_TTL
            | opcode::DELETE
            | opcode::SET_DATA
            | opcode::SET_ACL
            | opcode::CHECK => Self::Write(Write::decode(op, reader)?),
            opcode::MULTI => Self::Multi(multi(reader, Write::decode_in_multi)?),
            opcode::MULTI_READ => Self::MultiRead(multi(reader, |op, reader| match op {
                opcode::GET_DATA => Ok(Read::Data { path: reader.string()?, watch: reader.bool()? }),
                opcode::GET_CHILDREN => {
                    Ok(Read::Children { path: reader.string()?, watch: reader.bool()?, stat: false })
                }
                _ => Err(Malformed),
            })?),
            opcode::GET_DATA => Self::Read(Read::Data { path: reader.string()?, watch: reader.bool()? }),
            opcode::GET_CHILDREN | opcode::GET_CHILDREN2 => Self::Read(Read::Children {
                path: reader.string()?,
                watch: reader.bool()?,
                stat: op == opcode::GET_CHILDREN2,
            }),
            opcode::EXISTS => Self::Exists { path: reader.string()?, watch: reader.bool()? },
            opcode::GET_ACL => Self::GetAcl { path: reader.string()? },
            opcode::SYNC => Self::Sync { path: reader.string()? },
            opcode::PING => Self::Ping,
            opcode::REMOVE_WATCHES | opcode::CHECK_WATCHES => Self::RemoveWatches {
                path: reader.string()?,
                kind: reader.i32()?,
                check_only: op == opcode::CHECK_WATCHES,
            },
            opcode::SET_WATCHES | opcode::SET_WATCHES2 => {
                let mut watches = SetWatches {
                    relative_zxid: reader.i64()?,
                    data: reader.strings()?,
                    exist: reader.strings()?,
                    child: reader.strings()?,
                    ..SetWatches::default()
                };
                if op == opcode::SET_WATCHES2 {
                    watches.persistent = reader.strings()?;
                    watches.recursive = reader.strings()?;
                }
                Self::SetWatches(watches)
            }
            opcode::ADD_WATCH => Self::AddWatch { path: reader.string()?, mode: reader.i32()? },
            opcode::AUTH => {
                let _kind = reader.i32()?;
                Self::Auth { scheme: reader.string()?, data: reader.bytes()?.unwrap_or_default() }
            }
            opcode::WHO_AM_I => Self::WhoAmI,
            opcode::GET_EPHEMERALS => Self::GetEphemerals { prefix: reader.string()? },
            opcode::GET_ALL_CHILDREN_NUMBER => Self::GetAllChildrenNumber { path: reader.string()? },
            opcode::CLOSE_SESSION => Self::CloseSession,
            _ => Self::Unimplemented,
        })
    }

    /// Returns the path that a request names; of a multi, the first. Empty if it names none.
    pub(crate) fn path(&self) -> &str {
        self.paths().next().unwrap_or("")
    }

    /// Returns all paths that a request names.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        let (one, writes, reads): (Option<&str>, &[Write], &[Read]) = match self {
            Self::Write(write) => (None, std::slice::from_ref(write), &[]),
            Self::Multi(writes) => (None, writes, &[]),
            Self::Read(read) => (None, &[], std::slice::from_ref(read)),
            Self::MultiRead(reads) => (None, &[], reads),
            Self::Exists { path, .. }
            | Self::GetAcl { path }
            | Self::Sync { path }
            | Self::RemoveWatches { path, .. }
            | Self::AddWatch { path, .. }
            | Self::GetEphemerals { prefix: path }
            | Self::GetAllChildrenNumber { path } => (Some(path), &[], &[]),
            Self::Ping
            | Self::SetWatches(_)
            | Self::Auth { .. }
            | Self::WhoAmI
            | Self::CloseSession
            | Self::Unimplemented => (None, &[], &[]),
        };
        one.into_iter().chain(writes.iter().map(Write::path)).chain(reads.iter().map(Read::path))
    }
}

fn multi<T>(
    reader: &mut Reader<'_>,
    mut item: impl FnMut(i32, &mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut items = Vec::new();
    loop {
        let op = reader.i32()?;
        let done = reader.bool()?;
        let _error = reader.i32()?;
        if done {
            return Ok(items);
        }
        items.push(item(op, reader)?);
    }
}
