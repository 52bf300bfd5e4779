//! Decides which of one client's attempts is next for one path (docs/protocol.md#arrival-order).
//! Pure.
//!
//! All attempts of one client on one path, of a mutex and of a fair lock alike, are in one
//! [`LocalQueue`]:
//!
//! 1. An attempt *creates* its node after the attempts that arrived before it, in each session
//!    ([`may_create`](LocalQueue::may_create)).
//! 2. The attempt *lists* the directory, together with all attempts that need a list at the time
//!    ([`ask_list`](LocalQueue::ask_list)).
//! 3. Its node *waits* in memory for a node of the same session before it, from which the lock may
//!    be handed over to it: it is the *heir* of that node ([`wait`](LocalQueue::wait),
//!    [`heir`](LocalQueue::heir)).
//!
//! Attempts are identified by their numbers, which rise in the order of arrival, nodes by their
//! names, which are used once. A decision about another attempt than the caller's is a [`Notice`]
//! for the waker of that attempt. The caller takes the notices by
//! [`take_outbox`](LocalQueue::take_outbox) after each call, and sends them when nothing is
//! locked.
//!
//! # Invariants
//! 1. Each waker that is kept is returned once, with a notice.
//! 2. In a session, an attempt creates after the attempts with lower numbers that have asked to
//!    create in it or in an earlier session, except for attempts that have stepped aside or left.
//! 3. A list is for the attempts that asked before it was sent, and for no others. One list is
//!    under way at a time.
//! 4. Nodes, turns and lists belong to one session. A newer session clears them, and calls for an
//!    older one change nothing.
//! 5. Two nodes are adjacent if no other node is between them. No node can come between them later,
//!    because later nodes have greater numbers and names are used once. If a node is deleted,
//!    the two nodes that are adjacent to it are adjacent to each other.
//! 6. An attempt that waits for a node gets a notice when that node is gone, or waits for the node
//!    before it from then on. The only notice that grants the lock is that of a hand-over, one
//!    transaction that has deleted the holder's node while the heir's existed. In every case of
//!    doubt the notice is to list the directory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::protocol::numbers::{AttemptNumber, SessionNumber};
use crate::protocol::own_nodes::LocalNodes;
pub(crate) use crate::protocol::own_nodes::{Gone, Neighbour, Notice, Outbox};

/// The attempts of one client on one path; see the [module](self). `W` wakes an attempt with a
/// [`Notice`], and `L` receives a list.
#[derive(Debug)]
pub(crate) struct LocalQueue<W, L> {
    /// The session of the fields below.
    session: SessionNumber,
    /// The attempts that have asked to create, and have not created in this session, by number.
    /// Each has its waker while it waits for its turn.
    to_create: BTreeMap<AttemptNumber, Option<W>>,
    /// The attempts that have sent their creates in this session, or stepped aside, until they
    /// leave. None of them is in `to_create`.
    had_turn: BTreeSet<AttemptNumber>,
    nodes: LocalNodes<W>,
    lists: Lists<L>,
    outbox: Outbox<W, L>,
}

/// The attempts that wait for a list.
#[derive(Debug)]
struct Lists<L> {
    /// Whether a list is under way, or about to be sent.
    running: bool,
    /// The receivers of the next list. Those of attempts that have left are among them.
    waiting: Vec<L>,
}

impl<L> Default for Lists<L> {
    fn default() -> Self {
        Self {
            running: false,
            waiting: Vec::new(),
        }
    }
}

impl<W, L> Default for LocalQueue<W, L> {
    fn default() -> Self {
        Self {
            session: SessionNumber::default(),
            to_create: BTreeMap::new(),
            had_turn: BTreeSet::new(),
            nodes: LocalNodes::default(),
            lists: Lists::default(),
            outbox: Outbox::default(),
        }
    }
}

