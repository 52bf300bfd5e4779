//! Holds, which are released, lost or converted.

use super::choices::Fate;
use super::{Doing, World};
use crate::protocol::convert::{
    Conversion, ConvertEvent, ConvertRequest, ConvertStep, Converted, Created,
};
use crate::protocol::failure::{Answer, FailureKind, Refusal};
use crate::protocol::node_name::{Child, Kind, classify};

impl World<'_> {
    /// The lock is released, or lost.
    pub(super) fn release(&mut self, i: usize, name: String, hand_over: bool) {
        self.leave_to_cleanup(i, name, hand_over);
        self.callers[i].doing = Doing::Idle;
    }

    pub(super) fn convert(&mut self, i: usize, name: String) {
        let id = self.new_id(i);
        let kind = match self.callers[i].kind {
            Kind::Shared => Kind::Exclusive,
            Kind::Exclusive => Kind::Shared,
        };
        let new = self
            .directory
            .naming
            .converted_name(&name, &id, kind)
            .unwrap();
        let (conversion, step) = match kind {
            Kind::Shared => Conversion::downgrade(name.clone(), new),
            Kind::Exclusive => Conversion::upgrade(name.clone(), new),
        };
        self.callers[i].doing = Doing::Converting {
            name,
            conversion,
            step,
        };
    }

    pub(super) fn converting(
        &mut self,
        i: usize,
        name: String,
        mut conversion: Conversion,
        step: ConvertStep,
    ) {
        let fate = match &step {
            ConvertStep::Do(ConvertRequest::List | ConvertRequest::Inspect { .. }) => {
                if self.choices.chance(40) {
                    Fate::Lost { carried_out: false }
                } else {
                    Fate::Answered
                }
            }
            ConvertStep::Do(_) => self.choices.fate(),
            _ => Fate::Answered,
        };
        let lost = matches!(fate, Fate::Lost { .. });
        let happens = fate != (Fate::Lost { carried_out: false });
        let unknown = || ConvertEvent::Created(Created::Failed(FailureKind::Unknown.into()));
        let owner = self.owner(i);
        let directory = &mut self.directory;
        let event = match step {
            ConvertStep::Pause { .. } => ConvertEvent::Retry,
            ConvertStep::Do(ConvertRequest::List) if lost => {
                ConvertEvent::Listed(Answer::no(FailureKind::Unknown))
            }
            ConvertStep::Do(ConvertRequest::List) => ConvertEvent::Listed(directory.list()),
            ConvertStep::Do(ConvertRequest::Inspect { .. }) if lost => {
                ConvertEvent::Inspected(Answer::no(FailureKind::Unknown))
            }
            ConvertStep::Do(ConvertRequest::Inspect { name }) => {
                ConvertEvent::Inspected(match directory.nodes.contains_key(&name) {
                    true => Answer::Is(1),
                    false => Answer::no(FailureKind::NoNode),
                })
            }
            ConvertStep::Do(ConvertRequest::Swap { create, delete }) => {
                let made = happens.then(|| directory.swap(owner, &create, &delete));
                made.filter(|_| !lost)
                    .map_or_else(unknown, ConvertEvent::Created)
            }
            ConvertStep::Do(ConvertRequest::Create { name }) => {
                let made = happens.then(|| directory.make(owner, &name));
                made.filter(|_| !lost)
                    .map_or_else(unknown, ConvertEvent::Created)
            }
            ConvertStep::Do(ConvertRequest::Delete { .. }) if self.choices.chance(20) => {
                self.callers[i].refused = true;
                ConvertEvent::Deleted(Answer::no(FailureKind::Refused(Refusal::Other)))
            }
            ConvertStep::Do(ConvertRequest::Delete { name }) => {
                if happens {
                    directory.nodes.remove(&name);
                }
                ConvertEvent::Deleted(if lost {
                    Answer::no(FailureKind::Unknown)
                } else {
                    Answer::Is(())
                })
            }
            ConvertStep::Finish(converted) => return self.converted(i, name, converted),
        };
        let step = conversion.on(event);
        self.callers[i].doing = Doing::Converting {
            name,
            conversion,
            step,
        };
    }

    pub(super) fn converted(&mut self, i: usize, name: String, converted: Converted) {
        match converted {
            Converted::Done { node, .. } => {
                let Child::Contender { kind, .. } = classify(&node, self.directory.naming) else {
                    panic!("converted to {node}");
                };
                self.callers[i].kind = kind;
                self.callers[i].doing = Doing::Holding { name: node };
            }
            Converted::Kept(_) => self.callers[i].doing = Doing::Holding { name },
            Converted::Lost { delete, .. } => {
                let caller = &self.callers[i];
                assert!(
                    caller.deleted_by_hand || caller.refused,
                    "lost without a reason"
                );
                for name in &delete {
                    if self.callers[i].refused && self.choices.chance(100) {
                        self.directory.stuck.insert(name.clone());
                    } else {
                        self.delete(name);
                    }
                }
                self.callers[i].doing = Doing::Idle;
            }
            Converted::SessionGone => panic!("sessions end by `expire` here"),
        }
    }
}
