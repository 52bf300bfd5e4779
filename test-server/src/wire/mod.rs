//! The bytes on the wire, written from the protocol's description and shared with no client.

pub(crate) mod jute;
pub(crate) mod reply;
pub(crate) mod request;

/// Numbers of the requests.
pub(crate) mod opcode {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_ACL: i32 = 6;
    pub(crate) const SET_ACL: i32 = 7;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const GET_CHILDREN2: i32 = 12;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE2: i32 = 15;
    pub(crate) const RECONFIG: i32 = 16;
    pub(crate) const CHECK_WATCHES: i32 = 17;
    pub(crate) const REMOVE_WATCHES: i32 = 18;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const CREATE_TTL: i32 = 21;
    pub(crate) const MULTI_READ: i32 = 22;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const SET_WATCHES: i32 = 101;
    pub(crate) const SASL: i32 = 102;
    pub(crate) const GET_EPHEMERALS: i32 = 103;
    pub(crate) const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub(crate) const SET_WATCHES2: i32 = 105;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const WHO_AM_I: i32 = 107;
    pub(crate) const CLOSE_SESSION: i32 = -11;
    pub(crate) const ERROR: i32 = -1;
}

/// One entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) perms: i32,
    pub(crate) id: AuthId,
}

/// Who somebody is: a scheme and a name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthId {
    pub(crate) scheme: String,
    pub(crate) id: String,
}

impl AuthId {
    pub(crate) fn new(scheme: impl Into<String>, id: impl Into<String>) -> Self {
        Self { scheme: scheme.into(), id: id.into() }
    }
}

/// The eleven numbers of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) ephemeral_owner: i64,
    pub(crate) data_length: i32,
    pub(crate) num_children: i32,
    pub(crate) pzxid: i64,
}
