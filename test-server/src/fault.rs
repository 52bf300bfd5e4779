//! Faults on demand: which requests a fault affects, and what it does to them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::bounded::Bounded;
use crate::counters::Op;
use crate::signal::{Signal, lock};

/// Selects the requests that a fault strikes.
///
/// All conditions must hold. By default a fault strikes the first matching request only:
/// [`nth`](Self::nth) lets some pass first, [`times`](Self::times) and [`always`](Self::always)
/// make it strike more often. Only matching requests count. A path is compared with every path that
/// a request names, so a multi matches by any of its operations.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::{Match, Op, Server, ServerError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
/// client.create("/locks", b"", &options).await?;
///
/// // The second create below /locks in this session.
/// let session = client.session_id().0;
/// let second = Match::op(Op::Create).path_prefix("/locks/").session(session).nth(1);
/// server.fail(second, ServerError::NoAuth.code());
///
/// assert!(client.create("/locks/a", b"", &options).await.is_ok());
/// assert!(client.create("/locks/b", b"", &options).await.is_err());
/// assert!(client.create("/locks/c", b"", &options).await.is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Match {
    op: Option<Op>,
    opcode: Option<i32>,
    paths: Vec<PathTest>,
    session: Option<i64>,
    skip: usize,
    times: usize,
}

#[derive(Clone, Debug)]
enum PathTest {
    Is(String),
    StartsWith(String),
    Contains(String),
}

impl PathTest {
    fn holds(&self, path: &str) -> bool {
        match self {
            Self::Is(wanted) => path == wanted,
            Self::StartsWith(wanted) => path.starts_with(wanted),
            Self::Contains(wanted) => path.contains(wanted),
        }
    }
}

impl Match {
    /// Matches any request, pings and connects included.
    pub fn any() -> Self {
        Self {
            op: None,
            opcode: None,
            paths: Vec::new(),
            session: None,
            skip: 0,
            times: 1,
        }
    }

    /// Matches requests for an operation. A create in a multi is part of an [`Op::Multi`].
    pub fn op(op: Op) -> Self {
        Self {
            op: Some(op),
            ..Self::any()
        }
    }

    /// Matches requests for an operation by its number on the wire, for instance 19 for
    /// `createContainer`.
    pub fn opcode(mut self, opcode: i32) -> Self {
        self.opcode = Some(opcode);
        self
    }

    /// Matches requests that name this path. A sequential create names its path without the number.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.paths.push(PathTest::Is(path.into()));
        self
    }

    /// Matches requests that name a path with this prefix.
    pub fn path_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.paths.push(PathTest::StartsWith(prefix.into()));
        self
    }

    /// Matches requests that name a path that contains this text.
    pub fn path_contains(mut self, part: impl Into<String>) -> Self {
        self.paths.push(PathTest::Contains(part.into()));
        self
    }

    /// Matches requests of a session. The session of a connect is the one that the client wants to
    /// resume.
    pub fn session(mut self, id: i64) -> Self {
        self.session = Some(id);
        self
    }

    /// Lets this many matching requests pass first. The default is 0.
    pub fn nth(mut self, index: usize) -> Self {
        self.skip = index;
        self
    }

    /// Applies the fault to this many matching requests in a row. The default is 1.
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Strikes every matching request until the fault is removed or the gate released.
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }

    fn covers(&self, request: &Asked<'_>) -> bool {
        let all = |path: &&str| self.paths.iter().all(|test| test.holds(path));
        self.op.is_none_or(|op| op == request.op)
            && self.opcode.is_none_or(|opcode| opcode == request.opcode)
            && self
                .session
                .is_none_or(|session| session == request.session)
            && (self.paths.is_empty() || request.paths.iter().any(all))
    }
}

/// The way in which a connection is lost.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::{Loss, Match, Op, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
///
/// // The create is committed, and its reply is lost with the connection.
/// server.drop_reply(Match::op(Op::Create).path("/a"), Loss::Reset);
/// let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
/// assert!(client.create("/a", b"", &options).await.is_err());
/// assert!(server.exists("/a"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The server closes it (FIN).
    Close,
    /// The server resets it (RST).
    Reset,
    /// No data passes any more in either direction. The client's data is discarded, and the client
    /// receives no reply, nor the end of the connection when its session expires. The stall lasts
    /// until the client closes the connection, the server stops, or the session reconnects, which
    /// closes this connection.
    Stall,
}

