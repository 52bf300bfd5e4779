//! Runs a command while it holds a lock on Apache ZooKeeper; see README.md.

mod clock;
mod connect;
mod deadline;
mod death;
mod exit;
mod job;
mod look;
mod manual;
mod messages;
mod options;
mod resources;
mod run;
mod signals;
mod stage;
mod target;
mod watchdog;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;

use exit::{End, Failure};
use messages::say;
use options::{Action, Options};

fn main() -> ExitCode {
    let code = dispatch();
    messages::finish();
    code
}

fn dispatch() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == watchdog::ARGUMENT => return watchdog::run(),
        Some(first) if first == stage::ARGUMENT => return stage::run(arguments),
        Some(first) if first == death::ARGUMENT => return death::run(arguments),
        _ => {}
    }
    let options = match Options::of_this_program() {
        Ok(options) => options,
        Err(error) => {
            let text = error.to_string();
            if error.use_stderr() {
                messages::put(text);
                return exit::USAGE.into();
            }
            // Help goes to standard output, and is no mistake.
            return report(print(text.as_bytes()).map(|()| End::Code(0)));
        }
    };
    report(act(&options))
}

/// Returns the exit code that tells how a call has ended, or dies of its signal.
fn report(ended: Result<End, Failure>) -> ExitCode {
    match ended {
        Ok(End::Code(code)) => code.into(),
        Ok(End::Signal(signal)) => {
            messages::finish();
            death::die(signal)
        }
        // A reader that has ended gets no message, as with a program that dies of SIGPIPE.
        Err(Failure { code, .. }) if code == exit::NO_READER => code.into(),
        Err(Failure { code, text }) => {
            say(&text);
            code.into()
        }
    }
}

fn act(options: &Options) -> Result<End, Failure> {
    if let Some(path) = options.path() {
        messages::set_path(path);
    }
    let code = match &options.action {
        None => return block_on(run::run(&options.run)),
        Some(Action::Lead(options)) => return block_on(run::lead(options)),
        Some(Action::Status(options)) => block_on(look::status(options)),
        Some(Action::Revoke(options)) => block_on(look::revoke(options)),
        Some(Action::Break(options)) => block_on(look::break_lock(options)),
        Some(Action::Completions { shell }) => {
            // The script goes into memory first, since `generate` panics if a write fails.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Options::command(), "zklock", &mut script);
            print(&script).map(|()| 0)
        }
        Some(Action::Man { command }) => {
            let page = manual::page(&Options::command_of(command.as_deref()))
                .map_err(|error| Failure::system("the manual page", &error))?;
            print(&page).map(|()| 0)
        }
    };
    code.map(End::Code)
}

/// Writes to standard output.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(bytes).and_then(|()| out.flush());
    printed.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(exit::NO_READER, "standard output has no reader"),
        _ => Failure::output(&error),
    })
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    resources::check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .map_err(|error| Failure::system("there is no runtime", &error))?
        .block_on(work)
}
