//! The options of a lock: those a handle requests, and those all handles of a path share.

use std::sync::Arc;

use crate::error::BuildError;
use crate::protocol::node_name::{Dialect, Family, Naming};
use crate::protocol::path_state::HandOff;
use crate::values::options::{Acl, Credentials, MAX_DATA_BYTES, ParentNodes};
use crate::values::path::LockPath;

/// Which of the recipes a path lock serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Recipe {
    Mutex,
    FairLock,
    ReadWriteLock,
    /// The queue of a semaphore's contenders, a mutex in the directory [`LOCKS`] below its path.
    Semaphore,
    /// The participants of a leader latch's election.
    LeaderLatch,
}

/// The directory of a semaphore's queue, below its path; Curator's name.
pub(crate) const LOCKS: &str = "locks";
/// The directory of a semaphore's permits, below its path; Curator's name.
pub(crate) const LEASES: &str = "leases";
/// The node with a semaphore's limit, below its path, unless another is named.
pub(crate) const LIMIT: &str = "permits";

/// The most permits that a semaphore of this library has. A list of that many leases, of at most 79
/// bytes each with their lengths, is a reply that other clients can read too, with room to spare:
/// the limit of a Java client is 1 MiB. A semaphore whose leases cannot be listed grants nothing.
pub(crate) const MAX_PERMITS: u32 = 10_000;

impl Recipe {
    pub(crate) const ALL: [Self; 5] = [
        Self::Mutex,
        Self::FairLock,
        Self::ReadWriteLock,
        Self::Semaphore,
        Self::LeaderLatch,
    ];

    pub(crate) const fn family(self) -> Family {
        match self {
            Self::Mutex | Self::FairLock | Self::Semaphore => Family::Exclusive,
            Self::ReadWriteLock => Family::ReadWrite,
            Self::LeaderLatch => Family::Latch,
        }
    }

    /// Returns the option that limits how many contenders have a node: its name, default, maximum
    /// and range.
    const fn nodes(self) -> (&'static str, usize, usize, &'static str) {
        match self {
            Self::Mutex | Self::ReadWriteLock | Self::Semaphore | Self::LeaderLatch => {
                ("max_znodes", 64, 10_000, "it is between 1 and 10,000")
            }
            // Each waiter of a fair lock has a node from the beginning, and a directory with too
            // many children cannot be listed any more (docs/protocol.md#fair-waiters).
            Self::FairLock => ("max_waiters", 5_000, 15_000, "it is between 1 and 15,000"),
        }
    }
}

/// The options of one handle. Options that it leaves open are taken from the path lock, or are the
/// defaults.
#[derive(Clone, Default)]
pub(crate) struct RequestedOptions {
    pub(crate) node_limit: Option<usize>,
    pub(crate) data: Option<Arc<[u8]>>,
    pub(crate) acl: Option<Arc<[Acl]>>,
    pub(crate) parents: Option<ParentNodes>,
    pub(crate) dialect: Option<Dialect>,
    /// Of a mutex: how its attempts hand it over in memory.
    pub(crate) hand_off: Option<HandOff>,
    /// Of a semaphore: its limit, as this handle states it, and the path of the node with the limit
    /// in force, if that is not the usual one.
    pub(crate) permits: Option<u32>,
    pub(crate) shared_count: Option<String>,
}

/// The options of a path lock, which all handles of one client for one path and recipe share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockOptions {
    pub(crate) recipe: Recipe,
    /// How many contenders of the path lock may have a node.
    pub(crate) node_limit: usize,
    /// The data of its nodes; `None` if that is the identity of the client.
    pub(crate) data: Option<Arc<[u8]>>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) parents: ParentNodes,
    pub(crate) dialect: Dialect,
    /// How its attempts hand it over in memory.
    pub(crate) hand_off: HandOff,
    /// Of a semaphore only.
    pub(crate) semaphore: Option<SemaphoreOptions>,
}

/// The options of semaphores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreOptions {
    /// The limit that the handles state, which counts unless the node at `limit` exists.
    pub(crate) permits: u32,
    /// The path of the node with the limit in force.
    pub(crate) limit: LockPath,
    /// The directory of the permits' nodes.
    pub(crate) leases: LockPath,
}

impl LockOptions {
    pub(crate) fn naming(&self) -> Naming {
        Naming {
            family: self.recipe.family(),
            dialect: self.dialect,
        }
    }
}

/// Returns why ZooKeeper would refuse nodes with this ACL, or this client could not use them.
pub(crate) fn check_acl(acl: &[Acl], credentials: &Credentials) -> Result<(), &'static str> {
    if acl.is_empty() {
        return Err("it needs an entry: ZooKeeper refuses nodes without any");
    }
    if credentials.lack(acl) {
        return Err(
            "it is for credentials that the client does not have: call `ClientBuilder::auth`",
        );
    }
    Ok(())
}

