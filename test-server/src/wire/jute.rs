//! Numbers, strings, buffers and vectors, big-endian with 32-bit lengths.

use std::sync::Arc;

use thiserror::Error;

use super::{Acl, AskedAcl, Stat};

/// The error of bytes that do not follow the protocol.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("malformed record")]
pub(crate) struct Malformed;

/// Reads records from a frame. Never reads past its end and never reserves more than the frame can
/// hold.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.array::<1>()?[0] != 0)
    }

    /// Reads a buffer; returns `None` for the null buffer, whose length is -1.
    pub(crate) fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            len => self
                .take(usize::try_from(len).map_err(|_| Malformed)?)
                .map(Some),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        Ok(self.buffer()?.map(<[u8]>::to_vec))
    }

    /// Reads the data of a node, which everything that needs it shares.
    pub(crate) fn data(&mut self) -> Result<Option<Arc<[u8]>>, Malformed> {
        Ok(self.buffer()?.map(Arc::from))
    }

    /// Reads a string as Java does; returns `None` for the null string, whose length is -1.
    pub(crate) fn string(&mut self) -> Result<Option<String>, Malformed> {
        Ok(self.buffer()?.map(java_text))
    }

    /// Reads a string that may not be null.
    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        self.string()?.ok_or(Malformed)
    }

    /// Reads a vector; returns `None` for the null vector, whose length is -1. As in ZooKeeper, any
    /// other negative length is that of an empty one.
    pub(crate) fn vector<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let count = match self.i32()? {
            -1 => return Ok(None),
            count => usize::try_from(count).unwrap_or(0),
        };
        // Every item takes at least four bytes. A greater count is false, and must not reserve
        // memory.
        if count > self.rest.len() / 4 {
            return Err(Malformed);
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(Some(items))
    }

    pub(crate) fn strings(&mut self) -> Result<Strings, Malformed> {
        self.vector(Self::string)
    }

    pub(crate) fn acl(&mut self) -> Result<Option<Vec<AskedAcl>>, Malformed> {
        self.vector(|reader| {
            Ok(AskedAcl {
                perms: reader.i32()?,
                scheme: reader.string()?,
                id: reader.string()?,
            })
        })
    }
}

/// A vector of strings, and each string of it, may be null.
pub(crate) type Strings = Option<Vec<Option<String>>>;

/// Decodes UTF-8 as Java does. Each sequence that is invalid becomes one U+FFFD; that of a
/// surrogate is one sequence, where Rust finds two or three.
pub(crate) fn java_text(bytes: &[u8]) -> String {
    let (mut text, mut rest) = (String::new(), bytes);
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => error,
        };
        let (valid, invalid) = rest.split_at(error.valid_up_to());
        text.push_str(&String::from_utf8_lossy(valid));
        text.push(char::REPLACEMENT_CHARACTER);
        let len = match invalid {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
            [0xed, 0xa0..=0xbf, ..] => 2,
            _ => error.error_len().unwrap_or(invalid.len()),
        };
        rest = invalid.get(len..).unwrap_or_default();
    }
}

/// Writes a frame. The length is put in front when the frame is finished.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The bytes up to the first shared data; empty if there is none yet.
    head: Vec<u8>,
    parts: Vec<Arc<[u8]>>,
    shared: usize,
    bytes: Vec<u8>,
}

/// The size from which on data is shared with the tree instead of copied into a frame.
const SHARED: usize = 1024;

impl Writer {
    pub(crate) fn new() -> Self {
        Self {
            head: Vec::new(),
            parts: Vec::new(),
            shared: 0,
            bytes: vec![0; 4],
        }
    }

    pub(crate) fn frame(mut self) -> Frame {
        self.finish_part();
        let len = self.head.len() + self.parts.iter().map(|part| part.len()).sum::<usize>();
        self.head[..4].copy_from_slice(&length(len - 4).to_be_bytes());
        self.parts.insert(0, self.head.into());
        Frame {
            parts: self.parts,
            len,
            shared: self.shared,
        }
    }

    fn finish_part(&mut self) {
        let part = std::mem::take(&mut self.bytes);
        if self.head.is_empty() {
            self.head = part;
        } else if !part.is_empty() {
            self.parts.push(part.into());
        }
    }

    /// Writes the data of a node.
    pub(crate) fn data(&mut self, value: Option<&Arc<[u8]>>) {
        match value {
            Some(value) if value.len() >= SHARED => {
                self.i32(length(value.len()));
                self.finish_part();
                self.shared += value.len();
                self.parts.push(Arc::clone(value));
            }
            value => self.buffer(value.map(|value| &value[..])),
        }
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.bytes.push(u8::from(value));
    }

    pub(crate) fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.i32(-1),
            Some(value) => {
                self.i32(length(value.len()));
                self.bytes.extend_from_slice(value);
            }
        }
    }

    /// Writes a string as ZooKeeper does: a character beyond the basic plane as its two surrogates,
    /// each in three bytes.
    pub(crate) fn string(&mut self, value: &str) {
        if value.chars().all(|c| u32::from(c) <= 0xffff) {
            return self.buffer(Some(value.as_bytes()));
        }
        let mut bytes = Vec::new();
        for unit in value.encode_utf16() {
            match char::from_u32(u32::from(unit)) {
                Some(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                None => {
                    let [high, low] = unit.to_be_bytes();
                    bytes.extend([
                        0xe0 | high >> 4,
                        0x80 | (high & 15) << 2 | low >> 6,
                        0x80 | low & 63,
                    ]);
                }
            }
        }
        self.buffer(Some(&bytes));
    }

    pub(crate) fn strings<'s>(&mut self, values: impl ExactSizeIterator<Item = &'s str>) {
        self.i32(length(values.len()));
        for value in values {
            self.string(value);
        }
    }

    pub(crate) fn acl(&mut self, acl: &[Acl]) {
        self.i32(length(acl.len()));
        for entry in acl {
            self.i32(entry.perms);
            self.string(&entry.id.scheme);
            self.string(&entry.id.id);
        }
    }

    pub(crate) fn stat(&mut self, stat: &Stat) {
        self.i64(stat.czxid);
        self.i64(stat.mzxid);
        self.i64(stat.ctime);
        self.i64(stat.mtime);
        self.i32(stat.version);
        self.i32(stat.cversion);
        self.i32(stat.aversion);
        self.i64(stat.ephemeral_owner);
        self.i32(stat.data_length);
        self.i32(stat.num_children);
        self.i64(stat.pzxid);
    }
}

/// Converts a length to the protocol's type. None comes near the limit: requests are bounded.
pub(crate) fn length(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

/// A frame with its length in front. It shares large data with the tree, and its clones share all.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    parts: Vec<Arc<[u8]>>,
    len: usize,
    /// The bytes that it shares with the tree.
    shared: usize,
}

impl Frame {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes that it alone keeps.
    pub(crate) fn own_len(&self) -> usize {
        self.len - self.shared
    }

    /// Returns its bytes in pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &part[..])
    }
}

/// The answer to a four-letter word, which has no length in front.
impl From<String> for Frame {
    fn from(text: String) -> Self {
        Self {
            len: text.len(),
            parts: vec![text.into_bytes().into()],
            shared: 0,
        }
    }
}
