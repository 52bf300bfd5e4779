//! A server for clients in other processes and languages.
//!
//! Prints its address, and serves until its standard input ends: it does not outlive the process that started
//! it.
//!
//! ```text
//! $ cargo run -p zookeeper-test-server --example serve -- 2181
//! 127.0.0.1:2181
//! ```

use std::io::Read as _;
use std::process::ExitCode;

use zookeeper_test_server::Server;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => {
            eprintln!("serve: standard input has ended, so the server stops");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("serve: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let port = match std::env::args().nth(1) {
        Some(port) => port.parse().map_err(|_| format!("{port} is not a port"))?,
        // The system chooses a free one.
        None => 0,
    };
    let server = Server::builder().port(port).start()?;
    println!("{}", server.connect_string());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
