//! The contenders for a lock: the descriptions of their owners in the nodes of a queue. This is the
//! only file that reads the wall clock, and only for display: no decision depends on it.

use std::fmt::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::values::path::NodePath;
use crate::values::shown::{Quoted, Short};
use crate::values::token::FencingToken;

/// The maximum number of bytes of a node's data that are shown; longer data is cut. An identity is
/// shorter.
const LONGEST: usize = 256;

/// The data of a node whose owner was asked to release the lock, as Curator's `Revoker` writes it.
pub(crate) const REVOKED: &str = "__REVOKE__";

/// The text before the time in an identity.
const SINCE: &str = " since ";
/// The digits of the time, as long as that is before the year 2286.
const DIGITS: usize = 13;

/// The description of the owner in a contender's node; part of a [`Contender`].
///
/// A node that this crate creates has by default one line of UTF-8 as its data: `host/pid/name
/// since <unix ms>`, such as `web-3/4711/stock since 1763817600000`. The host is the output of
/// `uname -n`, the name is that of [`ClientBuilder::name`](crate::ClientBuilder::name), and the
/// time is that of the node's creation, by the wall clock of that host. Clocks of hosts differ, so
/// no decision depends on this time. [`Contender::since`] is by the clock of the servers.
///
/// Data in any other form, from [`data`](crate::RecipeBuilder::data) of a builder or from another
/// library, is treated as plain text: Curator's locks write an IP address, and kazoo's write
/// nothing unless they have an `identifier`. The text is shown as UTF-8, with replacement
/// characters for bytes that are not UTF-8, and cut to 256 bytes. A [request to
/// revoke](crate::Client::attempt_revoke) replaces the data, so the identity of that contender is
/// lost.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let servers = server.connect_string();
/// use zookeeper_recipes::{Client, InterProcessMutex};
///
/// let client = Client::builder().name("stock").connect(&servers).await?;
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// let guard = mutex.lock().await?;
///
/// let holders = mutex.holders().await?;
/// let identity = holders[0].identity();
/// assert_eq!((identity.pid(), identity.name()), (Some(std::process::id()), Some("stock")));
/// println!("{identity}"); // web-3/4711/stock
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    text: Box<str>,
    parts: Option<Parts>,
}

/// The positions of the parts of an identity in its text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Parts {
    host: usize,
    pid: u32,
    /// Where the name begins and ends.
    name: (usize, usize),
    since: u64,
}

impl Identity {
    /// Reads the data of a node.
    pub(crate) fn read(data: &[u8]) -> Self {
        let is_cut = data.len() > LONGEST;
        let mut text = String::from_utf8_lossy(data.get(..LONGEST).unwrap_or(data)).into_owned();
        if is_cut {
            // A character that was cut in the middle has become a replacement character.
            text.push('…');
        }
        let parts = Parts::of(&text);
        Self {
            text: text.into(),
            parts,
        }
    }

    /// Returns the name of the host; `None` if the data is not an identity written by this crate.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.text.get(..self.parts?.host)
    }

    /// Returns the id of the process, on its host; `None` if the data is not an identity written by
    /// this crate.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        Some(self.parts?.pid)
    }

    /// Returns the name of the client ([`ClientBuilder::name`](crate::ClientBuilder::name)); `None`
    /// if the data is not an identity written by this crate.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let (begin, end) = self.parts?.name;
        self.text.get(begin..end)
    }

    /// Returns when the process created the node, by the clock of its host; `None` if the data is
    /// not an identity written by this crate.
    ///
    /// That is the time when the process began to queue or, for a permit, when it got the permit.
    /// The node does not contain the time of the grant.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.parts?.since))
    }

    /// Returns the data as text: all of it, unless it is longer than 256 bytes. It may be empty.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Parts {
    fn of(text: &str) -> Option<Self> {
        let (who, since) = text.rsplit_once(SINCE)?;
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (host, rest) = who.split_once('/')?;
        let (pid, name) = rest.split_once('/')?;
        if host.is_empty() || name.is_empty() || !is_number(pid) || !is_number(since) {
            return None;
        }
        let begin = who.len() - name.len();
        let (pid, since) = (pid.parse().ok()?, since.parse().ok()?);
        Some(Self {
            host: host.len(),
            pid,
            name: (begin, who.len()),
            since,
        })
    }
}

