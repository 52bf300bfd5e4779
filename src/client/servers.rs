//! The connect string.

use std::fmt;

/// Fewer addresses than this are repeated: see [`Servers::repeated`].
const ADDRESSES_PER_PASS: usize = 15;

/// ZooKeeper's connect string, `host:port[,host:port…][/path]`, taken apart.
#[derive(Clone)]
pub(crate) struct Servers {
    given: String,
    repeated: String,
    namespace: String,
}

impl Servers {
    /// Takes a connect string apart, or says what is wrong with it.
    pub(crate) fn parse(given: &str) -> Result<Self, &'static str> {
        let (hosts, namespace) = split(given.trim());
        let hosts: Vec<&str> = hosts.split(',').map(str::trim).collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err(if hosts.len() == 1 { "it is empty" } else { "it has an empty address" });
        }
        let slash = |host: &&str| host.split_once("://").map_or(*host, |(_, host)| host).contains('/');
        if hosts.iter().any(slash) {
            return Err("a path belongs at the end, behind the last address");
        }
        if !cfg!(feature = "tls") && hosts.iter().any(|host| host.starts_with("tcp+tls://")) {
            return Err("`tcp+tls://` needs the feature `tls`");
        }
        let times = ADDRESSES_PER_PASS.div_ceil(hosts.len()).max(5);
        let once = hosts.join(",");
        Ok(Self {
            given: given.to_owned(),
            repeated: vec![once; times].join(","),
            namespace: namespace.to_owned(),
        })
    }

    /// As the user wrote it, for messages.
    pub(crate) fn given(&self) -> &str {
        &self.given
    }

    /// The path at the end, which Java's client would make the root of everything. Here it is a namespace: a
    /// prefix, whose nodes are created when they are missing, where a chroot that does not exist would fail
    /// every request.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The addresses several times over. `zookeeper-client` pauses longer and longer after each full pass over its
    /// list, up to many seconds, but at most 0.8 s within one: a list written out several times keeps the tries
    /// close together for the first seconds of an outage, when a lock can still be kept (review finding 10).
    pub(crate) fn repeated(&self) -> &str {
        &self.repeated
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.given, f)
    }
}

/// Divides the addresses from the path, minding that an address may begin with `tcp://`.
fn split(given: &str) -> (&str, &str) {
    let last = given.rfind(',').map_or(0, |comma| comma + 1);
    let address = given[last..].find("://").map_or(last, |scheme| last + scheme + 3);
    match given[address..].find('/') {
        Some(slash) => given.split_at(address + slash),
        None => (given, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_namespace() {
        for (given, hosts, namespace) in [
            ("a:1", "a:1", ""),
            ("a:1, b:2", "a:1,b:2", ""),
            ("a:1,b:2/shop/eu", "a:1,b:2", "/shop/eu"),
            ("tcp://a:1,tcp://b:2", "tcp://a:1,tcp://b:2", ""),
            ("tcp://a:1,tcp://b:2/shop", "tcp://a:1,tcp://b:2", "/shop"),
            ("[::1]:2181/x", "[::1]:2181", "/x"),
            ("a:1/", "a:1", "/"),
        ] {
            let servers = Servers::parse(given).unwrap();
            assert_eq!(servers.given(), given);
            assert!(servers.repeated().starts_with(hosts), "{given}");
            assert_eq!(servers.namespace(), namespace);
        }
    }

    #[test]
    fn the_list_is_repeated_so_that_a_pass_takes_seconds() {
        let count = |given| Servers::parse(given).unwrap().repeated().split(',').count();
        assert_eq!(count("a:1"), 15);
        assert_eq!(count("a:1,b:1,c:1"), 15);
        assert_eq!(count("a:1,b:1,c:1,d:1,e:1"), 25);
    }

    #[test]
    fn tls_needs_its_feature() {
        assert_eq!(Servers::parse("tcp+tls://a:1").is_ok(), cfg!(feature = "tls"));
    }

    #[test]
    fn nothing_to_connect_to_is_refused() {
        for bad in ["", " ", "a:1,", ",a:1", "a:1,,b:1", "/shop", "a:1/shop,b:1", "tcp://a:1/x,b:1"] {
            assert!(Servers::parse(bad).is_err(), "{bad:?}");
        }
    }
}