/// The order of creates.
impl<W, L> LocalQueue<W, L> {
    /// Returns whether an attempt may create a node in a session now. If not, `wake` is kept, and
    /// gets a notice when to ask again.
    pub(crate) fn may_create(
        &mut self,
        number: AttemptNumber,
        session: SessionNumber,
        wake: W,
    ) -> bool {
        self.begin_session(session);
        // The attempt has usually claimed its turn when it arrived, and then nothing changes here.
        self.claim_turn(number);
        let is_next = self
            .to_create
            .first_key_value()
            .is_some_and(|(next, _)| *next == number);
        // A create in an older session fails anyway.
        if session < self.session || is_next {
            return true;
        }
        // An attempt that is not in `to_create` has created in this session, or stepped aside. A
        // further create gets a number behind all others, so waiting for a turn would gain nothing.
        let Some(kept) = self.to_create.get_mut(&number) else {
            return true;
        };
        // The waker of an earlier question is not kept: each is returned once, with a notice.
        self.outbox.add(kept.replace(wake), Notice::Look);
        false
    }

    /// Has later arrivals wait for this attempt to create, even if they ask first.
    pub(crate) fn claim_turn(&mut self, number: AttemptNumber) {
        // An attempt that has had its turn in this session gets no other one: it would hold up the
        // attempts that have arrived since.
        if !self.had_turn.contains(&number) {
            self.to_create.entry(number).or_default();
        }
    }

    /// Lets the others go ahead of an attempt that has sent its create, or that pauses as the retry
    /// policy says and creates whenever it returns.
    pub(crate) fn step_aside(&mut self, number: AttemptNumber, session: SessionNumber) {
        // An attempt that still pauses in an older session keeps its turn in the current one.
        if session == self.session {
            self.end_turn(number);
        }
    }

    /// Records that the create of an attempt failed because the directory is missing: attempts that
    /// have not sent theirs wait until it has tried again, or steps aside.
    pub(crate) fn directory_missing(&mut self, number: AttemptNumber, session: SessionNumber) {
        // A try is in neither set, so no attempt waits for it. No waker is kept, because the
        // attempt is not waiting: it creates the directory, or pauses, and asks again.
        if session == self.session && self.had_turn.remove(&number) {
            self.to_create.insert(number, None);
        }
    }

    /// Removes an attempt that no longer contends.
    pub(crate) fn remove(&mut self, number: AttemptNumber) {
        // An attempt that leaves before it has created has to let the next one create.
        self.end_turn(number);
        self.had_turn.remove(&number);
    }

    fn end_turn(&mut self, number: AttemptNumber) {
        let Some(wake) = self.to_create.remove(&number) else {
            return;
        };
        self.had_turn.insert(number);
        // The attempt itself has usually left or is not waiting, but no waker is dropped without a
        // notice.
        self.outbox.add(wake, Notice::Turn);
        // The first attempt that is left may have asked while others were before it. Only this one
        // is woken, because all others have it before them.
        let next = self
            .to_create
            .first_entry()
            .and_then(|mut next| next.get_mut().take());
        self.outbox.add(next, Notice::Turn);
    }

    /// Begins a newer session, if it is one: forgets everything about the last one, and all
    /// contending attempts create again.
    fn begin_session(&mut self, session: SessionNumber) {
        if session <= self.session {
            return;
        }
        self.session = session;
        for wake in self.to_create.values_mut() {
            // Attempts that wait for their turn do so in an older session, which has ended. When
            // woken, they ask again in that session, may create, and learn of its end by the
            // failure.
            self.outbox.add(wake.take(), Notice::Turn);
        }
        // The nodes of the older session go with it. By their numbers, which are those of arrival,
        // all attempts get their old places among each other (docs/protocol.md#one-session).
        self.to_create.extend(
            std::mem::take(&mut self.had_turn)
                .into_iter()
                .map(|number| (number, None)),
        );
        // Reports about nodes of the older session are ignored from now on, so nothing else would
        // wake these attempts.
        let waiting = std::mem::take(&mut self.nodes).into_waiting();
        self.outbox
            .notices
            .extend(waiting.map(|wake| (wake, Notice::Look)));
        // A list of the older session may still be under way. Its task ends when it asks for
        // another, since `next_list` has none for that session.
        self.lists.running = false;
        self.drop_lists();
    }

