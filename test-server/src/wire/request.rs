//! The frames that clients send.

use std::sync::Arc;

use super::jute::{Malformed, Reader, Strings};
use super::{AskedAcl, opcode};

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connect {
    pub(crate) last_zxid_seen: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    /// Whether the client accepts a member that is read-only. Clients before 3.4 neither send this
    /// nor understand it in the reply.
    pub(crate) read_only: Option<bool>,
}

impl Connect {
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        let _protocol = reader.i32()?;
        let last_zxid_seen = reader.i64()?;
        let timeout_ms = reader.i32()?;
        let session = reader.i64()?;
        let password = reader.bytes()?.unwrap_or_default();
        let read_only = if reader.is_empty() {
            None
        } else {
            Some(reader.bool()?)
        };
        Ok(Self {
            last_zxid_seen,
            timeout_ms,
            session,
            password,
            read_only,
        })
    }
}

/// A create in any of its four forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) opcode: i32,
    pub(crate) path: String,
    pub(crate) data: Option<Arc<[u8]>>,
    pub(crate) acl: Option<Vec<AskedAcl>>,
    pub(crate) flags: i32,
    pub(crate) ttl: i64,
}

/// A write, alone or in a multi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Create(Create),
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Option<Arc<[u8]>>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Option<Vec<AskedAcl>>,
        version: i32,
    },
    Check {
        path: String,
        version: i32,
    },
    /// The path of the request is null, which ZooKeeper fails to decode. Outside a multi it checks
    /// the flags of a create first.
    NullPath(Option<Create>),
    /// A create in a multi whose access control list is null, over which ZooKeeper trips since 3.9.
    NullAcl,
}

impl Write {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Create(create) => &create.path,
            Self::Delete { path, .. }
            | Self::SetData { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. } => path,
            Self::NullPath(_) | Self::NullAcl => "",
        }
    }

    /// Decodes a write of a multi, where the flags of a create decide on the kind of node. Its
    /// number decides only whether it has a time to live, and since 3.9 whether it is a container.
    fn decode_in_multi(
        op: i32,
        reader: &mut Reader<'_>,
        since_3_9: bool,
    ) -> Result<Self, Malformed> {
        if op == opcode::SET_ACL {
            // ZooKeeper does not accept this operation in a multi.
            return Err(Malformed);
        }
        let (mut write, is_null) = Self::read(op, reader)?;
        if let Self::Create(create) = &mut write {
            let has_ttl = op == opcode::CREATE_TTL;
            if since_3_9 && !has_ttl {
                if !(0..=6).contains(&create.flags) {
                    return Err(Malformed);
                }
                if create.acl.is_none() {
                    return Ok(Self::NullAcl);
                }
                if create.flags > 4 {
                    return Err(Malformed);
                }
            }
            create.opcode = match (create.flags, op) {
                (5 | 6, opcode::CREATE_TTL) => opcode::CREATE_TTL,
                (4, _) => opcode::CREATE_CONTAINER,
                (_, opcode::CREATE_CONTAINER) if since_3_9 => opcode::CREATE_CONTAINER,
                (_, opcode::CREATE2) => opcode::CREATE2,
                _ => opcode::CREATE,
            };
            if create.opcode != opcode::CREATE_TTL {
                create.ttl = -1;
            }
        }
        Ok(if is_null { Self::NullPath(None) } else { write })
    }

    /// Decodes a write that is no part of a multi.
    fn decode(op: i32, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match Self::read(op, reader)? {
            (Self::Create(create), true) => Self::NullPath(Some(create)),
            (_, true) => Self::NullPath(None),
            (write, false) => write,
        })
    }

    /// Decodes the writes of a multi.
    fn decode_multi(reader: &mut Reader<'_>, since_3_9: bool) -> Result<Vec<Self>, Malformed> {
        let (mut reads, mut nulls) = (0, 0);
        let write = |op, reader: &mut Reader<'_>| match op {
            opcode::GET_DATA | opcode::GET_CHILDREN => {
                reads += 1;
                nulls += usize::from(reader.string()?.is_none());
                let _watch = reader.bool()?;
                Ok(Self::NullPath(None))
            }
            op => Self::decode_in_multi(op, reader, since_3_9),
        };
        // ZooKeeper trips over it while it reads, and does not see what comes after it.
        let writes = multi(reader, write, |write| *write == Self::NullAcl)?;
        // Reads do not belong here. ZooKeeper trips over their null paths as over those of writes.
        if reads == 0 || reads == writes.len() && nulls > 0 && !since_3_9 {
            Ok(writes)
        } else {
            Err(Malformed)
        }
    }

    /// Reads any write. Returns whether its path is null, too.
    fn read(op: i32, reader: &mut Reader<'_>) -> Result<(Self, bool), Malformed> {
        let path = reader.string()?;
        let is_null = path.is_none();
        let path = path.unwrap_or_default();
        let write = match op {
            opcode::CREATE | opcode::CREATE2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => {
                let data = reader.data()?;
                let acl = reader.acl()?;
                let flags = reader.i32()?;
                let ttl = if op == opcode::CREATE_TTL {
                    reader.i64()?
                } else {
                    -1
                };
                Self::Create(Create {
                    opcode: op,
                    path,
                    data,
                    acl,
                    flags,
                    ttl,
                })
            }
            opcode::DELETE => Self::Delete {
                path,
                version: reader.i32()?,
            },
            opcode::SET_DATA => Self::SetData {
                path,
                data: reader.data()?,
                version: reader.i32()?,
            },
            opcode::SET_ACL => Self::SetAcl {
                path,
                acl: reader.acl()?,
                version: reader.i32()?,
            },
            opcode::CHECK => Self::Check {
                path,
                version: reader.i32()?,
            },
            _ => return Err(Malformed),
        };
        Ok((write, is_null))
    }
}

