//! Faults on demand: which request, and what goes wrong with it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::counters::Op;
use crate::signal::{Signal, lock};

/// Which requests a fault is about.
///
/// The parts are joined by *and*. By default a fault strikes the first matching request and no other: [`nth`](Self::nth)
/// lets some pass before, [`times`](Self::times) and [`always`](Self::always) make it strike more often. Only requests that
/// match count. A path is compared with every path that a request names, so a multi matches by any of its operations.
///
/// ```
/// use zookeeper_test_server::{Match, Op};
///
/// // The second create below /locks in one session.
/// let second = Match::op(Op::Create).path_prefix("/locks/").session(0x100).nth(1);
/// // Whatever touches /a: twice.
/// let twice = Match::any().path("/a").times(2);
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
    /// Any request, pings and connects included.
    pub fn any() -> Self {
        Self { op: None, opcode: None, paths: Vec::new(), session: None, skip: 0, times: 1 }
    }

    /// Requests of this kind. A create inside a multi is part of an [`Op::Multi`].
    pub fn op(op: Op) -> Self {
        Self { op: Some(op), ..Self::any() }
    }

    /// Requests with this number on the wire, for instance 19 for `createContainer`.
    pub fn opcode(mut self, opcode: i32) -> Self {
        self.opcode = Some(opcode);
        self
    }

    /// Exactly this path. A sequential create names its path without the number.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.paths.push(PathTest::Is(path.into()));
        self
    }

    /// Paths that start with this.
    pub fn path_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.paths.push(PathTest::StartsWith(prefix.into()));
        self
    }

    /// Paths that contain this.
    pub fn path_contains(mut self, part: impl Into<String>) -> Self {
        self.paths.push(PathTest::Contains(part.into()));
        self
    }

    /// Requests of this session; of a connect, the session it asks for.
    pub fn session(mut self, id: i64) -> Self {
        self.session = Some(id);
        self
    }

    /// Lets this many matching requests pass first.
    pub fn nth(mut self, index: usize) -> Self {
        self.skip = index;
        self
    }

    /// Strikes this many matching requests in a row. The default is 1.
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
            && self.session.is_none_or(|session| session == request.session)
            && (self.paths.is_empty() || request.paths.iter().any(all))
    }
}

/// How a connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The server closes it in order (FIN).
    Close,
    /// The server resets it (RST).
    Reset,
    /// Nothing gets through any more, in either direction: what the client sends is thrown away, and it is told neither
    /// of an answer nor, when its session expires, of the end. That lasts until the client gives up, the server
    /// stops, or the session comes back on another connection, which closes this one.
    Stall,
}

/// A request that a fault struck.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hit {
    /// Its session.
    pub session: i64,
    /// Its operation.
    pub op: Op,
    /// Its path, of a multi the first; for a create whose reply is struck, the path of the node it made.
    pub path: String,
}

/// What the rule and its handle share.
#[derive(Debug)]
pub(crate) struct Cell {
    inner: Mutex<(Vec<Hit>, bool)>,
    signal: Signal,
}

impl Cell {
    fn new() -> Arc<Self> {
        Arc::new(Self { inner: Mutex::new((Vec::new(), false)), signal: Signal::new() })
    }

    pub(crate) fn hit(&self, hit: Hit) {
        lock(&self.inner).0.push(hit);
        self.signal.raise();
    }

    pub(crate) fn end(&self) {
        lock(&self.inner).1 = true;
        self.signal.raise();
    }

    fn ended(&self) -> bool {
        lock(&self.inner).1
    }

    pub(crate) async fn until_end(&self) {
        self.signal.until(|| self.ended()).await;
    }

    fn count(&self) -> usize {
        lock(&self.inner).0.len()
    }

    fn hits(&self) -> Vec<Hit> {
        lock(&self.inner).0.clone()
    }
}

macro_rules! observers {
    () => {
        /// Resolves once a request was struck. Works on any runtime.
        ///
        /// # Cancel safety
        /// Nothing is lost when the future is dropped: hits are remembered, and waiting again answers at once.
        pub async fn wait_hit(&self) {
            self.wait_hits(1).await;
        }

        /// Resolves once `n` requests were struck.
        ///
        /// # Cancel safety
        /// As for [`wait_hit`](Self::wait_hit).
        pub async fn wait_hits(&self, n: usize) {
            self.cell.signal.until(|| self.cell.count() >= n).await;
        }

        /// Blocks until a request was struck; `false` when that did not happen in time.
        #[must_use]
        pub fn wait_hit_blocking(&self, timeout: Duration) -> bool {
            self.cell.signal.until_blocking(|| self.cell.count() > 0, timeout)
        }

        /// The requests struck so far.
        #[must_use]
        pub fn hits(&self) -> Vec<Hit> {
            self.cell.hits()
        }
    };
}