    /// Begins a session if it is newer than the current one. Returns whether it is current now.
    fn enter_if_current(&mut self, session: SessionNumber) -> bool {
        self.begin_session(session);
        session == self.session
    }
}

/// Shared lists.
impl<W, L> LocalQueue<W, L> {
    /// Asks for a list that is sent after this call; there is none if the session is not current.
    /// Returns whether the caller must start to send lists, until [`next_list`](Self::next_list)
    /// has none to send.
    pub(crate) fn ask_list(&mut self, session: SessionNumber, receiver: L) -> bool {
        if !self.enter_if_current(session) {
            self.outbox.no_list.push(receiver);
            return false;
        }
        // A list that is under way may have been sent before this attempt's create, so the attempt
        // gets the next one (docs/protocol.md#shared-lists).
        self.lists.waiting.push(receiver);
        !std::mem::replace(&mut self.lists.running, true)
    }

    /// Begins a list. Returns its receivers; `None` if no list is needed, or a newer session has
    /// begun.
    pub(crate) fn next_list(&mut self, session: SessionNumber) -> Option<Vec<L>> {
        if session != self.session {
            return None;
        }
        // If no attempt waits, the task ends with this answer. The flag changes in the same
        // decision, so the next attempt that asks starts another task, and no attempt is missed.
        self.lists.running = !self.lists.waiting.is_empty();
        self.lists
            .running
            .then(|| std::mem::take(&mut self.lists.waiting))
    }

    /// Records that the task that sends the lists has ended before it was done.
    pub(crate) fn stop_lists(&mut self, session: SessionNumber) {
        // The task of an older session must not end the lists of the current one.
        if session == self.session {
            self.lists.running = false;
            self.drop_lists();
        }
    }

    fn drop_lists(&mut self) {
        self.outbox.no_list.append(&mut self.lists.waiting);
    }
}

/// Nodes, and the waits in memory.
impl<W, L> LocalQueue<W, L> {
    /// Returns whether a node of the session is known to exist: then the next one may need no list.
    pub(crate) fn may_skip_list(&self, session: SessionNumber) -> bool {
        session == self.session && self.nodes.has_last()
    }

    /// Adds a created node. Returns the node of the session right before it, if that is certain
    /// without a list.
    pub(crate) fn created(
        &mut self,
        session: SessionNumber,
        name: &str,
        sequence: i32,
    ) -> Option<Neighbour> {
        if !self.enter_if_current(session) {
            return None;
        }
        self.nodes.created(name, sequence)
    }

    /// Adds a node of the session that is known from a list.
    pub(crate) fn add_listed(&mut self, session: SessionNumber, name: &str) {
        if self.enter_if_current(session) {
            self.nodes.find_or_add(name);
        }
    }

    /// Returns whether a name is that of a node of the session that can be waited for in memory.
    pub(crate) fn knows(&self, session: SessionNumber, name: &str) -> bool {
        session == self.session && self.nodes.knows(name)
    }

    /// Notes how many contenders a list shows before a node.
    pub(crate) fn set_ahead(&mut self, session: SessionNumber, name: &str, ahead: usize) {
        if session == self.session {
            self.nodes.set_ahead(name, ahead);
        }
    }

    /// Returns how many contenders were before a node when it was created or listed last, as far as
    /// is known.
    pub(crate) fn ahead(&self, session: SessionNumber, name: &str) -> usize {
        if session == self.session {
            self.nodes.ahead(name)
        } else {
            0
        }
    }

    /// Returns whether a live contender is known to be ahead of the node behind the node `name`:
    /// `name` itself, or a node that it waits for. `leaving` returns whether a node of the session
    /// is being deleted.
    pub(crate) fn is_live(
        &self,
        session: SessionNumber,
        name: &str,
        leaving: &dyn Fn(&str) -> bool,
    ) -> bool {
        session == self.session && self.nodes.is_live(name, leaving)
    }