/// A request that a fault has struck.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::{Match, Op, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let gate = server.hold_reply(Match::op(Op::Create));
/// let sequential = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
/// let create = client.create("/n-", b"", &sequential);
/// gate.wait_hit().await;
/// let hit = gate.hits().remove(0);
/// assert_eq!((hit.op, &*hit.path), (Op::Create, "/n-0000000000"));
/// assert_eq!(hit.session, client.session_id().0);
/// gate.release();
/// create.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hit {
    /// The session of the request.
    pub session: i64,
    /// The operation of the request.
    pub op: Op,
    /// The path of the request; the first of a multi; for a create whose reply was affected, the
    /// path of the node.
    pub path: String,
}

/// The state that a rule and its handle share.
#[derive(Debug)]
pub(crate) struct Cell {
    struck: Mutex<Struck>,
    signal: Signal,
}

#[derive(Debug, Default)]
struct Struck {
    /// The number of hits, of which the last ones are kept.
    count: usize,
    hits: Bounded<Hit>,
    /// Whether the fault has ended.
    ended: bool,
}

impl Cell {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            struck: Mutex::default(),
            signal: Signal::new(),
        })
    }

    pub(crate) fn hit(&self, hit: Hit) {
        let mut struck = lock(&self.struck);
        struck.count += 1;
        struck.hits.push(hit.path.len(), |_| hit);
        drop(struck);
        self.signal.raise();
    }

    pub(crate) fn end(&self) {
        lock(&self.struck).ended = true;
        self.signal.raise();
    }

    fn ended(&self) -> bool {
        lock(&self.struck).ended
    }

    pub(crate) async fn until_end(&self) {
        self.signal.until(|| self.ended()).await;
    }

    fn count(&self) -> usize {
        lock(&self.struck).count
    }

    fn hits(&self) -> Vec<Hit> {
        lock(&self.struck).hits.iter().cloned().collect()
    }
}

macro_rules! observers {
    () => {
        /// Waits until the fault has affected a request, on any runtime.
        ///
        /// The wait does not end if no request matches: neither removing the fault nor dropping the
        /// server ends it. Use a timeout where that may happen.
        ///
        /// # Cancel safety
        /// Nothing is lost if the future is dropped: hits are kept, and waiting again returns at
        /// once.
        pub async fn wait_hit(&self) {
            self.wait_hits(1).await;
        }

        /// Waits until `n` requests have been struck. See [`wait_hit`](Self::wait_hit).
        ///
        /// # Cancel safety
        /// Nothing is lost if the future is dropped: hits are kept, and waiting again returns at
        /// once.
        pub async fn wait_hits(&self, n: usize) {
            self.cell.signal.until(|| self.cell.count() >= n).await;
        }

        /// Blocks until a request has been struck. Returns `false` if no request was struck in
        /// time.
        #[must_use]
        pub fn wait_hit_blocking(&self, timeout: Duration) -> bool {
            self.cell
                .signal
                .until_blocking(|| self.cell.count() > 0, timeout)
        }

        /// Returns the requests that have been struck so far: at most the last 100,000, with at
        /// most 16 MiB of paths.
        #[must_use]
        pub fn hits(&self) -> Vec<Hit> {
            self.cell.hits()
        }
    };
}

/// Holds requests or replies until it is released or dropped.
/// [`Server::hold_request`](crate::Server::hold_request) and
/// [`Server::hold_reply`](crate::Server::hold_reply) return it.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::{Match, Op, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
///
/// // The node exists, and the client does not know it yet.
/// let gate = server.hold_reply(Match::op(Op::Create).path("/a"));
/// let create = client.create("/a", b"", &CreateMode::Persistent.with_acls(Acls::anyone_all()));
/// gate.wait_hit().await;
/// assert!(server.exists("/a"));
/// gate.release();
/// create.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping a gate releases what it holds"]
pub struct Gate {
    cell: Arc<Cell>,
}

impl Gate {
    observers!();

    /// Releases all held requests and replies. The gate then holds no further ones.
    pub fn release(&self) {
        self.cell.end();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.cell.end();
    }
}

