//! How many permits of a semaphore may be held, by the records of a journal; see
//! [`check`](super::check).
//!
//! The limit changes while workers wait for permits: a grant is judged by the highest limit that
//! was in force between its request and its grant. A lower limit revokes no permit, and applies to
//! later grants only.

use std::collections::BTreeMap;
use std::str::FromStr;

/// The permits of a hold: how many, and their slots, if the journal has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permits {
    count: usize,
    slots: Vec<usize>,
}

impl FromStr for Permits {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (count, slots) = match text.split_once('@') {
            Some((count, slots)) => (count, slots.split(',').map(str::parse).collect()),
            None => (text, Ok(Vec::new())),
        };
        Ok(Self {
            count: count.parse().map_err(drop)?,
            slots: slots.map_err(drop)?,
        })
    }
}

/// The bounds of the grant that a waiting worker is expected to have.
#[derive(Debug)]
struct Asked {
    /// The highest limit since the request.
    limit: usize,
    /// The highest token of all grants before the request.
    newest: i64,
}

/// The limit in force, and the requests that wait.
#[derive(Debug)]
pub(crate) struct LimitHistory {
    limit: usize,
    newest: i64,
    asked: BTreeMap<String, Asked>,
}

impl Default for LimitHistory {
    fn default() -> Self {
        Self {
            limit: 0,
            newest: i64::MIN,
            asked: BTreeMap::new(),
        }
    }
}

impl LimitHistory {
    pub(crate) fn request(&mut self, worker: &str) {
        let asked = Asked {
            limit: self.limit,
            newest: self.newest,
        };
        self.asked.insert(worker.to_owned(), asked);
    }

    pub(crate) fn raise_limit(&mut self, limit: usize) {
        self.limit = self.limit.max(limit);
        for asked in self.asked.values_mut() {
            asked.limit = asked.limit.max(limit);
        }
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Judges a grant beside the permits that are held. Returns the violations. The outer `token`
    /// is `None` for a hold that is lost later, which proves nothing; the inner one for a hold
    /// without a token.
    pub(crate) fn enter<'a>(
        &mut self,
        worker: &str,
        permits: &Permits,
        token: Option<Option<i64>>,
        inside: impl Iterator<Item = (&'a str, &'a Permits)>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let Some(asked) = self.asked.remove(worker) else {
            return vec![format!("{worker} was granted permits without a request")];
        };
        let Some(token) = token else { return wrong };
        let mut held = permits.count;
        for (other, theirs) in inside {
            held += theirs.count;
            for slot in permits
                .slots
                .iter()
                .filter(|slot| theirs.slots.contains(slot))
            {
                wrong.push(format!("{worker} and {other} both have the slot {slot}"));
            }
        }
        if held > asked.limit {
            wrong.push(format!(
                "{held} permits of {} are held with those of {worker}",
                asked.limit
            ));
        }
        let mut slots = permits.slots.clone();
        slots.sort_unstable();
        slots.dedup();
        let numbered = slots.len() == permits.count && slots.iter().all(|slot| *slot < asked.limit);
        if !permits.slots.is_empty() && !numbered {
            wrong.push(format!(
                "{worker} has the slots {:?} of {}",
                permits.slots, asked.limit
            ));
        }
        // A hold that was granted before the request has a smaller token.
        if let Some(token) = token {
            if token <= asked.newest {
                wrong.push(format!(
                    "{worker} has the token {token} after {}",
                    asked.newest
                ));
            }
            self.newest = self.newest.max(token);
        }
        wrong
    }
}

/// Shows that the checker detects violations: each of these journals has one fault.
pub(crate) mod trials {
    use super::super::check::trials::{accepts, refuses};

    pub(crate) fn accepts_a_semaphores_history() -> Result<(), String> {
        let two =
            "limit 2; asks a-1.0; asks b-1.0; enter b-1.0 1 6; enter a-1.0 1@0 5; leave b-1.0";
        let findings = accepts(&format!("{two}; leave a-1.0"), 0)?;
        assert_eq!((findings.total(), findings.together), (2, 1));
        // At most as many permits as the limit are held, with slots that others have left.
        accepts(
            &format!("{two}; leave a-1.0; asks a-1.1; enter a-1.1 2@1,0 7; leave a-1.1"),
            0,
        )?;
        // The journal has a kill, and a hold that was lost before.
        accepts(
            &format!("{two}; dead a-1; asks b-1.0; enter b-1.0 2 7; leave b-1.0"),
            0,
        )?;
        accepts(
            &format!("{two}; asks b-1.0; enter b-1.0 2 7; lost a-1.0; leave b-1.0"),
            0,
        )?;
        // A higher limit may be in force before all know it. A lower one does not count until all
        // know it, nor for earlier requests.
        accepts(
            &format!(
                "{two}; asks b-1.0; may 3; enter b-1.0 2 7; limit 3; leave a-1.0; leave b-1.0"
            ),
            0,
        )?;
        accepts(
            &format!(
                "{two}; asks b-1.0; may 1; limit 1; enter b-1.0 1 7; leave a-1.0; leave b-1.0"
            ),
            0,
        )
        .map(drop)
    }

    pub(crate) fn sees_permits_beyond_the_limit() -> Result<(), String> {
        let two = "limit 2; asks a-1.0; asks b-1.0; enter b-1.0 1 6; enter a-1.0 1@0 5";
        let third = "asks c-1.0; enter c-1.0 1 7; leave c-1.0; leave a-1.0; leave b-1.0";
        let beyond = "3 permits of 2 are held";
        refuses(&format!("{two}; {third}"), 0, beyond)?;
        refuses(
            &format!("{two}; leave b-1.0; asks b-1.0; enter b-1.0 2 7; dead a-1; leave b-1.0"),
            0,
            beyond,
        )?;
        // Permits that were granted under a higher limit count under the lower one.
        refuses(
            &format!("{two}; may 1; limit 1; {third}"),
            0,
            "3 permits of 1 are held",
        )?;
        refuses(
            "limit 2; enter a-1.0 1 5; leave a-1.0",
            0,
            "without a request",
        )
    }

    pub(crate) fn sees_wrong_slots_and_tokens() -> Result<(), String> {
        let one = "limit 3; asks a-1.0; enter a-1.0 1@0 5";
        let left = "leave a-1.0; leave b-1.0";
        refuses(
            &format!("{one}; asks b-1.0; enter b-1.0 2@1,0 6; {left}"),
            0,
            "both have the slot 0",
        )?;
        refuses(
            &format!("{one}; asks b-1.0; enter b-1.0 1@3 6; {left}"),
            0,
            "has the slots",
        )?;
        refuses(
            &format!("{one}; asks b-1.0; enter b-1.0 2@1,1 6; {left}"),
            0,
            "has the slots",
        )?;
        refuses(
            &format!("{one}; asks b-1.0; enter b-1.0 2@1 6; {left}"),
            0,
            "has the slots",
        )?;
        refuses(
            &format!("{one}; asks b-1.0; enter b-1.0 1 4; {left}"),
            0,
            "has the token 4 after 5",
        )
    }
}