    /// Lets the node `own` wait for another node of its session. Returns `false` if that node is
    /// not known; otherwise `wake` gets a notice when it is gone.
    pub(crate) fn wait(
        &mut self,
        session: SessionNumber,
        own: &str,
        before: &Neighbour,
        wake: W,
    ) -> bool {
        if !self.enter_if_current(session) {
            return false;
        }
        self.nodes.find_or_add(own);
        // A node waits for one other: the end of an earlier one must not wake its attempt again.
        self.stop_waiting(session, own);
        self.nodes.wait(own, before, wake)
    }

    /// Records that the attempt with the node `own` watches a node of another session.
    pub(crate) fn watch(&mut self, session: SessionNumber, own: &str, predecessor: &str) {
        self.stop_waiting(session, own);
        if session == self.session {
            self.nodes.watch(own, predecessor);
        }
    }

    /// Records that the attempt with the node `own` waits for no node: it lists the directory, or
    /// has the lock.
    pub(crate) fn stop_waiting(&mut self, session: SessionNumber, own: &str) {
        if session == self.session {
            // The attempt has usually dropped the receiver, because its wait was interrupted.
            let wake = self.nodes.stop_waiting(own);
            self.outbox.add(wake, Notice::Look);
        }
    }

    /// Returns the node to which a lock held with the node `own` can be handed over.
    pub(crate) fn heir(&self, session: SessionNumber, own: &str) -> Option<Arc<str>> {
        if session == self.session {
            self.nodes.heir(own)
        } else {
            None
        }
    }

    /// Removes a node that is gone, or whose deletion is refused.
    pub(crate) fn gone(&mut self, session: SessionNumber, name: &str, how: Gone<'_>) {
        // A late report about an older session concerns nodes that have been forgotten.
        if session == self.session {
            self.nodes.gone(name, how, &mut self.outbox.notices);
        }
    }

    /// Returns whether nothing is left in this session. Knowledge of an older session is dropped
    /// when an attempt begins in a newer one.
    #[cfg(test)]
    pub(crate) fn is_empty(&self, session: SessionNumber) -> bool {
        let lists = !self.lists.running && self.lists.waiting.is_empty();
        let turns = self.to_create.is_empty() && self.had_turn.is_empty();
        let nodes = session > self.session || self.nodes.is_empty();
        lists && turns && nodes
    }