/// A fault that waits for its requests. Dropping the handle does not remove the fault.
///
/// ```
/// use zookeeper_client::{Client, Error};
/// use zookeeper_test_server::{Match, Op, Server, ServerError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let fault = server.fail(Match::op(Op::Sync).always(), ServerError::NoAuth.code());
/// assert_eq!(client.sync("/").await, Err(Error::NoAuth));
/// assert_eq!(fault.hits().len(), 1);
/// fault.remove();
/// client.sync("/").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Fault {
    cell: Arc<Cell>,
}

impl Fault {
    observers!();

    /// Removes the fault. Requests that it has already struck are not affected by that.
    pub fn remove(&self) {
        self.cell.end();
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    HoldRequest,
    HoldReply,
    DelayReply(Duration),
    DropRequest(Loss),
    DropReply(Loss),
    Fail(i32),
}

impl Action {
    /// Returns whether it strikes before the request is applied.
    fn on_request(self) -> bool {
        matches!(self, Self::HoldRequest | Self::DropRequest(_))
    }
}

/// The properties of a request that rules match.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) op: Op,
    pub(crate) opcode: i32,
    pub(crate) session: i64,
    pub(crate) paths: Vec<&'a str>,
}

/// The faults that strike a request before it is applied.
#[derive(Debug, Default)]
pub(crate) struct BeforeApplied {
    pub(crate) hold: Vec<Arc<Cell>>,
    /// This follows all gates of `hold`.
    pub(crate) lose: Option<(Loss, Arc<Cell>)>,
}

/// The faults that strike a request when it is applied, or its reply.
#[derive(Debug, Default)]
pub(crate) struct WhenApplied {
    pub(crate) fail: Option<(i32, Arc<Cell>)>,
    pub(crate) delay: Option<(Duration, Arc<Cell>)>,
    pub(crate) hold: Vec<Arc<Cell>>,
    /// This follows all gates of `hold`.
    pub(crate) lose: Option<(Loss, Arc<Cell>)>,
}

#[derive(Debug)]
struct Rule {
    matcher: Match,
    seen: usize,
    action: Action,
    cell: Arc<Cell>,
}

/// The faults in force.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    rules: Vec<Rule>,
}

impl Plan {
    fn add(&mut self, matcher: Match, action: Action) -> Arc<Cell> {
        let cell = Cell::new();
        self.rules.push(Rule {
            matcher,
            seen: 0,
            action,
            cell: Arc::clone(&cell),
        });
        cell
    }

    pub(crate) fn gate(&mut self, matcher: Match, action: Action) -> Gate {
        Gate {
            cell: self.add(matcher, action),
        }
    }

    pub(crate) fn fault(&mut self, matcher: Match, action: Action) -> Fault {
        Fault {
            cell: self.add(matcher, action),
        }
    }

    pub(crate) fn clear(&mut self) {
        for rule in self.rules.drain(..) {
            rule.cell.end();
        }
    }

    /// Returns the faults that strike the next request to be applied, and counts them as struck.
    pub(crate) fn judge_request(&mut self, request: &Asked<'_>) -> BeforeApplied {
        let mut verdict = BeforeApplied::default();
        self.judge(request, true, |action, cell| match action {
            Action::HoldRequest => {
                verdict.hold.push(Arc::clone(cell));
                true
            }
            Action::DropRequest(loss) => once(&mut verdict.lose, loss, cell),
            _ => false,
        });
        verdict
    }

    /// Returns the faults that strike a request that is applied now, or its reply, and counts them
    /// as struck.
    pub(crate) fn judge_reply(&mut self, request: &Asked<'_>) -> WhenApplied {
        let mut verdict = WhenApplied::default();
        self.judge(request, false, |action, cell| match action {
            Action::Fail(code) => once(&mut verdict.fail, code, cell),
            Action::HoldReply => {
                verdict.hold.push(Arc::clone(cell));
                true
            }
            Action::DelayReply(delay) => once(&mut verdict.delay, delay, cell),
            Action::DropReply(loss) => once(&mut verdict.lose, loss, cell),
            _ => false,
        });
        verdict
    }

