//! Which nodes of a multi-lock are kept (docs/protocol.md#multi-lock-at-once). Pure.
//!
//! A multi-lock acquires its members in the order of their paths. It creates the nodes of several together,
//! keeps those up to the first that has to wait, and deletes the others. The model below shows that this
//! deadlocks neither with others of its kind nor with locks that are nested in that order.

/// Returns how many of the nodes that were created together are kept, given which of them are first in their
/// queues: those up to the one that has to wait.
pub(crate) fn kept(are_first: impl Iterator<Item = bool>) -> usize {
    let mut kept = 0;
    for is_first in are_first {
        kept += 1;
        if !is_first {
            break;
        }
    }
    kept
}

/// Returns for how many of `all` members the nodes are created together, given which of the first ones have
/// nothing in their way: up to the first that has. What is not known is taken for free.
pub(crate) fn of_use(are_free: impl Iterator<Item = bool>, all: usize) -> usize {
    are_free.zip(1..).find(|(is_free, _)| !is_free).map_or(all, |(_, index)| index)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;

    #[test]
    fn those_up_to_the_first_that_has_to_wait_are_kept() {
        let kept = |are_first: &[bool]| kept(are_first.iter().copied());
        assert_eq!(kept(&[]), 0);
        assert_eq!(kept(&[true, true, true]), 3);
        assert_eq!(kept(&[false, true, true]), 1);
        assert_eq!(kept(&[true, false, true, false]), 2);
        assert_eq!(kept(&[true, true, false]), 3);
    }

    #[test]
    fn nodes_are_created_up_to_the_first_with_something_in_its_way() {
        let of_use = |are_free: &[bool], all| of_use(are_free.iter().copied(), all);
        assert_eq!(of_use(&[true, true], 2), 2);
        assert_eq!(of_use(&[true, false, true], 3), 2);
        assert_eq!(of_use(&[false, true], 2), 1);
        // No answer: the create reports it.
        assert_eq!(of_use(&[], 3), 3);
    }

    /// A contender of the model: the locks that it wants, in the order in which it acquires them.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Contender {
        wants: Vec<usize>,
        /// Whether it creates the nodes of all that are left together; otherwise it nests them.
        together: bool,
        /// How many of its locks it holds, from the first on.
        held: usize,
        /// How many of its locks it has a node for, of its current attempt.
        nodes: usize,
        /// Whether the nodes behind those that it holds have been judged.
        judged: bool,
        /// The number of its next node in each queue, so that no two nodes are one.
        next: u8,
        done: bool,
    }

    type Node = (usize, u8);

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct State {
        queues: [Vec<Node>; 3],
        contenders: Vec<Contender>,
        /// Nodes that their contenders have given up, by queue: each goes at any time.
        leaving: Vec<(usize, Node)>,
        /// How many nodes another hand may still delete.
        deletions: usize,
    }

    impl State {
        fn new(contenders: &[(&[usize], bool)], deletions: usize) -> Self {
            let contender = |&(wants, together): &(&[usize], bool)| Contender {
                wants: wants.to_vec(),
                together,
                held: 0,
                nodes: 0,
                judged: true,
                next: 0,
                done: false,
            };
            let contenders = contenders.iter().map(contender).collect();
            Self { queues: Default::default(), contenders, leaving: Vec::new(), deletions }
        }

        /// Returns the node of a contender's current attempt in a queue.
        fn node(&self, who: usize, queue: usize) -> Option<Node> {
            let mut own = self.queues[queue].iter().filter(|node| node.0 == who);
            own.rfind(|node| !self.leaving.contains(&(queue, **node))).copied()
        }

        fn is_first(&self, who: usize, queue: usize) -> bool {
            self.node(who, queue).is_some_and(|node| self.queues[queue].first() == Some(&node))
        }

        fn give_up(&mut self, who: usize, from: usize) {
            let wants = self.contenders[who].wants.clone();
            for queue in wants.into_iter().skip(from) {
                if let Some(node) = self.node(who, queue) {
                    self.leaving.push((queue, node));
                }
            }
            self.leaving.sort_unstable();
        }

        /// Returns all states that may follow.
        fn next(&self) -> Vec<Self> {
            let mut next = Vec::new();
            for (index, (queue, node)) in self.leaving.iter().enumerate() {
                let mut state = self.clone();
                state.queues[*queue].retain(|other| other != node);
                state.leaving.remove(index);
                next.push(state);
            }
            for who in 0..self.contenders.len() {
                next.extend(self.step(who));
                next.extend(self.delete_by_hand(who));
            }
            next
        }

        fn step(&self, who: usize) -> Option<Self> {
            let mut state = self.clone();
            let contender = &self.contenders[who];
            let Contender { held, nodes, ref wants, .. } = *contender;
            if contender.done {
                return None;
            }
            if held == wants.len() {
                state.give_up(who, 0);
                state.contenders[who].done = true;
            } else if nodes == held {
                let upto = if contender.together { wants.len() } else { held + 1 };
                for queue in &wants[held..upto] {
                    state.queues[*queue].push((who, contender.next));
                }
                let contender = &mut state.contenders[who];
                (contender.nodes, contender.judged, contender.next) = (upto, false, contender.next + 1);
            } else if !contender.judged {
                let kept = kept(wants[held..nodes].iter().map(|queue| self.is_first(who, *queue)));
                state.give_up(who, held + kept);
                let contender = &mut state.contenders[who];
                contender.nodes = held + kept;
                // The last one is granted by itself.
                (contender.held, contender.judged) = (held + kept - 1, true);
            } else if self.is_first(who, wants[held]) {
                state.contenders[who].held += 1;
            } else {
                return None;
            }
            Some(state)
        }

        /// A held node is deleted: all are given up, and it begins anew.
        fn delete_by_hand(&self, who: usize) -> Option<Self> {
            let contender = &self.contenders[who];
            let queue = *contender.wants.first()?;
            let node = self.node(who, queue).filter(|_| self.deletions > 0 && contender.held > 0)?;
            if contender.done || !contender.together {
                return None;
            }
            let mut state = self.clone();
            state.queues[queue].retain(|other| *other != node);
            state.give_up(who, 0);
            let contender = &mut state.contenders[who];
            (contender.held, contender.nodes, contender.judged) = (0, 0, true);
            state.deletions -= 1;
            Some(state)
        }

        fn is_done(&self) -> bool {
            self.leaving.is_empty() && self.contenders.iter().all(|contender| contender.done)
        }

        fn holders(&self, queue: usize) -> usize {
            let holds = |contender: &&Contender| {
                !contender.done && contender.wants[..contender.held].contains(&queue)
            };
            self.contenders.iter().filter(holds).count()
        }
    }

    /// Visits every state; all contenders come to their end from each, and no lock has two holders.
    fn explore(start: State) -> usize {
        let mut numbers = HashMap::from([(start.clone(), 0_usize)]);
        let (mut before, mut done): (Vec<Vec<usize>>, Vec<usize>) = (vec![Vec::new()], Vec::new());
        let mut states = vec![start.clone()];
        let mut open = VecDeque::from([start]);
        while let Some(state) = open.pop_front() {
            let number = numbers[&state];
            assert!((0..3).all(|queue| state.holders(queue) <= 1), "two hold a lock: {state:?}");
            if state.is_done() {
                assert!(state.queues.iter().all(Vec::is_empty), "a node is left: {state:?}");
                done.push(number);
            }
            for next in state.next() {
                let known = numbers.len();
                let index = *numbers.entry(next.clone()).or_insert(known);
                if index == known {
                    before.push(Vec::new());
                    states.push(next.clone());
                    open.push_back(next);
                }
                before[index].push(number);
            }
        }
        let mut ends = vec![false; numbers.len()];
        while let Some(number) = done.pop() {
            if !std::mem::replace(&mut ends[number], true) {
                done.extend(&before[number]);
            }
        }
        let stuck = ends.iter().position(|ends| !ends);
        assert!(stuck.is_none(), "no way out: {:?}", stuck.map(|number| &states[number]));
        numbers.len()
    }

    const MEMBERS: [&[usize]; 3] = [&[0, 1, 2], &[1, 2], &[0, 2]];

    #[test]
    fn any_three_come_to_their_end() {
        let mut visited = 0;
        for (index, one) in MEMBERS.into_iter().enumerate() {
            for other in MEMBERS.into_iter().skip(index) {
                for nests in [false, true] {
                    visited += explore(State::new(&[(one, true), (other, true), (&[0, 1], !nests)], 0));
                }
            }
        }
        assert!(visited > 10_000, "{visited}");
    }

    #[test]
    fn any_two_with_a_node_deleted_by_hand_come_to_their_end() {
        for one in MEMBERS {
            for other in MEMBERS {
                for nests in [false, true] {
                    explore(State::new(&[(one, true), (other, !nests)], 1));
                }
            }
        }
    }
}
