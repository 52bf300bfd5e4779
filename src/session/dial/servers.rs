//! The connect string: the servers, and the namespace behind them.
//!
//! The connect string is parsed as the client library parses it, so that an address that the client
//! library would refuse or misread is refused before any connection, with the reason.
//!
//! The list that is passed to the client library contains each server several times. The client
//! library pauses after each pass over its list, longer each time, so a short list would be tried
//! only a few times while a session lives. One pass over a list that is long enough takes the
//! session timeout ([`Servers::repeated_list`]).

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use crate::values::shown::Quoted;

/// The unit of the client library's pauses. The first pass over its list has no pauses. In a later
/// pass, the pause before the address at index n is n halves of the unit. The pause before the
/// second pass is one unit for each address, up to ten, and doubles with each later pass. A random
/// part of less than a unit is added to each pause.
const PAUSE_UNIT: Duration = Duration::from_millis(100);

/// A longer list is of no use, because one pass over it takes more than an hour.
const MAX_ADDRESSES: u128 = 400;

/// A parsed connect string, `host:port[,host:port…][/path]`.
#[derive(Clone)]
pub(crate) struct Servers {
    /// The connect string as the user wrote it, for messages.
    pub(crate) given: String,
    /// The addresses without the path, as they were given.
    hosts: String,
    /// The path at the end. Java's client treats this path as a chroot; here it is a namespace, a
    /// prefix whose nodes are created when they are missing, because in a chroot that does not
    /// exist every request would fail.
    pub(crate) namespace: String,
    /// The servers, each once.
    pub(crate) addresses: Vec<Address>,
}

/// The address of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) given: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
}

impl Address {
    /// Parses an address as the client library does. The error says what is wrong with it.
    fn parse(given: &str) -> Result<Self, &'static str> {
        let (tls, address) = match given.split_once("://") {
            Some(("tcp", address)) => (false, address),
            Some(("tcp+tls", address)) => (true, address),
            Some(_) => return Err("its protocol is neither `tcp://` nor `tcp+tls://`"),
            None => (false, given),
        };
        if tls && !cfg!(feature = "tls") {
            return Err("`tcp+tls://` needs the feature `tls`");
        }
        // The path behind the last address was removed by `split`, so this path is behind another
        // address.
        if address.contains('/') {
            return Err("a path belongs at the end, behind the last address");
        }
        // The brackets belong to an IPv6 address, and separate its colons from that of the port.
        let (host, port) = match address.strip_prefix('[') {
            Some(rest) => {
                let Some((host, rest)) = rest.split_once(']') else {
                    return Err("its `[` is not closed");
                };
                match rest.strip_prefix(':') {
                    Some(port) => (host, port),
                    None if rest.is_empty() => (host, ""),
                    None => return Err("only a port may follow its `]`"),
                }
            }
            // The client library takes the part behind the last colon for the port, also of an IPv6
            // address without brackets.
            None => address.rsplit_once(':').unwrap_or((address, "")),
        };
        if host.is_empty() {
            return Err("it has no host");
        }
        if host.contains(':') {
            // A link-local address has a zone: the name or the number of an interface.
            let (ip, zone) = match host.split_once('%') {
                Some((ip, zone)) => (ip, Some(zone)),
                None => (host, None),
            };
            if ip.parse::<Ipv6Addr>().is_err() {
                return Err("it has more than one port, or is an IPv6 address without `[` and `]`");
            }
            if zone == Some("") {
                return Err("the zone behind its `%` is empty");
            }
        }
        if host.contains(char::is_whitespace) {
            return Err("it has a space in it; addresses are separated by commas");
        }
        // The client library would panic while it connects to such a host.
        #[cfg(feature = "tls")]
        if tls && rustls_pki_types::ServerName::try_from(host).is_err() {
            return Err(
                "its host is neither a DNS name nor an address, so no certificate can be for it",
            );
        }
        // The client library uses port 2181 for an address without a port.
        let port = if port.is_empty() {
            Ok(2181)
        } else {
            port.parse()
        };
        match port {
            Ok(port @ 1..) => Ok(Self {
                given: given.to_owned(),
                host: host.to_owned(),
                port,
                tls,
            }),
            _ => Err("its port is not a number from 1 to 65535"),
        }
    }
}