/// Writes `host/pid/name` or, for other data, the text on one line.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if &*self.text == REVOKED {
            return f.write_str("a contender that was asked to release it");
        }
        let shown = self
            .parts
            .and_then(|parts| self.text.get(..parts.name.1))
            .unwrap_or(&self.text);
        // The data is another process's: it may have line breaks, or control sequences for a
        // terminal.
        if shown.chars().any(char::is_control) {
            return write!(f, "{}", Short(&shown.escape_debug().to_string()));
        }
        write!(f, "{}", Short(shown))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", Quoted(&self.text))
    }
}

/// The longest name of a client, in bytes.
const LONGEST_NAME: usize = 100;

/// The longest host name that is written, in bytes. Linux allows at most 64.
const LONGEST_HOST: usize = 64;

/// The identity of this process, with which the data of its nodes begins. Each client creates one.
#[derive(Clone)]
pub(crate) struct Process {
    /// `host/pid/name`.
    pub(crate) who: String,
}

impl Process {
    /// The maximum length of an identity in bytes: host, process and name, and the time.
    pub(crate) const MOST_BYTES: usize = LONGEST_HOST + LONGEST_NAME + SINCE.len() + 32;

    /// Returns the identity of a client with this name, by default that of the program. The error
    /// says which names are valid.
    pub(crate) fn new(host: &str, name: Option<&str>) -> Result<Self, &'static str> {
        let name = match name {
            Some("") => return Err("it is empty"),
            Some(name) if name.len() > LONGEST_NAME => return Err("it is longer than 100 bytes"),
            Some(name) if name.chars().any(char::is_control) => {
                return Err("it contains a control character, such as a line break");
            }
            Some(name) => name.to_owned(),
            None => plain(&program(), LONGEST_NAME),
        };
        let host = plain(host, LONGEST_HOST).replace('/', "_");
        Ok(Self {
            who: format!("{host}/{}/{name}", std::process::id()),
        })
    }

    /// Returns the data of a node that is created now.
    pub(crate) fn data(&self) -> Vec<u8> {
        // The string is allocated once, because each create builds such data.
        let mut data = String::with_capacity(self.who.len() + SINCE.len() + DIGITS);
        data.push_str(&self.who);
        data.push_str(SINCE);
        // Writing to a string never fails.
        let _ = write!(data, "{}", now().as_millis());
        data.into_bytes()
    }
}

/// The file name of the program.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(std::path::Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Replaces the control characters of a name from the system, and cuts the name to `most` bytes.
fn plain(name: &str, most: usize) -> String {
    let mut plain = String::new();
    for c in name.chars().map(|c| if c.is_control() { '_' } else { c }) {
        if plain.len() + c.len_utf8() > most {
            break;
        }
        plain.push(c);
    }
    if plain.is_empty() {
        "unknown".to_owned()
    } else {
        plain
    }
}

/// The time since 1970 by the wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "it is shown to people, and decides nothing"
)]
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Returns the age of a node that was created at this time, in milliseconds since 1970.
fn age(ctime: i64) -> Duration {
    now().saturating_sub(Duration::from_millis(
        u64::try_from(ctime).unwrap_or_default(),
    ))
}

/// The way in which a [`Contender`] holds, or wants to hold, the lock.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{ContenderKind, InterProcessReadWriteLock};
///
/// let lock = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
/// let reader = lock.read_lock().lock().await?;
/// assert_eq!(lock.holders().await?[0].kind(), ContenderKind::Read);
/// # reader.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContenderKind {
    /// Exclusively: a contender for a mutex or a fair lock, or in the queue of a semaphore.
    Exclusive,
    /// Together with other readers.
    Read,
    /// Exclusively, as the writer of a read-write lock.
    Write,
    /// The contender has a permit of a semaphore.
    Permit,
}

