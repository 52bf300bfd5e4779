//! Fencing tokens, by which a resource refuses a process that was paused while it held a lock
//! (docs/protocol.md#paused-process). Tokens rise with each grant (docs/protocol.md#token-order),
//! and the tokens of readers have a separate type (docs/protocol.md#reader-tokens).

use std::array::TryFromSliceError;
use std::fmt;
use std::num::TryFromIntError;
use std::str::FromStr;

use crate::values::shown::{Quoted, Short};

/// Error of parsing a token: the text is not the printed form of a token.
///
/// # Examples
/// ```
/// use zookeeper_recipes::{FencingToken, ParseTokenError};
///
/// let error: ParseTokenError = "9.0".parse::<FencingToken>().unwrap_err();
/// assert_eq!(error.to_string(), "\"9.0\" is no fencing token");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is no fencing token", Quoted(.text))]
pub struct ParseTokenError {
    text: String,
}

impl ParseTokenError {
    fn new(text: &str) -> Self {
        Self {
            text: Short(text).to_string(),
        }
    }
}

/// Parses the numbers of a token, and accepts only the form in which they are printed.
fn numbers(text: &str) -> Option<(i64, u64)> {
    // The first number may have a sign.
    let (zxid, counter) = text.rsplit_once('-')?;
    let numbers = (zxid.parse().ok()?, counter.parse().ok()?);
    (format!("{}-{}", numbers.0, numbers.1) == text).then_some(numbers)
}

