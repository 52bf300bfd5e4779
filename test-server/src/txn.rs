//! Transactions: the conditions and permissions of writes, and multis that are applied as a whole
//! or not at all.

use std::collections::HashSet;
use std::sync::Arc;

use crate::address::Network;
use crate::error::ServerError;
use crate::tree::{Node, NodeKind, Stamp, Tree, Undo, split};
use crate::wire::request::{Create, Write};
use crate::wire::{Acl, AskedAcl, AuthId, Stat, opcode};

pub(crate) const READ: i32 = 1;
pub(crate) const WRITE: i32 = 2;
pub(crate) const CREATE: i32 = 4;
pub(crate) const DELETE: i32 = 8;
pub(crate) const ADMIN: i32 = 16;

/// An access control list that was replaced, and the requests to which it still applies.
#[derive(Clone, Debug)]
pub(crate) struct OldAcl {
    pub(crate) path: String,
    pub(crate) acl: Arc<[Acl]>,
    /// The number of the first request that came after the list was replaced.
    pub(crate) until: u64,
}

/// The client that asks for a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    pub(crate) session: i64,
    pub(crate) ids: &'a [AuthId],
    /// Whether permissions are ignored, as for calls of the server's own methods.
    pub(crate) trusted: bool,
    /// Whether access control lists may have addresses of IPv6, as since 3.9.
    pub(crate) ipv6: bool,
    /// The lists that were replaced behind the request, which ZooKeeper does not notice in time.
    pub(crate) old: &'a [OldAcl],
}

impl<'a> Who<'a> {
    /// Returns a client with identities, of which `super` may do everything.
    pub(crate) fn client(session: i64, ids: &'a [AuthId]) -> Self {
        Self {
            session,
            ids,
            trusted: ids.iter().any(|id| id.scheme == "super"),
            ipv6: false,
            old: &[],
        }
    }

    /// Checks that the list to which a write of a node is held grants a permission.
    fn may(self, path: &str, node: &Node, wanted: i32) -> Result<(), ServerError> {
        let old = self.old.iter().find(|old| old.path == path);
        permit(self, old.map_or(&node.acl, |old| &old.acl), wanted)
    }
}

/// The effect of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Created(String, Stat),
    Deleted,
    Set(Stat),
    Checked,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Created,
    Deleted,
    Data,
    Acl,
}

/// A change of a node, with the lists that decide which watchers may learn of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) what: Happened,
    pub(crate) path: String,
    /// The node's data, if the change has set it.
    pub(crate) data: Option<Arc<[u8]>>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) parent_acl: Arc<[Acl]>,
}

impl Change {
    /// Describes a change of a node that exists now.
    pub(crate) fn of(tree: &Tree, what: Happened, path: &str) -> Self {
        let acl = |path| {
            tree.get(path)
                .map_or_else(|| Arc::from([]), |node| Arc::clone(&node.acl))
        };
        let parent_acl = acl(split(path).map_or("", |(parent, _)| parent));
        let sets = matches!(what, Happened::Created | Happened::Data);
        let data = tree
            .get(path)
            .filter(|_| sets)
            .and_then(|node| node.data.clone());
        Self {
            what,
            path: path.to_owned(),
            data,
            acl: acl(path),
            parent_acl,
        }
    }
}

/// Applies writes in order. If one fails, undoes all and returns its index.
pub(crate) fn apply(
    tree: &mut Tree,
    who: Who<'_>,
    writes: &[Write],
    at: Stamp,
) -> Result<(Vec<Effect>, Vec<Change>), (usize, ServerError)> {
    let mut effects = Vec::with_capacity(writes.len());
    let (mut changes, mut undos) = (Vec::new(), Vec::new());
    let mut transaction = Transaction {
        tree,
        who,
        at,
        ephemeral: HashSet::new(),
    };
    for (index, write) in writes.iter().enumerate() {
        match transaction.one(write) {
            Ok((effect, change, undo)) => {
                effects.push(effect);
                changes.extend(change);
                undos.extend(undo);
            }
            Err(error) => {
                while let Some(undo) = undos.pop() {
                    transaction.tree.undo(undo);
                }
                return Err((index, error));
            }
        }
    }
    Ok((effects, changes))
}

type Done = (Effect, Option<Change>, Option<Undo>);

