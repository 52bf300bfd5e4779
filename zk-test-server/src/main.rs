//! The test server as a program, for tests in any language. The crate's README has an example.

mod admin;
mod fields;
mod options;
mod verbs;

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use options::Options;
use serde_json::json;
use verbs::Faults;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("zk-test-server: {error}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match serve(options) {
        Ok(()) => {
            eprintln!("zk-test-server: standard input has ended, so the server stops");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("zk-test-server: {error}");
            ExitCode::from(1)
        }
    }
}

fn serve(options: Options) -> io::Result<()> {
    let server = Arc::new(options.builder.bind(options.bind).start()?);
    let faults = Arc::new(Faults::default());
    let admin = options
        .admin
        .map(|port| admin::listen((options.bind, port).into(), Arc::clone(&server), faults))
        .transpose()?;
    let admin = admin.map(|addr| addr.to_string());
    let ready = json!({ "ready": true, "connect": server.connect_string(), "admin": admin });
    let mut stdout = io::stdout();
    writeln!(stdout, "{ready}")?;
    stdout.flush()?;
    if options.with_stdin {
        io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    loop {
        // The program serves until it is killed.
        std::thread::park();
    }
}
