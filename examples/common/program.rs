//! The program around a run: its exit codes, its output, and its end by a signal.

use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::{Error, chain, worker};

/// The exit code of a run in which the lock did not do its work.
const BROKEN: u8 = 1;
/// The exit code of a run that could not do what it was asked for; the same as clap's.
pub(crate) const TROUBLE: u8 = 2;
/// The exit code of a run that was interrupted: 128 plus the number of SIGINT, as in a shell.
const INTERRUPTED: u8 = 130;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The claim that holds if no promise is broken: the first line of the output.
    pub(crate) claim: String,
    /// The text on stdout after the claim.
    pub(crate) text: String,
    /// The broken promises, a line each.
    pub(crate) broken_promises: Vec<String>,
    /// The parts of the run that could not be done as requested, a line each.
    pub(crate) troubles: Vec<String>,
}

/// Returns a table of figures below a heading, without the rows of zero; with `json`, followed by
/// all of them as one JSON object.
pub(crate) fn table(
    heading: &str,
    rows: &[(&str, &dyn fmt::Display)],
    json: Option<&impl Serialize>,
) -> Result<String, Error> {
    let mut text = format!("{heading}\n\n");
    for (name, figure) in rows.iter().map(|(name, figure)| (name, figure.to_string())) {
        if figure != "0" {
            text += &format!("{name:<28}{figure:>10}\n");
        }
    }
    if let Some(figures) = json {
        text += &format!("{}\n", serde_json::to_string(figures)?);
    }
    Ok(text)
}

/// Returns the promises that were broken, a line each.
pub(crate) fn broken(promises: &[(u32, &str)]) -> Vec<String> {
    promises
        .iter()
        .filter(|(times, _)| *times > 0)
        .map(|(times, what)| format!("{times} {what}"))
        .collect()
}

/// Runs this process: as a worker if it was started as one, or else `run`, which returns `None` if
/// it was interrupted.
pub(crate) fn run(
    name: &str,
    worker: impl FnOnce() -> Result<(), Error>,
    run: impl FnOnce() -> Result<Option<Verdict>, Error>,
) -> ExitCode {
    let result = if worker::is_worker() {
        worker().map(|()| ExitCode::SUCCESS)
    } else {
        run().and_then(|verdict| conclude(name, verdict))
    };
    result.unwrap_or_else(|error| {
        eprintln!("{name}: {}", chain(&*error));
        ExitCode::from(TROUBLE)
    })
}

/// Colours, by their numbers in ANSI's escape sequences.
const RED: u8 = 31;
const GREEN: u8 = 32;
const YELLOW: u8 = 33;

/// Returns the text in a colour, if stdout is a terminal and `NO_COLOR` is not set.
fn paint(text: &str, colour: u8) -> String {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if is_plain || !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    format!("\x1b[1;{colour}m{text}\x1b[0m")
}

/// Prints a verdict, and returns the exit code.
pub(crate) fn conclude(name: &str, verdict: Option<Verdict>) -> Result<ExitCode, Error> {
    let Some(Verdict {
        claim,
        text,
        broken_promises,
        troubles,
    }) = verdict
    else {
        eprintln!("{name}: interrupted");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let verdict = match (broken_promises.is_empty(), troubles.is_empty()) {
        (false, _) => paint("BROKEN", RED) + ": " + &broken_promises.join("; "),
        (true, false) => paint("NO VERDICT", YELLOW) + ": the run did not go as it was asked for",
        (true, true) => paint("OK", GREEN) + ": " + &claim,
    };
    // `print!` would panic if the reader is gone.
    std::io::stdout().write_all(format!("{verdict}\n{text}").as_bytes())?;
    for line in &troubles {
        eprintln!("{name}: {line}");
    }
    Ok(match (broken_promises.is_empty(), troubles.is_empty()) {
        (false, _) => ExitCode::from(BROKEN),
        (true, false) => ExitCode::from(TROUBLE),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// Runs a future to its end. Drops the future and returns `None` if this process is interrupted
/// before (Ctrl-C, SIGTERM).
pub(crate) async fn unless_interrupted<F: Future>(future: F) -> Result<Option<F::Output>, Error> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    Ok(tokio::select! {
        output = future => Some(output),
        _ = interrupts.recv() => None,
        _ = terminations.recv() => None,
    })
}
