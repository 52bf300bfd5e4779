//! The grammar of node names in a lock directory. Pure.
//!
//! ZooKeeper appends a sequence number to the name that a contender asked for, printed with Java's `%010d`: ten
//! digits, or a minus sign and nine or ten digits once the number has wrapped. What stands before the marker is
//! the contender's own business: Curator writes `_c_` and a UUID of 36 characters, go-zookeeper `_c_` and 32 hex
//! digits, others nothing at all.

/// The recipes that may share a directory because they sort each other the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Mutex, fair lock and multi-lock: nodes named `…lock-N`.
    Exclusive,
}

impl Family {
    /// What our own nodes have between the unique part and the sequence number.
    pub(crate) const fn marker(self) -> &'static str {
        match self {
            Self::Exclusive => "lock-",
        }
    }
}

/// Markers of recipes that queue in an order of their own: Curator's read-write lock, kazoo's locks.
const OTHER_ORDERS: [&str; 4] = ["__READ__", "__WRIT__", "__lock__", "__rlock__"];

/// What a child of a lock directory is, to contenders of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    /// It queues with us, by this number.
    Contender(i32),
    /// It queues, but in an order that does not exclude ours.
    OtherOrder,
    /// It is nothing that a lock recipe made: never waited for, never deleted.
    Stray,
}

/// Reads a child's name.
pub(crate) fn classify(name: &str, family: Family) -> Child {
    if let Some(sequence) = sequence_after(name, family.marker()) {
        Child::Contender(sequence)
    } else if OTHER_ORDERS.iter().any(|marker| sequence_after(name, marker).is_some()) {
        Child::OtherOrder
    } else {
        Child::Stray
    }
}

/// The sequence number of a name that ends with `marker` and a number as ZooKeeper prints it.
fn sequence_after(name: &str, marker: &str) -> Option<i32> {
    // Bytes, not characters: a name may be any UTF-8, and a cut in the middle of a character must not panic.
    let name = name.as_bytes();
    // Ten characters (digits, or a sign and nine digits) or eleven (a sign and ten digits).
    [10, 11].into_iter().find_map(|length| {
        let (head, number) = name.split_at_checked(name.len().checked_sub(length)?)?;
        head.ends_with(marker.as_bytes()).then(|| parse(number))?
    })
}

fn parse(number: &[u8]) -> Option<i32> {
    let (negative, digits) = match number {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
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
    // A number that no i32 holds was not made by ZooKeeper.
    i32::try_from(if negative { -value } else { value }).ok()
}

/// The name to ask the server for: Curator's, with a UUID that stands for one create request and no other.
pub(crate) fn prefix(id: &str, family: Family) -> String {
    format!("_c_{id}-{}", family.marker())
}

/// The UUID in a name that was asked for by [`prefix`].
pub(crate) fn id(name: &str) -> Option<&str> {
    /// The length of a UUID's usual form.
    const UUID: usize = 36;
    name.strip_prefix("_c_")?.get(..UUID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exclusive(name: &str) -> Child {
        classify(name, Family::Exclusive)
    }

    #[test]
    fn curator_go_and_bare_names_are_contenders() {
        for (name, sequence) in [
            ("_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-lock-0000000042", 42),
            ("_c_0123456789abcdef0123456789abcdef-lock-0000000042", 42),
            ("lock-0000000000", 0),
            ("_c_null-lock-2147483647", i32::MAX),
            ("_c_x-lock--000000001", -1),
            ("_c_x-lock--999999999", -999_999_999),
            ("_c_x-lock--1000000000", -1_000_000_000),
            ("_c_x-lock--2147483648", i32::MIN),
            ("锁lock-0000000007", 7),
        ] {
            assert_eq!(exclusive(name), Child::Contender(sequence), "{name}");
        }
    }

    #[test]
    fn other_orders_are_known_and_the_rest_is_stray() {
        for name in [
            "_c_x-__READ__0000000001",
            "_c_x-__WRIT__-000000001",
            "0123456789abcdef0123456789abcdef__lock__0000000003",
            "x__rlock__0000000003",
        ] {
            assert_eq!(exclusive(name), Child::OtherOrder, "{name}");
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
            "latch-0000000001",
            "锁锁锁锁",
            "lock-锁000000001",
            "0000000001",
            "-000000001",
        ] {
            assert_eq!(exclusive(name), Child::Stray, "{name}");
        }
    }

    #[test]
    fn the_id_of_an_own_name_is_found_again() {
        let uuid = "5f3b2a10-8c1d-4f6e-9a7b-0123456789ab";
        assert_eq!(id(&format!("{}0000000001", prefix(uuid, Family::Exclusive))), Some(uuid));
        for other in
            ["", "_c_", "lock-0000000001", "_c_short-lock-0000000001", "锁锁锁锁锁锁锁锁锁锁锁锁锁锁锁"]
        {
            assert_eq!(id(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn what_zookeeper_prints_is_read_back(sequence: i32, before in ".{0,40}") {
            // Java's %010d counts the sign, as Rust's {:010} does.
            let name = format!("{before}lock-{sequence:010}");
            prop_assert_eq!(exclusive(&name), Child::Contender(sequence));
        }

        #[test]
        fn no_name_panics(name in any::<String>(), tail in "[-0-9锁]{0,12}") {
            let _ = exclusive(&name);
            let _ = exclusive(&format!("{name}lock-{tail}"));
        }
    }
}
