//! Looking at a lock, and taking it from its holder.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, Write as _};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use zookeeper_recipes::{
    Client, Contender, Error, ErrorKind, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphore,
};

use crate::connect::{close, connect};
use crate::exit::{Failure, NONE, UNREACHABLE};
use crate::options::{Break, Revoke, Status};
use crate::print;

/// The pause between two looks.
const AGAIN: Duration = Duration::from_secs(1);

/// A lock of any kind; which one its path is, its nodes tell.
enum Lock {
    Mutex(InterProcessMutex),
    ReadWrite(InterProcessReadWriteLock),
    Semaphore(InterProcessSemaphore),
}

/// Who holds a lock, and who waits for it.
struct Queue {
    holders: Vec<Contender>,
    waiters: Vec<Contender>,
}

impl Lock {
    /// Returns the lock at a path, and its queue.
    async fn look(client: &Client, path: &str) -> Result<(Self, Queue), Failure> {
        let lock = Self::Mutex(InterProcessMutex::new(client, path)?);
        match lock.queue().await {
            Ok(queue) if !queue.is_free() => return Ok((lock, queue)),
            // The directory has no node of a mutex.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::MixedRecipes => {
                drop(lock);
                let lock = Self::ReadWrite(InterProcessReadWriteLock::new(client, path)?);
                let queue = lock.queue().await?;
                return Ok((lock, queue));
            }
            Err(error) => return Err(error.into()),
        }
        drop(lock);
        // The limit does not matter to a look.
        let lock = Self::Semaphore(InterProcessSemaphore::new(client, path, 1)?);
        let queue = lock.queue().await?;
        Ok((lock, queue))
    }

    async fn queue(&self) -> Result<Queue, Error> {
        let (holders, all) = match self {
            Self::Mutex(lock) => (lock.holders().await?, lock.queue().await?),
            Self::ReadWrite(lock) => (lock.holders().await?, lock.queue().await?),
            Self::Semaphore(lock) => (lock.holders().await?, lock.queue().await?),
        };
        let is_waiter = |one: &Contender| holders.iter().all(|holder| holder.node() != one.node());
        let waiters = all.into_iter().filter(is_waiter).collect();
        Ok(Queue { holders, waiters })
    }

    async fn break_lock(&self, holder: &Contender) -> Result<bool, Error> {
        match self {
            Self::Mutex(lock) => lock.break_lock(holder).await,
            Self::ReadWrite(lock) => lock.break_lock(holder).await,
            Self::Semaphore(lock) => lock.break_lock(holder).await,
        }
    }
}

impl Queue {
    fn is_free(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    fn text(&self, path: &str) -> String {
        let state = state(self.holders.len(), self.waiters.len());
        let mut text = format!("{path}: {state}\n");
        // A write to a `String` does not fail.
        for holder in &self.holders {
            let _ = writeln!(text, "  held by {}", of_holder(holder));
        }
        for waiter in &self.waiters {
            let _ = writeln!(text, "  waiting {waiter}");
        }
        text
    }

    fn json(&self, path: &str) -> Value {
        let list =
            |contenders: &[Contender]| contenders.iter().map(contender_as_json).collect::<Vec<_>>();
        json!({"path": path, "holders": list(&self.holders), "waiters": list(&self.waiters)})
    }
}

/// Returns the words for a lock with so many holders and waiters.
fn state(holders: usize, waiters: usize) -> String {
    match (holders, waiters) {
        (0, 0) => "free".to_owned(),
        // The first waiter is about to be granted the lock.
        (0, waiters) => format!("not held, {waiters} waiting"),
        (_, 0) => "held".to_owned(),
        (_, waiters) => format!("held, {waiters} waiting"),
    }
}

/// Two are equal if they have the same contenders in the same places.
impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |these: &[Contender], those: &[Contender]| {
            these
                .iter()
                .map(Contender::node)
                .eq(those.iter().map(Contender::node))
        };
        is_same(&self.holders, &other.holders) && is_same(&self.waiters, &other.waiters)
    }
}

/// The answer to `status`.
#[derive(PartialEq)]
struct Seen {
    path: String,
    queue: Queue,
    exists: bool,
    /// The path and the queue of the lock that `--once` uses, if it is held while the lock at
    /// `path` is free.
    once: Option<(String, Queue)>,
}

impl Seen {
    async fn look(client: &Client, path: &str) -> Result<Self, Failure> {
        let (_, queue) = Lock::look(client, path).await?;
        let mut seen = Self {
            path: path.to_owned(),
            queue,
            exists: true,
            once: None,
        };
        if seen.queue.is_free() {
            seen.exists = exists(client, path).await?;
            let path = format!("{path}/lock");
            let (_, queue) = Lock::look(client, &path).await?;
            seen.once = (!queue.is_free()).then_some((path, queue));
        }
        Ok(seen)
    }

    fn text(&self) -> String {
        let Self {
            path,
            queue,
            exists,
            once,
        } = self;
        match once {
            Some((once, queue)) => {
                format!("{path}: free, but not for --once:\n{}", queue.text(once))
            }
            None if !exists => format!("{path}: free (no such node)\n"),
            None => queue.text(path),
        }
    }

    fn json(&self) -> String {
        let mut json = self.queue.json(&self.path);
        json["exists"] = self.exists.into();
        if let Some((path, queue)) = &self.once {
            json["once"] = queue.json(path);
        }
        format!("{json}\n")
    }
}