/// Implements serde's traits by `Display` and `FromStr`.
#[cfg(feature = "serde")]
macro_rules! travels {
    ($token:ident) => {
        impl serde::Serialize for $token {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $token {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Defines a type of token, with the methods that the types for readers and writers share.
macro_rules! token {
    ($(#[$docs:meta])* $token:ident, $name:literal, $(#[$zxid:meta])* zxid, $(#[$counter:meta])* counter) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $token {
            // The derived order compares in this order.
            zxid: i64,
            counter: u64,
        }

        impl $token {
            /// Creates a token from its two numbers, as [`zxid`](Self::zxid) and
            /// [`counter`](Self::counter) return them.
            ///
            /// ```
            #[doc = concat!("use zookeeper_recipes::", $name, ";")]
            ///
            #[doc = concat!("let token = ", $name, "::from_parts(9, 0);")]
            /// assert_eq!((token.zxid(), token.counter()), (9, 0));
            /// ```
            #[must_use]
            pub const fn from_parts(zxid: i64, counter: u64) -> Self {
                Self { zxid, counter }
            }

            $(#[$zxid])*
            #[must_use]
            pub const fn zxid(self) -> i64 {
                self.zxid
            }

            $(#[$counter])*
            #[must_use]
            pub const fn counter(self) -> u64 {
                self.counter
            }

            /// Returns the token as 16 bytes, which sort as the token does.
            ///
            /// They fit a column of type `BINARY(16)` or `BYTEA`, or a key in a store that orders
            /// bytes.
            ///
            /// ```
            #[doc = concat!("use zookeeper_recipes::", $name, ";")]
            ///
            #[doc = concat!("let older = ", $name, "::from_parts(7, 2);")]
            #[doc = concat!("let newer = ", $name, "::from_parts(9, 0);")]
            /// assert!(older.to_be_bytes() < newer.to_be_bytes());
            /// ```
            #[must_use]
            pub const fn to_be_bytes(self) -> [u8; 16] {
                // Flipping the sign bit makes the bytes of a signed number sort like the number.
                let zxid = (self.zxid as u64) ^ (1 << 63);
                (((zxid as u128) << 64) | self.counter as u128).to_be_bytes()
            }

            /// Creates a token from the bytes that [`to_be_bytes`](Self::to_be_bytes) returned.
            ///
            /// ```
            #[doc = concat!("use zookeeper_recipes::", $name, ";")]
            ///
            #[doc = concat!("let token = ", $name, "::from_parts(9, 0);")]
            #[doc = concat!("assert_eq!(", $name, "::from_be_bytes(token.to_be_bytes()), token);")]
            /// ```
            #[must_use]
            pub const fn from_be_bytes(bytes: [u8; 16]) -> Self {
                let both = u128::from_be_bytes(bytes);
                Self { zxid: (((both >> 64) as u64) ^ (1 << 63)) as i64, counter: both as u64 }
            }
        }

        impl From<$token> for (i64, i64) {
            /// Returns the zxid and the counter, for two 64-bit columns of a database. A counter
            /// over [`i64::MAX`], which no guard has, becomes `i64::MAX`.
            fn from(token: $token) -> Self {
                Token::from(token).into()
            }
        }

        impl TryFrom<(i64, i64)> for $token {
            type Error = TryFromIntError;

            /// Creates a token from two columns of a database.
            ///
            /// # Errors
            /// [`TryFromIntError`] if the second number, the counter, is negative.
            fn try_from((zxid, counter): (i64, i64)) -> Result<Self, TryFromIntError> {
                Ok(Self { zxid, counter: counter.try_into()? })
            }
        }

        impl From<$token> for [u8; 16] {
            /// Does the same as `to_be_bytes`.
            fn from(token: $token) -> Self {
                token.to_be_bytes()
            }
        }

        impl From<[u8; 16]> for $token {
            /// Does the same as `from_be_bytes`.
            fn from(bytes: [u8; 16]) -> Self {
                Self::from_be_bytes(bytes)
            }
        }

        impl TryFrom<&[u8]> for $token {
            type Error = TryFromSliceError;

            /// Creates a token from a column of bytes.
            ///
            /// # Errors
            /// [`TryFromSliceError`] if there are not 16 bytes.
            fn try_from(bytes: &[u8]) -> Result<Self, TryFromSliceError> {
                bytes.try_into().map(Self::from_be_bytes)
            }
        }

        impl fmt::Display for $token {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}-{}", self.zxid, self.counter)
            }
        }

        impl FromStr for $token {
            type Err = ParseTokenError;

            /// Parses the output of [`Display`](fmt::Display): the two numbers with a `-` in
            /// between.
            ///
            /// # Errors
            /// [`ParseTokenError`] if the text is anything else.
            fn from_str(text: &str) -> Result<Self, ParseTokenError> {
                let (zxid, counter) = numbers(text).ok_or_else(|| ParseTokenError::new(text))?;
                Ok(Self { zxid, counter })
            }
        }

        #[cfg(feature = "serde")]
        travels!($token);
    };
}

token! {
    /// The fencing token of an exclusive grant: of a mutex, a fair lock or a write lock.
    ///
    /// A token is greater than the tokens of all earlier grants of the same lock, so a resource can
    /// distinguish a former holder from the present one. No lock can stop a process that was paused
    /// while it held the lock (by a garbage collector, a hypervisor or `SIGSTOP`) and resumes after
    /// the lock was granted to another process. The resource can stop it: it remembers the highest
    /// token that it has seen and refuses smaller ones. [`FenceGate`](crate::FenceGate) has the
    /// rule, and its SQL.
    ///
    /// A token is a pair of numbers: a zxid, the number of a transaction, which is unique in the
    /// ensemble and grows; and a counter, which distinguishes grants of one node. A token is not
    /// the sequence number in the node's name, which starts at 0 again after ZooKeeper has removed
    /// an empty lock directory.
    ///
    /// Each grant to write has a separate token, greater than the tokens of all earlier readers and
    /// writers, and smaller than those of all later ones. Guards that share a hold
    /// ([`reenter`](crate::LockGuard::reenter),
    /// [`WriteGuard::reenter_as_reader`](crate::WriteGuard::reenter_as_reader)) share the grant and
    /// its numbers. The tokens of readers have a separate type, [`ReadToken`].
    ///
    /// Compare only tokens of the same lock in the same ensemble. An ensemble that was rebuilt or
    /// restored from an older snapshot starts with smaller zxids: reset the tokens that the
    /// resource remembers.
    ///
    /// # Storing a token
    /// Store a token as two 64-bit numbers (`(i64, i64)`), which SQL compares as a row value, or as
    /// 16 bytes, which sort in the same order:
    ///
    /// ```
    /// use zookeeper_recipes::FencingToken;
    ///
    /// let token = FencingToken::from_parts(9, 0);
    ///
    /// let (zxid, counter): (i64, i64) = token.into();
    /// assert_eq!(FencingToken::try_from((zxid, counter))?, token);
    ///
    /// let bytes: [u8; 16] = token.into();
    /// assert_eq!(FencingToken::try_from(bytes.as_slice())?, token);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Sending a token
    /// Send a token as text, in a header or a message: the numbers with a `-` in between. This form
    /// will not change, and does not sort like the token. With the feature `serde`, tokens are
    /// serialized as this text in every format.
    ///
    /// ```
    /// use zookeeper_recipes::FencingToken;
    ///
    /// let token = FencingToken::from_parts(9, 0);
    /// assert_eq!(token.to_string(), "9-0");
    /// assert_eq!("9-0".parse::<FencingToken>()?, token);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{FencingToken, InterProcessMutex};
    ///
    /// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let first = mutex.lock().await?;
    /// let older: FencingToken = first.fencing_token();
    /// first.release().await?;
    ///
    /// let second = mutex.lock().await?;
    /// assert!(second.fencing_token() > older);
    /// # Ok(())
    /// # }
    /// ```
    FencingToken,
    "FencingToken",
    /// Returns the zxid of the transaction that created the lock node.
    zxid,
    /// Returns how often the lock was handed over with this node. The counter distinguishes the
    /// grants of one node.
    counter
}

token! {
    /// The fencing token of a read lock.
    ///
    /// It is smaller than the [`FencingToken`] of every later writer, and greater than that of
    /// every earlier writer; after a downgrade it is equal to the token of the downgraded writer.
    /// The tokens of readers that hold the lock together have no meaningful order, so a resource
    /// compares a reader only with the highest writer ([`FenceGate`](crate::FenceGate)). That is
    /// why readers have a separate type of token.
    ///
    /// After a [downgrade](crate::WriteGuard::downgrade), and in a guard from
    /// [`reenter_as_reader`](crate::WriteGuard::reenter_as_reader), it has the numbers of the
    /// writer's token.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{InterProcessReadWriteLock, ReadToken};
    ///
    /// let lock = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// let writer = lock.write_lock().lock().await?;
    /// let written = writer.fencing_token();
    /// writer.release().await?;
    ///
    /// let reader = lock.read_lock().lock().await?;
    /// let token: ReadToken = reader.fencing_token();
    /// assert!(token.zxid() > written.zxid());
    ///
    /// // Stored like a writer's: as two numbers, or as bytes.
    /// let (zxid, counter): (i64, i64) = token.into();
    /// assert_eq!(ReadToken::try_from((zxid, counter))?, token);
    /// # Ok(())
    /// # }
    /// ```
    ReadToken,
    "ReadToken",
    /// Returns the zxid of the transaction that created the lock node; after a downgrade, that of
    /// the writer's token.
    zxid,
    /// Returns 0; after a downgrade, the counter of the writer's token.
    counter
}

/// The fencing token of a guard whose kind is known only at run time
/// ([`AnyGuard`](crate::AnyGuard)).
///
/// These tokens have no order, because the kind of a token decides which token it is compared with
/// ([`FenceGate::admit`](crate::FenceGate::admit)). As text, the kind comes before the numbers:
/// `write-9-0` or `read-9-0`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessLock, InterProcessMutex, Token};
///
/// let lock: Box<dyn InterProcessLock> = Box::new(InterProcessMutex::new(&client, "/inventory/sku-42")?);
/// let guard = lock.lock().await?;
/// let statement = match guard.fencing_token() {
///     Token::Write(_) => "UPDATE stock SET write_zxid = ..",
///     Token::Read(_) => "UPDATE stock SET read_zxid = ..",
/// };
/// let (zxid, counter): (i64, i64) = guard.fencing_token().into(); // its parameters
/// # assert!(statement.contains("write") && zxid > 0 && counter == 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Token {
    /// The token of an exclusive grant: of a mutex, a fair lock or a write lock.
    Write(FencingToken),
    /// The token of a read lock.
    Read(ReadToken),
}

impl Token {
    /// Returns the first number of the token; see [`FencingToken::zxid`].
    #[must_use]
    pub const fn zxid(self) -> i64 {
        match self {
            Self::Write(token) => token.zxid(),
            Self::Read(token) => token.zxid(),
        }
    }

    /// Returns the second number of the token; see [`FencingToken::counter`].
    #[must_use]
    pub const fn counter(self) -> u64 {
        match self {
            Self::Write(token) => token.counter(),
            Self::Read(token) => token.counter(),
        }
    }
}

impl From<Token> for (i64, i64) {
    /// Returns the zxid and the counter, for two 64-bit columns of a database, which depend on the
    /// kind. A counter over [`i64::MAX`], which no guard has, becomes `i64::MAX`.
    fn from(token: Token) -> Self {
        (token.zxid(), token.counter().try_into().unwrap_or(i64::MAX))
    }
}

impl From<FencingToken> for Token {
    fn from(token: FencingToken) -> Self {
        Self::Write(token)
    }
}

impl From<ReadToken> for Token {
    fn from(token: ReadToken) -> Self {
        Self::Read(token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(token) => write!(f, "{WRITE}{token}"),
            Self::Read(token) => write!(f, "{READ}{token}"),
        }
    }
}

/// The text before the numbers of a token whose kind is known only at run time.
const WRITE: &str = "write-";
const READ: &str = "read-";

impl FromStr for Token {
    type Err = ParseTokenError;

    /// Parses the output of [`Display`](fmt::Display): `write-` or `read-`, and the numbers.
    ///
    /// # Errors
    /// [`ParseTokenError`] if the text is anything else.
    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let token = match (text.strip_prefix(WRITE), text.strip_prefix(READ)) {
            (Some(write), _) => write.parse().ok().map(Self::Write),
            (None, Some(read)) => read.parse().ok().map(Self::Read),
            (None, None) => None,
        };
        token.ok_or_else(|| ParseTokenError::new(text))
    }
}

#[cfg(feature = "serde")]
travels!(Token);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rejects_impossible_tokens() {
        assert!(FencingToken::try_from((9, -1)).is_err());
        assert!(ReadToken::try_from([0; 15].as_slice()).is_err());
        assert!(ReadToken::try_from([0; 17].as_slice()).is_err());
        let large = FencingToken::from_parts(9, u64::MAX);
        assert_eq!(<(i64, i64)>::from(large), (9, i64::MAX));
    }

    #[test]
    fn parses_only_texts_of_tokens() {
        assert_eq!("9-0".parse(), Ok(FencingToken::from_parts(9, 0)));
        assert_eq!("-9-0".parse(), Ok(FencingToken::from_parts(-9, 0)));
        assert_eq!(
            "read-9-2".parse(),
            Ok(Token::Read(ReadToken::from_parts(9, 2)))
        );
        for text in [
            "",
            "9",
            "-",
            "9-",
            "-9",
            "9.0",
            "9--1",
            "+9-0",
            "09-0",
            "9-+0",
            " 9-0",
            "9-0\n",
            "write-9-0",
        ] {
            let error = text.parse::<FencingToken>().unwrap_err();
            assert_eq!(error.to_string(), format!("{text:?} is no fencing token"));
            assert!(text.parse::<ReadToken>().is_err());
            assert_eq!(text.parse::<Token>().is_ok(), text == "write-9-0");
        }
        let long = "9-0".repeat(10_000).parse::<Token>().unwrap_err();
        assert!(format!("{long} {long:?}").chars().count() < 400);
    }

    /// A JSON number would lose digits.
    #[cfg(feature = "serde")]
    #[test]
    fn tokens_travel_as_their_texts() {
        let (write, read) = (
            FencingToken::from_parts(i64::MAX, 3),
            ReadToken::from_parts(9, 0),
        );
        let sent = serde_json::to_string(&(write, read, Token::Read(read))).unwrap();
        assert_eq!(sent, r#"["9223372036854775807-3","9-0","read-9-0"]"#);
        let received: (FencingToken, ReadToken, Token) = serde_json::from_str(&sent).unwrap();
        assert_eq!(received, (write, read, Token::Read(read)));
        let received: FencingToken = serde_json::from_reader(r#""9-0""#.as_bytes()).unwrap();
        assert_eq!(received, FencingToken::from_parts(9, 0));
        let error = serde_json::from_str::<FencingToken>("9.0").unwrap_err();
        assert!(error.to_string().contains("expected a string"), "{error}");
        let error = serde_json::from_str::<FencingToken>(r#""9.0""#).unwrap_err();
        assert!(
            error.to_string().contains("\"9.0\" is no fencing token"),
            "{error}"
        );
    }

    proptest! {
        // Shows: fencing-token
        #[test]
        fn bytes_round_trip_in_token_order(a: (i64, u64), b: (i64, u64)) {
            let (a, b) = (FencingToken::from_parts(a.0, a.1), FencingToken::from_parts(b.0, b.1));
            prop_assert_eq!(FencingToken::from_be_bytes(a.to_be_bytes()), a);
            prop_assert_eq!(a.to_be_bytes().cmp(&b.to_be_bytes()), a.cmp(&b));
            let read = ReadToken::from_parts(a.zxid(), a.counter());
            prop_assert_eq!(read.to_be_bytes(), a.to_be_bytes());
            prop_assert_eq!(ReadToken::from_be_bytes(read.to_be_bytes()), read);
            prop_assert_eq!(ReadToken::try_from(<[u8; 16]>::from(read).as_slice()).unwrap(), read);
        }

        #[test]
        fn texts_round_trip(a: (i64, u64), text in ".{0,20}") {
            let (write, read) = (FencingToken::from_parts(a.0, a.1), ReadToken::from_parts(a.0, a.1));
            prop_assert_eq!(write.to_string().parse::<FencingToken>().unwrap(), write);
            prop_assert_eq!(read.to_string().parse::<ReadToken>().unwrap(), read);
            for token in [Token::from(write), Token::from(read)] {
                prop_assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
                // A text that is a number would lose digits in JavaScript.
                prop_assert!(token.to_string().parse::<f64>().is_err());
            }
            prop_assert!(write.to_string().parse::<f64>().is_err());
            // Each token has exactly one text.
            if let Ok(token) = text.parse::<FencingToken>() {
                prop_assert_eq!(token.to_string(), text);
            }
        }

        #[test]
        fn database_pairs_round_trip_in_order(a: (i64, i64), b: (i64, i64)) {
            let (a, b) = ((a.0, a.1.max(0)), (b.0, b.1.max(0)));
            let (one, two) = (FencingToken::try_from(a).unwrap(), FencingToken::try_from(b).unwrap());
            prop_assert_eq!(<(i64, i64)>::from(one), a);
            prop_assert_eq!(a.cmp(&b), one.cmp(&two));
            prop_assert_eq!(<(i64, i64)>::from(Token::from(ReadToken::try_from(a).unwrap())), a);
        }
    }
}