    /// Offers every rule that is due to `strike`, which returns whether it took the rule. A rule
    /// that was not taken stays due.
    fn judge(
        &mut self,
        request: &Asked<'_>,
        on_request: bool,
        mut strike: impl FnMut(Action, &Arc<Cell>) -> bool,
    ) {
        self.rules.retain_mut(|rule| {
            if rule.cell.ended() {
                return false;
            }
            if rule.action.on_request() == on_request && rule.matcher.covers(request) {
                let passes = rule.seen < rule.matcher.skip;
                if passes || (rule.matcher.times > 0 && strike(rule.action, &rule.cell)) {
                    rule.seen = rule.seen.saturating_add(1);
                }
            }
            let spent = rule.matcher.skip.saturating_add(rule.matcher.times);
            rule.seen < spent || spent == usize::MAX
        });
    }
}

/// Fills the slot if it is empty; returns whether it was.
fn once<T>(slot: &mut Option<(T, Arc<Cell>)>, what: T, cell: &Arc<Cell>) -> bool {
    let first = slot.is_none();
    slot.get_or_insert_with(|| (what, Arc::clone(cell)));
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(op: Op, paths: &[&'a str]) -> Asked<'a> {
        Asked {
            op,
            opcode: 0,
            session: 7,
            paths: paths.to_vec(),
        }
    }

    #[test]
    fn nth_and_times_count_matches_only() {
        let mut plan = Plan::default();
        let _fault = plan.fault(
            Match::op(Op::Create).path_prefix("/a").nth(1).times(2),
            Action::Fail(-5),
        );
        let mut strikes = |op, path| plan.judge_reply(&asked(op, &[path])).fail.is_some();
        assert!(!strikes(Op::Create, "/a/1"));
        assert!(!strikes(Op::Create, "/b"));
        assert!(!strikes(Op::Delete, "/a/1"));
        assert!(strikes(Op::Create, "/a/2"));
        assert!(strikes(Op::Create, "/a/3"));
        assert!(!strikes(Op::Create, "/a/4"));
    }

    #[test]
    fn multi_matches_by_any_path() {
        let mut plan = Plan::default();
        let matcher = Match::op(Op::Multi)
            .path_prefix("/a")
            .path_contains("lock")
            .session(7)
            .always();
        let _fault = plan.fault(matcher, Action::Fail(-5));
        assert!(
            plan.judge_reply(&asked(Op::Multi, &["/x", "/a/lock-"]))
                .fail
                .is_some()
        );
        assert!(
            plan.judge_reply(&asked(Op::Multi, &["/a", "/lock-"]))
                .fail
                .is_none()
        );
        assert!(plan.judge_reply(&asked(Op::Multi, &[])).fail.is_none());
    }

    #[test]
    fn hits_are_bounded_but_counted() {
        let mut plan = Plan::default();
        let fault = plan.fault(Match::any().always(), Action::Fail(-5));
        for number in 0..100_003 {
            fault.cell.hit(Hit {
                session: number,
                op: Op::Ping,
                path: String::new(),
            });
        }
        let hits = fault.hits();
        assert_eq!((hits.len(), hits[0].session), (100_000, 3));
        assert_eq!(fault.cell.count(), 100_003);
    }

    #[test]
    fn released_gate_holds_nothing() {
        let mut plan = Plan::default();
        let gate = plan.gate(Match::any().always(), Action::HoldReply);
        assert_eq!(plan.judge_reply(&asked(Op::Ping, &[])).hold.len(), 1);
        gate.release();
        assert!(plan.judge_reply(&asked(Op::Ping, &[])).hold.is_empty());
        assert!(plan.rules.is_empty());
    }

    #[test]
    fn forestalled_fault_keeps_its_turn() {
        let mut plan = Plan::default();
        let _first = plan.fault(Match::any(), Action::Fail(-1));
        let _second = plan.fault(Match::any(), Action::Fail(-2));
        let mut code = || {
            plan.judge_reply(&asked(Op::Ping, &[]))
                .fail
                .map(|(code, _)| code)
        };
        assert_eq!([code(), code(), code()], [Some(-1), Some(-2), None]);
        assert!(plan.rules.is_empty());
        let _never = plan.fault(Match::any().nth(1).times(0), Action::Fail(-1));
        let _always = plan.fault(Match::any().nth(1).always(), Action::Fail(-3));
        let mut code = || {
            plan.judge_reply(&asked(Op::Ping, &[]))
                .fail
                .map(|(code, _)| code)
        };
        assert_eq!([code(), code(), code()], [None, Some(-3), Some(-3)]);
        assert_eq!(plan.rules.len(), 1);
    }
}
