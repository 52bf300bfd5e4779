//! Attempts, from the beginning to the grant: carries out the steps of the real `Acquiring` against
//! the directory of the model, in the order in which the engine does.

use std::collections::BTreeSet;

use super::{Caller, Creation, Doing, Lister, ModelClient, Role, World, copy};
use crate::protocol::acquire::{
    AcquireEvent, AcquireOutcome, AcquireRequest, AcquireStep, Acquiring, IfBusy, NoGrant, Orphans,
    OwnNode, OwnPredecessor, Standing,
};
use crate::protocol::failure::{Answer, FailureKind};
use crate::protocol::local_queue::Notice;
use crate::protocol::node_name::{Child, Kind, classify};
use crate::protocol::numbers::SessionNumber;
use crate::protocol::numbers::by_value::attempt_number;

impl World<'_> {
    /// Begins an attempt of a caller.
    pub(super) fn start(&mut self, i: usize) {
        let Role {
            kind,
            if_busy,
            uses_fair_lock,
            ..
        } = match &mut self.callers[i].role {
            // An enumerated team has fixed roles. Callers of drawn schedules draw a new one for
            // each attempt.
            Some(role) => {
                role.attempts -= 1;
                *role
            }
            None => self.draw_role(i),
        };
        self.attempts += 1;
        let caller = &mut self.callers[i];
        caller.if_busy = if_busy;
        caller.uses_fair_lock = uses_fair_lock;
        caller.kind = kind;
        caller.number = self.attempts;
        caller.deleted_by_hand = false;
        caller.doing = Doing::Begins;
    }

    fn draw_role(&mut self, i: usize) -> Role {
        let if_busy = if self.choices.chance(64) {
            IfBusy::Fail
        } else {
            IfBusy::Wait
        };
        // Mutexes and fair locks share a queue, and so do readers and writers.
        let reads = !self.is_exclusive() && self.choices.chance(140);
        let uses_fair_lock = self.is_exclusive() && self.choices.chance(190);
        let kind = if reads { Kind::Shared } else { Kind::Exclusive };
        Role {
            client: self.callers[i].client,
            kind,
            if_busy,
            uses_fair_lock,
            downgrades: false,
            attempts: 0,
            holds_long: false,
        }
    }

    /// Ends an attempt.
    pub(super) fn end(&mut self, i: usize) {
        let number = self.callers[i].number;
        self.callers[i].doing = Doing::Idle;
        self.clients[self.callers[i].client]
            .contending
            .remove(&number);
        // An attempt that leaves passes its turn on, or all behind it would wait for its create.
        self.queue(self.callers[i].client, |queue, _| {
            queue.remove(attempt_number(number));
        });
    }

    /// The caller leaves, or gets the answer that it does not get the lock.
    pub(super) fn give_up(&mut self, i: usize, orphans: Orphans) {
        self.clean(i, orphans);
        self.end(i);
    }

    pub(super) fn answer(&mut self, i: usize, question: usize) -> Option<Notice> {
        self.callers[i]
            .notice
            .take()
            .filter(|(answered, _)| *answered == question)
            .map(|(_, notice)| notice)
    }

    pub(super) fn step(&mut self, i: usize) {
        match std::mem::replace(&mut self.callers[i].doing, Doing::Idle) {
            // With few contenders the lock is free most of the time, as grants without a list
            // require.
            Doing::Idle if self.few && !self.choices.chance(24) => {}
            Doing::Idle => self.start(i),
            Doing::Begins => {
                let Caller {
                    kind,
                    if_busy,
                    uses_fair_lock,
                    ..
                } = self.callers[i];
                // Only waiters of a fair lock wait in memory for a node of the same client. The
                // other attempts watch it, like any other node.
                let waits = if uses_fair_lock {
                    OwnPredecessor::InMemory
                } else {
                    OwnPredecessor::Watched
                };
                let (contender, step) = Acquiring::new(self.directory.naming, kind, if_busy, waits);
                self.callers[i].doing = Doing::Queued(contender, step);
            }
            Doing::ForTurn(contender, question) => {
                if self.answer(i, question).is_some() {
                    self.may_create(i, contender);
                } else {
                    self.waits_on(i, Doing::ForTurn(contender, question));
                }
            }
            Doing::ForList(contender, asked, creation) => {
                let listed = self.callers[i]
                    .listed
                    .take()
                    .filter(|(answered, _)| *answered == asked);
                match (listed, creation) {
                    (Some((_, list)), Some(Creation { id, create })) => {
                        // The create was answered before the list, but both are handled together,
                        // as in the engine.
                        let (list, standing) = (Some(list), Standing::Unknown);
                        let event = AcquireEvent::Created {
                            id,
                            create,
                            list,
                            standing,
                        };
                        self.after_create(i, contender, event);
                    }
                    (Some((_, list)), None) => self.on(i, contender, AcquireEvent::Listed(list)),
                    (None, creation) => {
                        self.waits_on(i, Doing::ForList(contender, asked, creation));
                    }
                }
            }
            Doing::Holding { name } => {
                if self.downgrades_next(i) {
                    self.downgrade(i, name);
                } else {
                    // The lock is not handed over if it was lost, or if the outcome of a write is
                    // unknown.
                    let hand_over = self.is_exclusive() && !self.choices.chance(36);
                    self.release(i, name, hand_over);
                }
            }
            Doing::Downgrading {
                name,
                new,
                downgrade,
            } => self.downgrading(i, name, new, downgrade),
            Doing::Watching(contender, name) => {
                // A watch may also end because the connection is interrupted. In both cases the
                // attempt lists again.
                if !self.directory.nodes.contains_key(&name) || self.choices.chance(16) {
                    self.on(i, contender, AcquireEvent::WaitOver);
                } else {
                    self.waits_on(i, Doing::Watching(contender, name));
                }
            }
            Doing::Waiting(contender, question) => {
                let event = match self.answer(i, question) {
                    // One transaction has deleted the holder's node while this attempt's existed.
                    Some(Notice::HandedOver) => AcquireEvent::HandedOver,
                    // The node in memory is gone, and had waited for a node of another session,
                    // which this attempt watches now.
                    Some(Notice::Watch { predecessor }) => AcquireEvent::Inherited { predecessor },
                    // Only the servers can show who is first.
                    Some(Notice::Look) => AcquireEvent::WaitOver,
                    Some(notice) => panic!("{notice:?} to one that waits for a node"),
                    None => return self.waits_on(i, Doing::Waiting(contender, question)),
                };
                self.on(i, contender, event);
            }
            Doing::Queued(contender, AcquireStep::Do(AcquireRequest::Create)) => {
                self.may_create(i, contender);
            }
            Doing::Queued(_, AcquireStep::Finish(outcome)) => self.finish(i, outcome),
            Doing::Queued(contender, step) if self.choices.chance(10) => {
                // The caller leaves before the request is sent. The step may name nodes that are to
                // be deleted.
                self.give_up(i, contender.abandon_after(step));
            }
            Doing::Queued(contender, AcquireStep::Pause { .. }) => {
                if self.choices.chance(60) {
                    // The pause lasts for some time, so others may create in the meantime.
                    let number = self.callers[i].number;
                    let client = &mut self.clients[self.callers[i].client];
                    let current = client.session;
                    if let Some(session) = client.contending.get_mut(&number) {
                        *session = current;
                    }
                    self.queue(self.callers[i].client, |queue, _| {
                        queue.step_aside(attempt_number(number), current);
                    });
                }
                // The retry policy is never exhausted here, so an attempt ends by a grant, as a try
                // of a busy lock, or because its caller leaves.
                self.on(i, contender, AcquireEvent::Retry);
            }
            Doing::Queued(contender, AcquireStep::Do(request)) => self.ask(i, contender, request),
        }
    }

    /// Goes on waiting, unless the caller leaves.
    fn waits_on(&mut self, i: usize, doing: Doing) {
        self.callers[i].doing = doing;
        if self.choices.chance(16) {
            self.leave(i);
        }
    }

    /// Lets a caller leave that waits, unless it waits for the list of its create.
    pub(super) fn leave(&mut self, i: usize) {
        let step = AcquireStep::Do(AcquireRequest::List);
        match std::mem::replace(&mut self.callers[i].doing, Doing::Idle) {
            // A list leaves nothing on the servers, so the step stands for each wait without a
            // create or a watch.
            Doing::ForTurn(contender, _)
            | Doing::Waiting(contender, _)
            | Doing::ForList(contender, _, None) => {
                self.give_up(i, contender.abandon_after(step));
            }
            Doing::Watching(contender, predecessor) => {
                let step = AcquireStep::Do(AcquireRequest::Watch { predecessor });
                self.give_up(i, contender.abandon_after(step));
            }
            // The outcome of its create must be handled first.
            other => self.callers[i].doing = other,
        }
    }

    fn downgrades_next(&mut self, i: usize) -> bool {
        if self.is_exclusive() || self.callers[i].kind == Kind::Shared {
            return false;
        }
        match &mut self.callers[i].role {
            Some(role) => std::mem::take(&mut role.downgrades),
            None => self.choices.chance(if self.few { 25 } else { 100 }),
        }
    }

    /// Carries out a request that is not a create.
    pub(super) fn ask(&mut self, i: usize, contender: Acquiring, request: AcquireRequest) {
        let own = contender.queued_as().map(str::to_owned);
        let (is_exclusive, uses_fair_lock) = (self.is_exclusive(), self.callers[i].uses_fair_lock);
        let event = match request {
            AcquireRequest::Create => unreachable!("done by `may_create`"),
            AcquireRequest::WaitFor { before } => {
                let question = self.question();
                let own = own.unwrap_or_default();
                let wake = (i, question);
                if self.queue(self.callers[i].client, |queue, session| {
                    queue.wait(session, &own, &before, wake)
                }) {
                    self.callers[i].doing = Doing::Waiting(contender, question);
                    return;
                }
                // The queue does not know the predecessor any more, because that node is gone. The
                // attempt lists, as after the same answer to a watch.
                AcquireEvent::WatchFailed(FailureKind::NoNode.into())
            }
            AcquireRequest::MakeParents => {
                // Another attempt may have created the directory in the meantime.
                if self.directory.missing {
                    self.directory.make_again();
                }
                AcquireEvent::ParentsMade(Answer::Is(()))
            }
            AcquireRequest::List => {
                // The list decides what the attempt waits for next, so an earlier wait must not
                // wake it.
                if let Some(own) = own.filter(|_| is_exclusive) {
                    self.queue(self.callers[i].client, |queue, session| {
                        queue.stop_waiting(session, &own);
                    });
                }
                // Only the attempts of a fair lock share lists.
                if uses_fair_lock {
                    return self.ask_list(i, contender, None);
                }
                self.callers[i].seen = self.directory.clock;
                return self.list_alone(i, contender, None);
            }
            AcquireRequest::Inspect { .. } if self.choices.chance(40) => {
                AcquireEvent::Inspected(Answer::no(FailureKind::Unknown))
            }
            // A list has shown a node of a create without an answer. Its Stat shows that it is this
            // session's.
            AcquireRequest::Inspect { name } if self.directory.nodes.contains_key(&name) => {
                if is_exclusive {
                    self.queue(self.callers[i].client, |queue, session| {
                        queue.add_listed(session, &name);
                    });
                }
                let czxid = self.directory.czxids.get(&name).copied();
                AcquireEvent::Inspected(Answer::Is(OwnNode { name, czxid }))
            }
            AcquireRequest::Inspect { .. } => {
                AcquireEvent::Inspected(Answer::no(FailureKind::NoNode))
            }
            AcquireRequest::Watch { predecessor } => {
                // Waiters behind this node in memory inherit the watch if this attempt gives up.
                if let Some(own) = own.filter(|_| uses_fair_lock) {
                    self.queue(self.callers[i].client, |queue, session| {
                        queue.watch(session, &own, &predecessor);
                    });
                }
                if self.choices.chance(40) {
                    AcquireEvent::WatchFailed(FailureKind::Unknown.into())
                } else if self.directory.nodes.contains_key(&predecessor) {
                    self.callers[i].doing = Doing::Watching(contender, predecessor);
                    return;
                } else {
                    // The predecessor was deleted before the watch was set.
                    AcquireEvent::WatchFailed(FailureKind::NoNode.into())
                }
            }
        };
        self.on(i, contender, event);
    }

    pub(super) fn ask_list(&mut self, i: usize, contender: Acquiring, creation: Option<Creation>) {
        let question = self.question();
        let waker = (i, question, self.directory.clock);
        let (start, session) = self.queue(self.callers[i].client, |queue, session| {
            (queue.ask_list(session, waker), session)
        });
        // No task sends lists in this session at the moment, so this attempt starts one.
        if start {
            self.clients[self.callers[i].client].listers.push(Lister {
                session,
                under_way: None,
            });
        }
        assert!(!self.answered.contains(&question), "of this session");
        self.callers[i].doing = Doing::ForList(contender, question, creation);
    }

    /// Sends a list for one attempt. The servers carry it out now, and its answer arrives in a
    /// later step, so that changes come in between.
    fn list_alone(&mut self, i: usize, contender: Acquiring, creation: Option<Creation>) {
        let question = self.question();
        // A cut connection may lose the list, although a create before it was answered.
        let list = match self.choices.chance(40) {
            true => Answer::no(FailureKind::Unknown),
            false => self.directory.list(),
        };
        self.callers[i].listed = Some((question, list));
        self.callers[i].doing = Doing::ForList(contender, question, creation);
    }

    /// Takes one step of a task that sends lists.
    pub(super) fn list_next(&mut self, c: usize, k: usize) {
        let session = self.clients[c].listers[k].session;
        match self.clients[c].listers[k].under_way.take() {
            // The servers carry the list out when it is sent. The answer arrives in a later step,
            // so that changes come in between.
            None => match self.queue(c, |queue, _| queue.next_list(session)) {
                Some(wakers) => {
                    let sent = (wakers, self.directory.list(), self.directory.clock);
                    self.clients[c].listers[k].under_way = Some(sent);
                }
                // No attempt waits for a list, so the task ends.
                None => drop(self.clients[c].listers.remove(k)),
            },
            Some((wakers, list, sent)) => {
                // One answer serves all, so a lost one is lost for all.
                let lost = self.choices.chance(40);
                for waker in wakers {
                    assert!(
                        waker.2 <= sent,
                        "a list that was sent before it was asked for"
                    );
                    if self.listed(
                        waker,
                        if lost {
                            Answer::no(FailureKind::Unknown)
                        } else {
                            copy(&list)
                        },
                    ) {
                        self.callers[waker.0].seen = sent;
                    }
                }
                if self.choices.chance(10) {
                    // The task panics.
                    self.clients[c].listers.remove(k);
                    self.queue(c, |queue, _| queue.stop_lists(session));
                }
            }
        }
    }

    pub(super) fn on(&mut self, i: usize, mut contender: Acquiring, event: AcquireEvent) {
        let (c, kind) = (self.callers[i].client, self.callers[i].kind);
        // The state machine decides by the nodes that this client knows at this moment.
        let ModelClient { queue, session, .. } = &self.clients[c];
        let step = contender.on(event, &|name| queue.knows(*session, name));
        // If two creates of the attempt have succeeded, the later node is deleted at once
        // (docs/protocol.md#extra-node).
        for name in contender.take_orphans().names {
            self.pass_to_cleanup(i, name, false);
        }
        if let (Some(list), Some(own)) = (contender.take_list(), contender.queued_as()) {
            let ahead = list.in_the_way(Some(own), kind).0;
            self.queue(c, |queue, session| queue.set_ahead(session, own, ahead));
        }
        self.callers[i].doing = Doing::Queued(contender, step);
        // As in the engine, nothing happens between an answer and the outcome that it proves.
        if let Doing::Queued(_, AcquireStep::Finish(_)) = &self.callers[i].doing {
            self.step(i);
        }
    }

    /// Creates if it is its turn.
    pub(super) fn may_create(&mut self, i: usize, contender: Acquiring) {
        let (c, number) = (self.callers[i].client, self.callers[i].number);
        // A try does not wait for its turn, so it may overtake others
        // (docs/protocol.md#arrival-order).
        if self.callers[i].if_busy == IfBusy::Wait {
            let question = self.question();
            self.callers[i].notice = None;
            let ModelClient {
                contending,
                session,
                ..
            } = &mut self.clients[c];
            let session = *session;
            contending.entry(number).or_default();
            if !self.queue(c, |queue, session| {
                queue.may_create(attempt_number(number), session, (i, question))
            }) {
                self.callers[i].doing = Doing::ForTurn(contender, question);
                return;
            }
            let contending = &mut self.clients[c].contending;
            if contending[&number] != session {
                // Each attempt that arrived earlier and wants to create has created in this session
                // by now, or has stepped aside.
                let overtaken = contending
                    .range(..number)
                    .find(|(_, created)| **created != session);
                assert_eq!(overtaken, None, "{number} creates before it");
                contending.insert(number, session);
            }
        }
        self.create(i, contender);
    }

    pub(super) fn create(&mut self, i: usize, contender: Acquiring) {
        let (c, number, uses_fair_lock) = (
            self.callers[i].client,
            self.callers[i].number,
            self.callers[i].uses_fair_lock,
        );
        // Earlier requests of the session are decided before a new create.
        for other in self.callers_of(c) {
            self.settle_late(other);
        }
        let id = self.new_id(i);
        let beginning = self.directory.naming.prefix(&id, self.callers[i].kind);
        let kind = self.callers[i].kind;
        let expects = self.may_be_first(c, kind);
        // The list is left out if the number of the new node may suffice: after grants that found
        // the lock free, or behind the last node of this client.
        let list_too = self.queue(c, |queue, session| {
            !(expects || uses_fair_lock && queue.may_skip_list(session))
        });
        // The next attempt may create now. Its request follows on the same connection, so its
        // number is greater.
        self.queue(c, |queue, session| {
            queue.step_aside(attempt_number(number), session);
        });
        let mut standing = Standing::Unknown;
        let lost = self.choices.rarely(40, 3);
        let create = if lost > 0 {
            match lost {
                // The create is carried out and its answer is lost, or the create is still under
                // way, until a later request of the session is answered, or the create itself is
                // lost.
                1 if !self.directory.missing => {
                    drop(self.directory.create(self.owner(i), &beginning));
                }
                2 => self.callers[i].late = Some(beginning),
                _ => {}
            }
            Answer::no(FailureKind::Unknown)
        } else if self.directory.missing {
            // The attempt creates again in the same session, and until then those that arrived
            // later wait for it.
            if let Some(created) = self.clients[c].contending.get_mut(&number) {
                *created = SessionNumber::default();
            }
            self.queue(c, |queue, session| {
                queue.directory_missing(attempt_number(number), session);
            });
            Answer::no(FailureKind::NoNode)
        } else {
            let node = self.directory.create(self.owner(i), &beginning);
            self.callers[i].seen = self.directory.clock;
            if let (true, Child::Contender { sequence, .. }) = (
                self.is_exclusive(),
                classify(&node.name, self.directory.naming),
            ) {
                // A node that cleanup has to delete is not a live contender
                // (docs/protocol.md#live-contender).
                let leaving: BTreeSet<_> = self
                    .deletions
                    .iter()
                    .map(|deletion| deletion.name.clone())
                    .collect();
                let leaving = |name: &str| leaving.contains(name);
                // If the number follows that of the client's last node, that node is the
                // predecessor, without a list (docs/protocol.md#waiting-in-memory).
                let before = self.queue(c, |queue, session| {
                    let before = queue.created(session, &node.name, sequence);
                    before.filter(|before| queue.is_live(session, &before.name, &leaving))
                });
                standing = before.map_or(Standing::Unknown, Standing::Behind);
            }
            if !list_too && self.decide_first(c, &node) {
                standing = Standing::First;
            }
            Answer::Is(node)
        };
        if list_too && uses_fair_lock {
            return self.ask_list(i, contender, Some(Creation { id, create }));
        }
        if list_too {
            return self.list_alone(i, contender, Some(Creation { id, create }));
        }
        self.after_create(
            i,
            contender,
            AcquireEvent::Created {
                id,
                create,
                list: None,
                standing,
            },
        );
    }

    pub(super) fn after_create(&mut self, i: usize, mut contender: Acquiring, event: AcquireEvent) {
        if self.choices.chance(20) {
            // The caller left while the create was under way.
            let step = contender.on(event, &|_| false);
            let leave = contender.abandon_after(step);
            return self.give_up(i, leave);
        }
        self.on(i, contender, event);
    }

    pub(super) fn finish(&mut self, i: usize, outcome: AcquireOutcome) {
        match outcome {
            AcquireOutcome::Granted { name, czxid, also } => {
                // Creates without an answer may have left further nodes, which would block the next
                // contender.
                self.clean(i, also);
                let number = self.callers[i].number;
                self.note_grant(self.callers[i].client, &name, czxid);
                self.queue(self.callers[i].client, |queue, session| {
                    // A holder waits for no node, and a later notice must not reach its caller.
                    queue.stop_waiting(session, &name);
                    queue.remove(attempt_number(number));
                });
                self.clients[self.callers[i].client]
                    .contending
                    .remove(&number);
                if !self.directory.nodes.contains_key(&name) {
                    // The node existed when the servers showed it last. Only another process can
                    // have deleted it since then.
                    let deleted_by_hand = self.directory.deleted_by_hand.get(&name);
                    let in_time = deleted_by_hand.is_some_and(|at| *at > self.callers[i].seen);
                    assert!(in_time, "granted by a node that is not there");
                }
                self.callers[i].doing = Doing::Holding { name };
            }
            AcquireOutcome::NotGranted { why, orphans } => {
                // Only a try ends without a grant here: the servers of the model refuse no create,
                // list or watch, and repetitions are not bounded.
                assert_eq!(why, NoGrant::WouldBlock);
                self.give_up(i, orphans);
            }
        }
    }
}
