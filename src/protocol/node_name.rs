//! The grammar of node names in a lock directory.
//!
//! A contender's name ends in a marker and a sequence number (docs/protocol.md#contenders).
//! ZooKeeper appends the number, printed with Java's `%010d`: ten digits, or a minus sign and nine
//! or ten digits once the number has wrapped. The prefix before the marker depends on the client:
//! Curator writes `_c_` and a UUID of 36 characters, go-zookeeper `_c_` and 32 hex digits, kazoo 32
//! hex digits, others nothing.

/// The names of a lock's nodes, for processes that use another library on the same path.
///
/// All contenders of one path must use the same dialect: a contender that finds nodes of another
/// dialect is refused with [`MixedRecipes`](crate::ErrorKind::MixedRecipes).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{Dialect, InterProcessMutex};
///
/// let mutex = InterProcessMutex::builder(&client, "/jobs/nightly").dialect(Dialect::Kazoo).build()?;
/// let guard = mutex.lock().await?;
/// assert!(guard.node().contains("__lock__"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// The names of Apache Curator, and of go-zookeeper's mutex: `…lock-N`, `…__READ__N`,
    /// `…__WRIT__N`. The default.
    #[default]
    Curator,
    /// The names of kazoo (Python): `…__lock__N` for its `Lock` and `WriteLock`, `…__rlock__N` for
    /// its `ReadLock`.
    ///
    /// Kazoo creates a missing directory only once, so by default directories are persistent nodes
    /// instead of containers, and it reads the data of nodes as UTF-8.
    ///
    /// In kazoo 2.8 a `Lock` does not see readers: give mutexes and read-write locks separate
    /// paths, as here. Its `ReadLock` waits for every writer in the directory, even for those
    /// behind it, which wait for the reader (kazoo issue 649): use deadlines.
    Kazoo,
}

/// The recipes that may share a directory, because they order its contenders in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// Mutex and fair lock: every contender excludes every other.
    Exclusive,
    /// The leader latch: the same order by nodes of another name, so that the two do not exclude
    /// each other.
    Latch,
    /// Readers exclude writers only.
    ReadWrite,
}

/// The kind of lock that a contender requests (docs/protocol.md#read-write). The order decides
/// between equal sequence numbers, which only a downgrade makes: the reader is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// The contender holds the lock together with others of this kind: a reader.
    Shared,
    /// The contender holds the lock alone: a writer, a mutex.
    Exclusive,
}

/// How the contenders of a directory are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Naming {
    pub(crate) family: Family,
    pub(crate) dialect: Dialect,
}

/// All known markers. A contender whose marker is not one of its directory's family queues in
/// another order.
const MARKERS: [&str; 6] = [
    "lock-",
    "latch-",
    "__READ__",
    "__WRIT__",
    "__lock__",
    "__rlock__",
];

impl Naming {
    /// Returns the part between the unique part of a name and the sequence number.
    const fn marker(self, kind: Kind) -> &'static str {
        match (self.dialect, self.family, kind) {
            (Dialect::Curator, Family::Exclusive, _) => "lock-",
            // Kazoo has no leader latch, so Curator's marker serves for both dialects.
            (_, Family::Latch, _) => "latch-",
            (Dialect::Curator, Family::ReadWrite, Kind::Shared) => "__READ__",
            (Dialect::Curator, Family::ReadWrite, Kind::Exclusive) => "__WRIT__",
            (Dialect::Kazoo, Family::ReadWrite, Kind::Shared) => "__rlock__",
            (Dialect::Kazoo, ..) => "__lock__",
        }
    }

    /// Returns the kinds of contenders that the family has.
    const fn kinds(self) -> &'static [Kind] {
        match self.family {
            Family::Exclusive | Family::Latch => &[Kind::Exclusive],
            Family::ReadWrite => &[Kind::Shared, Kind::Exclusive],
        }
    }

    /// Returns the name for a sequential create. The id belongs to this one request
    /// (docs/protocol.md#one-id-per-create).
    pub(crate) fn prefix(self, id: &str, kind: Kind) -> String {
        match self.dialect {
            Dialect::Curator => ["_c_", id, "-", self.marker(kind)].concat(),
            Dialect::Kazoo => [id, self.marker(kind)].concat(),
        }
    }

    /// Returns the full name of the read node to which the write node `own` is downgraded: it has
    /// the number of `own`, and so its position in the queue. `None` if `own` is not the name of a
    /// write node.
    pub(crate) fn downgraded_name(self, own: &str, id: &str) -> Option<String> {
        let (_, sequence) = split(own, self.marker(Kind::Exclusive))?;
        Some(format!("{}{sequence:010}", self.prefix(id, Kind::Shared)))
    }
}

