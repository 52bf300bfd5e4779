//! Facts about a call that has ended, from the servers' log: whether a permission was denied to its
//! client, and whether another contender came.

/// An entry of the log, from the last one back.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// In milliseconds.
    pub at: u64,
    pub session: i64,
    pub path: &'a str,
    /// Whether it is a transaction on locks, of which the log names the first path: any may be in
    /// it.
    pub may_have_others: bool,
    /// Whether it is a node that was made.
    pub is_create: bool,
    /// Whether it is a deletion.
    pub is_delete: bool,
    /// Whether it is an answer that denies a permission.
    pub is_denied: bool,
    /// Whether it is a connection that was taken up.
    pub is_connect: bool,
}

/// The owner of a session, which may be unknown because the session ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Own,
    Others,
    Unknown,
}

/// Returns whether a session that may be the client's was denied something since then, at a path
/// with this prefix: the mutex of a counter is beside the counter.
pub fn denied<'a>(
    log: impl Iterator<Item = Entry<'a>>,
    path: &str,
    since: u64,
    whose: impl Fn(i64) -> Whose,
) -> bool {
    let mut log = log.take_while(|entry| entry.at >= since);
    log.any(|entry| {
        let is_there = entry.may_have_others || entry.path.starts_with(path);
        entry.is_denied && is_there && whose(entry.session) != Whose::Others
    })
}

/// For how long a deleted node may keep the next call of its client waiting, until the client knows
/// of the deletion.
const GOING_MS: u64 = 500;

/// Returns whether there was a node of another contender below a path since then. The client makes
/// this many nodes for the call. Further ones count as another contender's: they are of an earlier
/// call, or were made again because there was no answer. So do nodes that the client deletes, or
/// has just deleted.
pub fn came<'a>(
    log: impl Iterator<Item = Entry<'a>>,
    path: &str,
    since: u64,
    for_the_call: u32,
    whose: impl Fn(i64) -> Whose,
) -> bool {
    let mut own = 0;
    let is_there = |entry: &Entry<'_>| entry.may_have_others || is_below(entry.path, path);
    for entry in log
        .take_while(|entry| entry.at + GOING_MS >= since)
        .filter(is_there)
    {
        if entry.is_delete && whose(entry.session) != Whose::Others {
            return true;
        }
        if entry.is_create && entry.at >= since {
            own += u32::from(whose(entry.session) == Whose::Own);
            if own > for_the_call || whose(entry.session) != Whose::Own {
                return true;
            }
        }
    }
    false
}

/// Returns when a session that may be the client's was connected last, since then.
pub fn connected<'a>(
    log: impl Iterator<Item = Entry<'a>>,
    since: u64,
    whose: impl Fn(i64) -> Whose,
) -> Option<u64> {
    let mut log = log.take_while(|entry| entry.at >= since);
    log.find(|entry| entry.is_connect && whose(entry.session) != Whose::Others)
        .map(|entry| entry.at)
}

fn is_below(node: &str, path: &str) -> bool {
    node.strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose(session: i64) -> Whose {
        match session {
            1 => Whose::Own,
            2 => Whose::Others,
            _ => Whose::Unknown,
        }
    }

    fn entry(at: u64, session: i64, path: &str) -> Entry<'_> {
        Entry {
            at,
            session,
            path,
            may_have_others: false,
            is_create: false,
            is_delete: false,
            is_denied: false,
            is_connect: false,
        }
    }

    #[test]
    fn denial_counts_for_its_call_only() {
        let is_denied = |entry: Entry<'_>| {
            denied(
                [Entry {
                    is_denied: true,
                    ..entry
                }]
                .into_iter(),
                "/locks/p1",
                10,
                whose,
            )
        };
        assert!(is_denied(entry(10, 1, "/locks/p1")) && is_denied(entry(10, 3, "/locks/p1/a")));
        assert!(!is_denied(entry(10, 2, "/locks/p1")));
        assert!(is_denied(entry(10, 1, "/locks/p1-lock")) && !is_denied(entry(10, 1, "/locks/p2")));
        assert!(!is_denied(entry(9, 1, "/locks/p1")));
        assert!(is_denied(Entry {
            may_have_others: true,
            ..entry(10, 1, "/locks/p2")
        }));
        assert!(!denied(
            [entry(10, 1, "/locks/p1")].into_iter(),
            "/locks/p1",
            10,
            whose
        ));
    }

    #[test]
    fn last_connection_of_client_counts() {
        let connected = |since| {
            let log = [
                entry(14, 2, ""),
                entry(13, 1, ""),
                entry(12, 1, ""),
                entry(11, 3, ""),
            ];
            let log = log.map(|entry| Entry {
                is_connect: entry.at != 13,
                ..entry
            });
            super::connected(log.into_iter(), since, whose)
        };
        assert_eq!((connected(10), connected(13)), (Some(12), None));
    }

    #[test]
    fn only_nodes_of_other_calls_block() {
        let came = |entries: &[Entry<'_>]| {
            let created = entries.iter().map(|entry| Entry {
                is_create: true,
                ..*entry
            });
            came(created, "/locks/p1", 10, 1, whose)
        };
        let own = entry(12, 1, "/locks/p1/a");
        assert!(!came(&[]) && !came(&[own]));
        assert!(super::came(
            [Entry {
                is_create: true,
                ..own
            }]
            .into_iter(),
            "/locks/p1",
            10,
            0,
            whose
        ));
        assert!(came(&[own, own]));
        assert!(came(&[entry(12, 2, "/locks/p1/b")]) && came(&[entry(12, 3, "/locks/p1/b")]));
        assert!(!came(&[own, entry(9, 2, "/locks/p1/b")]));
        let gone = |at, session| {
            let gone = [Entry {
                is_delete: true,
                ..entry(at, session, "/locks/p1/a")
            }];
            super::came(gone.into_iter(), "/locks/p1", 1_000, 1, whose)
        };
        assert!(gone(1_000, 1) && gone(500, 1) && gone(500, 3) && !gone(499, 1) && !gone(1_000, 2));
        let elsewhere = entry(12, 2, "/locks/p2/b");
        assert!(
            !came(&[elsewhere])
                && came(&[Entry {
                    may_have_others: true,
                    ..elsewhere
                }])
        );
    }
}
