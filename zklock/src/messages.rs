//! What `zklock` says to people, on standard error.
//!
//! A thread writes it. A pipe that is full, or a terminal whose output is stopped, blocks that
//! thread alone, and delays neither the signals to a command nor its deadline.

use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many messages wait for a standard error that takes none. Later messages are dropped.
const WAITING: usize = 64;

/// How long the end of this process waits until its messages are written.
const AT_END: Duration = Duration::from_secs(1);

/// The thread that writes, once there is a message.
static WRITER: Mutex<Option<Writer>> = Mutex::new(None);

struct Writer {
    messages: SyncSender<String>,
    /// Ends with the thread.
    ended: Receiver<()>,
}

impl Writer {
    fn start() -> io::Result<Self> {
        let (messages, texts) = sync_channel::<String>(WAITING);
        let (running, ended) = channel();
        let writing = move || {
            let _running = running;
            texts.iter().for_each(|text| write(&text));
        };
        std::thread::Builder::new()
            .name("messages".to_owned())
            .spawn(writing)?;
        Ok(Self { messages, ended })
    }
}

/// Writes a message, with the name of the program.
pub(crate) fn say(text: &str) {
    put(format!("zklock: {text}\n"));
}

/// Writes a text as it is.
pub(crate) fn put(text: String) {
    let mut writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    if writer.is_none() {
        *writer = Writer::start().ok();
    }
    match &*writer {
        // A message that finds no room is dropped.
        Some(writer) => drop(writer.messages.try_send(text)),
        // A system that gives no thread starts no command either.
        None => write(&text),
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