/// A read that may be part of a multi-read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Data {
        path: String,
        watch: bool,
    },
    Children {
        path: String,
        watch: bool,
        stat: bool,
    },
    /// A read of the null path, or a write, in a multi-read: ZooKeeper trips over it.
    Trips,
}

impl Read {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Data { path, .. } | Self::Children { path, .. } => path,
            Self::Trips => "",
        }
    }

    /// Decodes the reads of a multi-read, which set no watch. Reads and writes do not mix.
    fn decode_multi(reader: &mut Reader<'_>, since_3_9: bool) -> Result<Vec<Self>, Malformed> {
        let mut writes = 0;
        let read = |op, reader: &mut Reader<'_>| match op {
            opcode::GET_DATA | opcode::GET_CHILDREN => {
                let path = reader.string()?;
                let _watch = reader.bool()?;
                Ok(match (path, op) {
                    (None, _) => Self::Trips,
                    (Some(path), opcode::GET_DATA) => Self::Data { path, watch: false },
                    (Some(path), _) => Self::Children {
                        path,
                        watch: false,
                        stat: false,
                    },
                })
            }
            op => {
                writes += 1;
                Write::decode_in_multi(op, reader, since_3_9).map(|_| Self::Trips)
            }
        };
        let reads = multi(reader, read, |_| false)?;
        if (1..reads.len()).contains(&writes) {
            Err(Malformed)
        } else {
            Ok(reads)
        }
    }
}

/// The watches that a client sets again after it has reconnected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetWatches {
    pub(crate) relative_zxid: i64,
    pub(crate) data: Strings,
    pub(crate) exist: Strings,
    pub(crate) child: Strings,
    pub(crate) persistent: Strings,
    pub(crate) recursive: Strings,
}

/// Any request after the connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Write(Write),
    Multi(Vec<Write>),
    Read(Read),
    MultiRead(Vec<Read>),
    Exists {
        path: String,
        watch: bool,
    },
    GetAcl {
        path: String,
    },
    Sync {
        path: Option<String>,
    },
    Ping,
    CheckWatches {
        path: Option<String>,
        kind: i32,
    },
    RemoveWatches {
        path: Option<String>,
        kind: i32,
    },
    SetWatches(SetWatches),
    AddWatch {
        path: Option<String>,
        mode: i32,
    },
    Auth {
        scheme: Option<String>,
        data: Option<Vec<u8>>,
    },
    Sasl,
    WhoAmI,
    GetEphemerals {
        prefix: Option<String>,
    },
    GetAllChildrenNumber {
        path: String,
    },
    Reconfig,
    DeleteContainer,
    /// The request that a server itself sends when a client connects. From a client it may come
    /// without its timeout.
    CreateSession {
        timeout_ms: Option<i32>,
    },
    CloseSession,
    Unimplemented,
}