impl Servers {
    /// Parses a connect string. The error says what is wrong with it.
    pub(crate) fn parse(given: &str) -> Result<Self, String> {
        let (hosts, namespace) = split(given.trim());
        let hosts: Vec<&str> = hosts.split(',').map(str::trim).collect();
        if hosts == [""] {
            return Err("it has no address".to_owned());
        }
        let mut addresses = Vec::with_capacity(hosts.len());
        for (i, host) in hosts.iter().enumerate() {
            let number = i + 1;
            if host.is_empty() {
                return Err(format!("address {number} of {} is empty", hosts.len()));
            }
            let address = Address::parse(host);
            let address = address
                .map_err(|reason| format!("address {number}, {}: {reason}", Quoted(host)))?;
            // A server that is listed twice is asked once for its failure. The list for the client
            // library keeps both entries.
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(Self {
            given: given.to_owned(),
            hosts: hosts.join(","),
            namespace: namespace.to_owned(),
            addresses,
        })
    }

    /// Returns the same servers, all of them to be connected by TLS. The error names the server
    /// that cannot be.
    #[cfg(feature = "tls")]
    pub(crate) fn by_tls(&self) -> Result<Self, String> {
        let (hosts, namespace) = split(self.given.trim());
        let mut secure = Vec::new();
        for host in hosts.split(',').map(str::trim) {
            match host.split_once("://") {
                // The client library connects without TLS to an address without a scheme.
                None => secure.push(format!("tcp+tls://{host}")),
                Some(("tcp", _)) => {
                    let reason = "the client has TLS options, and does not connect by `tcp://`";
                    return Err(format!("{}: {reason}", Quoted(host)));
                }
                Some(_) => secure.push(host.to_owned()),
            }
        }
        let parsed = Self::parse(&(secure.join(",") + namespace))?;
        Ok(Self {
            given: self.given.clone(),
            ..parsed
        })
    }

    /// Returns the list of servers, repeated several times. `zookeeper-client` pauses longer after
    /// each full pass over its list, up to many seconds, and a little longer after each try within
    /// a pass, except the first pass. The list is long enough that one pass takes a session
    /// timeout, and short enough that the pause before the pass takes at most half of that
    /// (docs/protocol.md#reconnect).
    pub(crate) fn repeated_list(&self, session_timeout: Duration) -> String {
        // The client library shuffles its list, which spreads the repetitions of each server over a
        // pass.
        let times = addresses_per_pass(session_timeout).div_ceil(self.hosts.split(',').count());
        vec![&*self.hosts; times].join(",")
    }
}

/// Returns how many addresses the list of servers needs: with n addresses the pause before the
/// second pass is at most n units, and that pass takes n²/4 units.
fn addresses_per_pass(session_timeout: Duration) -> usize {
    let units = session_timeout.as_millis() / PAUSE_UNIT.as_millis();
    // The first bound keeps the pause before a pass, of at most n units, within half of the session
    // timeout. The second bound lets a pass take about the session timeout.
    let n = (units / 2)
        .min(units.saturating_mul(4).isqrt())
        .clamp(1, MAX_ADDRESSES);
    usize::try_from(n).unwrap_or(1)
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.given, f)
    }
}

