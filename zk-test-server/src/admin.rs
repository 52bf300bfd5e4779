//! The port that takes commands as lines of JSON, and replies to each with a line.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};
use zookeeper_test_server::Server;

use crate::fields::Command;
use crate::verbs::{self, Faults};

/// The thread's name.
const NAME: &str = "admin";
/// The longest line.
const LINE: u64 = 16 << 20;

/// Serves commands, with a thread for each connection; returns the address.
pub(crate) fn listen(addr: SocketAddr, server: Arc<Server>, faults: Arc<Faults>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(addr)?;
    let addr = listener.local_addr()?;
    thread::Builder::new().name(NAME.to_owned()).spawn(move || {
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
        let mut line = String::new();
        if lines.by_ref().take(LINE).read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        let reply = reply(server, faults, &line);
        let mut stream = stream;
        stream.write_all(format!("{reply}\n").as_bytes())?;
    }
}

/// Runs a command; the reply says whether it succeeded.
fn reply(server: &Server, faults: &Faults, line: &str) -> Value {
    let command = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"));
    match command.and_then(|command: Value| verbs::run(server, faults, &Command(&command))) {
        Ok(mut fields) => {
            fields["ok"] = json!(true);
            fields
        }
        Err(error) => json!({ "ok": false, "error": error }),
    }
}