/// Holds requests or replies until it is released or dropped.
#[derive(Debug)]
#[must_use = "dropping a gate releases what it holds"]
pub struct Gate {
    cell: Arc<Cell>,
}

impl Gate {
    observers!();

    /// Lets everything go that is held, and holds nothing any more.
    pub fn release(&self) {
        self.cell.end();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.cell.end();
    }
}

/// A fault that waits for its request. Dropping the handle leaves the fault where it is.
#[derive(Clone, Debug)]
pub struct Fault {
    cell: Arc<Cell>,
}

impl Fault {
    observers!();

    /// Removes the fault; requests it struck stay struck.
    pub fn remove(&self) {
        self.cell.end();
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    HoldRequest,
    HoldReply,
    DropRequest(Loss),
    DropReply(Loss),
    Fail(i32),
}

/// A request as the plan sees it.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) op: Op,
    pub(crate) opcode: i32,
    pub(crate) session: i64,
    pub(crate) paths: Vec<&'a str>,
}

/// What is to go wrong with one request.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) hold_request: Vec<Arc<Cell>>,
    pub(crate) hold_reply: Vec<Arc<Cell>>,
    pub(crate) drop_request: Option<(Loss, Arc<Cell>)>,
    pub(crate) drop_reply: Option<(Loss, Arc<Cell>)>,
    pub(crate) fail: Option<(i32, Arc<Cell>)>,
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
        self.rules.push(Rule { matcher, seen: 0, action, cell: Arc::clone(&cell) });
        cell
    }

    pub(crate) fn gate(&mut self, matcher: Match, action: Action) -> Gate {
        Gate { cell: self.add(matcher, action) }
    }

    pub(crate) fn fault(&mut self, matcher: Match, action: Action) -> Fault {
        Fault { cell: self.add(matcher, action) }
    }

    pub(crate) fn clear(&mut self) {
        for rule in self.rules.drain(..) {
            rule.cell.end();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What all rules together say about a request. The first rule wins where only one can.
    pub(crate) fn judge(&mut self, request: &Asked<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        self.rules.retain(|rule| !rule.cell.ended());
        for rule in &mut self.rules {
            if !rule.matcher.covers(request) {
                continue;
            }
            let index = rule.seen;
            rule.seen = rule.seen.saturating_add(1);
            if index < rule.matcher.skip || index - rule.matcher.skip >= rule.matcher.times {
                continue;
            }
            let cell = Arc::clone(&rule.cell);
            match rule.action {
                Action::HoldRequest => verdict.hold_request.push(cell),
                Action::HoldReply => verdict.hold_reply.push(cell),
                Action::DropRequest(loss) => {
                    verdict.drop_request.get_or_insert((loss, cell));
                }
                Action::DropReply(loss) => {
                    verdict.drop_reply.get_or_insert((loss, cell));
                }
                Action::Fail(code) => {
                    verdict.fail.get_or_insert((code, cell));
                }
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(op: Op, paths: &[&'a str]) -> Asked<'a> {
        Asked { op, opcode: 0, session: 7, paths: paths.to_vec() }
    }

    #[test]
    fn nth_and_times_count_matching_requests_only() {
        let mut plan = Plan::default();
        let _fault = plan.fault(Match::op(Op::Create).path_prefix("/a").nth(1).times(2), Action::Fail(-5));
        let mut strikes = |op, path| plan.judge(&asked(op, &[path])).fail.is_some();
        assert!(!strikes(Op::Create, "/a/1"));
        assert!(!strikes(Op::Create, "/b"));
        assert!(!strikes(Op::Delete, "/a/1"));
        assert!(strikes(Op::Create, "/a/2"));
        assert!(strikes(Op::Create, "/a/3"));
        assert!(!strikes(Op::Create, "/a/4"));
    }

    #[test]
    fn a_multi_matches_by_any_of_its_paths_but_one_path_must_pass_every_test() {
        let mut plan = Plan::default();
        let matcher = Match::op(Op::Multi).path_prefix("/a").path_contains("lock").session(7).always();
        let _fault = plan.fault(matcher, Action::Fail(-5));
        assert!(plan.judge(&asked(Op::Multi, &["/x", "/a/lock-"])).fail.is_some());
        assert!(plan.judge(&asked(Op::Multi, &["/a", "/lock-"])).fail.is_none());
        assert!(plan.judge(&asked(Op::Multi, &[])).fail.is_none());
    }

    #[test]
    fn a_released_gate_holds_nothing_more() {
        let mut plan = Plan::default();
        let gate = plan.gate(Match::any().always(), Action::HoldReply);
        assert_eq!(plan.judge(&asked(Op::Ping, &[])).hold_reply.len(), 1);
        gate.release();
        assert!(plan.judge(&asked(Op::Ping, &[])).hold_reply.is_empty());
        assert!(plan.is_empty());
    }
}
