//! The paths of locks and of lock nodes. A path is checked once, so that no later step can fail
//! because of an invalid path.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::values::path_segment::{self, is_refused};
use crate::values::shown::{Quoted, debug_as_text};

/// The longest path accepted, in bytes, namespace included.
///
/// ZooKeeper has no limit below the 1 MiB of a whole request (`jute.maxbuffer`). But after a
/// reconnect a session sends all watched paths in one request, and `zookeeper-client` 0.11.2 cannot
/// send more than 128 KiB in this way. A path of this size leaves room for several watches.
pub(crate) const MAX_PATH_BYTES: usize = 16 * 1024;

/// Error of a path, or a namespace, that ZooKeeper would refuse.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{BuildError, InterProcessMutex};
///
/// let error = InterProcessMutex::new(&client, "inventory/sku-42").unwrap_err();
/// let BuildError::InvalidPath(invalid) = &error else { panic!("{error}") };
/// assert_eq!(invalid.path(), "inventory/sku-42");
/// assert_eq!(
///     invalid.to_string(),
///     "invalid path \"inventory/sku-42\": it is relative; a path starts with `/`",
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Error)]
#[error("invalid path {path}: {reason}", path = Quoted(.path))]
pub struct InvalidPath {
    path: String,
    reason: &'static str,
}

impl InvalidPath {
    pub(crate) fn new(path: &str, reason: &'static str) -> Self {
        Self {
            path: path.to_owned(),
            reason,
        }
    }

    /// Returns the path as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns `false`: the path must be changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}

debug_as_text!(InvalidPath);

/// The path of a lock; [`segment`](Self::segment) makes a part of a path from data of unknown
/// content.
///
/// Constructors take the path as a string and check it. A path made from a customer's name, a file
/// name or a URL needs more than this check: a slash in the text would begin another level, and
/// `..` would be an error. `segment` escapes such text, so that each key has a separate path and no
/// key is refused. [`key`](Self::key) returns the key of a segment.
///
/// # Locks side by side, not inside each other
/// The children of a lock's path are its queue. A lock at `/inventory` and another at
/// `/inventory/sku-42` share a directory: the second lock's directory is a child of the first's.
/// This crate ignores that child with a warning. Curator waits for it indefinitely if its name sorts
/// before the numbers of lock nodes (`%2F`, `-1`). If its name ends like that of a lock node
/// (`lock-0000000007`), both treat it as a contender. So keep the locks in a separate directory,
/// whose own path is not the path of a lock: for example, a lock for each key at
/// `/inventory/items/<key>`, and a lock for all of them at `/inventory/all`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, LockPath};
///
/// // Untrusted input: text that a customer typed.
/// for key in ["sku-42", "3/4\" pipe", "..", "", "50 %", "\u{1f600}"] {
///     let path = format!("/inventory/items/{}", LockPath::segment(key));
///     let mutex = InterProcessMutex::new(&client, &path)?;
///     mutex.lock().await?.release().await?;
///
///     // For a page that lists the locks.
///     let (_, segment) = mutex.path().rsplit_once('/').ok_or("no segment")?;
///     assert_eq!(LockPath::key(segment)?, key);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockPath {
    /// The path of a directory that contains nodes of a lock: the user's path below the client's
    /// namespace, or a [subdirectory](Self::subdirectory) of that.
    server: Arc<str>,
    namespace: usize,
    /// The length of the part after the user's path.
    subdirectory: usize,
}

impl LockPath {
    /// Returns `key` as one segment of a path, with every character that is not allowed there
    /// escaped.
    ///
    /// As in a URL, a character is escaped as `%` and two hexadecimal digits for each byte of
    /// UTF-8. These characters are escaped: the slash, `%`, and those ZooKeeper refuses, which are
    /// control characters, U+E000 to U+F8FF, U+FFF0 to U+FFFF, and all characters above U+FFFF
    /// (such as emoji). The keys `.`, `..` and `zookeeper` are escaped as a whole, and the empty
    /// key is `%`. Different keys have different segments, and all other characters are unchanged.
    /// Segments are case-sensitive, as ZooKeeper's paths are.
    ///
    /// The segment is at most three times as long as the key. A path may have at most 16 KiB
    /// including the namespace, beyond which constructors return
    /// [`BuildError::InvalidPath`](crate::BuildError::InvalidPath): keys of up to 5,000 bytes
    /// always fit. For a longer key, use a digest of it.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_recipes::LockPath;
    ///
    /// assert_eq!(LockPath::segment("sku-42"), "sku-42");
    /// assert_eq!(LockPath::segment("Müller & Söhne"), "Müller & Söhne");
    /// assert_eq!(LockPath::segment("a/b"), "a%2Fb");
    /// assert_eq!(LockPath::segment(".."), "%2E%2E");
    /// assert_eq!(LockPath::segment("100%"), "100%25");
    /// assert_eq!(LockPath::segment(""), "%");
    /// ```
    #[doc(alias = "escape")]
    #[doc(alias = "urlencode")]
    #[must_use]
    pub fn segment(key: &str) -> String {
        path_segment::escape(key)
    }