    /// Takes the notices for other attempts since the last call.
    #[must_use = "waiting attempts are woken only by these notices"]
    pub(crate) fn take_outbox(&mut self) -> Outbox<W, L> {
        std::mem::take(&mut self.outbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::numbers::by_value::{
        attempt_number as attempt, session_number as session,
    };

    type Queue = LocalQueue<&'static str, &'static str>;

    impl Queue {
        fn notices(&mut self) -> Vec<(&'static str, Notice)> {
            let Outbox { notices, no_list } = self.take_outbox();
            assert!(no_list.is_empty());
            notices
        }
    }

    #[test]
    fn sequential_callers_do_not_wait() {
        let mut queue = Queue::default();
        for number in [5, 6, 4].map(attempt) {
            assert!(queue.may_create(number, session(1), ""));
            queue.step_aside(number, session(1));
            // A repetition in the same session.
            assert!(queue.may_create(number, session(1), ""));
        }
    }

    // Shows: arrival-order
    #[test]
    fn order_survives_into_next_session() {
        let mut queue = Queue::default();
        for number in (1..=4).map(attempt) {
            assert!(queue.may_create(number, session(1), ""));
            queue.step_aside(number, session(1));
        }
        queue.remove(attempt(2));
        assert!(
            !queue.may_create(attempt(4), session(2), "fourth")
                && !queue.may_create(attempt(3), session(2), "third")
        );
        assert!(queue.may_create(attempt(1), session(2), "first"));
        assert_eq!(queue.notices(), []);
        queue.step_aside(attempt(1), session(2));
        // An attempt that was notified may leave before it asks again.
        assert_eq!(queue.notices(), [("third", Notice::Turn)]);
        queue.remove(attempt(3));
        assert_eq!(queue.notices(), [("fourth", Notice::Turn)]);
        assert!(queue.may_create(attempt(4), session(2), "fourth"));
        queue.step_aside(attempt(4), session(2));
        assert!(queue.may_create(attempt(9), session(2), "ninth"));
    }

    // Shows: arrival-order
    #[test]
    fn claimed_turn_precedes_other_creates() {
        let mut queue = Queue::default();
        queue.claim_turn(attempt(1));
        assert!(!queue.may_create(attempt(2), session(1), "second"));
        assert!(queue.may_create(attempt(1), session(1), "first"));
        queue.step_aside(attempt(1), session(1));
        assert_eq!(queue.notices(), [("second", Notice::Turn)]);
        assert!(queue.may_create(attempt(2), session(1), "second"));
        // An attempt that leaves without asking keeps no other waiting.
        queue.claim_turn(attempt(3));
        queue.remove(attempt(3));
        queue.step_aside(attempt(2), session(1));
        assert_eq!(queue.notices(), []);
    }

    #[test]
    fn retrying_waiter_holds_followers_back() {
        let mut queue = Queue::default();
        for number in [1, 2].map(attempt) {
            assert!(queue.may_create(number, session(1), ""));
            queue.step_aside(number, session(1));
        }
        // The directory was missing, for both.
        queue.directory_missing(attempt(1), session(1));
        queue.directory_missing(attempt(2), session(1));
        assert!(
            !queue.may_create(attempt(3), session(1), "third")
                && !queue.may_create(attempt(2), session(1), "second")
        );
        assert!(queue.may_create(attempt(1), session(1), ""));
        queue.step_aside(attempt(1), session(1));
        assert_eq!(queue.notices(), [("second", Notice::Turn)]);
        assert!(
            queue.may_create(attempt(2), session(1), "")
                && !queue.may_create(attempt(3), session(1), "third")
        );
        // The first attempt fails again, and pauses.
        queue.directory_missing(attempt(1), session(1));
        assert!(!queue.may_create(attempt(3), session(1), "third"));
        queue.step_aside(attempt(1), session(1));
        queue.step_aside(attempt(2), session(1));
        assert!(queue.may_create(attempt(3), session(1), "third"));
        assert!(
            queue.may_create(attempt(1), session(1), "first"),
            "and does not wait for those that went ahead of it"
        );
        queue.step_aside(attempt(1), session(1));
        queue.directory_missing(attempt(2), session(1));
        // Reports of a session that is over change nothing.
        queue.directory_missing(attempt(1), session(0));
        queue.step_aside(attempt(2), session(1));
        assert!(queue.may_create(attempt(3), session(1), "third"));
        // An attempt that pauses in a session that is over keeps its turn in the next.
        assert!(!queue.may_create(attempt(2), session(2), "second"));
        queue.notices();
        queue.step_aside(attempt(1), session(1));
        assert_eq!(queue.notices(), []);
    }

    // Shows: shared-lists
    #[test]
    fn list_serves_only_earlier_requests() {
        let mut queue = Queue::default();
        assert!(queue.ask_list(session(1), "first") && !queue.ask_list(session(1), "second"));
        assert_eq!(queue.next_list(session(1)), Some(vec!["first", "second"]));
        assert!(!queue.ask_list(session(1), "third"));
        assert_eq!(queue.next_list(session(1)), Some(vec!["third"]));
        assert_eq!(queue.next_list(session(1)), None);
        assert!(
            queue.ask_list(session(1), "fourth"),
            "the one before has stopped"
        );
        queue.stop_lists(session(1));
        assert_eq!(queue.take_outbox().no_list, ["fourth"]);
        assert!(queue.is_empty(session(1)));
    }

    #[test]
    fn nodes_are_known_per_session() {
        let mut queue = Queue::default();
        assert!(queue.may_create(attempt(1), session(1), "") && !queue.may_skip_list(session(1)));
        queue.step_aside(attempt(1), session(1));
        assert_eq!(queue.created(session(1), "b", 2), None);
        queue.add_listed(session(1), "a");
        queue.set_ahead(session(1), "b", 5);
        queue.set_ahead(session(2), "b", 7);
        let known = |session| {
            let knows = ["a", "b", "c"].map(|name| queue.knows(session, name));
            (
                knows,
                queue.may_skip_list(session),
                queue.ahead(session, "b"),
            )
        };
        assert_eq!(known(session(1)), ([true, true, false], true, 5));
        assert_eq!(known(session(2)), ([false; 3], false, 0));
        let is_live = |session, leaves| queue.is_live(session, "b", &|_| leaves);
        assert_eq!(
            (
                is_live(session(1), false),
                is_live(session(1), true),
                is_live(session(2), false)
            ),
            (true, false, false)
        );
    }

    #[test]
    fn waits_in_memory_belong_to_session() {
        let mut queue = Queue::default();
        assert_eq!(queue.created(session(1), "a", 1), None);
        let before = queue.created(session(1), "b", 2).unwrap();
        assert!(queue.wait(session(1), "b", &before, "b waits"));
        let heir = |queue: &Queue, session| queue.heir(session, "a").as_deref() == Some("b");
        assert!(heir(&queue, session(1)) && !heir(&queue, session(2)));
        queue.stop_waiting(session(0), "b");
        queue.watch(session(0), "b", "theirs");
        assert!(
            heir(&queue, session(1)),
            "in a session that is over it waited for another"
        );
        assert!(queue.wait(session(1), "b", &before, "b waits again"));
        assert_eq!(queue.notices(), [("b waits", Notice::Look)]);
        queue.stop_waiting(session(1), "b");
        assert_eq!(
            (queue.notices(), heir(&queue, session(1))),
            (vec![("b waits again", Notice::Look)], false)
        );
        assert!(queue.wait(session(1), "b", &before, "b waits"));
        queue.watch(session(1), "b", "theirs");
        assert_eq!(
            (queue.notices(), heir(&queue, session(1))),
            (vec![("b waits", Notice::Look)], false)
        );
        assert!(
            queue.is_live(session(1), "b", &|_| true),
            "another session's node is before it"
        );
    }

    #[test]
    fn newer_session_clears_the_older() {
        let mut queue = Queue::default();
        for (sequence, name) in [(1, "a"), (2, "b")] {
            let number = attempt(sequence);
            assert!(queue.may_create(number, session(1), ""));
            queue.step_aside(number, session(1));
            let before = queue.created(session(1), name, i32::try_from(sequence).unwrap());
            assert!(before.is_none_or(|before| queue.wait(
                session(1),
                name,
                &before,
                "waits in memory"
            )));
        }
        assert!(queue.ask_list(session(1), "list"));
        queue.directory_missing(attempt(1), session(1));
        assert!(!queue.may_create(attempt(3), session(1), "waits for its turn"));
        assert!(!queue.may_create(attempt(2), session(2), "second"));
        let Outbox { notices, no_list } = queue.take_outbox();
        assert_eq!(
            notices,
            [
                ("waits for its turn", Notice::Turn),
                ("waits in memory", Notice::Look)
            ]
        );
        assert_eq!(no_list, ["list"]);
        assert!(
            !queue.knows(session(2), "a")
                && !queue.knows(session(1), "a")
                && !queue.may_skip_list(session(2))
        );
        assert_eq!(
            (queue.ahead(session(1), "b"), queue.ahead(session(2), "b")),
            (0, 0)
        );
        // Late calls change nothing.
        queue.gone(session(1), "a", Gone::Deleted);
        assert_eq!(
            (
                queue.created(session(1), "c", 3),
                queue.ask_list(session(1), "late")
            ),
            (None, false)
        );
        assert_eq!(
            (queue.next_list(session(1)), queue.take_outbox().no_list),
            (None, vec!["late"])
        );
        assert!(
            queue.may_create(attempt(3), session(1), "late"),
            "where its create fails"
        );
    }
}
