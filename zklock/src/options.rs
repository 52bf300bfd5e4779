//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

/// Runs a command while it holds a lock on Apache ZooKeeper.
///
/// The lock is held until the command has ended. If the lock is lost before then, the command gets
/// SIGTERM, and SIGKILL before the servers grant the lock to another process.
///
/// Without a command, zklock holds the lock until a signal ends it, and prints what a command finds
/// in its environment: ZKLOCK_PATH, ZKLOCK_NODE, ZKLOCK_TOKEN (a fencing token, which rises from
/// holder to holder) and, with --permits, ZKLOCK_SLOT.
#[derive(Debug, Parser)]
#[command(name = "zklock", version, verbatim_doc_comment)]
#[command(override_usage = "zklock [OPTIONS] PATH [-- CMD [ARG]...]\n       zklock COMMAND --help")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) action: Option<Action>,
    #[command(flatten)]
    pub(crate) run: Run,
}

/// The session timeout, if none is given.
const SESSION_TIMEOUT: &str = "30s";

const AFTER_HELP: &str = "\
Exit codes: that of the command, or 128 + n if signal n ended it; 75 if the lock was not free in time; 125
if it was or might be lost, or its lease was over, and the command was ended, or if a job of --once was also
run by another process; 69 if no server answered, or if a job of --once ran and is not recorded, or may not
be, so that it may run again; 77 without permission; 64 for wrong usage; 126 or 127 if the command could not be run or found; 71 if this
machine gave no process, thread or file descriptor, or standard output cannot be written.

A TIME is a number of seconds, such as 1.5, or has a unit: 500ms, 90s, 15m, 2h.";

/// What to do instead of running a command under a lock.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Runs a command while this process leads, again in each term, until it ends by itself
    #[command(override_usage = "zklock lead [OPTIONS] PATH -- CMD [ARG]...")]
    Lead(Lead),
    /// Shows who holds a lock, since when, and who waits for it
    #[command(override_usage = "zklock status [OPTIONS] PATH")]
    Status(Status),
    /// Asks the holders of a lock to release it: a command of zklock gets SIGTERM
    #[command(override_usage = "zklock revoke [OPTIONS] PATH")]
    Revoke(Revoke),
    /// Deletes the node of the holders of a lock: the next in line is granted it at once
    #[command(override_usage = "zklock break [OPTIONS] PATH")]
    Break(Break),
    /// Prints a script by which a shell completes the arguments
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints the manual page, or that of a command of zklock
    Man {
        /// The command: lead, status, revoke or break
        #[arg(value_name = "COMMAND", value_parser = ["lead", "status", "revoke", "break"])]
        command: Option<String>,
    },
}

/// `zklock PATH -- CMD`
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The path of the lock, such as /jobs/nightly
    #[arg(required = true, value_parser = path)]
    pub(crate) path: Option<String>,
    /// The command and its arguments, which are run without a shell
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    /// Do not wait: fail if the lock is not free
    #[arg(short, long)]
    pub(crate) nonblock: bool,
    /// Wait for the lock for at most this long
    #[arg(short, long, value_name = "TIME", value_parser = time, conflicts_with = "nonblock")]
    pub(crate) wait: Option<Duration>,
    /// The exit code if the lock is not free in time; 0 is silent
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::exit::BUSY)]
    pub(crate) conflict_exit_code: u8,
    /// Share the lock with other readers
    #[arg(short, long, group = "kind")]
    pub(crate) shared: bool,
    /// Exclude all others, as the writer of a lock that readers share. For a lock that is never
    /// shared, omit both options, and use a path at which no lock is shared
    #[arg(short = 'x', long, group = "kind", verbatim_doc_comment)]
    pub(crate) exclusive: bool,
    /// Keep the order of arrival among all processes
    #[arg(long, group = "kind")]
    pub(crate) fair: bool,
    /// Let N processes in at a time, 10,000 at most, each with a slot below N. The path must not be
    /// used for another kind of lock
    #[arg(long, value_name = "N", group = "kind", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[arg(verbatim_doc_comment)]
    pub(crate) permits: Option<u32>,
    /// Run the command once for this occasion, such as 2026-11-25, in the process that comes first.
    /// If the command fails, or the record cannot be written, the next process runs the command. If
    /// the lock is lost, the command is killed without SIGTERM, so there is no --on-lost. The lock
    /// is PATH/lock, and does not exclude commands that run under PATH without --once
    #[arg(
        long,
        value_name = "OCCASION",
        value_parser = occasion,
        group = "kind",
        requires = "command",
        conflicts_with = "on_lost",
        verbatim_doc_comment
    )]
    pub(crate) once: Option<String>,
    /// End the command after this time, with SIGTERM and, after --kill-after, SIGKILL
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) lease: Option<Duration>,
    #[command(flatten)]
    pub(crate) work: Work,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How a command is run and ended.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// The time from SIGTERM to SIGKILL after a loss or the end of a lease; less if the lock might
    /// be granted sooner. A signal to zklock, and `zklock revoke`, send no SIGKILL
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s", verbatim_doc_comment)]
    pub(crate) kill_after: Duration,
    /// What happens at a loss: "term" sends SIGTERM, "kill" SIGKILL at once, "warn" lets the
    /// command go on while another process may hold the lock, and any other text is run by a shell
    /// instead of SIGTERM: 'kill -INT $ZKLOCK_PID' sends SIGINT. The end of a lease is no loss
    #[arg(long, value_name = "ACTION", value_parser = OnLost::parse, default_value = "term")]
    #[arg(verbatim_doc_comment)]
    pub(crate) on_lost: OnLost,
    /// Leave the terminal to the command, which can then read from it. The children of the command
    /// are then not ended with it
    #[arg(long, verbatim_doc_comment)]
    pub(crate) foreground: bool,
    /// Say on standard error who holds the lock if it is not free, when it is granted, and what
    /// else happens to it
    #[arg(short, long, verbatim_doc_comment)]
    pub(crate) verbose: bool,
}

