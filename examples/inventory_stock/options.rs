//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::common::parse_duration;

/// A flash sale over several processes, in which a distributed lock prevents overselling.
#[derive(Debug, Parser)]
#[command(name = "inventory_stock")]
pub(crate) struct Options {
    /// Sets the defaults of other options
    #[arg(long, value_enum, default_value_t = Scenario::ArticleSale)]
    scenario: Scenario,
    /// Products, each with a lock of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    skus: u32,
    /// Items in stock of each product, at most a million [article-sale: 3, article-rush: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    stock: Option<u32>,
    /// Users who each want one item, at most a million [article-sale: 99, article-rush: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    users: Option<u32>,
    /// Worker processes that serve them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// How long a user waits for the lock [article-sale: 200ms, article-rush, --kill-one,
    /// --pause-one: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// How long a user thinks between reading the stock and buying [article-sale: 1ms,
    /// article-rush: 1s, --kill-one, --pause-one: 500ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    think: Option<Duration>,
    /// Kills (SIGKILL) the worker that holds the lock: the others continue when its session has
    /// expired
    #[arg(long)]
    kill_one: bool,
    /// Pauses (SIGSTOP) the worker that holds the lock until another has got it, then lets it
    /// continue and write
    #[arg(long)]
    pause_one: bool,
    /// The session timeout: how long the servers keep the lock of a worker that is silent. They
    /// have limits for it, by default 4s to 40s [default: 5s; --kill-one, --pause-one: 4s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    session_timeout: Option<Duration>,
    /// The lock that keeps the users apart
    #[arg(long, value_enum, default_value_t = Lock::Mutex)]
    lock: Lock,
    /// ZooKeeper servers, host:port[,host:port...] [default: $ZK_CONNECT, or a server in this
    /// process]
    #[arg(long, value_name = "SERVERS")]
    pub(crate) connect: Option<String>,
    /// Keeps the database in this file; that of an earlier sale is replaced [default: a temporary
    /// file]
    #[arg(long, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,
    /// Prints the result as one JSON object too, as the last line
    #[arg(long)]
    pub(crate) json: bool,
    /// Draws who held a lock when, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// Logs on stderr who gets a lock and who releases one
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// How many users of a worker wait at a time if each has a node on the servers: the nodes of eight
/// workers still fit into one list of children.
const FAIR_AT_ONCE: usize = 500;

#[derive(Clone, Copy, Debug, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Scenario {
    /// The sale of an article about Curator's mutex: many users, few items, a short wait
    ArticleSale,
    /// The rush of an article about a lock in Redis: 100,000 users, a long wait, a second of work
    /// per order
    ArticleRush,
}

impl Scenario {
    /// Returns the scenario's name, and where it is from.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::ArticleSale => "article-sale, after an article about Curator's mutex",
            Self::ArticleRush => "article-rush, after an article about a lock in Redis",
        }
    }
}

/// A fault for the worker that holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill,
    Pause,
}

/// The lock that keeps the users apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// `InterProcessMutex`, and its fencing token in the database
    Mutex,
    /// `InterProcessFairLock`: every user who waits has a node of their own
    Fair,
    /// `InterProcessReadWriteLock`: users look at the stock under the read lock, and buy under the
    /// write lock
    ReadWrite,
    /// No lock, to see what happens
    None,
}

/// The options of the sale that all workers need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) scenario: Scenario,
    pub(crate) skus: u32,
    /// The stock of each product.
    pub(crate) stock: u32,
    pub(crate) users: u32,
    pub(crate) workers: u32,
    /// How many users a worker serves at a time; the others come later.
    pub(crate) at_once: usize,
    pub(crate) wait: Duration,
    pub(crate) think: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) lock: Lock,
}

impl Config {
    /// Returns the worker that serves a user, from 0.
    pub(crate) fn worker_of(&self, user: u32) -> u32 {
        (user - 1) % self.workers
    }

    /// Returns the product that a user wants, from 0. Each worker has users for all of them.
    pub(crate) fn product_of(&self, user: u32) -> usize {
        ((user - 1) / self.workers % self.skus) as usize
    }

    /// Returns the names of the products.
    pub(crate) fn products(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.skus).map(|product| format!("sku-{}", 42 + product))
    }
}

impl Options {
    /// Parses the command line; if it is wrong, clap says how and ends the program.
    pub(crate) fn from_command_line() -> Self {
        let options = Self::parse();
        if options.lock == Lock::None && !options.faults().is_empty() {
            let words =
                "without a lock nobody holds it: --lock none with --kill-one or --pause-one";
            Self::command()
                .error(ErrorKind::ArgumentConflict, words)
                .exit();
        }
        options
    }

    /// Returns the faults to inject, in order.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let faults = [(self.kill_one, Fault::Kill), (self.pause_one, Fault::Pause)];
        faults
            .into_iter()
            .filter_map(|(wanted, fault)| wanted.then_some(fault))
            .collect()
    }

    /// Returns the options with the scenario's defaults.
    pub(crate) fn config(&self) -> Config {
        let faults = !self.faults().is_empty();
        let ms = Duration::from_millis;
        let (stock, users, wait, think, at_once) = match self.scenario {
            // A fault needs time: to hit a user inside, and for a session to expire. Four users at
            // a time: with all of them at once, on a slow machine the end of the queue would not be
            // reached within 200 ms.
            Scenario::ArticleSale if faults => (3, 99, ms(30_000), ms(500), 4),
            Scenario::ArticleSale => (3, 99, ms(200), ms(1), 4),
            Scenario::ArticleRush => (10, 100_000, ms(30_000), ms(1_000), usize::MAX),
        };
        // The article's, or the least that ZooKeeper grants by default.
        let session_timeout = ms(if faults { 4_000 } else { 5_000 });
        Config {
            scenario: self.scenario,
            skus: self.skus,
            stock: self.stock.unwrap_or(stock),
            users: self.users.unwrap_or(users),
            workers: self.workers,
            at_once: if self.lock == Lock::Fair {
                at_once.min(FAIR_AT_ONCE)
            } else {
                at_once
            },
            wait: self.wait.unwrap_or(wait),
            think: self.think.unwrap_or(think),
            session_timeout: self.session_timeout.unwrap_or(session_timeout),
            lock: self.lock,
        }
    }
}