async fn exists(client: &Client, path: &str) -> Result<bool, Failure> {
    let stat = client
        .request(|zk| async move { zk.check_stat(path).await })
        .await?;
    Ok(stat
        .map_err(|error| Failure::of(UNREACHABLE, &error))?
        .is_some())
}

/// Returns the text for a holder. When it was granted the lock no node tells, but the node is no
/// younger.
pub(crate) fn of_holder(holder: &Contender) -> String {
    let identity = holder.identity();
    let who = match identity.text().trim() {
        "" => "an unknown process".to_owned(),
        _ => identity.to_string(),
    };
    let (kind, session, name) = (holder.kind(), holder.session_id(), holder.node().name());
    let held = match holder.age() {
        age if age < Duration::from_secs(10) => Duration::from_millis(age.as_millis() as u64),
        age => Duration::from_secs(age.as_secs()),
    };
    format!("{who} ({kind}, held for {held:?} at most, session {session:#x}, {name})")
}

fn contender_as_json(contender: &Contender) -> Value {
    let identity = contender.identity();
    let milliseconds = |duration: Duration| duration.as_millis() as u64;
    json!({
        "node": contender.node().as_str(),
        "kind": contender.kind().to_string(),
        "owner": identity.text(),
        "host": identity.host(),
        "pid": identity.pid(),
        "name": identity.name(),
        "session": format!("{:#x}", contender.session_id()),
        "token": contender.token().map(|token| token.to_string()),
        "queued_since_ms": milliseconds(contender.since().duration_since(UNIX_EPOCH).unwrap_or_default()),
        "queued_for_seconds": milliseconds(contender.age()) as f64 / 1000.0,
    })
}

/// Shows who holds a lock, and who waits for it.
pub(crate) async fn status(options: &Status) -> Result<u8, Failure> {
    let client = connect(&options.connection).await?;
    let result = show(&client, options).await;
    close(&client).await;
    result
}

async fn show(client: &Client, options: &Status) -> Result<u8, Failure> {
    let mut shown = None;
    loop {
        let seen = Seen::look(client, &options.path).await?;
        if shown.as_ref() != Some(&seen) {
            print(
                if options.json {
                    seen.json()
                } else {
                    seen.text()
                }
                .as_bytes(),
            )?;
            shown = Some(seen);
        }
        if !options.watch {
            return Ok(0);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Asks the holders of a lock to release it.
pub(crate) async fn revoke(options: &Revoke) -> Result<u8, Failure> {
    let client = connect(&options.connection).await?;
    let result = ask(&client, &options.path).await;
    close(&client).await;
    result
}

async fn ask(client: &Client, path: &str) -> Result<u8, Failure> {
    let Seen {
        path, queue, once, ..
    } = Seen::look(client, path).await?;
    let (path, queue) = once.unwrap_or((path, queue));
    for holder in &queue.holders {
        client.attempt_revoke(holder.node()).await?;
        print(format!("asked {} to release {path}\n", of_holder(holder)).as_bytes())?;
    }
    if_any(&queue, &path)
}

/// Deletes the nodes of the holders of a lock.
pub(crate) async fn break_lock(options: &Break) -> Result<u8, Failure> {
    let client = connect(&options.connection).await?;
    let result = take(&client, options).await;
    close(&client).await;
    result
}

async fn take(client: &Client, options: &Break) -> Result<u8, Failure> {
    let path = &options.path;
    let (lock, queue) = Lock::look(client, path).await?;
    if queue.is_free() {
        drop(lock);
        let seen = Seen::look(client, path).await?;
        return match seen.once {
            // With --yes there is no question about the other path.
            Some((once, _)) => {
                let text = format!(
                    "{path} is free; a job that runs --once holds {once}: zklock break {once}"
                );
                Err(Failure::new(NONE, text))
            }
            None => if_any(&queue, path),
        };
    }
    for (broken, holder) in queue.holders.iter().enumerate() {
        if !options.yes && !is_confirmed(path, holder)? {
            let text = match broken {
                0 => "the lock is as it was",
                _ => "the other holders keep the lock",
            };
            return Err(Failure::new(NONE, text));
        }
        let done = if lock.break_lock(holder).await? {
            "broke the lock"
        } else {
            "it was gone, the lock"
        };
        print(format!("{done} {path} of {}\n", of_holder(holder)).as_bytes())?;
    }
    if_any(&queue, path)
}

fn if_any(queue: &Queue, path: &str) -> Result<u8, Failure> {
    if queue.holders.is_empty() {
        Err(Failure::new(NONE, format!("{path} is free")))
    } else {
        Ok(0)
    }
}

/// Asks whether to go on.
fn is_confirmed(path: &str, holder: &Contender) -> Result<bool, Failure> {
    let failed = |error| Failure::system("the question", &error);
    let question = format!(
        "Break the lock {path} of {}? It may still be at work, and the next in line is let in. [y/N] ",
        of_holder(holder)
    );
    let asked = io::stderr().write_all(question.as_bytes());
    asked.map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_alone_hold_nothing() {
        let states =
            [(0, 0), (0, 2), (1, 0), (3, 1)].map(|(holders, waiters)| state(holders, waiters));
        assert_eq!(
            states,
            ["free", "not held, 2 waiting", "held", "held, 1 waiting"]
        );
    }
}