/// A transaction that is being applied.
struct Transaction<'a> {
    tree: &'a mut Tree,
    who: Who<'a>,
    at: Stamp,
    /// Containers with the flag of an ephemeral node: ZooKeeper 3.9 takes them for one until the
    /// multi is applied.
    ephemeral: HashSet<String>,
}

impl Transaction<'_> {
    fn one(&mut self, write: &Write) -> Result<Done, ServerError> {
        let &mut Self {
            ref mut tree,
            who,
            at,
            ..
        } = self;
        match write {
            Write::Create(request) => self.create(request),
            Write::Delete { path, version } => self.delete(path, *version),
            Write::SetData {
                path,
                data,
                version,
            } => {
                validate(path)?;
                let node = tree.get(path).ok_or(ServerError::NoNode)?;
                who.may(path, node, WRITE)?;
                expect_version(*version, node.version)?;
                let undo = tree.set_data(path, data.clone(), at);
                let change = Change::of(tree, Happened::Data, path);
                Ok((Effect::Set(stat(tree, path)?), Some(change), undo))
            }
            Write::SetAcl { path, acl, version } => {
                validate(path)?;
                let acl = settle_acl(who, acl.as_deref())?;
                let node = tree.get(path).ok_or(ServerError::NoNode)?;
                who.may(path, node, ADMIN)?;
                expect_version(*version, node.aversion)?;
                let undo = tree.set_acl(path, acl);
                let change = Change::of(tree, Happened::Acl, path);
                Ok((Effect::Set(stat(tree, path)?), Some(change), undo))
            }
            Write::Check { path, version } => {
                validate(path)?;
                let node = tree.get(path).ok_or(ServerError::NoNode)?;
                who.may(path, node, READ)?;
                expect_version(*version, node.version)?;
                Ok((Effect::Checked, None, None))
            }
            Write::NullPath(create) => {
                if let Some(create) = create {
                    mode(create, who.session)?;
                }
                Err(ServerError::Marshalling)
            }
            Write::NullAcl => Err(ServerError::Marshalling),
        }
    }

    fn create(&mut self, request: &Create) -> Result<Done, ServerError> {
        let &mut Self {
            ref mut tree,
            who,
            at,
            ref mut ephemeral,
        } = self;
        let (kind, sequential) = mode(request, who.session)?;
        let (parent_path, _) = split(&request.path).ok_or(ServerError::BadArguments)?;
        if request.path.contains('\0') {
            return Err(ServerError::BadArguments);
        }
        let acl = settle_acl(who, request.acl.as_deref())?;
        let parent = tree.get(parent_path).ok_or(ServerError::NoNode)?;
        who.may(parent_path, parent, CREATE)?;
        let mut path = request.path.clone();
        if sequential {
            // The number is printed with Java's %010d: ten places, including the sign.
            path.push_str(&format!("{:010}", parent.creates));
        }
        validate(&path)?;
        if tree.get(&path).is_some() {
            return Err(ServerError::NodeExists);
        }
        if parent.owner() != 0 || ephemeral.contains(parent_path) {
            return Err(ServerError::NoChildrenForEphemerals);
        }
        if request.opcode == opcode::CREATE_CONTAINER && matches!(request.flags, 1 | 3) {
            ephemeral.insert(path.clone());
        }
        let undo = tree.create(&path, request.data.clone(), acl, kind, at);
        let stat = stat(tree, &path)?;
        let change = Change::of(tree, Happened::Created, &path);
        Ok((Effect::Created(path, stat), Some(change), undo))
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<Done, ServerError> {
        let &mut Self {
            ref mut tree,
            who,
            at,
            ref mut ephemeral,
        } = self;
        let special = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];
        let (parent_path, _) = split(path).ok_or(ServerError::BadArguments)?;
        if path.contains('\0') || special.contains(&path) {
            return Err(ServerError::BadArguments);
        }
        let parent = tree.get(parent_path).ok_or(ServerError::NoNode)?;
        who.may(parent_path, parent, DELETE)?;
        let node = tree.get(path).ok_or(ServerError::NoNode)?;
        expect_version(version, node.version)?;
        if !node.children.is_empty() {
            return Err(ServerError::NotEmpty);
        }
        let change = Change::of(tree, Happened::Deleted, path);
        ephemeral.remove(path);
        let undo = tree.delete(path, at.zxid);
        Ok((Effect::Deleted, Some(change), undo))
    }
}