impl RequestedOptions {
    /// Checks the values, and replaces options that were left open by their defaults. `path` is the
    /// user's path.
    pub(crate) fn resolve(
        &self,
        namespace: &str,
        path: &LockPath,
        recipe: Recipe,
        client_acl: &Arc<[Acl]>,
        credentials: &Credentials,
    ) -> Result<LockOptions, BuildError> {
        let invalid = |option, reason| {
            Err(BuildError::InvalidOption {
                path: path.user().to_owned(),
                option,
                reason,
            })
        };
        let (option, default, most, range) = recipe.nodes();
        let node_limit = self.node_limit.unwrap_or(default);
        if node_limit == 0 || node_limit > most {
            return invalid(option, range);
        }
        let data = self.data.clone();
        if data
            .as_ref()
            .is_some_and(|data| data.len() > MAX_DATA_BYTES)
        {
            return invalid(
                "data",
                "it is at most 1,000,000 bytes: ZooKeeper refuses requests over 1 MiB",
            );
        }
        let acl = self.acl.clone().unwrap_or_else(|| Arc::clone(client_acl));
        if let Err(reason) = check_acl(&acl, credentials) {
            return invalid("acl", reason);
        }
        if self
            .hand_off
            .is_some_and(|hand_off| hand_off.max == 0 || hand_off.time.is_zero())
        {
            return invalid(
                "hand_off",
                "both bounds are at least 1: with `hand_off(1, ..)` nothing is handed over",
            );
        }
        let dialect = self.dialect.unwrap_or_default();
        // Kazoo creates the directory once for each lock object, and fails if the servers have
        // deleted an empty container (docs/protocol.md#directories).
        let parents = self.parents.unwrap_or(match dialect {
            Dialect::Curator => ParentNodes::Container,
            Dialect::Kazoo => ParentNodes::Persistent,
        });
        let semaphore = match recipe {
            Recipe::Semaphore => Some(self.semaphore(namespace, path)?),
            _ => None,
        };
        Ok(LockOptions {
            recipe,
            node_limit,
            data,
            acl,
            parents,
            dialect,
            hand_off: self.hand_off.unwrap_or_default(),
            semaphore,
        })
    }