    /// Returns the path of the lock of a key.
    pub(crate) fn keyed(prefix: &str, key: &dyn fmt::Display) -> String {
        format!("{prefix}/{}", Self::segment(&key.to_string()))
    }

    /// Returns the key from which [`segment`](Self::segment) made this segment.
    ///
    /// # Errors
    /// [`InvalidPath`] if `segment` never returns this text: if it contains a slash, a `%` that
    /// does not begin an escape, or an unnecessary escape. So two segments never have the same key.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_recipes::LockPath;
    ///
    /// assert_eq!(LockPath::key("a%2Fb")?, "a/b");
    /// assert!(LockPath::key("a/b").is_err());
    /// # Ok::<(), zookeeper_recipes::InvalidPath>(())
    /// ```
    #[doc(alias = "unescape")]
    #[doc(alias = "urldecode")]
    pub fn key(segment: &str) -> Result<String, InvalidPath> {
        let unescaped = path_segment::unescape(segment);
        // Only the canonical form of a key is accepted.
        unescaped
            .filter(|key| path_segment::escape(key) == segment)
            .ok_or_else(|| {
                InvalidPath::new(
                    segment,
                    "it is no segment that `LockPath::segment` makes from a key",
                )
            })
    }

    /// Checks the user's `path`, and prepends `namespace` (empty, or a valid path).
    pub(crate) fn parse(namespace: &str, path: &str) -> Result<Self, InvalidPath> {
        let refuse = |reason| Err(InvalidPath::new(path, reason));
        if let Some(reason) = problem(path) {
            return refuse(reason);
        }
        if path == "/" {
            return refuse("the root cannot be a lock; name a node below it");
        }
        if namespace.is_empty() && (path == "/zookeeper" || path.starts_with("/zookeeper/")) {
            return refuse("`/zookeeper` is reserved for the server itself");
        }
        if namespace.len() + path.len() > MAX_PATH_BYTES {
            return refuse("it is longer than 16 KiB");
        }
        let server = format!("{namespace}{path}").into();
        Ok(Self {
            server,
            namespace: namespace.len(),
            subdirectory: 0,
        })
    }

    /// Returns the path of a recipe's subdirectory below the user's path. Errors and guards still
    /// show the user's path.
    pub(crate) fn subdirectory(&self, name: &str) -> Self {
        Self {
            server: self.child(name).into(),
            namespace: self.namespace,
            subdirectory: self.subdirectory + 1 + name.len(),
        }
    }

    /// Returns the path of the directory on the servers, namespace included.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the path as the user gave it, without the namespace.
    pub(crate) fn user(&self) -> &str {
        &self.server[self.namespace..self.server.len() - self.subdirectory]
    }

    /// Returns the path of the directory without the namespace; that of a subdirectory includes its
    /// name.
    pub(crate) fn whole(&self) -> &str {
        &self.server[self.namespace..]
    }

    /// Returns the path of a child of this directory on the servers.
    pub(crate) fn child(&self, name: &str) -> String {
        // Each request builds such a path, and `format!` would be slower.
        [&*self.server, "/", name].concat()
    }

    /// Returns the path of a child of this directory, a lock node, without the namespace.
    pub(crate) fn user_child(&self, name: &str) -> NodePath {
        NodePath([self.whole(), "/", name].concat().into())
    }

    /// Returns the path of a lock node on the servers without the namespace.
    pub(crate) fn to_user(&self, server: &str) -> NodePath {
        NodePath(server.get(self.namespace..).unwrap_or(server).into())
    }
}

/// Returns the name of the node at a path.
pub(crate) fn node_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns the path of the directory above a node.
pub(crate) fn above(path: &str) -> &str {
    path.rsplit_once('/')
        .map_or("/", |(above, _)| if above.is_empty() { "/" } else { above })
}