/// Returns whether a create asks for a node with a time to live, and has none.
pub(crate) fn lacks_ttl(write: &Write) -> bool {
    let Write::Create(create) = write else {
        return false;
    };
    matches!(create.flags, 5 | 6) && create.opcode != opcode::CREATE_TTL
}

/// Returns the kind of node that a create asks for, and whether it is sequential.
fn mode(request: &Create, session: i64) -> Result<(NodeKind, bool), ServerError> {
    let (ephemeral, sequential) = match request.flags {
        0 | 4 | 5 => (false, false),
        1 => (true, false),
        2 | 6 => (false, true),
        3 => (true, true),
        _ => return Err(ServerError::BadArguments),
    };
    let ttl_wanted = request.flags >= 5;
    let ttl_valid = if ttl_wanted {
        (1..1 << 40).contains(&request.ttl)
    } else {
        request.ttl < 0
    };
    if !ttl_valid {
        return Err(ServerError::BadArguments);
    }
    // As in ZooKeeper, the opcode makes a container or a TTL node, and the flags an ephemeral one.
    let kind = match request.opcode {
        opcode::CREATE_CONTAINER => NodeKind::Container,
        opcode::CREATE_TTL if ttl_wanted => NodeKind::Ttl { ms: request.ttl },
        _ if ephemeral => NodeKind::Ephemeral { owner: session },
        _ => NodeKind::Persistent,
    };
    Ok((kind, sequential))
}

fn stat(tree: &Tree, path: &str) -> Result<Stat, ServerError> {
    tree.get(path).map(Node::stat).ok_or(ServerError::NoNode)
}

fn expect_version(expected: i32, actual: i32) -> Result<(), ServerError> {
    if expected == -1 || expected == actual {
        Ok(())
    } else {
        Err(ServerError::BadVersion)
    }
}

/// Checks a path by ZooKeeper's rules. They count UTF-16 units, as Java does, so no character
/// beyond the basic plane is valid.
pub(crate) fn validate(path: &str) -> Result<(), ServerError> {
    if path == "/" {
        return Ok(());
    }
    let parts = path.strip_prefix('/').ok_or(ServerError::BadArguments)?;
    let forbidden = |c: char| matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff | 0x1_0000..);
    if parts.split('/').any(|part| matches!(part, "" | "." | "..")) || parts.contains(forbidden) {
        return Err(ServerError::BadArguments);
    }
    Ok(())
}

/// Checks that an access control list grants one of the wanted permissions.
pub(crate) fn permit(who: Who<'_>, acl: &[Acl], wanted: i32) -> Result<(), ServerError> {
    let given = |entry: &Acl| {
        entry.perms & wanted != 0
            && (entry.id == AuthId::new("world", "anyone")
                || who.ids.iter().any(|id| covers(&entry.id, id)))
    };
    if who.trusted || acl.is_empty() || acl.iter().any(given) {
        Ok(())
    } else {
        Err(ServerError::NoAuth)
    }
}

fn covers(entry: &AuthId, id: &AuthId) -> bool {
    if entry.scheme != id.scheme {
        return false;
    }
    if entry.scheme != "ip" {
        return entry.id == id.id;
    }
    Network::read(&entry.id).is_some_and(|network| network.has(&id.id))
}

/// Returns whether an id of the scheme `digest` is `name:hash`. Colons behind it do not count.
fn is_digest(id: &str) -> bool {
    id.trim_end_matches(':').split(':').count() == 2
}

/// Returns whether ZooKeeper takes two entries for the same. It trips over a null in an entry when
/// it gets that far.
fn is_same(new: &AskedAcl, old: &AskedAcl) -> Result<bool, ServerError> {
    if new.perms != old.perms {
        return Ok(false);
    }
    let scheme = new.scheme.as_ref().ok_or(ServerError::Marshalling)?;
    if old.scheme.as_ref() != Some(scheme) {
        return Ok(false);
    }
    let id = new.id.as_ref().ok_or(ServerError::Marshalling)?;
    Ok(old.id.as_ref() == Some(id))
}