impl Work {
    /// Says something to people who have asked for it.
    pub(crate) fn say(&self, text: &str) {
        if self.verbose {
            crate::messages::say(text);
        }
    }
}

/// What happens to the command when the lock is lost.
#[derive(Clone, Debug)]
pub(crate) enum OnLost {
    Term,
    Kill,
    Warn,
    Run(String),
}

impl OnLost {
    /// Parses an action. A blank command would do nothing, so that only SIGKILL is left.
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match &*text.to_ascii_lowercase() {
            "term" => Self::Term,
            "kill" => Self::Kill,
            "warn" => Self::Warn,
            blank if blank.trim().is_empty() => return Err("it is blank".to_owned()),
            _ => Self::Run(text.to_owned()),
        })
    }
}

/// `zklock lead PATH -- CMD`
#[derive(Debug, Args)]
pub(crate) struct Lead {
    /// The path of the election
    pub(crate) path: String,
    /// The command and its arguments, which are run without a shell
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) work: Work,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `zklock status PATH`
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The path of the lock, or of jobs that run --once, whose lock is at PATH/lock
    pub(crate) path: String,
    /// Print one JSON object in a line, with the "holders" and "waiters" of the lock, each with its
    /// "node", "kind", "owner", "host", "pid" and "name" (parts of an "owner" of the library's
    /// form), "session", "token", and since when and for how long it has been in the queue:
    /// "queued_since_ms" (of the servers' clock, since 1970), "queued_for_seconds". "exists" is
    /// false if there is no node at "path". "once" is the same of the lock at PATH/lock, if that is
    /// held
    #[arg(long)]
    pub(crate) json: bool,
    /// Look again every second, and print what has changed
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `zklock revoke PATH`
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The path of the lock, or of jobs that run --once, whose lock is at PATH/lock
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `zklock break PATH`
#[derive(Debug, Args)]
pub(crate) struct Break {
    /// The path of the lock; of a job that runs --once, PATH/lock
    pub(crate) path: String,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The servers, and who this is to them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The servers, and the node that paths are below, if that is not the root
    #[arg(
        long,
        env = "ZK_CONNECT",
        hide_env_values = true,
        value_name = "HOST:PORT,..[/CHROOT]"
    )]
    pub(crate) servers: Option<String>,
    /// The time after which the servers release the lock of a process that they do not hear from.
    /// The servers clamp it to their limits, by default 4s to 40s
    #[arg(long, value_name = "TIME", value_parser = time, default_value = SESSION_TIMEOUT)]
    #[arg(verbatim_doc_comment)]
    pub(crate) session_timeout: Duration,
    /// A file with credentials, as digest:USER:PASSWORD
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,
    /// Make nodes that only a client with these credentials may read and change. A directory that
    /// exists keeps its ACL, which may allow others to delete the lock
    #[arg(long, verbatim_doc_comment)]
    pub(crate) private: bool,
    #[cfg(feature = "sasl-digest-md5")]
    /// A file with USER:PASSWORD for SASL DIGEST-MD5
    #[arg(long, value_name = "FILE")]
    pub(crate) sasl_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub(crate) tls: Tls,
}

