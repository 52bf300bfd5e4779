//! The port that takes commands as lines of JSON, and replies to each with a line.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use zookeeper_test_server::Server;

use crate::fields::Command;
use crate::verbs::{self, Faults};

/// The thread's name.
const NAME: &str = "admin";
/// The longest line, with its end.
const LINE: u64 = 16 << 20;
/// How long the server waits for a client to close its side of a connection.
const DRAIN: Duration = Duration::from_secs(1);

/// Serves commands, with a thread for each connection; returns the address.
pub(crate) fn listen(
    addr: SocketAddr,
    server: Arc<Server>,
    faults: Arc<Faults>,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(addr)?;
    let addr = listener.local_addr()?;
    thread::Builder::new()
        .name(NAME.to_owned())
        .spawn(move || {
            for stream in listener.incoming() {
                let (server, faults) = (Arc::clone(&server), Arc::clone(&faults));
                let run = move || stream.and_then(|stream| serve(&stream, &server, &faults));
                if let Err(error) = thread::Builder::new().spawn(run) {
                    eprintln!("zk-test-server: no thread for a connection: {error}");
                }
            }
        })?;
    Ok(addr)
}

fn serve(stream: &TcpStream, server: &Server, faults: &Faults) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if lines.by_ref().take(LINE + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() as u64 > LINE {
            respond(
                stream,
                &failed(&format!("a line has more than {LINE} bytes")),
            )?;
            return end(stream);
        }
        if !line.trim_ascii().is_empty() {
            respond(stream, &reply(server, faults, &line))?;
        }
    }
}

fn respond(mut stream: &TcpStream, reply: &Value) -> io::Result<()> {
    stream.write_all(format!("{reply}\n").as_bytes())
}

/// Closes a connection, of which the rest is not read as commands. The system resets one that is
/// closed with unread bytes, and the reply may be lost with it: these are waited for, for a moment.
fn end(stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(DRAIN))?;
    io::copy(&mut stream.take(LINE), &mut io::sink()).map(drop)
}

/// Runs a command; the reply says whether it succeeded.
fn reply(server: &Server, faults: &Faults, line: &[u8]) -> Value {
    let command = serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"));
    match command.and_then(|command: Value| verbs::run(server, faults, &Command(&command))) {
        Ok(mut fields) => {
            fields["ok"] = json!(true);
            fields
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &str) -> Value {
    json!({ "ok": false, "error": error })
}
