//! The parts that the examples with several processes share: the program, the servers, the worker
//! processes, the data, the log, and the clock.

#![allow(dead_code, reason = "each example uses a part of it")]

pub(crate) mod countdown;
pub(crate) mod crew;
pub(crate) mod db;
pub(crate) mod log;
pub(crate) mod options;
pub(crate) mod program;
pub(crate) mod tree;
pub(crate) mod worker;
pub(crate) mod workers;

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use zookeeper_test_server::Server;

/// Any failure of an example.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// The in-process server's tick, a tenth of ZooKeeper's default: it expires sessions on multiples
/// of it.
const TICK: Duration = Duration::from_millis(200);
/// The longest session timeout that the in-process server grants.
const MAX_SESSION_TIMEOUT: Duration = Duration::from_secs(600);

/// The kind of server that a run uses.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Backend {
    #[serde(rename = "in-process")]
    InProcess,
    #[serde(rename = "zookeeper")]
    ZooKeeper,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InProcess => "server in this process",
            Self::ZooKeeper => "ZooKeeper",
        })
    }
}

/// The servers that a run uses.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) connect_string: String,
    pub(crate) backend: Backend,
    /// Serves until it is dropped.
    pub(crate) in_process: Option<Server>,
}

impl Servers {
    /// Returns the servers of `connect`, or else of `ZK_CONNECT`; starts one in this process if
    /// neither names any.
    pub(crate) fn find(connect: Option<&str>) -> Result<Self, Error> {
        let given = connect
            .map(str::to_owned)
            .or_else(|| std::env::var("ZK_CONNECT").ok());
        if let Some(connect_string) = given.filter(|servers| !servers.is_empty()) {
            return Ok(Self {
                connect_string,
                backend: Backend::ZooKeeper,
                in_process: None,
            });
        }
        let server = Server::builder()
            .tick(TICK)
            .max_session_timeout(MAX_SESSION_TIMEOUT)
            .start()?;
        let connect_string = server.connect_string();
        Ok(Self {
            connect_string,
            backend: Backend::InProcess,
            in_process: Some(server),
        })
    }
}

/// Parses a whole number and its unit: `200ms`, `2s`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let wrong = || "a whole number and a unit (us, ms, s, m), such as 200ms".to_owned();
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => number
            .checked_mul(60)
            .map(Duration::from_secs)
            .ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// Returns the nanoseconds of `CLOCK_MONOTONIC`: all processes of a host share that clock, and it
/// is never set.
pub(crate) fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Returns a name that no other run on these servers has, so that two runs do not get into each
/// other's way.
pub(crate) fn run_name() -> String {
    format!("run-{}-{}", std::process::id(), monotonic())
}

/// Rounds seconds to microseconds.
pub(crate) fn round(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// Returns an error's text with those of its sources. A source that the text ends with already is
/// left out.
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