/// The role of a child of a lock directory for contenders of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    /// The child queues in the same order, by this number (docs/protocol.md#sequence-order).
    Contender { sequence: i32, kind: Kind },
    /// The child queues by this number, but in another order, which does not exclude contenders of
    /// this one (docs/protocol.md#mixed-recipes).
    OtherOrder { sequence: i32 },
    /// No lock recipe created the child, so no contender waits for it or deletes it.
    Foreign,
}

/// Classifies a child by its name.
pub(crate) fn classify(name: &str, naming: Naming) -> Child {
    // The markers of the own family come first, because another family may have an equal one:
    // kazoo's `Lock` and `WriteLock` do.
    for &kind in naming.kinds() {
        if let Some((_, sequence)) = split(name, naming.marker(kind)) {
            return Child::Contender { sequence, kind };
        }
    }
    match MARKERS.iter().find_map(|marker| split(name, marker)) {
        Some((_, sequence)) => Child::OtherOrder { sequence },
        None => Child::Foreign,
    }
}

/// Splits a name that ends in `marker` and a sequence number as ZooKeeper prints it. Returns the
/// part before the marker, and the number.
fn split<'a>(name: &'a str, marker: &str) -> Option<(&'a str, i32)> {
    // A sequence number has ten characters (digits, or a sign and nine digits) or eleven (a sign
    // and ten digits). A name may be any UTF-8, so the position may be inside a character.
    [10, 11].into_iter().find_map(|length| {
        let (head, number) = name.split_at_checked(name.len().checked_sub(length)?)?;
        Some((head.strip_suffix(marker)?, parse(number.as_bytes())?))
    })
}