impl fmt::Display for ContenderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Write => "write",
            Self::Permit => "permit",
        })
    }
}

/// A node in a lock's queue, with a description of its owner, which holds the lock or waits for it.
///
/// [`queue`](crate::InterProcessMutex::queue) and [`holders`](crate::InterProcessMutex::holders) of
/// a lock return contenders of all processes and libraries, and
/// [`AcquireError::TimedOut`](crate::AcquireError::TimedOut) has the contender that was ahead. The
/// value shows the state of the servers at that time; the contender may have left since. Its
/// `Display` form is one line.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::InterProcessMutex;
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// let guard = mutex.lock().await?;
///
/// let queue = mutex.queue().await?;
/// let [holder] = &queue[..] else { panic!("{queue:?}") };
/// assert_eq!((holder.node(), holder.is_mine()), (&guard.node(), true));
/// assert_eq!(holder.token(), Some(guard.fencing_token()));
/// // web-3/4711/stock (exclusive, queued 12s ago, session 0x1000a2b3c4d0001, lock-0000000007)
/// println!("{holder}");
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Contender {
    node: NodePath,
    kind: ContenderKind,
    pub(crate) stat: NodeStat,
    is_mine: bool,
    has_token: bool,
    identity: Identity,
    age: Duration,
}

/// The servers' data about a contender's node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeStat {
    pub(crate) session: i64,
    pub(crate) czxid: i64,
    /// When it was created, in milliseconds since 1970, by the clock of the servers.
    pub(crate) ctime: i64,
}

impl Contender {
    /// Returns a contender, from the servers' data about its node. `has_token` is whether the zxid
    /// of its creation is the token of an exclusive grant.
    pub(crate) fn new(
        node: NodePath,
        kind: ContenderKind,
        stat: NodeStat,
        data: &[u8],
        (is_mine, has_token): (bool, bool),
    ) -> Self {
        let age = age(stat.ctime);
        Self {
            node,
            kind,
            stat,
            is_mine,
            has_token,
            identity: Identity::read(data),
            age,
        }
    }

    /// Returns the path of its node, without the client's namespace.
    #[must_use]
    pub fn node(&self) -> &NodePath {
        &self.node
    }

    /// Returns the description of the owner in its node.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns how the contender holds the lock, or wants to hold it.
    #[must_use]
    pub fn kind(&self) -> ContenderKind {
        self.kind
    }

    /// Returns the id of the node's session, which the servers print in hexadecimal in their logs.
    /// The id is 0 if the node belongs to no session: then no lock of this crate, Curator or kazoo
    /// created it, and it stays until it is deleted.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.stat.session
    }

    /// Returns when its node was created, by the clock of the servers.
    ///
    /// That is the time when the contender began to queue or, for a permit, when it got the permit.
    /// Other processes cannot know since when a contender *holds* the lock, which is later for a
    /// holder that had to wait. A node that was created by a
    /// [`downgrade`](crate::WriteGuard::downgrade) is as old as the downgrade, and a node that a
    /// client hands over in memory may be older than the hold of any of its tasks.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        let millis = Duration::from_millis(u64::try_from(self.stat.ctime).unwrap_or_default());
        UNIX_EPOCH.checked_add(millis).unwrap_or(UNIX_EPOCH)
    }

    /// Returns how old its node was when this client saw it: the time from [`since`](Self::since)
    /// to that moment by the wall clock of this process, which may differ from that of the servers.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Returns the fencing token of a grant by this contender's node.
    ///
    /// `None` for readers and for permits, whose tokens are not in the node. A client that hands a
    /// mutex over in memory raises the counter of the token with each hand-off, so the holder's
    /// token is this one or a greater one with the same zxid.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.has_token
            .then_some(FencingToken::from_parts(self.stat.czxid, 0))
    }

    /// Returns `true` if its node is in the session of the client that asked.
    #[must_use]
    pub fn is_mine(&self) -> bool {
        self.is_mine
    }

    /// Returns the same contender with the present age of its node.
    pub(crate) fn now(&self) -> Self {
        Self {
            age: age(self.stat.ctime),
            ..self.clone()
        }
    }

    /// Returns the identity of the contender for a message.
    pub(crate) fn who(&self) -> Who<'_> {
        Who(self)
    }
}

