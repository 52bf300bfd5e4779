//! What the examples with several processes have in common: servers, workers, and how they speak with each other.

pub(crate) mod crew;
pub(crate) mod worker;

use std::time::Duration;

use serde::Serialize;
use zookeeper_test_server::Server;

/// Anything that went wrong, in words.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// The exit code of a broken promise.
pub(crate) const BROKEN: u8 = 1;
/// The exit code of a program that could not do what it was asked for; clap's too.
pub(crate) const TROUBLE: u8 = 2;
/// The exit code of a program that was interrupted, as shells count.
pub(crate) const INTERRUPTED: u8 = 130;

/// The grain of the in-process server's sessions, a tenth of ZooKeeper's.
const TICK: Duration = Duration::from_millis(200);
/// The longest session that a server of our own grants.
const MAX_SESSION: Duration = Duration::from_secs(600);

/// Who gives the lock.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Backend {
    #[serde(rename = "in-process")]
    InProcess,
    #[serde(rename = "zookeeper")]
    ZooKeeper,
}

/// The servers to use.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) connect_string: String,
    pub(crate) backend: Backend,
    /// It serves until it is dropped.
    _local: Option<Server>,
}

impl Servers {
    /// Those that the command line names, or `ZK_CONNECT`, or one of our own.
    pub(crate) fn find(connect: Option<&str>) -> Result<Self, Error> {
        let given = connect.map(str::to_owned).or_else(|| std::env::var("ZK_CONNECT").ok());
        if let Some(connect_string) = given.filter(|servers| !servers.is_empty()) {
            return Ok(Self { connect_string, backend: Backend::ZooKeeper, _local: None });
        }
        let server = Server::builder().tick(TICK).max_session_timeout(MAX_SESSION).start()?;
        let connect_string = server.connect_string();
        Ok(Self { connect_string, backend: Backend::InProcess, _local: Some(server) })
    }
}

/// A whole number and its unit: `200ms`, `2s`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let wrong = || "a whole number and a unit (us, ms, s, m), such as 200ms".to_owned();
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// Nanoseconds of the one clock that all processes of a host share, and that nobody sets.
pub(crate) fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// To microseconds.
pub(crate) fn round(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// An error with its causes. Many put their cause into their own text; that is not said twice.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