impl fmt::Debug for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.server)
    }
}

/// The path of a lock node, which belongs to a guard or to a contender in a lock's queue.
///
/// Such a node lies directly below the path of its lock, and its name ends with the number that
/// ZooKeeper gave it: `/inventory/sku-42/_c_6f1c52de-1b0a-4f43-8a5a-3fd0c5b8f2a1-lock-0000000007`.
/// Such a path does not include the client's [namespace](crate::ClientBuilder::namespace).
///
/// A guard's [`node`](crate::LockGuard::node) and a lock's
/// [`participants`](crate::InterProcessMutex::participants) return them, and
/// [`Client::attempt_revoke`](crate::Client::attempt_revoke) takes a `NodePath`, so that the path
/// of the lock itself cannot be passed by mistake. A `NodePath` dereferences to `str` and can be
/// compared with strings for equality. It has no order, because the order of the texts is not the
/// order of the queue.
///
/// # Examples
/// ```
/// use zookeeper_recipes::NodePath;
///
/// let node: NodePath = "/inventory/sku-42/lock-0000000007".parse()?;
/// assert_eq!(node, "/inventory/sku-42/lock-0000000007");
/// assert_eq!(node.lock_path(), "/inventory/sku-42");
/// assert_eq!(node.name(), "lock-0000000007");
///
/// // The path of a lock is not the path of a node in its queue.
/// assert!("/inventory/sku-42".parse::<NodePath>().is_err());
/// # Ok::<(), zookeeper_recipes::InvalidPath>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NodePath(Arc<str>);

impl NodePath {
    /// Returns the path as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path of the lock in whose queue the node is.
    #[must_use]
    pub fn lock_path(&self) -> &str {
        self.parts().0
    }

    /// Returns the name of the node, which is the last part of its path.
    #[must_use]
    pub fn name(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }
}

impl FromStr for NodePath {
    type Err = InvalidPath;

    /// Parses the path of a lock node of any client or recipe.
    ///
    /// # Errors
    /// [`InvalidPath`] if ZooKeeper would refuse the path, or if its last part does not end with a
    /// number as ZooKeeper appends it.
    fn from_str(path: &str) -> Result<Self, InvalidPath> {
        if let Some(reason) = problem(path) {
            return Err(InvalidPath::new(path, reason));
        }
        match path.rsplit_once('/') {
            Some((lock, name)) if !lock.is_empty() && is_sequential(name) => Ok(Self(path.into())),
            _ => Err(InvalidPath::new(
                path,
                "it names no lock node, whose name ends with ten digits",
            )),
        }
    }
}

/// Returns whether a name ends with a number as ZooKeeper appends it: ten digits, or a sign and
/// nine or ten of them.
fn is_sequential(name: &str) -> bool {
    let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match name.len() - rest.len() {
        0..=8 => false,
        9 => rest.ends_with('-'),
        _ => true,
    }
}

impl Deref for NodePath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for NodePath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for NodePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&NodePath> for String {
    fn from(path: &NodePath) -> Self {
        path.0.as_ref().to_owned()
    }
}

impl From<NodePath> for String {
    fn from(path: NodePath) -> Self {
        Self::from(&path)
    }
}

macro_rules! compared_with_text {
    ($($text:ty),+) => {
        $(
            impl PartialEq<$text> for NodePath {
                fn eq(&self, other: &$text) -> bool {
                    let other: &str = other;
                    &*self.0 == other
                }
            }

            impl PartialEq<NodePath> for $text {
                fn eq(&self, other: &NodePath) -> bool {
                    other == self
                }
            }
        )+
    };
}

compared_with_text!(str, &str, String);

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Quoted(&self.0), f)
    }
}

/// Checks a namespace, which is empty or a path, and returns the prefix for all paths.
pub(crate) fn parse_namespace(namespace: &str) -> Result<String, InvalidPath> {
    let given = namespace.trim_start_matches('/');
    if given.is_empty() {
        return Ok(String::new());
    }
    let prefix = format!("/{given}");
    match problem(&prefix) {
        Some(reason) => Err(InvalidPath::new(namespace, reason)),
        None if prefix == "/zookeeper" || prefix.starts_with("/zookeeper/") => Err(
            InvalidPath::new(namespace, "`/zookeeper` is reserved for the server itself"),
        ),
        None => Ok(prefix),
    }
}