impl Request {
    /// Decodes the body of a request for an operation. `since_3_9` says which release's rules hold
    /// for the creates of a multi.
    pub(crate) fn decode(
        op: i32,
        reader: &mut Reader<'_>,
        since_3_9: bool,
    ) -> Result<Self, Malformed> {
        Ok(match op {
            opcode::CREATE | opcode::CREATE2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => {
                Self::Write(Write::decode(op, reader)?)
            }
            opcode::DELETE => Self::Write(Write::decode(op, reader)?),
            // The operations check their path before they use it: a null path is as invalid as an
            // empty one.
            opcode::SET_DATA | opcode::SET_ACL | opcode::CHECK => {
                match Write::decode(op, reader)? {
                    Write::NullPath(_) => Self::Write(Write::Check {
                        path: String::new(),
                        version: -1,
                    }),
                    write => Self::Write(write),
                }
            }
            opcode::MULTI => Self::Multi(Write::decode_multi(reader, since_3_9)?),
            opcode::MULTI_READ => Self::MultiRead(Read::decode_multi(reader, since_3_9)?),
            opcode::GET_DATA => Self::Read(Read::Data {
                path: reader.text()?,
                watch: reader.bool()?,
            }),
            opcode::GET_CHILDREN | opcode::GET_CHILDREN2 => Self::Read(Read::Children {
                path: reader.text()?,
                watch: reader.bool()?,
                stat: op == opcode::GET_CHILDREN2,
            }),
            opcode::EXISTS => Self::Exists {
                path: reader.text()?,
                watch: reader.bool()?,
            },
            opcode::GET_ACL => Self::GetAcl {
                path: reader.text()?,
            },
            opcode::SYNC => Self::Sync {
                path: reader.string()?,
            },
            opcode::PING => Self::Ping,
            opcode::CHECK_WATCHES => Self::CheckWatches {
                path: reader.string()?,
                kind: reader.i32()?,
            },
            opcode::REMOVE_WATCHES => Self::RemoveWatches {
                path: reader.string()?,
                kind: reader.i32()?,
            },
            opcode::SET_WATCHES | opcode::SET_WATCHES2 => {
                let mut watches = SetWatches {
                    relative_zxid: reader.i64()?,
                    data: reader.strings()?,
                    exist: reader.strings()?,
                    child: reader.strings()?,
                    persistent: Some(Vec::new()),
                    recursive: Some(Vec::new()),
                };
                if op == opcode::SET_WATCHES2 {
                    watches.persistent = reader.strings()?;
                    watches.recursive = reader.strings()?;
                }
                Self::SetWatches(watches)
            }
            opcode::ADD_WATCH => Self::AddWatch {
                path: reader.string()?,
                mode: reader.i32()?,
            },
            opcode::AUTH => {
                let _kind = reader.i32()?;
                Self::Auth {
                    scheme: reader.string()?,
                    data: reader.bytes()?,
                }
            }
            opcode::SASL => {
                let _token = reader.buffer()?.ok_or(Malformed)?;
                Self::Sasl
            }
            opcode::WHO_AM_I => Self::WhoAmI,
            opcode::GET_EPHEMERALS => Self::GetEphemerals {
                prefix: reader.string()?,
            },
            opcode::GET_ALL_CHILDREN_NUMBER => Self::GetAllChildrenNumber {
                path: reader.text()?,
            },
            opcode::RECONFIG => {
                let _members = (
                    reader.string()?,
                    reader.string()?,
                    reader.string()?,
                    reader.i64()?,
                );
                Self::Reconfig
            }
            opcode::DELETE_CONTAINER => Self::DeleteContainer,
            opcode::CREATE_SESSION => Self::CreateSession {
                timeout_ms: reader.i32().ok(),
            },
            opcode::CLOSE_SESSION => Self::CloseSession,
            _ => Self::Unimplemented,
        })
    }

    /// Returns whether the request has no effect that outlives its connection.
    pub(crate) fn is_read(&self) -> bool {
        !matches!(
            self,
            Self::Write(_)
                | Self::Multi(_)
                | Self::Reconfig
                | Self::DeleteContainer
                | Self::CreateSession { .. }
                | Self::CloseSession
        )
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
            | Self::GetAllChildrenNumber { path } => (Some(path), &[], &[]),
            Self::Sync { path }
            | Self::CheckWatches { path, .. }
            | Self::RemoveWatches { path, .. }
            | Self::AddWatch { path, .. }
            | Self::GetEphemerals { prefix: path } => (path.as_deref(), &[], &[]),
            Self::Ping
            | Self::SetWatches(_)
            | Self::Auth { .. }
            | Self::Sasl
            | Self::WhoAmI
            | Self::Reconfig
            | Self::DeleteContainer
            | Self::CreateSession { .. }
            | Self::CloseSession
            | Self::Unimplemented => (None, &[], &[]),
        };
        one.into_iter()
            .chain(writes.iter().map(Write::path))
            .chain(reads.iter().map(Read::path))
    }
}

/// Reads the operations of a multi, up to one that ends it.
fn multi<T>(
    reader: &mut Reader<'_>,
    mut item: impl FnMut(i32, &mut Reader<'_>) -> Result<T, Malformed>,
    ends: impl Fn(&T) -> bool,
) -> Result<Vec<T>, Malformed> {
    let mut items = Vec::new();
    loop {
        let op = reader.i32()?;
        let done = reader.bool()?;
        let _error = reader.i32()?;
        if done {
            return Ok(items);
        }
        let item = item(op, reader)?;
        let is_last = ends(&item);
        items.push(item);
        if is_last {
            return Ok(items);
        }
    }
}
