//! Runs a command beside a real ZooKeeper: `with-zookeeper [--members N] COMMAND [ARG]..`. The command
//! finds the servers in `ZK_CONNECT`; its exit code is ours.

use std::error::Error;
use std::process::{Command, ExitCode};

use test_support::{Options, ZooKeeper};

const USAGE: &str = "usage: with-zookeeper [--members N] COMMAND [ARG]..";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).peekable();
    let mut members = 1;
    if args.next_if(|arg| arg == "--members").is_some() {
        members = args.next().and_then(|n| n.to_str()?.parse().ok()).ok_or("--members wants a number")?;
    }
    let program = args.next();
    let Some(program) = program.filter(|program| !program.to_string_lossy().starts_with('-')) else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    let servers = ZooKeeper::ensemble(members, &Options::default())?;
    let name = program.to_string_lossy().into_owned();
    let status = Command::new(program).args(args).env("ZK_CONNECT", servers.connect_string()).status();
    let status = status.map_err(|error| format!("{name}: {error}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}
