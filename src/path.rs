//! Lock paths: checked once, in the constructor, so that nothing later fails because of an invalid one.

use std::fmt;
use std::sync::Arc;

use crate::error::InvalidPath;

/// The longest path accepted, in bytes, namespace included.
///
/// ZooKeeper sets no limit of its own below the 1 MiB of a whole request (`jute.maxbuffer`), but a session's
/// watched paths have to be sent again in one piece after a reconnect, and `zookeeper-client` 0.11.2 cannot do
/// that for more than 128 KiB. A path of this size leaves room for several watches.
pub(crate) const MAX_PATH_BYTES: usize = 16 * 1024;

/// The path of a lock's directory, under which its contenders queue: the user's path below the client's namespace.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LockPath {
    server: Arc<str>,
    namespace: usize,
}

impl LockPath {
    /// Checks the user's `path` and puts `namespace` (empty, or a valid path) in front.
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
        Ok(Self { server: format!("{namespace}{path}").into(), namespace: namespace.len() })
    }

    /// Returns the path at the servers, namespace included.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the path as the user gave it, without the namespace.
    pub(crate) fn user(&self) -> &str {
        &self.server[self.namespace..]
    }

    /// Returns the path of a child of this directory at the servers.
    pub(crate) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.server)
    }

    /// Returns the path of a child of this directory, without the namespace.
    pub(crate) fn user_child(&self, name: &str) -> String {
        format!("{}/{name}", self.user())
    }

    /// Returns a path at the servers without the namespace.
    pub(crate) fn to_user<'a>(&self, server: &'a str) -> &'a str {
        server.get(self.namespace..).unwrap_or(server)
    }
}

impl fmt::Debug for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.server)
    }
}

/// Checks a namespace, which is empty or a path, and returns the prefix of every path.
pub(crate) fn parse_namespace(namespace: &str) -> Result<String, InvalidPath> {
    let given = namespace.trim_start_matches('/');
    if given.is_empty() {
        return Ok(String::new());
    }
    let prefix = format!("/{given}");
    match problem(&prefix) {
        Some(reason) => Err(InvalidPath::new(namespace, reason)),
        None if prefix == "/zookeeper" || prefix.starts_with("/zookeeper/") => {
            Err(InvalidPath::new(namespace, "`/zookeeper` is reserved for the server itself"))
        }
        None => Ok(prefix),
    }
}

/// Returns why ZooKeeper would refuse `path`, `None` if it would not. The rules are those of its
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
            "." | ".." => return Some("`.` and `..` have no meaning in ZooKeeper; write the path out"),
            _ => {}
        }
    }
    let refused = |c: char| matches!(u32::from(c), 0x0000..=0x001f | 0x007f..=0x009f | 0xd800..=0xf8ff | 0xfff0..=0xffff);
    if path.chars().any(refused) {
        return Some("it has a control character, or another that ZooKeeper refuses in paths");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_zookeeper_accepts() {
        for path in ["/a", "/lock/lockId_111/111", "/a/.b/..c/d.", "/库存/sku-42", "/zookeeperx", "/a b"] {
            let parsed = LockPath::parse("", path).unwrap();
            assert_eq!(parsed.server(), path);
            assert_eq!(parsed.user(), path);
        }
    }

    #[test]
    fn refuses_what_zookeeper_refuses_and_names_the_path() {
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
    fn a_namespace_is_a_prefix_and_does_not_show() {
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
