//! Where the choices of a schedule come from: drawn at random, or listed one string after the
//! other.
//!
//! A model asks for a choice wherever something may go wrong, and wherever one of several events
//! may be the next. The first alternative is that all goes well; any other is a *deviation*.
//!
//! - **Drawn** choices are bytes of proptest, with a weight for each deviation. A schedule may have
//!   many deviations, and proptest shrinks it after a failure.
//! - **Listed** choices are all strings with at most a few deviations. [`every`] first runs the
//!   string without one. Each run records how many alternatives each point had, from which follow
//!   the strings with one more deviation at a later point. So each string is run, none twice among
//!   those of its length, and those with the fewest deviations come first.
//!
//! In listed schedules all tasks take [turns](Turns), so that the string without deviations is one
//! fair schedule. A task that is held makes no step until no other task is ready, which stands for
//! a delay of any length.

use std::panic::Location;

/// A stream of choices. A choice has several alternatives, of which the first is that all goes
/// well.
#[derive(Debug)]
pub(in crate::protocol) enum Choices {
    /// Bytes that proptest can shrink. When they run out, all goes well.
    Drawn(std::vec::IntoIter<u8>),
    /// All goes well except at a few points.
    Listed(Listed),
}

/// A string of choices that deviates from the first alternative at some points.
#[derive(Debug)]
pub(in crate::protocol) struct Listed {
    deviations: Vec<Deviation>,
    /// How many of them have been taken.
    taken: usize,
    /// The number of alternatives at each point so far.
    alternatives: Vec<usize>,
    /// The place in the model where each deviation was taken, and the deviation.
    trace: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Deviation {
    point: usize,
    alternative: usize,
}

/// The fate of a request, and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    /// The client does not learn whether it was carried out.
    Lost {
        carried_out: bool,
    },
}

impl Choices {
    pub(in crate::protocol) fn drawn(bytes: Vec<u8>) -> Self {
        Self::Drawn(bytes.into_iter())
    }

    /// Returns whether all that comes goes well.
    pub(in crate::protocol) fn is_over(&self) -> bool {
        matches!(self, Self::Drawn(bytes) if bytes.len() == 0)
    }

    /// Returns a byte, by which a drawn schedule makes its next choice.
    pub(in crate::protocol) fn next(&mut self) -> u8 {
        match self {
            // No chance is greater than this byte, so nothing goes wrong from here on.
            Self::Drawn(bytes) => bytes.next().unwrap_or(u8::MAX),
            // A listed schedule has its events from an enumeration, and draws no weights.
            Self::Listed(_) => u8::MAX,
        }
    }

    /// Returns one of the ways in which something goes wrong, from 1, with a chance of `n` in 256,
    /// and 0 otherwise.
    #[track_caller]
    pub(in crate::protocol) fn rarely(&mut self, n: u8, ways: usize) -> usize {
        // An enumeration has no weights: each way is one alternative, and is tried as often as any
        // other.
        if let Self::Listed(listed) = self {
            return listed.choose(1 + ways, Location::caller());
        }
        match self.next() < n {
            false => 0,
            // One way needs no further byte, which keeps the strings of bytes short.
            true if ways == 1 => 1,
            true => 1 + self.below(ways),
        }
    }

    /// Returns `true` with a chance of `n` in 256, and `false` if all goes well.
    #[track_caller]
    pub(in crate::protocol) fn chance(&mut self, n: u8) -> bool {
        self.rarely(n, 1) == 1
    }

    #[track_caller]
    pub(in crate::protocol) fn below(&mut self, n: usize) -> usize {
        match self {
            // Bytes that have run out give 255 modulo `n`, which need not be the first alternative.
            Self::Drawn(_) => usize::from(self.next()) % n,
            Self::Listed(listed) => listed.choose(n, Location::caller()),
        }
    }

    #[track_caller]
    pub(super) fn fate(&mut self) -> Fate {
        match self.rarely(40, 2) {
            0 => Fate::Answered,
            way => Fate::Lost {
                carried_out: way == 1,
            },
        }
    }

    /// Records the last choice, if it was a deviation.
    pub(in crate::protocol) fn note(&mut self, what: &impl std::fmt::Debug) {
        if let Self::Listed(Listed {
            deviations,
            taken,
            alternatives,
            trace,
        }) = self
        {
            // The place in the code does not say which of many events a number means, so the model
            // names it.
            let last = taken.checked_sub(1).and_then(|last| deviations.get(last));
            if last.is_some_and(|last| last.point + 1 == alternatives.len()) {
                trace.push(format!("{what:?}"));
            }
        }
    }
}

impl Listed {
    fn choose(&mut self, alternatives: usize, at: &Location<'_>) -> usize {
        // A point is identified by how many choices came before it. The model is deterministic, so
        // the same deviations lead to the same points.
        let point = self.alternatives.len();
        // The alternatives are recorded in each run, because a deviation changes what comes after
        // it.
        self.alternatives.push(alternatives);
        match self.deviations.get(self.taken) {
            Some(deviation) if deviation.point == point => {
                self.taken += 1;
                self.trace.push(format!(
                    "{}:{}: {}",
                    at.file(),
                    at.line(),
                    deviation.alternative
                ));
                deviation.alternative
            }
            _ => 0,
        }
    }
}