    fn semaphore(&self, namespace: &str, path: &LockPath) -> Result<SemaphoreOptions, BuildError> {
        // A semaphore has no default limit: without one, the limit is 0, which is refused.
        let permits = self.permits.unwrap_or_default();
        if !(1..=MAX_PERMITS).contains(&permits) {
            return Err(BuildError::InvalidOption {
                path: path.user().to_owned(),
                option: "limit",
                reason: "it is between 1 and 10,000",
            });
        }
        let limit = match &self.shared_count {
            Some(shared) => LockPath::parse(namespace, shared)?,
            None => path.subdirectory(LIMIT),
        };
        let leases = path.subdirectory(LEASES);
        let is_in = |directory: &LockPath| {
            let below = limit.server().strip_prefix(directory.server());
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        // A node in `leases` would count as a lease, and one in `locks` as a foreign child. The
        // directories themselves are containers, which the servers delete when they are empty.
        if limit.server() == path.server() || is_in(&leases) || is_in(&path.subdirectory(LOCKS)) {
            return Err(BuildError::InvalidOption {
                path: path.user().to_owned(),
                option: "shared_count",
                reason: "it is another node than the semaphore's own, and not in its directories `locks` and `leases`",
            });
        }
        Ok(SemaphoreOptions {
            permits,
            limit,
            leases,
        })
    }

    /// Returns whether a path lock with the options `path_lock` serves this handle too. The error
    /// is the option that differs.
    pub(crate) fn agrees_with(&self, path_lock: &LockOptions) -> Result<(), &'static str> {
        fn same<T: PartialEq + ?Sized>(asked: Option<&T>, path_lock: &T) -> bool {
            asked.is_none_or(|asked| asked == path_lock)
        }
        // The id of a participant is the data of its node (docs/protocol.md#election).
        let data = if path_lock.recipe == Recipe::LeaderLatch {
            "id"
        } else {
            "data"
        };
        let limit = path_lock
            .semaphore
            .as_ref()
            .map(|semaphore| semaphore.limit.whole());
        // The limit of a semaphore is not among these, because the error of a difference has both
        // limits.
        let options = [
            (
                path_lock.recipe.nodes().0,
                same(self.node_limit.as_ref(), &path_lock.node_limit),
            ),
            (data, self.data.is_none() || self.data == path_lock.data),
            ("acl", same(self.acl.as_ref(), &path_lock.acl)),
            ("parents", same(self.parents.as_ref(), &path_lock.parents)),
            ("dialect", same(self.dialect.as_ref(), &path_lock.dialect)),
            (
                "hand_off",
                same(self.hand_off.as_ref(), &path_lock.hand_off),
            ),
            (
                "shared_count",
                limit.is_none_or(|limit| same(self.shared_count.as_deref(), limit)),
            ),
        ];
        options
            .into_iter()
            .find(|(_, is_same)| !is_same)
            .map_or(Ok(()), |(option, _)| Err(option))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> LockPath {
        LockPath::parse("", "/l").unwrap()
    }

    fn open() -> Arc<[Acl]> {
        [Acl::open()].into()
    }

    #[test]
    fn defaults() {
        let options = RequestedOptions::default()
            .resolve("", &path(), Recipe::Mutex, &open(), &unknown())
            .unwrap();
        assert_eq!(options.node_limit, 64);
        assert_eq!(options.parents, ParentNodes::Container);
        assert_eq!(*options.acl, [Acl::open()]);
        assert_eq!(options.dialect, Dialect::Curator);
        let fair = RequestedOptions::default()
            .resolve("", &path(), Recipe::FairLock, &open(), &unknown())
            .unwrap();
        assert_eq!(fair.node_limit, 5_000);
        let kazoo = RequestedOptions {
            dialect: Some(Dialect::Kazoo),
            ..RequestedOptions::default()
        };
        let kazoo = kazoo
            .resolve("", &path(), Recipe::ReadWriteLock, &open(), &unknown())
            .unwrap();
        assert_eq!(
            (kazoo.parents, kazoo.node_limit),
            (ParentNodes::Persistent, 64)
        );
    }

    #[test]
    fn rejects_unworkable_values_by_name() {
        let bad = [
            (
                RequestedOptions {
                    node_limit: Some(0),
                    ..RequestedOptions::default()
                },
                "max_znodes",
            ),
            (
                RequestedOptions {
                    node_limit: Some(10_001),
                    ..RequestedOptions::default()
                },
                "max_znodes",
            ),
            (
                RequestedOptions {
                    data: Some(vec![0; 1_000_001].into()),
                    ..RequestedOptions::default()
                },
                "data",
            ),
            (
                RequestedOptions {
                    acl: Some([].into()),
                    ..RequestedOptions::default()
                },
                "acl",
            ),
        ];
        for (asked, name) in bad {
            match asked
                .resolve("", &path(), Recipe::Mutex, &open(), &unknown())
                .unwrap_err()
            {
                BuildError::InvalidOption { path, option, .. } => {
                    assert_eq!((&*path, option), ("/l", name));
                }
                other => panic!("{other}"),
            }
        }
    }

    /// Of a connector that may have credentials.
    fn unknown() -> Credentials {
        Credentials::new(false, &[], true)
    }

    #[test]
    fn creator_acl_needs_credentials() {
        let asked = RequestedOptions {
            acl: Some([Acl::creator_all()].into()),
            ..RequestedOptions::default()
        };
        for (credentials, good) in [
            (Credentials::new(true, &[], false), true),
            (unknown(), true),
            (Credentials::new(false, &[], false), false),
        ] {
            let resolved = asked.resolve("", &path(), Recipe::Mutex, &open(), &credentials);
            assert_eq!(resolved.is_ok(), good, "{:?}", credentials.exist);
            if let Err(error) = resolved {
                assert!(error.to_string().contains("ClientBuilder::auth"), "{error}");
            }
        }
    }

    // Shows: one-path-lock
    #[test]
    fn unset_options_never_conflict() {
        let path_lock = RequestedOptions {
            node_limit: Some(3),
            ..RequestedOptions::default()
        }
        .resolve("", &path(), Recipe::Mutex, &open(), &unknown())
        .unwrap();
        assert_eq!(RequestedOptions::default().agrees_with(&path_lock), Ok(()));
        assert_eq!(
            RequestedOptions {
                node_limit: Some(3),
                ..RequestedOptions::default()
            }
            .agrees_with(&path_lock),
            Ok(())
        );
        assert_eq!(
            RequestedOptions {
                node_limit: Some(4),
                ..RequestedOptions::default()
            }
            .agrees_with(&path_lock),
            Err("max_znodes")
        );
        let data = RequestedOptions {
            data: Some(b"x"[..].into()),
            ..RequestedOptions::default()
        };
        assert_eq!(data.agrees_with(&path_lock), Err("data"));
        let parents = RequestedOptions {
            parents: Some(ParentNodes::Persistent),
            ..RequestedOptions::default()
        };
        assert_eq!(parents.agrees_with(&path_lock), Err("parents"));
        let acl = RequestedOptions {
            acl: Some([Acl::creator_all()].into()),
            ..RequestedOptions::default()
        };
        assert_eq!(acl.agrees_with(&path_lock), Err("acl"));
    }
}
