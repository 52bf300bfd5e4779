//! What `zklock` says to people, on standard error.
//!
//! A thread writes it. A pipe that is full, or a terminal whose output is stopped, blocks that
//! thread alone, and delays neither the signals to a command nor its deadline.

use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How many messages wait for a standard error that takes none. Later messages are dropped.
const WAITING: usize = 64;

/// How long the end of this process waits until its messages are written, to a standard error that
/// takes none.
const AT_END: Duration = Duration::from_secs(1);

/// How often this process waits for that long while standard error takes some text: the thread is
/// only late then, on a busy machine.
const PATIENCE: usize = 20;

/// The thread that writes, once there is a message.
static WRITER: Mutex<Option<Writer>> = Mutex::new(None);

/// The path that this call is about, once it is known.
static PATH: OnceLock<String> = OnceLock::new();

/// What the thread gets.
enum Message {
    Text(String),
    /// Is dropped when all texts before are written.
    Mark(Sender<()>),
}

struct Writer {
    messages: SyncSender<Message>,
    /// Ends with the thread.
    ended: Receiver<()>,
}

impl Writer {
    fn start() -> io::Result<Self> {
        let (messages, texts) = sync_channel::<Message>(WAITING);
        let (running, ended) = channel();
        let writing = move || {
            let _running = running;
            texts.iter().for_each(|message| match message {
                Message::Text(text) => write(&text),
                Message::Mark(mark) => drop(mark),
            });
        };
        std::thread::Builder::new()
            .name("messages".to_owned())
            .spawn(writing)?;
        Ok(Self { messages, ended })
    }
}

/// Has each message from here on name the path that this call is about.
pub(crate) fn set_path(path: &str) {
    // A path with a line break would look like two messages.
    let shown = if path.contains(char::is_control) {
        path.escape_debug().to_string()
    } else {
        path.to_owned()
    };
    // A process has one path.
    let _ = PATH.set(shown);
}

/// Writes a message, with the name of the program, and the path that it is about.
pub(crate) fn say(text: &str) {
    put(match PATH.get().filter(|path| !names(text, path)) {
        Some(path) => format!("zklock: {path}: {text}\n"),
        None => format!("zklock: {text}\n"),
    });
}

/// Returns whether a text names a path, or a node below it.
fn names(text: &str, path: &str) -> bool {
    text.match_indices(path).any(|(at, path)| {
        let before = text[..at].chars().next_back();
        let after = text[at + path.len()..].chars().next();
        before.is_none_or(|c| " \"".contains(c)) && after.is_none_or(|c| " \"/:,;".contains(c))
    })
}

/// Writes a text as it is.
pub(crate) fn put(text: String) {
    let mut writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    if writer.is_none() {
        *writer = Writer::start().ok();
    }
    match &*writer {
        // A message that finds no room is dropped.
        Some(writer) => drop(writer.messages.try_send(Message::Text(text))),
        // Without a thread the text is written here, and a full standard error blocks the caller.
        None => write(&text),
    }
}

/// Waits until all messages so far are written, but not for long if standard error takes none.
///
/// With `stty tostop`, the terminal stops the process group of a program in the background that
/// writes. A process that this one is just starting would be stopped in a group that the shell does
/// not continue, and this one would wait for that process.
pub(crate) fn flush() {
    let writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    let (mark, written) = channel();
    let is_marked = |writer: &Writer| writer.messages.try_send(Message::Mark(mark)).is_ok();
    if writer.as_ref().is_some_and(is_marked) {
        wait_for(&written, takes_some);
    }
}

/// Waits until all messages are written, but not for long if standard error takes none.
pub(crate) fn finish() {
    let mut writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Writer { messages, ended }) = writer.take() {
        drop(messages);
        wait_for(&ended, takes_some);
    }
}

/// Waits for the end of a channel: that of the thread, or the drop of a mark.
fn wait_for(ended: &Receiver<()>, takes_some: impl Fn() -> bool) {
    for _ in 0..PATIENCE {
        if ended.recv_timeout(AT_END) != Err(RecvTimeoutError::Timeout) || !takes_some() {
            return;
        }
    }
}

/// Returns whether a write to standard error would not block, now.
fn takes_some() -> bool {
    let error = io::stderr();
    let mut asked = [PollFd::new(&error, PollFlags::OUT)];
    // Also a standard error that is closed: the write fails at once.
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Writes a text. A command must be ended also if there is no reader or no terminal any more, so a
/// write that fails does not end this program.
fn write(text: &str) {
    // The text goes out in one write, since several processes may share a log.
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The thread runs only after the time for a standard error that takes nothing.
    #[test]
    fn late_message_is_waited_for() {
        for takes_some in [true, false] {
            let (running, ended) = channel();
            let (running, asked) = (Cell::new(Some(running)), Cell::new(0));
            wait_for(&ended, || {
                asked.set(asked.get() + 1);
                if asked.get() == 2 {
                    running.take();
                }
                takes_some
            });
            assert_eq!(asked.get(), if takes_some { 2 } else { 1 });
        }
    }

    #[test]
    fn paths_are_whole() {
        for text in [
            "/a is free",
            "the node /a/x-1 was deleted",
            "the lock \"/a\" is lost",
            "/a",
        ] {
            assert!(names(text, "/a"), "{text}");
        }
        for text in [
            "/ab is free",
            "/b/a is free",
            "/no/such/a.out",
            "the lease is over",
        ] {
            assert!(!names(text, "/a"), "{text}");
        }
    }
}
