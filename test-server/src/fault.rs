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
        /// It pends until then, for ever if no request is struck: neither removing the fault nor dropping the server ends
        /// it. Where that may happen, put a timeout around it.
        ///
        /// # Cancel safety
        /// Nothing is lost when the future is dropped: hits are remembered, and waiting again answers at once.
        pub async fn wait_hit(&self) {
            self.wait_hits(1).await;
        }

        /// Resolves once `n` requests were struck; until then it pends, as [`wait_hit`](Self::wait_hit) does.
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
    DelayReply(Duration),
    DropRequest(Loss),
    DropReply(Loss),
    Fail(i32),
}

impl Action {
    /// Whether it strikes a request before it is applied.
    fn on_request(self) -> bool {
        matches!(self, Self::HoldRequest | Self::DropRequest(_))
    }
}

/// A request as the plan sees it.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) op: Op,
    pub(crate) opcode: i32,
    pub(crate) session: i64,
    pub(crate) paths: Vec<&'a str>,
}

/// What is to go wrong with one request before it is applied.
#[derive(Debug, Default)]
pub(crate) struct BeforeApplied {
    pub(crate) hold: Vec<Arc<Cell>>,
    /// After all of `hold`.
    pub(crate) lose: Option<(Loss, Arc<Cell>)>,
}

/// What is to go wrong with one request that is being applied.
#[derive(Debug, Default)]
pub(crate) struct WhenApplied {
    pub(crate) fail: Option<(i32, Arc<Cell>)>,
    pub(crate) delay: Option<(Duration, Arc<Cell>)>,
    pub(crate) hold: Vec<Arc<Cell>>,
    /// After all of `hold`.
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

    /// What strikes a request that is next to be applied. It does strike, so it counts.
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

    /// What strikes a request that is applied now, or its reply.
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

    /// Offers every rule whose turn it is. `strike` answers whether it took it; one that another forestalls keeps its turn.
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

/// Takes what is said first.
fn once<T>(slot: &mut Option<(T, Arc<Cell>)>, what: T, cell: &Arc<Cell>) -> bool {
    let first = slot.is_none();
    slot.get_or_insert_with(|| (what, Arc::clone(cell)));
    first
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
        let mut strikes = |op, path| plan.judge_reply(&asked(op, &[path])).fail.is_some();
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
        assert!(plan.judge_reply(&asked(Op::Multi, &["/x", "/a/lock-"])).fail.is_some());
        assert!(plan.judge_reply(&asked(Op::Multi, &["/a", "/lock-"])).fail.is_none());
        assert!(plan.judge_reply(&asked(Op::Multi, &[])).fail.is_none());
    }

    #[test]
    fn a_released_gate_holds_nothing_more() {
        let mut plan = Plan::default();
        let gate = plan.gate(Match::any().always(), Action::HoldReply);
        assert_eq!(plan.judge_reply(&asked(Op::Ping, &[])).hold.len(), 1);
        gate.release();
        assert!(plan.judge_reply(&asked(Op::Ping, &[])).hold.is_empty());
        assert!(plan.rules.is_empty());
    }

    #[test]
    fn a_fault_that_another_forestalls_keeps_its_turn_and_one_that_is_spent_goes() {
        let mut plan = Plan::default();
        let _first = plan.fault(Match::any(), Action::Fail(-1));
        let _second = plan.fault(Match::any(), Action::Fail(-2));
        let mut code = || plan.judge_reply(&asked(Op::Ping, &[])).fail.map(|(code, _)| code);
        assert_eq!([code(), code(), code()], [Some(-1), Some(-2), None]);
        assert!(plan.rules.is_empty());
        let _never = plan.fault(Match::any().nth(1).times(0), Action::Fail(-1));
        let _always = plan.fault(Match::any().nth(1).always(), Action::Fail(-3));
        let mut code = || plan.judge_reply(&asked(Op::Ping, &[])).fail.map(|(code, _)| code);
        assert_eq!([code(), code(), code()], [None, Some(-3), Some(-3)]);
        assert_eq!(plan.rules.len(), 1);
    }
}