/// Parses a number as Java's `%010d` prints it. Numbers of another length, which other programs may
/// have written, are not sequence numbers.
fn parse(number: &[u8]) -> Option<i32> {
    let (negative, digits) = match number {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // `%010d` counts the sign as one of the ten characters, so a negative number has nine digits,
    // or ten for -1,000,000,000 and below.
    if !matches!((negative, digits.len()), (false | true, 10) | (true, 9)) {
        return None;
    }
    let mut value = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    // ZooKeeper's counter is an `i32`, so a larger number is not a sequence number.
    i32::try_from(if negative { -value } else { value }).ok()
}

/// Returns the id in a name that was made by [`Naming::prefix`]: a UUID as Curator writes it, or as
/// kazoo does.
pub(crate) fn id(name: &str) -> Option<&str> {
    /// The lengths of a UUID with and without its hyphens.
    const UUID: usize = 36;
    const HEX: usize = 32;
    match name.strip_prefix("_c_") {
        Some(rest) => rest.get(..UUID),
        // Kazoo's names have no prefix, so the digits and the marker behind them must match.
        None => name.get(..HEX).filter(|id| {
            id.bytes().all(|byte| byte.is_ascii_hexdigit()) && name[HEX..].starts_with("__")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MUTEX: Naming = Naming {
        family: Family::Exclusive,
        dialect: Dialect::Curator,
    };
    const LATCH: Naming = Naming {
        family: Family::Latch,
        dialect: Dialect::Curator,
    };
    const READ_WRITE: Naming = Naming {
        family: Family::ReadWrite,
        dialect: Dialect::Curator,
    };
    const KAZOO: Naming = Naming {
        family: Family::Exclusive,
        dialect: Dialect::Kazoo,
    };
    const KAZOO_READ_WRITE: Naming = Naming {
        family: Family::ReadWrite,
        dialect: Dialect::Kazoo,
    };

    fn exclusive(name: &str) -> Child {
        classify(name, MUTEX)
    }

    fn writer(sequence: i32) -> Child {
        Child::Contender {
            sequence,
            kind: Kind::Exclusive,
        }
    }

    fn reader(sequence: i32) -> Child {
        Child::Contender {
            sequence,
            kind: Kind::Shared,
        }
    }

    // Shows: contenders
    #[test]
    fn curator_go_and_bare_names_contend() {
        for (name, sequence) in [
            (
                "_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-lock-0000000042",
                42,
            ),
            ("_c_0123456789abcdef0123456789abcdef-lock-0000000042", 42),
            ("lock-0000000000", 0),
            ("_c_null-lock-2147483647", i32::MAX),
            ("_c_x-lock--000000001", -1),
            ("_c_x-lock--999999999", -999_999_999),
            ("_c_x-lock--1000000000", -1_000_000_000),
            ("_c_x-lock--2147483648", i32::MIN),
            ("锁lock-0000000007", 7),
        ] {
            assert_eq!(exclusive(name), writer(sequence), "{name}");
        }
    }

    #[test]
    fn recognises_other_orders_and_foreign_names() {
        for name in [
            "_c_x-__READ__0000000001",
            "_c_x-__WRIT__-000000001",
            "0123456789abcdef0123456789abcdef__lock__0000000003",
            "x__rlock__0000000003",
            "_c_x-latch-0000000001",
            "latch-0000000001",
        ] {
            assert!(
                matches!(exclusive(name), Child::OtherOrder { .. }),
                "{name}"
            );
        }
        for name in [
            "",
            "0",
            "zzz",
            "lock-",
            "lock-1",
            "lock-000000001",
            "lock-00000000012",
            "lock-000000000x",
            "lock-+000000001",
            "lock-3000000000",
            "lock--3000000000",
            "lock-0000000001x",
            "_c_x-lease-0000000001",
            "latch-00000001",
            "锁锁锁锁",
            "lock-锁000000001",
            "0000000001",
            "-000000001",
        ] {
            assert_eq!(exclusive(name), Child::Foreign, "{name}");
        }
    }

    #[test]
    fn dialects_know_only_their_names() {
        let names = [
            "_c_x-lock-0000000007",
            "_c_x-__READ__0000000007",
            "_c_x-__WRIT__0000000007",
            "0123456789abcdef0123456789abcdef__lock__0000000007",
            "0123456789abcdef0123456789abcdef__rlock__0000000007",
            "_c_x-latch-0000000007",
        ];
        let (no, r, w) = (Child::OtherOrder { sequence: 7 }, reader(7), writer(7));
        for (naming, expected) in [
            (MUTEX, [w, no, no, no, no, no]),
            (LATCH, [no, no, no, no, no, w]),
            (READ_WRITE, [no, r, w, no, no, no]),
            (KAZOO, [no, no, no, w, no, no]),
            (KAZOO_READ_WRITE, [no, no, no, w, r, no]),
        ] {
            assert_eq!(
                names.map(|name| classify(name, naming)),
                expected,
                "{naming:?}"
            );
        }
    }

    // Shows: one-id-per-create
    #[test]
    fn id_of_own_name_is_found() {
        let uuid = "5f3b2a10-8c1d-4f6e-9a7b-0123456789ab";
        let hex = "5f3b2a108c1d4f6e9a7b0123456789ab";
        for naming in [MUTEX, LATCH, READ_WRITE, KAZOO, KAZOO_READ_WRITE] {
            let given = if naming.dialect == Dialect::Curator {
                uuid
            } else {
                hex
            };
            for &kind in naming.kinds() {
                let name = format!("{}0000000001", naming.prefix(given, kind));
                assert_eq!(id(&name), Some(given));
                assert_eq!(
                    classify(&name, naming),
                    Child::Contender { sequence: 1, kind }
                );
            }
        }
        for other in [
            "",
            "_c_",
            "lock-0000000001",
            "_c_short-lock-0000000001",
            "锁锁锁锁锁锁锁锁锁锁锁锁锁锁锁",
            hex,
            "5f3b2a108c1d4f6e9a7b0123456789a锁__lock__0000000001",
        ] {
            assert_eq!(id(other), None, "{other}");
        }
    }

    #[test]
    fn downgraded_node_keeps_the_number() {
        for (naming, read) in [
            (READ_WRITE, "_c_7a-__READ__0000000042"),
            (KAZOO_READ_WRITE, "7a__rlock__0000000042"),
        ] {
            let own = format!("{}0000000042", naming.prefix("5f3b", Kind::Exclusive));
            assert_eq!(naming.downgraded_name(&own, "7a").as_deref(), Some(read));
            assert_eq!(naming.downgraded_name(read, "7b"), None);
            assert_eq!(naming.downgraded_name("foreign", "7a"), None);
        }
    }

    proptest! {
        // Shows: contenders
        #[test]
        fn parses_zookeepers_sequence_format(sequence: i32, before in ".{0,40}") {
            // Java's %010d counts the sign, as Rust's {:010} does.
            let name = format!("{before}lock-{sequence:010}");
            prop_assert_eq!(exclusive(&name), writer(sequence));
        }

        // Shows: contenders
        #[test]
        fn no_name_panics(name in any::<String>(), tail in "[-0-9锁]{0,12}") {
            let _ = exclusive(&name);
            let _ = exclusive(&format!("{name}lock-{tail}"));
        }
    }
}
