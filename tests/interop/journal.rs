//! What the workers of all languages share beside the lock: a journal to which all append, and a
//! counter that only the lock protects.
//!
//! A record is one `write` to a file opened with `O_APPEND`, so that the file's order is the order
//! of events: who holds the lock writes `enter` after the grant and `leave` before the release.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Instant;

use test_support::{SOON, poll_until};

use super::{Outcome, WORK_LIMIT};

/// The digits of the counter: always as many, so that it is overwritten in one piece.
const DIGITS: usize = 20;

/// The file of that name in the shared directory.
pub(crate) const JOURNAL: &str = "journal";
/// The same.
pub(crate) const COUNTER: &str = "counter";

/// Makes both files.
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

    /// Appends a record. It begins a line of its own and ends with a full stop, so that one that a
    /// kill cut short is told from a whole one and spoils no other.
    pub(crate) fn append(&self, record: &str) -> io::Result<()> {
        (&self.file).write_all(format!("\n{record} .").as_bytes())
    }
}

/// The journal as it grows.
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

    /// Reads what is new.
    pub(crate) fn read(&mut self) -> io::Result<&str> {
        // Records are ASCII, so no character is cut in two.
        self.file.read_to_string(&mut self.text)?;
        Ok(&self.text)
    }
}

/// Waits for something in the journal, for as long as there is progress, `ended` names no worker
/// that has ended too early, and the deadline has not come. `there` is given the journal so far and
/// then, every 10 ms, the records that are new: to read the whole journal at every look took much
/// of the processor.
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

/// Without a record at the end that is not there as a whole yet.
fn whole(text: &str) -> &str {
    match text.ends_with(" .") {
        true => text,
        false => &text[..text.rfind('\n').unwrap_or(0)],
    }
}

/// The whole records of a journal, without their full stops.
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
