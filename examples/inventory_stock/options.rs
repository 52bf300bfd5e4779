//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

/// A flash sale over several processes, which a distributed lock keeps from selling more than there is.
#[derive(Debug, Parser)]
#[command(name = "inventory_stock")]
pub(crate) struct Options {
    /// Sets what the options below leave open
    #[arg(long, value_enum, default_value_t = Scenario::ArticleSale)]
    scenario: Scenario,
    /// Items in stock [article-sale: 3]
    #[arg(long, value_name = "N")]
    stock: Option<u32>,
    /// Users who each want one item [article-sale: 99]
    #[arg(long, value_name = "N")]
    users: Option<u32>,
    /// Processes that serve them [article-sale: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: Option<u32>,
    /// How long a user waits for the lock [article-sale: 200ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// How long a user thinks between looking and buying [article-sale: 1ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    think: Option<Duration>,
    /// What keeps the users apart
    #[arg(long, value_enum, default_value_t = Lock::Mutex)]
    lock: Lock,
    /// ZooKeeper servers, host:port[,host:port...] [default: $ZK_CONNECT, or a server in this process]
    #[arg(long, value_name = "SERVERS")]
    connect: Option<String>,
    /// Keeps the database here; one of a former sale is replaced [default: a temporary file]
    #[arg(long, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,
    /// Prints the result as one JSON object too, as the last line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    /// The article's program: many users, few items, a short patience
    ArticleSale,
}

/// What keeps the users apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// `InterProcessMutex`, and its fencing token in the database
    Mutex,
    /// Nothing, to see what happens
    None,
}

/// The terms of a sale.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) stock: u32,
    pub(crate) users: u32,
    pub(crate) workers: u32,
    pub(crate) wait: Duration,
    pub(crate) think: Duration,
    pub(crate) lock: Lock,
}

impl Options {
    pub(crate) fn terms(&self) -> Terms {
        let Scenario::ArticleSale = self.scenario;
        Terms {
            stock: self.stock.unwrap_or(3),
            users: self.users.unwrap_or(99),
            workers: self.workers.unwrap_or(8),
            wait: self.wait.unwrap_or(Duration::from_millis(200)),
            think: self.think.unwrap_or(Duration::from_millis(1)),
            lock: self.lock,
        }
    }

    /// The servers to use, unless it is to be one of our own.
    pub(crate) fn servers(&self) -> Option<String> {
        let servers = self.connect.clone().or_else(|| std::env::var("ZK_CONNECT").ok());
        servers.filter(|servers| !servers.is_empty())
    }
}

/// A whole number and its unit: `200ms`, `2s`.
fn parse_duration(text: &str) -> Result<Duration, String> {
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
