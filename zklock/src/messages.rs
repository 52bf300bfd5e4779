//! What `zklock` says to people, on standard error.
//!
//! A thread writes it. A pipe that is full, or a terminal whose output is stopped, blocks that
//! thread alone, and delays neither the signals to a command nor its deadline.

use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How many messages wait for a standard error that takes none. Later messages are dropped.
const WAITING: usize = 64;

/// How long the end of this process waits until its messages are written.
const AT_END: Duration = Duration::from_secs(1);

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
    // A process has one path.
    let _ = PATH.set(path.to_owned());
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
        // A system that gives no thread starts no command either.
        None => write(&text),
    }
}

/// Waits until all messages so far are written, but not for long.
///
/// With `stty tostop`, the terminal stops the process group of a program in the background that
/// writes. A process that this one is just starting would be stopped in a group that the shell does
/// not continue, and this one would wait for that process.
pub(crate) fn flush() {
    let writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    let (mark, written) = channel();
    if let Some(writer) = &*writer
        && writer.messages.try_send(Message::Mark(mark)).is_ok()
    {
        // The drop of the mark is the end of the channel.
        let _ = written.recv_timeout(AT_END);
    }
}

/// Waits until all messages are written, but not for long.
pub(crate) fn finish() {
    let mut writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Writer { messages, ended }) = writer.take() {
        drop(messages);
        // The end of the thread is the end of the channel.
        let _ = ended.recv_timeout(AT_END);
    }
}

/// Writes a text. A command must be ended also if there is no reader or no terminal any more, so a
/// write that fails does not end this program.
fn write(text: &str) {
    // The text goes out in one write, since several processes may share a log.
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::names;

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
            "/b/a: ..",
            "/no/such/a.out",
            "the lease is over",
        ] {
            assert!(!names(text, "/a"), "{text}");
        }
    }
}