/// Returns why ZooKeeper would refuse `path`, or `None` if it would not. The rules are those of its
/// `PathUtils.validatePath`.
fn problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("it is empty; a path starts with `/`");
    }
    if !path.starts_with('/') {
        return Some("it is relative; a path starts with `/`");
    }
    if path.len() > 1 && path.ends_with('/') {
        return Some("it ends with `/`; leave the last one out");
    }
    if path == "/" {
        return None;
    }
    for part in path[1..].split('/') {
        match part {
            "" => return Some("it has an empty part (`//`)"),
            "." | ".." => {
                return Some("`.` and `..` have no meaning in ZooKeeper; write the path out");
            }
            _ => {}
        }
    }
    if path.chars().any(is_refused) {
        return Some("it has a control character, or another that ZooKeeper refuses in paths");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_zookeeper_accepts() {
        for path in [
            "/a",
            "/lock/lockId_111/111",
            "/a/.b/..c/d.",
            "/库存/sku-42",
            "/zookeeperx",
            "/a b",
        ] {
            let parsed = LockPath::parse("", path).unwrap();
            assert_eq!(parsed.server(), path);
            assert_eq!(parsed.user(), path);
        }
    }

    #[test]
    fn rejects_as_zookeeper_naming_the_path() {
        let long = format!("/{}", "x".repeat(MAX_PATH_BYTES));
        for path in [
            "",
            "a",
            "a/b",
            "/",
            "//",
            "//a",
            "/a//b",
            "/a/",
            "/./a",
            "/a/.",
            "/a/..",
            "/../a",
            "/a\0b",
            "/a\u{1}",
            "/a\n",
            "/a\u{7f}",
            "/a\u{85}",
            "/a\u{e000}",
            "/a\u{fff0}",
            "/a\u{1f600}",
            "/zookeeper",
            "/zookeeper/quota",
            &long,
        ] {
            let error = LockPath::parse("", path).unwrap_err();
            assert_eq!(error.path(), path);
            assert!(error.to_string().contains("invalid path"), "{error}");
        }
    }

    #[test]
    fn node_path_is_below_a_lock() {
        for path in [
            "/l/lock-0000000000",
            "/a/b/_c_x-__READ__-2147483648",
            "/a/lock--000000007",
        ] {
            let node: NodePath = path.parse().unwrap();
            assert_eq!(node, path);
            assert_eq!(format!("{}/{}", node.lock_path(), node.name()), path);
            assert_eq!(
                LockPath::parse("", node.lock_path())
                    .unwrap()
                    .user_child(node.name()),
                node
            );
        }
        for path in [
            "",
            "lock-0000000000",
            "l/lock-0000000000",
            "/lock-0000000000",
            "//lock-0000000000",
            "/l/lock-0000000000/",
            "/l/lock-00000000",
            "/l/lock-",
            "/l",
            "/",
        ] {
            assert_eq!(path.parse::<NodePath>().unwrap_err().path(), path);
        }
    }

    #[test]
    fn node_path_compares_with_strings() {
        let text = "/l/lock-0000000007";
        let node: NodePath = text.parse().unwrap();
        let owned = text.to_owned();
        assert!(node == *text && node == text && node == owned);
        assert!(*text == node && text == node && owned == node);
        assert_eq!(
            (
                String::from(node.clone()).as_str(),
                node.to_string().as_str()
            ),
            (text, text)
        );
        assert!(
            std::collections::HashSet::from([node]).contains(text),
            "its hash is that of the string"
        );
    }

    #[test]
    fn namespace_is_hidden() {
        for given in ["shop", "/shop"] {
            let namespace = parse_namespace(given).unwrap();
            let path = LockPath::parse(&namespace, "/stock").unwrap();
            assert_eq!(path.server(), "/shop/stock");
            assert_eq!(path.user(), "/stock");
            assert_eq!(path.to_user(&path.child("n")), "/stock/n");
        }
        assert_eq!(parse_namespace("").unwrap(), "");
        assert_eq!(parse_namespace("/").unwrap(), "");
        // Below a namespace `/zookeeper` is a node like any other.
        assert!(LockPath::parse("/shop", "/zookeeper").is_ok());
        for bad in ["a//b", "a/", "../a", "zookeeper", "/zookeeper/x"] {
            assert!(parse_namespace(bad).is_err(), "{bad}");
        }
    }
}