/// The identity of a contender, or its session if it has none.
pub(crate) struct Who<'a>(&'a Contender);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(contender) = self;
        if contender.identity.text().trim().is_empty() {
            return write!(f, "session {:#x}", contender.stat.session);
        }
        write!(f, "{}", contender.identity)
    }
}

/// A duration for people: in whole seconds, or in milliseconds if it is short.
pub(crate) struct About(pub(crate) Duration);

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(time) = *self;
        let rounded = match time.as_secs() {
            0..10 => Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or_default()),
            seconds => Duration::from_secs(seconds),
        };
        write!(f, "{rounded:?}")
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, kind, age) = (self.who(), self.kind, About(self.age));
        let (session, name) = (self.stat.session, Short(self.node.name()));
        write!(
            f,
            "{who} ({kind}, queued {age} ago, session {session:#x}, {name})"
        )
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contender({self})")
    }
}

/// A participant of an election, as its node shows it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::LeaderLatch;
///
/// let latch = LeaderLatch::builder(&client, "/scheduler/leader").id("web-3").build()?;
/// latch.leadership().await?;
/// for participant in latch.participants().await? {
///     println!("{} {}", participant.id(), if participant.is_leader() { "leads" } else { "follows" });
///     assert!(participant.id() == "web-3" && participant.is_leader() && participant.is_mine());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    id: String,
    node: NodePath,
    is_leader: bool,
    is_mine: bool,
}

impl Participant {
    pub(crate) fn new(node: NodePath, data: &[u8], is_mine: bool) -> Self {
        Self {
            id: String::from_utf8_lossy(data).into_owned(),
            node,
            is_leader: false,
            is_mine,
        }
    }

    pub(crate) fn leads(&mut self) {
        self.is_leader = true;
    }

    /// Returns the id of the participant, which is the data of its node. Bytes that are not UTF-8
    /// are replaced.
    #[must_use]
    #[doc(alias = "getId")]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the path of its node, without the client's namespace.
    #[must_use]
    pub fn node(&self) -> &NodePath {
        &self.node
    }

    /// Returns `true` if its node is the first: it leads, or is about to.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }

