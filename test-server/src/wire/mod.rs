//! The wire format, written from the protocol's description. It shares no code with a client.

pub(crate) mod jute;
pub(crate) mod reply;
pub(crate) mod request;

/// The numbers of the operations.
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
    pub(crate) const CREATE_SESSION: i32 = -10;
    pub(crate) const DELETE_CONTAINER: i32 = 20;
    pub(crate) const ERROR: i32 = -1;
}

/// An entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) perms: i32,
    pub(crate) id: AuthId,
}

/// An entry of an access control list as a client sends it: its strings may be null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AskedAcl {
    pub(crate) perms: i32,
    pub(crate) scheme: Option<String>,
    pub(crate) id: Option<String>,
}

impl AskedAcl {
    pub(crate) fn new(perms: i32, scheme: &str, id: &str) -> Self {
        Self {
            perms,
            scheme: Some(scheme.to_owned()),
            id: Some(id.to_owned()),
        }
    }
}

/// An identity: a scheme, and an id in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthId {
    pub(crate) scheme: String,
    pub(crate) id: String,
}

impl AuthId {
    pub(crate) fn new(scheme: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            scheme: scheme.into(),
            id: id.into(),
        }
    }
}

/// The metadata of a node.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::jute::{Frame, Malformed, Reader, Writer};
    use super::reply::{self, Outcome};
    use super::request::{Connect, Create, Read, Request, SetWatches, Write};
    use super::*;
    use crate::error::ServerError;

    fn decode(op: i32, body: &[u8]) -> Result<Request, Malformed> {
        Request::decode(op, &mut Reader::new(body), false)
    }

    /// The request that the Java client sends for `create("/a", [1, 2], OPEN_ACL_UNSAFE,
    /// EPHEMERAL_SEQUENTIAL)`.
    const CREATE2: &[u8] =
        b"\0\0\0\x02/a\0\0\0\x02\x01\x02\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone\0\0\0\x03";

    #[test]
    fn reads_requests_as_clients_write() {
        let acl = Some(vec![AskedAcl::new(31, "world", "anyone")]);
        let create = Create {
            opcode: opcode::CREATE2,
            path: "/a".to_owned(),
            data: Some([1, 2].into()),
            acl,
            flags: 3,
            ttl: -1,
        };
        assert_eq!(
            decode(opcode::CREATE2, CREATE2),
            Ok(Request::Write(Write::Create(create.clone())))
        );
        let mut multi = b"\0\0\0\x0f\0\xff\xff\xff\xff".to_vec();
        multi.extend(CREATE2);
        multi.extend(b"\0\0\0\x02\0\xff\xff\xff\xff\0\0\0\x02/b\xff\xff\xff\xff");
        multi.extend(b"\xff\xff\xff\xff\x01\xff\xff\xff\xff");
        let delete = Write::Delete {
            path: "/b".to_owned(),
            version: -1,
        };
        let expected = Request::Multi(vec![Write::Create(create), delete]);
        assert_eq!(expected.paths().collect::<Vec<_>>(), ["/a", "/b"]);
        assert_eq!(decode(opcode::MULTI, &multi), Ok(expected));
        assert_eq!(
            decode(opcode::GET_CHILDREN2, b"\0\0\0\x01/\x01"),
            Ok(Request::Read(Read::Children {
                path: "/".to_owned(),
                watch: true,
                stat: true
            }))
        );
        let (none, exist) = (Some(Vec::new()), Some(vec![Some("/x".to_owned())]));
        let watches = SetWatches {
            relative_zxid: 5,
            data: none.clone(),
            exist,
            child: none.clone(),
            persistent: none.clone(),
            recursive: none,
        };
        let body = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0\0\0\x02/x\0\0\0\0";
        assert_eq!(
            decode(opcode::SET_WATCHES, body),
            Ok(Request::SetWatches(watches))
        );
        assert_eq!(
            decode(opcode::SET_WATCHES2, body),
            Err(Malformed),
            "two lists are missing"
        );
        let null = Request::Write(Write::NullPath(None));
        assert_eq!(
            decode(opcode::DELETE, b"\xff\xff\xff\xff\0\0\0\0"),
            Ok(null)
        );
        assert_eq!(
            decode(opcode::EXISTS, b"\xff\xff\xff\xff\0"),
            Err(Malformed),
            "no path"
        );
    }

    #[test]
    fn multi_is_read_up_to_error() {
        // A create without an access control list, and an operation that is none.
        let mut multi = b"\0\0\0\x0f\0\xff\xff\xff\xff".to_vec();
        multi.extend(b"\0\0\0\x02/a\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0");
        multi.extend(b"\0\0\0\x63\0\xff\xff\xff\xff");
        let decode =
            |since_3_9| Request::decode(opcode::MULTI, &mut Reader::new(&multi), since_3_9);
        assert_eq!(decode(true), Ok(Request::Multi(vec![Write::NullAcl])));
        assert_eq!(decode(false), Err(Malformed));
        // The path is null, too.
        let multi =
            b"\0\0\0\x0f\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0";
        let multi = [&multi[..], b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"].concat();
        let decode =
            |since_3_9| Request::decode(opcode::MULTI, &mut Reader::new(&multi), since_3_9);
        assert_eq!(decode(true), Ok(Request::Multi(vec![Write::NullAcl])));
        assert_eq!(
            decode(false),
            Ok(Request::Multi(vec![Write::NullPath(None)]))
        );
    }

    #[test]
    fn writes_replies_as_clients_read() {
        let zeros = "\0".repeat(16);
        let refused = format!("\0\0\0\x25\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10{zeros}\0");
        let bytes = |frame: Frame| frame.pieces().flatten().copied().collect::<Vec<_>>();
        assert_eq!(bytes(reply::connect(None, Some(false))), refused.as_bytes());
        assert_eq!(
            bytes(reply::notification(3, "/a", -1)),
            b"\0\0\0\x1e\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\x03\0\0\0\x03\0\0\0\x02/a"
        );
        let failed = Outcome::Multi(vec![
            (-1, Err(ServerError::Ok)),
            (-1, Err(ServerError::NoNode)),
        ]);
        let mut writer = Writer::new();
        failed.encode(&mut writer);
        assert_eq!(
            bytes(writer.frame())[4..],
            *b"\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\0\xff\xff\xff\x9b\xff\xff\xff\x9b\xff\xff\xff\xff\x01\xff\xff\xff\xff"
        );
        let mut writer = Writer::new();
        let (czxid, pzxid) = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718);
        writer.stat(&Stat {
            czxid,
            pzxid,
            version: 3,
            data_length: 4,
            num_children: 5,
            ..Stat::default()
        });
        let stat = bytes(writer.frame());
        assert_eq!(stat.len(), 4 + 68);
        assert_eq!(stat[4..12], czxid.to_be_bytes());
        assert_eq!((stat[39], stat[59], stat[63]), (3, 4, 5));
        assert_eq!(stat[64..], pzxid.to_be_bytes());
    }

    #[test]
    fn large_data_is_not_copied() {
        let data: std::sync::Arc<[u8]> = vec![7; 5000].into();
        let mut writer = reply::header(1, 2, 0);
        Outcome::Data(Some(std::sync::Arc::clone(&data)), Stat::default()).encode(&mut writer);
        let frame = writer.frame();
        assert!(frame.pieces().any(|piece| std::ptr::eq(piece, &data[..])));
        let bytes: Vec<u8> = frame.pieces().flatten().copied().collect();
        assert_eq!(
            (bytes.len(), frame.len()),
            (4 + 16 + 4 + 5000 + 68, bytes.len())
        );
        assert_eq!(bytes[..4], 5088i32.to_be_bytes());
        assert_eq!(bytes[20..24], 5000i32.to_be_bytes());
        assert_eq!(bytes[24..5024], data[..]);
    }

    #[test]
    fn strings_are_encoded_as_in_java() {
        let read = |bytes: &[u8]| {
            let mut framed = (bytes.len() as i32).to_be_bytes().to_vec();
            framed.extend(bytes);
            Reader::new(&framed).text()
        };
        // The texts that Java makes of these bytes were observed in a real server's replies to
        // sync.
        for (bytes, text) in [
            (&b"a\xffb"[..], "a\u{fffd}b"),
            (b"\xed\xa0\x80", "\u{fffd}"),
            (b"\xed\xa0b", "\u{fffd}b"),
            (b"\xed\xa0", "\u{fffd}"),
            (b"\xe0\x80\x80", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xe2\x82b", "\u{fffd}b"),
            (b"\xf0\x9f\x92", "\u{fffd}"),
            (b"\xf0\x9f\x92\xa9", "\u{1f4a9}"),
        ] {
            assert_eq!(read(bytes).as_deref(), Ok(text), "{bytes:x?}");
        }
        let mut writer = Writer::new();
        writer.string("\u{1f4a9}\u{e9}");
        let bytes: Vec<u8> = writer.frame().pieces().flatten().copied().collect();
        assert_eq!(bytes[4..], *b"\0\0\0\x08\xed\xa0\xbd\xed\xb2\xa9\xc3\xa9");
    }

    proptest! {
        #[test]
        fn malformed_input_never_panics(op in -12..120i32, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Connect::decode(&body);
            if let Ok(request) = decode(op, &body) {
                let _ = request.path().len();
            }
        }

        #[test]
        fn cut_request_is_malformed(end in 0..CREATE2.len()) {
            prop_assert_eq!(decode(opcode::CREATE2, &CREATE2[..end]), Err(Malformed));
        }

        #[test]
        fn wrong_vector_length_is_malformed(count in 1_000..i32::MAX) {
            let mut body = 0i64.to_be_bytes().to_vec();
            body.extend(count.to_be_bytes());
            prop_assert_eq!(decode(opcode::SET_WATCHES, &body), Err(Malformed));
        }
    }
}