/// TLS to the servers.
#[cfg(feature = "tls")]
#[derive(Debug, Args)]
pub(crate) struct Tls {
    /// Use TLS, and trust the authorities whose certificates are in this PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// A PEM file with this client's certificate
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

/// Parses the name of an occasion. A script with a mistake gives an empty one, for which the job
/// would run once, and never again.
fn occasion(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("it is blank, so that the job would run once and never again".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// Parses a time: a number with a unit, or of seconds.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("{unit:?} is no unit of time: ms, s, m or h")),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is not a number"))?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| "it is negative or too long".to_owned())
}

impl Connection {
    /// Whether a session timeout was given that is not the default.
    pub(crate) fn has_own_session_timeout(&self) -> bool {
        time(SESSION_TIMEOUT).is_ok_and(|default| default != self.session_timeout)
    }
}

/// Parses the path of a lock, in whose place a mistyped command may be.
fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') {
        Ok(text.to_owned())
    } else {
        Err(no_path())
    }
}

fn no_path() -> String {
    let actions = Action::augment_subcommands(clap::Command::new(""));
    let names: Vec<_> = actions
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    format!(
        "a path begins with '/', and the commands are {}",
        names.join(", ")
    )
}

impl Options {
    /// Returns the path that a call is about, if it is about one.
    pub(crate) fn path(&self) -> Option<&str> {
        match &self.action {
            None => self.run.path.as_deref(),
            Some(Action::Lead(lead)) => Some(&lead.path),
            Some(Action::Status(status)) => Some(&status.path),
            Some(Action::Revoke(revoke)) => Some(&revoke.path),
            Some(Action::Break(options)) => Some(&options.path),
            Some(Action::Completions { .. } | Action::Man { .. }) => None,
        }
    }

    /// Returns the definition of this program, or that of one of its commands.
    pub(crate) fn command_of(name: Option<&str>) -> clap::Command {
        let mut program = Self::command();
        // The build gives its commands their full names.
        program.build();
        let Some(name) = name else { return program };
        let command = program.find_subcommand(name).cloned();
        command.unwrap_or(program)
    }

    /// Parses the arguments of this program.
    pub(crate) fn of_this_program() -> Result<Self, clap::Error> {
        let arguments: Vec<_> = std::env::args_os().skip(1).collect();
        let options = Self::try_parse().map_err(|error| with_hint(error, &arguments))?;
        let has_command = !options.run.command.is_empty();
        if options.action.is_none() && !has_command && arguments.iter().any(|it| it == "--") {
            let text = "CMD is missing behind '--' (is a variable empty?); without '--', zklock holds the \
                        lock until a signal ends it";
            return Err(Self::command().error(ErrorKind::MissingRequiredArgument, text));
        }
        Ok(options)
    }
}

/// Adds to an error of the command line what the mistake may be: a command that comes behind `--`
/// and has none, or the name of a command of `zklock`.
fn with_hint(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let is_word = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(word)) if !word.starts_with('-')
    );
    if error.kind() != ErrorKind::UnknownArgument || !is_word {
        return error;
    }
    let mut program = Options::command();
    let first = arguments.first().and_then(|first| first.to_str());
    let mistyped = first
        .filter(|first| !first.starts_with(['-', '/']) && program.find_subcommand(first).is_none());
    if let Some(mistyped) = mistyped {
        let text = format!("unknown command {mistyped:?}: {}", no_path());
        return program.error(ErrorKind::InvalidSubcommand, text);
    }
    let late = arguments
        .iter()
        .filter(|_| first.is_some_and(|first| first.starts_with('-')))
        .map_while(|word| word.to_str().filter(|word| !word.starts_with('/')))
        .take_while(|word| *word != "--")
        .find(|word| program.find_subcommand(word).is_some());
    if let Some(late) = late {
        let hint = format!("options come behind the command: zklock {late} [OPTIONS] PATH");
        let hint = ContextValue::StyledStrs(vec![hint.into()]);
        error.insert(ContextKind::Suggested, hint);
        return error;
    }
    let takes_command = matches!(
        error.get(ContextKind::Usage),
        Some(ContextValue::StyledStr(usage)) if usage.to_string().contains("-- CMD")
    );
    if takes_command && !arguments.iter().any(|argument| argument == "--") {
        let hint = "a command comes behind '--': zklock PATH -- CMD";
        let hint = ContextValue::StyledStrs(vec![hint.into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn actions_are_of_either_case() {
        assert!(matches!(OnLost::parse("TERM"), Ok(OnLost::Term)));
        assert!(matches!(OnLost::parse("Warn"), Ok(OnLost::Warn)));
        assert!(matches!(OnLost::parse("./Warn"), Ok(OnLost::Run(text)) if text == "./Warn"));
    }

    #[test]
    fn times_have_units() {
        for (text, millis) in [
            ("1.5", 1500),
            ("0", 0),
            ("500ms", 500),
            ("90s", 90_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "1d", "1e99", "nan"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