/// Returns a list without repeated entries.
fn distinct(acl: &[AskedAcl]) -> Result<Vec<&AskedAcl>, ServerError> {
    let mut distinct: Vec<&AskedAcl> = Vec::new();
    for entry in acl {
        let mut repeats = false;
        for old in &distinct {
            repeats = is_same(entry, old)?;
            if repeats {
                break;
            }
        }
        if !repeats {
            distinct.push(entry);
        }
    }
    Ok(distinct)
}

/// Checks an access control list of a client; returns it with `auth` replaced by the client's
/// identities.
fn settle_acl(who: Who<'_>, acl: Option<&[AskedAcl]>) -> Result<Arc<[Acl]>, ServerError> {
    let mut settled = Vec::new();
    for entry in distinct(acl.unwrap_or_default())? {
        let scheme = entry.scheme.as_deref().ok_or(ServerError::InvalidAcl)?;
        if scheme == "auth" {
            let before = settled.len();
            let mine = who.ids.iter().filter(|id| id.scheme == "digest");
            settled.extend(mine.map(|id| Acl {
                perms: entry.perms,
                id: id.clone(),
            }));
            if settled.len() == before {
                return Err(ServerError::InvalidAcl);
            }
            continue;
        }
        if !matches!(scheme, "world" | "digest" | "ip") {
            return Err(ServerError::InvalidAcl);
        }
        let id = entry.id.as_deref().ok_or(ServerError::Marshalling)?;
        let valid = match scheme {
            "world" => id == "anyone",
            "digest" => is_digest(id),
            _ => Network::read(id).is_some_and(|network| who.ipv6 || !network.is_v6()),
        };
        if !valid {
            return Err(ServerError::InvalidAcl);
        }
        settled.push(Acl {
            perms: entry.perms,
            id: AuthId::new(scheme, id),
        });
    }
    if settled.is_empty() {
        Err(ServerError::InvalidAcl)
    } else {
        Ok(settled.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANONYMOUS: Who<'_> = Who {
        session: 7,
        ids: &[],
        trusted: false,
        ipv6: false,
        old: &[],
    };

    fn anyone() -> Option<Vec<AskedAcl>> {
        Some(vec![AskedAcl::new(31, "world", "anyone")])
    }

    fn write() -> impl Strategy<Value = Write> {
        let path = || "/[ab](/[ab]){0,2}";
        prop_oneof![
            4 => (path(), 0..5i32).prop_map(|(path, flags)| {
                let opcode = if flags == 4 { opcode::CREATE_CONTAINER } else { opcode::CREATE };
                let acl = anyone();
                Write::Create(Create { opcode, path, data: None, acl, flags, ttl: -1 })
            }),
            2 => path().prop_map(|path| Write::Delete { path, version: -1 }),
            1 => path().prop_map(|path| Write::SetData { path, data: Some([1].into()), version: -1 }),
            1 => path().prop_map(|path| Write::SetAcl { path, acl: anyone(), version: -1 }),
            1 => (path(), -1..2i32).prop_map(|(path, version)| Write::Check { path, version }),
        ]
    }

    #[test]
    fn container_with_ephemeral_flag_stays_childless() {
        let create = |path: &str, opcode, flags| {
            Write::Create(Create {
                opcode,
                path: path.to_owned(),
                data: None,
                acl: anyone(),
                flags,
                ttl: -1,
            })
        };
        let child = || create("/a/b", opcode::CREATE2, 0);
        for flags in [1, 3] {
            let mut tree = Tree::new();
            let container = create("/a", opcode::CREATE_CONTAINER, flags);
            let made = apply(
                &mut tree,
                ANONYMOUS,
                std::slice::from_ref(&container),
                Stamp::default(),
            )
            .unwrap()
            .0;
            let Effect::Created(path, _) = &made[0] else {
                panic!("{made:?}")
            };
            let delete = Write::Delete {
                path: path.clone(),
                version: -1,
            };
            let below = create(&format!("{path}/b"), opcode::CREATE2, 0);
            assert!(
                apply(&mut tree, ANONYMOUS, &[below], Stamp::default()).is_ok(),
                "a container may have children"
            );
            let mut tree = Tree::new();
            let below = create(&format!("{path}/b"), opcode::CREATE2, 0);
            let refused = apply(
                &mut tree,
                ANONYMOUS,
                &[container.clone(), below],
                Stamp::default(),
            );
            assert_eq!(
                refused.unwrap_err(),
                (1, ServerError::NoChildrenForEphemerals)
            );
            let again = [container, delete, create("/a", opcode::CREATE2, 0), child()];
            assert!(apply(&mut tree, ANONYMOUS, &again, Stamp::default()).is_ok());
        }
    }

    proptest! {
        #[test]
        fn failed_multi_leaves_no_trace(
            before in proptest::collection::vec(write(), 0..20),
            multi in proptest::collection::vec(write(), 1..8),
        ) {
            let mut tree = Tree::new();
            let mut at = Stamp::default();
            for write in &before {
                at.zxid += 1;
                let _ = apply(&mut tree, ANONYMOUS, std::slice::from_ref(write), at);
            }
            let was = tree.clone();
            at.zxid += 1;
            match apply(&mut tree, ANONYMOUS, &multi, at) {
                Err((index, _)) => {
                    prop_assert!(index < multi.len());
                    prop_assert_eq!(tree, was);
                }
                Ok((effects, _)) => prop_assert_eq!(effects.len(), multi.len()),
            }
        }

        #[test]
        fn stat_numbers_count_changes(writes in proptest::collection::vec(write(), 0..60)) {
            let mut tree = Tree::new();
            let (mut created, mut deleted) = (0, 0);
            for (zxid, write) in writes.iter().enumerate() {
                let at = Stamp { zxid: zxid as i64 + 1, ..Stamp::default() };
                for change in apply(&mut tree, ANONYMOUS, std::slice::from_ref(write), at).map_or(vec![], |done| done.1) {
                    // The test counts the children of /a.
                    if split(&change.path).is_some_and(|(parent, _)| parent == "/a") {
                        created += i32::from(change.what == Happened::Created);
                        deleted += i32::from(change.what == Happened::Deleted);
                    }
                    if change.path == "/a" && matches!(change.what, Happened::Created | Happened::Deleted) {
                        (created, deleted) = (0, 0);
                    }
                }
                if let Some(node) = tree.get("/a") {
                    prop_assert_eq!(node.creates, created);
                    prop_assert_eq!(node.stat().cversion, created + deleted);
                    prop_assert_eq!(node.stat().num_children, created - deleted);
                }
            }
            let of_session: Vec<_> = tree.ephemerals(7).map(str::to_owned).collect();
            let mut owned: Vec<_> =
                tree.paths().filter(|path| tree.get(path).is_some_and(|node| node.owner() == 7)).map(str::to_owned).collect();
            owned.sort();
            prop_assert_eq!(of_session, owned);
        }

        #[test]
        fn random_paths_never_break_rules(path in "[/.a\u{0}\u{1f}é\u{fff0}]{0,6}") {
            let parts: Vec<&str> = path.split('/').collect();
            let wellformed = parts.len() > 1
                && parts[0].is_empty()
                && (path == "/" || parts[1..].iter().all(|part| !["", ".", ".."].contains(part)))
                && !path.contains(['\u{0}', '\u{1f}', '\u{fff0}']);
            prop_assert_eq!(validate(&path).is_ok(), wellformed);
        }
    }

    #[test]
    fn permissions_match_by_scheme_and_network() {
        let ids = [
            AuthId::new("ip", "127.0.0.1"),
            AuthId::new("digest", "ann:x"),
        ];
        let who = Who {
            session: 1,
            ids: &ids,
            trusted: false,
            ipv6: false,
            old: &[],
        };
        let may = |scheme: &str, id: &str, perms| {
            permit(
                who,
                &[Acl {
                    perms,
                    id: AuthId::new(scheme, id),
                }],
                READ,
            )
            .is_ok()
        };
        assert!(
            may("ip", "127.0.0.1", READ)
                && may("ip", "127.0.0.0/8", READ)
                && may("ip", "1.2.3.4/0", READ)
        );
        assert!(
            !may("ip", "127.0.0.2", READ)
                && !may("ip", "128.0.0.0/8", READ)
                && !may("ip", "127.0.0.1/33", READ)
        );
        assert!(
            may("digest", "ann:x", READ)
                && !may("digest", "bob:x", READ)
                && !may("digest", "ann:x", WRITE)
        );
        assert!(may("world", "anyone", READ | WRITE) && !may("world", "ann:x", READ));
    }
}
