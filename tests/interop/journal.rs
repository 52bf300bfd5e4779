//! The files that the workers of all languages share besides the lock: a journal to which all
//! append, and a counter that only the lock protects.
//!
//! A record is one `write` to a file opened with `O_APPEND`, so that the file's order is the order
//! of events: a holder writes `enter` after the grant and `leave` before the release.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Instant;

use test_support::{SOON, poll_until};

use super::{Outcome, WORK_LIMIT};

/// The number of digits of the counter, which is fixed, so that one write overwrites it whole.
const DIGITS: usize = 20;

/// The name of the journal in the shared directory.
pub(crate) const JOURNAL: &str = "journal";
/// The name of the counter's file in the shared directory.
pub(crate) const COUNTER: &str = "counter";

/// Creates both files.
pub(crate) fn create(dir: &Path) -> io::Result<()> {
    File::create(dir.join(JOURNAL))?;
    write_counter(dir, 0)
}

/// The end of the journal, for writing.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

impl Journal {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().append(true).open(dir.join(JOURNAL))?,
        })
    }

    /// Appends a record, which begins a new line and ends with a full stop, so that a record that a
    /// kill has cut short is recognized and damages no other.
    pub(crate) fn append(&self, record: &str) -> io::Result<()> {
        (&self.file).write_all(format!("\n{record} .").as_bytes())
    }
}

/// A reader of the journal while it grows.
#[derive(Debug)]
pub(crate) struct Tail {
    file: File,
    text: String,
}

impl Tail {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(dir.join(JOURNAL))?,
            text: String::new(),
        })
    }

    /// Reads the new records. Returns the whole journal.
    pub(crate) fn read(&mut self) -> io::Result<&str> {
        // Records are ASCII, so no character is cut in two.
        self.file.read_to_string(&mut self.text)?;
        Ok(&self.text)
    }
}

/// Waits until `there` returns `true` for the records of the journal. Fails if there is no
/// progress, if `ended` names a worker that has ended too early, or at the deadline. `there` is
/// first called with the journal so far and then, every 10 ms, with the new records only, because
/// reading the whole journal each time would use much of the processor.
pub(crate) fn until(
    tail: &mut Tail,
    what: &str,
    deadline: Instant,
    mut ended: impl FnMut() -> Option<String>,
    mut there: impl FnMut(&str) -> bool,
) -> Outcome {
    let (mut known, mut progress) = (0, Instant::now());
    poll_until(
        what,
        deadline.saturating_duration_since(Instant::now()),
        || {
            if let Some(ended) = ended() {
                return Some(Err(format!("{ended} while waiting for {what}").into()));
            }
            let text = match tail.read() {
                Ok(text) => text,
                Err(e) => return Some(Err(e.into())),
            };
            let new = whole(&text[known..]);
            if !new.is_empty() {
                (known, progress) = (known + new.len(), Instant::now());
            }
            if there(new) {
                return Some(Ok(()));
            }
            let late = progress.elapsed() > SOON;
            late.then(|| Err(format!("no progress for {SOON:?} while waiting for {what}").into()))
        },
    )
    .map_err(|_| format!("after {WORK_LIMIT:?} still waiting for {what}"))?
}

/// Returns the text without a last record that is not yet written completely.
fn whole(text: &str) -> &str {
    match text.ends_with(" .") {
        true => text,
        false => &text[..text.rfind('\n').unwrap_or(0)],
    }
}

/// Returns the complete records of a journal, without their full stops.
pub(crate) fn records(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_suffix(" ."))
}

pub(crate) fn read_counter(dir: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(dir.join(COUNTER))?;
    text.parse()
        .map_err(|e| io::Error::other(format!("the counter is {text:?}: {e}")))
}

pub(crate) fn write_counter(dir: &Path, value: u64) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join(COUNTER))?;
    file.write_all(format!("{value:0DIGITS$}").as_bytes())
}
