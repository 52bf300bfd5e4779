//! Runs a command beside a real ZooKeeper: `with-zookeeper [--members N] COMMAND [ARG]..`. The
//! command finds the servers in `ZK_CONNECT`; its exit code becomes that of this program.

use std::error::Error;
use std::process::{Command, ExitCode};

use test_support::{Options, ZooKeeper};

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("with-zookeeper: {error}");
        ExitCode::FAILURE
    })
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).peekable();
    let mut members = 1;
    if args.next_if(|arg| arg == "--members").is_some() {
        members = args
            .next()
            .and_then(|n| n.to_str()?.parse().ok())
            .ok_or("--members wants a number")?;
    }
    let program = args.next_if(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
    let program = program.ok_or("usage: with-zookeeper [--members N] COMMAND [ARG]..")?;
    let servers = ZooKeeper::ensemble(members, &Options::default())?;
    let mut command = Command::new(&program);
    let status = command
        .args(args)
        .env("ZK_CONNECT", servers.connect_string())
        .status();
    let status = status.map_err(|error| format!("{}: {error}", program.to_string_lossy()))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
