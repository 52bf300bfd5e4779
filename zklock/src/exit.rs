//! The exit codes, and what makes `zklock` fail.

use std::error::Error;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::io::Errno;
use rustix::process::Signal;
use zookeeper_recipes::{
    AcquireError, BuildError, ConnectError, ErrorKind, OnceError, TryLockError,
};

/// There is no holder to ask or to break, or it was not to be broken.
pub(crate) const NONE: u8 = 1;
/// The command line cannot be used (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// No server answered (`EX_UNAVAILABLE`).
pub(crate) const UNREACHABLE: u8 = 69;
/// The machine gave no process, thread or file descriptor, or standard output cannot be written
/// (`EX_OSERR`).
pub(crate) const SYSTEM: u8 = 71;
/// The lock was not free in time (`EX_TEMPFAIL`).
pub(crate) const BUSY: u8 = 75;
/// The servers refused the credentials, or an ACL denies the request (`EX_NOPERM`).
pub(crate) const NO_PERMISSION: u8 = 77;
/// The lock was lost, or its lease was over, and the command was ended.
pub(crate) const LOST: u8 = 125;
/// The command was found and could not be run, as the shell says it.
const CANNOT_RUN: u8 = 126;
/// The command was not found, as the shell says it.
const NOT_FOUND: u8 = 127;
/// Standard output has no reader any more: the code of SIGPIPE, which this process ignores.
pub(crate) const NO_READER: u8 = 141;
/// What a shell adds to the number of the signal that ended a process.
const BY_SIGNAL: i32 = 128;

/// The signals of a terminal's keys. A shell gets them, too, and ends its script if the program
/// that it waits for dies of them.
const OF_TERMINAL: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// What the system says if it has no more processes or threads, memory, or file descriptors, and
/// what helps.
const SHORTAGES: [(Errno, &str); 4] = [
    // A thread needs memory for its stack, and its lack is the same error.
    (
        Errno::AGAIN,
        "raise `ulimit -u`, or `ulimit -v` if that is set",
    ),
    (Errno::NOMEM, "raise the limit of memory"),
    (Errno::MFILE, "raise `ulimit -n`"),
    (
        Errno::NFILE,
        "raise the machine's limit of open files, fs.file-max",
    ),
];

/// What errors of the library say to programmers, and what `zklock` says for it.
const FOR_OPERATORS: [(&str, &str); 9] = [
    ("`ClientBuilder::auth`", "--auth-file"),
    (
        "call `auth` or `sasl_digest` of its builder",
        "give --auth-file",
    ),
    (
        "call `tls` of the client's builder (feature `tls`)",
        "give --tls-ca, which zklock has with the feature tls",
    ),
    (
        "give all handles the same limit, or store one for all with `set_limit`",
        "give all the same --permits",
    ),
    (
        "give both the same, or change the limit in force with `set_limit`",
        "give both the same --permits",
    ),
    (
        "; store one with `set_limit`, or delete the node",
        "; delete the node",
    ),
    (": call `break_lock` of the lock that returned it", ""),
    ("see the CAs of its `TlsOptions`", "see --tls-ca"),
    (
        "call an `identity` method of `TlsOptions`",
        "give --tls-cert and --tls-key",
    ),
];

/// An exit code, and the reason for people to read.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// A failure of the system, with what it was asked for, and what helps.
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        let text = format!("{what}: {error}");
        Self::new(
            SYSTEM,
            match shortage(error) {
                Some(remedy) => format!("{text}: {remedy}"),
                None => text,
            },
        )
    }

    /// A failure of standard output, which has no shortages.
    pub(crate) fn output(error: &io::Error) -> Self {
        Self::new(SYSTEM, format!("standard output: {error}"))
    }

    /// The command that could not be started.
    pub(crate) fn not_started(program: &str, error: &io::Error) -> Self {
        if shortage(error).is_some() {
            return Self::system(program, error);
        }
        let code = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_RUN,
        };
        Self::new(code, format!("{program}: {error}"))
    }

    /// An error of the library, whose text has its causes.
    pub(crate) fn of(code: u8, error: &dyn Error) -> Self {
        let mut text = error.to_string();
        for (text_of_library, ours) in FOR_OPERATORS {
            text = text.replace(text_of_library, ours);
        }
        Self { code, text }
    }
}

/// Returns what helps if an error is a shortage.
fn shortage(error: &io::Error) -> Option<&'static str> {
    let errno = Errno::from_io_error(error)?;
    let found = SHORTAGES.iter().find(|(shortage, _)| *shortage == errno);
    found.map(|(_, remedy)| *remedy)
}

/// How this process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With an exit code.
    Code(u8),
    /// By a signal of the terminal.
    Signal(Signal),
}

