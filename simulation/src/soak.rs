//! A run that continues where it was stopped or killed: the seeds to play, and the log of those
//! that were played.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};

use crate::report::Sum;

/// The seeds of a run, one after another.
#[derive(Debug)]
pub struct Seeds {
    next: u64,
    /// The seeds that an earlier run has begun, and not ended.
    again: BTreeSet<u64>,
    /// The seeds that are being played.
    begun: BTreeSet<u64>,
}

impl Seeds {
    /// Returns the seeds after a sum.
    pub fn after(sum: &Sum) -> Self {
        Self {
            next: sum.last_seed + 1,
            again: sum.unfinished.clone(),
            begun: BTreeSet::new(),
        }
    }

    /// Begins the next seed.
    pub fn begin(&mut self) -> u64 {
        let seed = self.again.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.begun.insert(seed);
        seed
    }

    /// Records that a seed has been played, or is skipped.
    pub fn ended(&mut self, seed: u64) {
        self.begun.remove(&seed);
    }

    /// Returns the seeds up to `last` that have not ended: worlds take seconds or minutes, and a
    /// later one may end earlier.
    pub fn unfinished(&self, last: u64) -> BTreeSet<u64> {
        self.again
            .union(&self.begun)
            .copied()
            .filter(|seed| *seed <= last)
            .collect()
    }
}

/// A log with a line of JSON for the sum so far, written again and again.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// Opens a log, or makes it. Returns the sum up to its end; `None` if it is new. A process that
    /// was killed may have written a part of its last line: that is taken away, and the line before
    /// it counts.
    ///
    /// # Errors
    /// Returns an error if it cannot be read and written, or has lines, of which none is a sum.
    pub fn open(path: &str) -> io::Result<(Self, Option<Sum>)> {
        let mut file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        if whole == 0 && !text.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it has no whole line",
            ));
        }
        let lines = text[..whole]
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        // A line that was cut short by a full disk has the next one behind it.
        let sum = lines
            .rev()
            .find_map(|line| serde_json::from_slice(line).ok());
        if sum.is_none() && whole > 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "none of its lines is a sum",
            ));
        }
        if whole < text.len() {
            file.set_len(whole as u64)?;
        }
        Ok((Self(file), sum))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn add(&self, sum: &Sum) -> io::Result<()> {
        (&self.0).write_all(format!("{}\n", sum.json()).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::world::Report;

    /// Plays a seed: nothing happens in its world.
    fn play(sum: &mut Sum, seeds: &mut Seeds, seed: u64) {
        sum.add(
            seed,
            Report {
                grants: seed,
                ..Report::default()
            },
        );
        seeds.ended(seed);
        sum.unfinished = seeds.unfinished(sum.last_seed);
    }

    #[test]
    fn replays_seeds_of_killed_run() {
        let mut sum = Sum::from_seed(1);
        let mut seeds = Seeds::after(&sum);
        let begun = [(); 4].map(|()| seeds.begin());
        assert_eq!(begun, [1, 2, 3, 4]);
        play(&mut sum, &mut seeds, 3);
        play(&mut sum, &mut seeds, 1);
        assert_eq!(sum.unfinished, BTreeSet::from([2]));
        // Killed here. The 4 is behind the last one.
        let mut seeds = Seeds::after(&sum);
        assert_eq!(seeds.begin(), 2);
        assert_eq!(seeds.unfinished(3), BTreeSet::from([2]));
        for seed in [2, 4, 5] {
            if seed != 2 {
                assert_eq!(seeds.begin(), seed);
            }
            play(&mut sum, &mut seeds, seed);
        }
        assert_eq!((sum.worlds, sum.grants, sum.last_seed), (5, 15, 5));
        assert!(sum.unfinished.is_empty());
    }

    #[test]
    fn late_seed_stays_unfinished() {
        let before = Sum {
            unfinished: BTreeSet::from([2, 3]),
            last_seed: 4,
            ..Sum::default()
        };
        let mut seeds = Seeds::after(&before);
        assert_eq!(seeds.begin(), 2);
        seeds.ended(2);
        assert_eq!(seeds.unfinished(4), BTreeSet::from([3]));
    }

    #[test]
    fn log_continues_after_last_whole_line() {
        let path = std::env::temp_dir().join(format!("soak-{}.jsonl", std::process::id()));
        let path = path.to_str().unwrap();
        let _ = fs::remove_file(path);
        let (log, sum) = Log::open(path).unwrap();
        assert_eq!(sum, None);
        let (first, second) = (
            Sum::from_seed(7),
            Sum {
                worlds: 2,
                ..Sum::from_seed(7)
            },
        );
        log.add(&first).unwrap();
        assert_eq!(Log::open(path).unwrap().1, Some(first.clone()));
        // Killed in the middle of the next line.
        let half = &second.json()[..20];
        fs::write(path, format!("{}\n{half}", first.json())).unwrap();
        let (log, sum) = Log::open(path).unwrap();
        assert_eq!(sum, Some(first.clone()));
        log.add(&second).unwrap();
        assert_eq!(
            fs::read_to_string(path).unwrap(),
            format!("{}\n{}\n", first.json(), second.json())
        );
        // The disk was full for a while.
        fs::write(path, format!("{}\n{half}{}\n", first.json(), second.json())).unwrap();
        assert_eq!(Log::open(path).unwrap().1, Some(first));
        // A file of another kind is left as it is.
        for other in ["a text", "a text\n"] {
            fs::write(path, other).unwrap();
            Log::open(path).unwrap_err();
            assert_eq!(fs::read_to_string(path).unwrap(), other);
        }
        fs::remove_file(path).unwrap();
    }
}