/// Separates the addresses from the path. An address may begin with `tcp://`, whose slashes do not
/// begin the path.
fn split(given: &str) -> (&str, &str) {
    // A path is allowed only behind the last address.
    let last = given.rfind(',').unwrap_or(0);
    let address = given[last..]
        .find("://")
        .map_or(last, |scheme| last + scheme + 3);
    match given[address..].find('/') {
        Some(slash) => given.split_at(address + slash),
        None => (given, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses_and_namespace() {
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
            assert_eq!(servers.given, given);
            assert!(
                servers.repeated_list(TEN_SECONDS).starts_with(hosts),
                "{given}"
            );
            assert_eq!(servers.namespace, namespace);
            assert_eq!(format!("{servers:?}"), format!("{given:?}"));
        }
    }

    const TEN_SECONDS: Duration = Duration::from_secs(10);

    // Shows: reconnect
    #[test]
    fn server_list_lasts_a_session_timeout() {
        let count = |given, ms| {
            let list = Servers::parse(given)
                .unwrap()
                .repeated_list(Duration::from_millis(ms));
            list.split(',').count()
        };
        for (session_timeout, addresses) in [
            (0, 1),
            (500, 2),
            (2_000, 8),
            (6_000, 15),
            (15_000, 24),
            (30_000, 34),
            (120_000, 69),
            (u64::MAX, 400),
        ] {
            assert_eq!(
                count("a:1", session_timeout),
                addresses,
                "{session_timeout} ms"
            );
        }
        assert_eq!(count("a:1,b:1,c:1", 500), 3);
        assert_eq!(count("a:1,b:1,c:1", 30_000), 36);
        assert_eq!(count("a:1,b:1,c:1,d:1,e:1", 30_000), 35);
    }

    /// When a client library whose list has `n` addresses tries servers that refuse it at once,
    /// from the loss of the connection on, with its longest random delays: a model of
    /// `IterableEndpoints` in its `endpoint.rs`, which `retry_pauses_are_as_documented`
    /// in `tests/upstream.rs` watches.
    fn tries(n: u32) -> impl Iterator<Item = Duration> {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let mut at = Duration::ZERO;
        (0..)
            .flat_map(move |pass: u32| (0..n).map(move |k| (pass, k)))
            .map(move |(pass, k)| {
                at += match (pass, k) {
                    (0, _) => Duration::ZERO,
                    (_, 0) => ms(1_000.min(100 * n) * 2_u32.pow(pass - 1) + 100),
                    (_, k) => ms(50 * k + 50),
                };
                at
            })
    }

    /// The client library reconnects while the session lives, whenever the servers become
    /// reachable.
    // Shows: reconnect
    #[test]
    fn library_pause_fits_session_timeout() {
        for (session_timeout, longest) in [
            (500, 500),
            (1_000, 600),
            (2_000, 900),
            (6_000, 1_100),
            (15_000, 1_200),
            (30_000, 1_700),
            (120_000, 3_450),
        ] {
            let session_timeout = Duration::from_millis(session_timeout);
            let n = addresses_per_pass(session_timeout);
            let tries: Vec<Duration> = tries(u32::try_from(n).unwrap())
                .scan(false, |is_over, at| {
                    (!std::mem::replace(is_over, at > session_timeout)).then_some(at)
                })
                .collect();
            let pauses = tries.windows(2).map(|pair| pair[1] - pair[0]);
            assert_eq!(
                pauses.max(),
                Some(Duration::from_millis(longest)),
                "{session_timeout:?}"
            );
        }
    }

    #[test]
    fn tls_needs_its_feature() {
        assert_eq!(
            Servers::parse("tcp+tls://a:1").is_ok(),
            cfg!(feature = "tls")
        );
    }

    #[test]
    #[cfg(feature = "tls")]
    fn tls_is_for_all_or_none() {
        let servers = Servers::parse("a:1, tcp+tls://b:2,[::1]:3/shop")
            .unwrap()
            .by_tls()
            .unwrap();
        assert_eq!(servers.given, "a:1, tcp+tls://b:2,[::1]:3/shop");
        assert!(
            servers
                .repeated_list(TEN_SECONDS)
                .starts_with("tcp+tls://a:1,tcp+tls://b:2,tcp+tls://[::1]:3,tcp+tls://a:1")
        );
        assert_eq!(servers.namespace, "/shop");
        assert!(servers.addresses.iter().all(|address| address.tls));
        for (given, wrong) in [
            (
                "a:1,tcp://b:2",
                "\"tcp://b:2\": the client has TLS options, and does not connect by `tcp://`",
            ),
            (
                "a:1,zk!1:2",
                "address 2, \"tcp+tls://zk!1:2\": its host is neither a DNS name nor an address, so no certificate can be for it",
            ),
            ("a b:1", ""),
        ] {
            match Servers::parse(given) {
                Ok(servers) => {
                    assert_eq!(servers.by_tls().err().as_deref(), Some(wrong), "{given}");
                }
                Err(_) => assert_eq!(wrong, "", "{given}"),
            }
        }
    }

    #[test]
    fn address_errors_name_the_address() {
        for (given, wrong) in [
            (
                "a:1,b:port,c:3",
                "address 2, \"b:port\": its port is not a number from 1 to 65535",
            ),
            (
                "a:1,b:0",
                "address 2, \"b:0\": its port is not a number from 1 to 65535",
            ),
            (
                "a:70000",
                "address 1, \"a:70000\": its port is not a number from 1 to 65535",
            ),
            ("a:1,,b:2", "address 2 of 3 is empty"),
            ("a:1,:2181", "address 2, \":2181\": it has no host"),
            (
                "http://a:1",
                "address 1, \"http://a:1\": its protocol is neither `tcp://` nor `tcp+tls://`",
            ),
            (
                "a:1/shop,b:1",
                "address 1, \"a:1/shop\": a path belongs at the end, behind the last address",
            ),
            (
                "a:1 b:2",
                "address 1, \"a:1 b:2\": it has more than one port, or is an IPv6 address without `[` and `]`",
            ),
            (
                "a b:2",
                "address 1, \"a b:2\": it has a space in it; addresses are separated by commas",
            ),
            (
                "[::1:2181",
                "address 1, \"[::1:2181\": its `[` is not closed",
            ),
            (
                "[::1]2181",
                "address 1, \"[::1]2181\": only a port may follow its `]`",
            ),
            (
                "[fe80::1%]:2181",
                "address 1, \"[fe80::1%]:2181\": the zone behind its `%` is empty",
            ),
            (
                "[fe80:1%lo]:2181",
                "address 1, \"[fe80:1%lo]:2181\": it has more than one port, or is an IPv6 address without `[` and `]`",
            ),
            ("", "it has no address"),
        ] {
            assert_eq!(
                Servers::parse(given).err().as_deref(),
                Some(wrong),
                "{given}"
            );
        }
        let given = "tcp://a, [::1]:7, [::2], a:2181, fe80::1:9, [fe80::1%eth0]:5, [fe80::1%2]/x";
        let servers = Servers::parse(given).unwrap();
        let shown = |address: &Address| (address.host.clone(), address.port);
        let wanted = [
            ("a", 2181),
            ("::1", 7),
            ("::2", 2181),
            ("a", 2181),
            ("fe80::1", 9),
            ("fe80::1%eth0", 5),
            ("fe80::1%2", 2181),
        ];
        assert!(
            servers
                .addresses
                .iter()
                .map(shown)
                .eq(wanted.map(|(host, port)| (host.to_owned(), port)))
        );
    }

    #[test]
    fn rejects_an_empty_server_list() {
        for bad in [
            "",
            " ",
            "a:1,",
            ",a:1",
            "a:1,,b:1",
            "/shop",
            "a:1/shop,b:1",
            "tcp://a:1/x,b:1",
        ] {
            assert!(Servers::parse(bad).is_err(), "{bad:?}");
        }
    }
}