    /// Returns `true` if its node belongs to the session of the client that was asked.
    #[must_use]
    pub fn is_mine(&self) -> bool {
        self.is_mine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contender(data: &[u8]) -> Contender {
        let node = "/locks/a/_c_x-lock-0000000007".parse().unwrap();
        let stat = NodeStat {
            session: 0x1a,
            czxid: 9,
            ctime: 1_000,
        };
        Contender::new(node, ContenderKind::Exclusive, stat, data, (false, true))
    }

    // Shows: identity
    #[test]
    fn identity_round_trips() {
        for name in ["stock", "a/b since 7", " ", "ä"] {
            let before = now();
            let identity = Identity::read(&Process::new("web-3", Some(name)).unwrap().data());
            assert_eq!(identity.host(), Some("web-3"));
            assert_eq!(
                (identity.pid(), identity.name()),
                (Some(std::process::id()), Some(name))
            );
            let since = identity
                .since()
                .unwrap()
                .duration_since(UNIX_EPOCH)
                .unwrap();
            assert!(
                since.as_millis() >= before.as_millis() && since <= now(),
                "{since:?}"
            );
            assert_eq!(
                identity.to_string(),
                format!("web-3/{}/{name}", std::process::id())
            );
        }
    }

    #[test]
    fn revocation_request_is_shown() {
        let identity = Identity::read(REVOKED.as_bytes());
        assert_eq!(
            (identity.name(), identity.to_string().contains(REVOKED)),
            (None, false)
        );
        assert!(
            contender(REVOKED.as_bytes())
                .to_string()
                .contains("asked to release it")
        );
    }

    #[test]
    fn rejects_names_beyond_one_line() {
        let long = "x".repeat(LONGEST_NAME + 1);
        for bad in ["", "a\nb", "a\u{1b}[31m", long.as_str()] {
            assert!(Process::new("web-3", Some(bad)).is_err(), "{bad:?}");
        }
        let longest = "x".repeat(LONGEST_NAME);
        let data = Process::new(&"h".repeat(500), Some(&longest))
            .unwrap()
            .data();
        assert!(
            data.len() <= Process::MOST_BYTES && Process::MOST_BYTES <= LONGEST,
            "{}",
            data.len()
        );
        assert_eq!(Identity::read(&data).name(), Some(&*longest));
        // A host name or program name with other characters is adjusted.
        let data = Process::new("we/b\n3", None).unwrap().data();
        assert_eq!(Identity::read(&data).host(), Some("we_b_3"));
        assert!(
            Identity::read(&data)
                .name()
                .unwrap()
                .contains("zookeeper_recipes"),
            "the test's program"
        );
        assert_eq!(
            Identity::read(&Process::new("", Some("a")).unwrap().data()).host(),
            Some("unknown")
        );
    }

    #[test]
    fn foreign_data_is_shown_as_text() {
        for text in [
            "",
            "10.0.0.7",
            "zookeeper-recipes",
            "a/b/c since 7",
            "a/1/b since",
            "/1/b since 7",
        ] {
            let identity = Identity::read(text.as_bytes());
            assert_eq!(
                (identity.text(), identity.host(), identity.since()),
                (text, None, None),
                "{text:?}"
            );
            assert_eq!(identity.to_string(), text);
        }
        assert_eq!(Identity::read(b"a\xffb\nc").to_string(), "a\u{fffd}b\\nc");
        let long = Identity::read(&[b'x'; 100_000]);
        assert!(long.text().len() < 300 && long.to_string().len() < 200);
        assert_eq!(contender(b"").who().to_string(), "session 0x1a");
        assert_eq!(contender(b"10.0.0.7").who().to_string(), "10.0.0.7");
    }

    #[test]
    fn contender_is_shown_on_one_line() {
        let mut holder = contender(b"web-3/4711/stock since 1763817600000");
        assert!(
            holder.age() > Duration::from_secs(50 * 365 * 24 * 3600),
            "{:?}",
            holder.age()
        );
        assert_eq!(holder.since(), UNIX_EPOCH + Duration::from_secs(1));
        assert_eq!(holder.token(), Some(FencingToken::from_parts(9, 0)));
        holder.age = Duration::from_millis(12_345);
        let shown =
            "web-3/4711/stock (exclusive, queued 12s ago, session 0x1a, _c_x-lock-0000000007)";
        assert_eq!(holder.to_string(), shown);
        assert_eq!(format!("{holder:?}"), format!("Contender({shown})"));
        assert_eq!(
            About(Duration::from_micros(1_234_567)).to_string(),
            "1.234s"
        );
    }

    proptest! {
        // Shows: identity
        #[test]
        fn no_data_panics(data in proptest::collection::vec(any::<u8>(), 0..400), since in any::<u64>()) {
            for data in [data.clone(), [&data[..], format!("/7/x since {since}").as_bytes()].concat()] {
                let contender = contender(&data);
                let identity = contender.identity();
                let _ = (identity.host(), identity.pid(), identity.name(), identity.since());
                prop_assert!(!contender.to_string().contains('\n'));
                prop_assert!(identity.text().len() <= 3 * LONGEST + 3);
            }
        }
    }
}