/// The end of a process that was asked to end by this signal.
pub(crate) fn by_signal(signal: Signal) -> End {
    if OF_TERMINAL.contains(&signal) {
        End::Signal(signal)
    } else {
        End::Code(code_of_signal(signal.as_raw()))
    }
}

/// The exit code of a process that was ended by the signal of this number.
pub(crate) fn code_of_signal(number: i32) -> u8 {
    u8::try_from(BY_SIGNAL + number).unwrap_or(u8::MAX)
}

/// The end that passes on how a command ended.
pub(crate) fn of_status(status: ExitStatus) -> End {
    let by_name = status.signal().and_then(Signal::from_named_raw);
    match (status.code(), status.signal(), by_name) {
        (Some(code), ..) => End::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, _, Some(signal)) => by_signal(signal),
        (None, Some(number), None) => End::Code(code_of_signal(number)),
        (None, None, None) => End::Code(u8::MAX),
    }
}

fn of_kind(kind: Option<ErrorKind>) -> u8 {
    match kind {
        Some(ErrorKind::NoAuth | ErrorKind::AuthFailed) => NO_PERMISSION,
        Some(ErrorKind::MixedRecipes | ErrorKind::LimitMismatch | ErrorKind::InvalidLimit) => USAGE,
        _ => UNREACHABLE,
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let code = match &error {
            ConnectError::TimedOut { .. } => UNREACHABLE,
            ConnectError::AuthFailed { .. } => NO_PERMISSION,
            // A thread that could not be started: no option of `zklock` is one of its connector.
            ConnectError::Setup { .. } => SYSTEM,
            _ => USAGE,
        };
        Self::of(code, &error)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::of(USAGE, &error)
    }
}

impl From<zookeeper_recipes::Error> for Failure {
    fn from(error: zookeeper_recipes::Error) -> Self {
        Self::of(of_kind(Some(error.kind())), &error)
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let code = match &error {
            AcquireError::TimedOut { .. } => BUSY,
            error => of_kind(error.kind()),
        };
        Self::of(code, &error)
    }
}

impl From<TryLockError> for Failure {
    fn from(error: TryLockError) -> Self {
        match error {
            TryLockError::Acquire(error) => error.into(),
            busy => Self::of(BUSY, &busy),
        }
    }
}

impl From<OnceError> for Failure {
    fn from(error: OnceError) -> Self {
        match error {
            OnceError::Build(error) => error.into(),
            OnceError::Acquire(error) => error.into(),
            OnceError::Lost(lost) => Self::of(LOST, &lost),
            error => Self::of(of_kind(error.kind()), &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of the library's errors, without the breaks of lines in the source.
    fn texts_of_library() -> String {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/error/");
        let mut texts = String::new();
        for name in ["acquire", "build", "connect", "once", "request", "lost"] {
            let source = std::fs::read_to_string(format!("{directory}{name}.rs")).unwrap();
            let lines = source.lines().map(str::trim);
            for line in
                lines.filter(|line| !line.starts_with("//") && !line.starts_with("#[must_use"))
            {
                match line.strip_suffix('\\') {
                    Some(begun) => texts.push_str(begun),
                    None => texts.extend([line, "\n"]),
                }
            }
        }
        texts
    }

    #[test]
    fn words_of_the_library_are_replaced() {
        let mut texts = texts_of_library();
        for (text_of_library, ours) in FOR_OPERATORS {
            assert!(texts.contains(text_of_library), "{text_of_library}");
            texts = texts.replace(text_of_library, ours);
        }
        // The others are of options that zklock does not set, and the form of a connect string.
        let others = [
            "`max_waiters`",
            "`max_ephemeral_bytes`",
            "`{option}`",
            "`host:port",
            "call `acquire`",
        ];
        let left = texts.lines().filter(|line| line.contains('`'));
        let unknown: Vec<_> = left
            .filter(|line| others.iter().all(|other| !line.contains(other)))
            .collect();
        assert!(unknown.is_empty(), "{unknown:#?}");
    }

    #[test]
    fn shortages_are_of_the_system() {
        for (errno, remedy) in SHORTAGES {
            let failure = Failure::not_started("a", &errno.into());
            assert_eq!(failure.code, SYSTEM);
            assert!(failure.text.ends_with(remedy), "{failure:?}");
        }
    }

    #[test]
    fn codes_are_those_of_a_shell() {
        assert_eq!(by_signal(Signal::TERM), End::Code(143));
        for (status, end) in [
            (7 << 8, End::Code(7)),
            (9, End::Code(137)),
            (130 << 8, End::Code(130)),
            (2, End::Signal(Signal::INT)),
        ] {
            assert_eq!(of_status(ExitStatus::from_raw(status)), end);
        }
    }
}
