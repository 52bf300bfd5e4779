//! Numbers, strings, buffers and vectors, big-endian with 32-bit lengths.

use thiserror::Error;

use super::{Acl, AuthId, Stat};

/// The error of bytes that do not follow the protocol.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("malformed record")]
pub(crate) struct Malformed;

/// Reads records from a frame. Never reads past its end and never reserves more than the frame can hold.
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
            len => self.take(usize::try_from(len).map_err(|_| Malformed)?).map(Some),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        Ok(self.buffer()?.map(<[u8]>::to_vec))
    }

    pub(crate) fn string(&mut self) -> Result<String, Malformed> {
        let bytes = self.buffer()?.ok_or(Malformed)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
    }

    /// Reads a vector; the null vector is read as an empty one.
    pub(crate) fn vector<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = match self.i32()? {
            -1 => 0,
            count => usize::try_from(count).map_err(|_| Malformed)?,
        };
        // Every item takes at least four bytes. A greater count is false, and must not reserve memory.
        if count > self.rest.len() / 4 {
            return Err(Malformed);
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(crate) fn strings(&mut self) -> Result<Vec<String>, Malformed> {
        self.vector(Self::string)
    }

    pub(crate) fn acl(&mut self) -> Result<Vec<Acl>, Malformed> {
        self.vector(|reader| {
            let perms = reader.i32()?;
            let scheme = reader.string()?;
            let id = reader.string()?;
            Ok(Acl { perms, id: AuthId { scheme, id } })
        })
    }
}

/// Writes a frame. Its length is put in front when it is finished.
#[derive(Debug)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; 4] }
    }

    pub(crate) fn frame(mut self) -> Vec<u8> {
        let len = length(self.bytes.len() - 4).to_be_bytes();
        self.bytes[..4].copy_from_slice(&len);
        self.bytes
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

    pub(crate) fn string(&mut self, value: &str) {
        self.buffer(Some(value.as_bytes()));
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