impl Listed {
    /// Returns the strings that deviate at one later point too.
    fn one_more(&self) -> impl Iterator<Item = Vec<Deviation>> {
        // Only later points are added, so each set of deviations is run once.
        let from = self.deviations.last().map_or(0, |last| last.point + 1);
        let points = self.alternatives.iter().copied().enumerate().skip(from);
        points.flat_map(move |(point, alternatives)| {
            // Alternative 0 is the course without a deviation, which is this string itself.
            (1..alternatives).map(move |alternative| {
                let mut next = self.deviations.clone();
                next.push(Deviation { point, alternative });
                next
            })
        })
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // A failed schedule is reproduced by its deviations, so these are printed.
        if std::thread::panicking() {
            eprintln!(
                "with {} deviations: {:#?}",
                self.deviations.len(),
                self.trace
            );
        }
    }
}

/// Whose turn it is, where all that are ready take turns.
#[derive(Debug)]
pub(in crate::protocol) struct Turns<T> {
    last: Option<T>,
    /// The tasks that have no turn until no other is ready, in the order in which they were held.
    held: Vec<T>,
    count: usize,
}

impl<T: Copy + Ord> Turns<T> {
    pub(in crate::protocol) fn new() -> Self {
        Self {
            last: None,
            held: Vec::new(),
            count: 0,
        }
    }

    /// Returns the next of the ready tasks, which are in order. `None` if none is.
    pub(in crate::protocol) fn next(&mut self, ready: &[T]) -> Option<T> {
        self.next_patient(ready, |_| false)
    }

    /// Like `next`, but some ready tasks have no turn before all others wait, except for held ones.
    pub(in crate::protocol) fn next_patient(
        &mut self,
        ready: &[T],
        is_patient: impl Fn(T) -> bool,
    ) -> Option<T> {
        self.count += 1;
        assert!(self.count < 2_000, "it does not end");
        loop {
            // Patient tasks, such as a holder that keeps the lock, have a turn only if no other
            // task can go on.
            for patient in [false, true] {
                let is_free =
                    |task: &&T| !self.held.contains(task) && is_patient(**task) == patient;
                let mut free = ready.iter().filter(is_free);
                let first = free.clone().next();
                // The turn goes round in the order of the tasks, and begins again after the last.
                if let Some(next) = free.find(|task| Some(**task) > self.last).or(first) {
                    return Some(*next);
                }
            }
            if self.held.is_empty() {
                return None;
            }
            // Everything that is ready is held, so the task that was held first goes on.
            self.held.remove(0);
        }
    }

    /// Records that a task had its turn.
    pub(in crate::protocol) fn had(&mut self, task: T) {
        self.last = Some(task);
    }

    /// Makes a task make no step until no other is ready.
    pub(in crate::protocol) fn hold(&mut self, task: T) {
        self.held.push(task);
    }
}

/// Runs all strings of choices with at most `most` deviations, and prints how many there are.
/// Asserts that at least `at_least` were run. `MORE_DEVIATIONS` in the environment is added to
/// `most`.
pub(in crate::protocol) fn count(
    what: &str,
    most: usize,
    at_least: usize,
    run: impl FnMut(&mut Choices),
) {
    let more = std::env::var("MORE_DEVIATIONS").map_or(0, |more| more.parse().expect("a number"));
    let count = every(most + more, run);
    println!(
        "{what}: {count} schedules with at most {} deviations",
        most + more
    );
    assert!(count >= at_least, "only {count} schedules of {what}");
}

/// Runs all strings of choices with at most `most` deviations. Returns how many there are. Those
/// with fewer come first, so that a failure shows as few as possible; they are run again to find
/// those with more.
pub(in crate::protocol) fn every(most: usize, mut run: impl FnMut(&mut Choices)) -> usize {
    let mut count = 0;
    for wanted in 0..=most {
        // The search begins with the schedule without deviations, in which all goes well.
        let mut open = vec![Vec::new()];
        while let Some(deviations) = open.pop() {
            let (alternatives, trace) = (Vec::new(), Vec::new());
            let mut choices = Choices::Listed(Listed {
                deviations,
                taken: 0,
                alternatives,
                trace,
            });
            run(&mut choices);
            let Choices::Listed(listed) = &choices else {
                continue;
            };
            assert_eq!(
                // A deviation that was not taken means that the model is not deterministic.
                listed.taken,
                listed.deviations.len(),
                "the same choices have led elsewhere"
            );
            if listed.deviations.len() == wanted {
                count += 1;
            } else {
                open.extend(listed.one_more());
            }
        }
    }
    count
}

#[test]
fn enumerates_every_string_of_choices() {
    let all = |most| {
        let mut seen = std::collections::BTreeSet::new();
        let count = every(most, |choices| {
            // The third choice is there after some of the first only.
            let mut all = vec![choices.below(3), choices.below(2)];
            if all[0] < 2 {
                all.push(choices.rarely(1, 1));
            }
            seen.insert(all);
        });
        assert_eq!(count, seen.len());
        count
    };
    assert_eq!(
        [all(0), all(1), all(2), all(3)],
        [1, 1 + 2 + 1 + 1, 1 + 4 + 4, 2 * 2 * 2 + 2]
    );
}
