//! The result of a sale: what the workers reported, checked against what is in the database.

use std::fmt;

use serde::Serialize;

use crate::common::{Backend, round};
use crate::history::History;
use crate::options::{Config, Fault, Lock};
use crate::protocol::{Ending, Event, EventKind, Outcome, Visit};
use crate::store::Count;

/// The number of buyers that are listed.
const WINNERS: usize = 20;

/// The number of products that are listed.
const PRODUCTS: usize = 20;

/// The reports of the workers so far.
#[derive(Debug)]
pub(crate) struct Ledger {
    config: Config,
    backend: Backend,
    verbose: bool,
    /// The outcomes by user, from 1.
    outcomes: Vec<Option<Outcome>>,
    /// Whether each worker died before it was done.
    dead: Vec<bool>,
    history: History,
    peak_lock_nodes: usize,
}

impl Ledger {
    pub(crate) fn new(config: Config, backend: Backend, verbose: bool) -> Self {
        Self {
            outcomes: vec![None; config.users as usize],
            dead: vec![false; config.workers as usize],
            history: History::start(),
            peak_lock_nodes: 0,
            config,
            backend,
            verbose,
        }
    }

    /// Notes that the sale starts.
    pub(crate) fn start(&mut self) {
        self.history = History::start();
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn history_mut(&mut self) -> &mut History {
        &mut self.history
    }

    /// Records an event of a critical section.
    pub(crate) fn record_event(&mut self, worker: u32, event: &Event) {
        self.history.record(worker, event, &self.config);
    }

    /// Returns the log's line about an event that has been recorded; `None` if nothing is to be
    /// logged.
    pub(crate) fn log_line(&self, event: &Event) -> Option<String> {
        let section = self.history.last_of(event.user).filter(|_| self.verbose)?;
        let text = match &event.kind {
            EventKind::Entered {
                waited: Some(waited),
            } => {
                format!("got the lock after {:.3} s", *waited as f64 / 1e9)
            }
            EventKind::Entered { waited: None } => "went in".to_owned(),
            EventKind::Read { left } => format!("sees {left}"),
            EventKind::Suspended => "is not sure of the lock any more".to_owned(),
            EventKind::Held => "is sure of the lock again".to_owned(),
            // The loss is reported a second time.
            EventKind::Lost(_) if section.marks.iter().all(|(at, _)| *at != event.at) => {
                return None;
            }
            EventKind::Lost(reason) => format!("has lost the lock: {reason}"),
            EventKind::Ended { ending, .. } => match ending {
                Ending::Sold { left } => format!("bought one, left {left}, and releases"),
                Ending::SoldOut => "found nothing, and releases".to_owned(),
                Ending::Refused => "was refused: the token is too old".to_owned(),
                Ending::Failed => "failed".to_owned(),
            },
        };
        let seconds = self.history.seconds(event.at);
        let (worker, sku) = (section.worker + 1, 42 + section.product);
        Some(format!(
            "{seconds:9.3} s  worker {worker}  sku-{sku}  user {}: {text}",
            event.user
        ))
    }

    /// Records how a user's visit ended.
    pub(crate) fn record_visit(&mut self, visit: Visit) {
        self.outcomes[visit.user as usize - 1] = Some(visit.outcome);
    }

    /// Records that a worker ended before it was done.
    pub(crate) fn record_death(&mut self, worker: u32) {
        self.dead[worker as usize] = true;
    }

    /// Notes that the sale is over.
    pub(crate) fn finish(&mut self, peak_lock_nodes: usize) {
        self.history.finish();
        self.peak_lock_nodes = peak_lock_nodes;
    }

    /// Counts the users who never went inside.
    fn outside(&self) -> Outside {
        let mut outside = Outside::default();
        let users = (1..)
            .zip(&self.outcomes)
            .filter(|(user, _)| self.history.last_of(*user).is_none());
        users.for_each(|(_, outcome)| outside.add(outcome.as_ref()));
        outside
    }

    /// Compares the reports with the database.
    pub(crate) fn close(self, counts: &[Count], faults: &[Fault]) -> Report {
        let Config {
            stock,
            users,
            workers,
            ..
        } = self.config;
        let mut skus: Vec<_> = counts
            .iter()
            .map(|count| Product::new(stock, count))
            .collect();
        let mut shares = vec![
            Share {
                sections: 0,
                sold: 0
            };
            workers as usize
        ];
        let mut waits = Vec::new();
        let mut fenced = 0;
        for section in &self.history.sections {
            shares[section.worker as usize].sections += 1;
            waits.extend(section.waited);
            fenced += u32::from(matches!(section.ended, Some((_, Ending::Refused))));
        }
        waits.sort_unstable();
        let mut bought = vec![0_u32; users as usize];
        let mut winners = Vec::new();
        for count in counts {
            for order in &count.orders {
                bought[order.user as usize - 1] += 1;
                shares[self.config.worker_of(order.user) as usize].sold += 1;
                winners.push((
                    order.id,
                    Winner {
                        user: order.user,
                        sku: count.sku.clone(),
                        left: order.left,
                    },
                ));
            }
        }
        winners.sort_unstable_by_key(|(id, _)| *id);
        let winners: Vec<_> = winners
            .into_iter()
            .take(WINNERS)
            .map(|(_, winner)| winner)
            .collect();

        let (mut sold_out, mut timed_out, mut lost, mut failed, mut unaccounted) = (0, 0, 0, 0, 0);
        let mut first_failure = None;
        for (user, (outcome, &bought)) in (1..).zip(self.outcomes.iter().zip(&bought)) {
            let dead = self.dead[self.config.worker_of(user) as usize];
            match (outcome, bought) {
                (Some(Outcome::Sold), 1) => {}
                (Some(Outcome::SoldOut), 0) => {
                    sold_out += 1;
                    skus[self.config.product_of(user)].sent_away += 1;
                }
                (Some(Outcome::TimedOut), 0) => timed_out += 1,
                (Some(Outcome::Failed(error)), 0) => {
                    failed += 1;
                    first_failure.get_or_insert_with(|| error.clone());
                }
                // The worker was killed between the commit and its report: the order counts.
                (None, 1) if dead => {}
                (None, 0) if dead => lost += 1,
                _ => unaccounted += 1,
            }
        }
        let paused = self.history.paused();
        let outside = self.outside();
        let inside = users - outside.total();
        let figures = Figures {
            backend: self.backend,
            stock: stock.saturating_mul(self.config.skus),
            users,
            workers,
            sold: skus.iter().map(|product| product.sold).sum(),
            sold_out,
            timed_out,
            lost,
            inside,
            inside_again: self.history.sections.len() as u32 - inside,
            outside,
            oversold: skus.iter().map(|product| product.oversold).sum(),
            overlaps: self.history.overlaps().len() as u32,
            fenced,
            winners: winners.iter().map(|winner| winner.user).collect(),
            seconds: round(self.history.seconds(self.history.finished)),
            peak_lock_nodes: self.peak_lock_nodes,
            failed,
            unaccounted,
            left: skus.iter().map(|product| product.left).sum(),
            vanished: skus.iter().map(|product| product.vanished).sum(),
            sent_away: skus
                .iter()
                .filter(|product| product.left > 0)
                .map(|product| product.sent_away)
                .sum(),
            killed: self.history.killed().map(|worker| worker + 1),
            paused: paused.map(|(worker, _)| worker + 1),
            paused_seconds: paused.map_or(0.0, |(_, seconds)| round(seconds)),
            wait_p50_ms: percentile(&waits, 50),
            wait_p99_ms: percentile(&waits, 99),
            skus,
        };
        Report {
            figures,
            config: self.config,
            faults: faults.to_vec(),
            winners,
            shares,
            first_failure,
        }
    }
}

/// Returns the smallest of the sorted values that `percent` of them do not exceed, in milliseconds
/// for nanoseconds.
fn percentile(sorted: &[u64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted
        .get(rank - 1)
        .map_or(0.0, |&nanoseconds| nanoseconds as f64 / 1e6)
}

/// The result as `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    backend: Backend,
    /// The stock of all products together. The next fields are for all products too.
    stock: u32,
    users: u32,
    workers: u32,
    /// Orders in the database.
    sold: u32,
    sold_out: u32,
    timed_out: u32,
    /// Users of a worker that was killed.
    lost: u32,
    /// Users who were inside, of whatever outcome.
    inside: u32,
    /// How often one of them went inside again, after losing the lock.
    inside_again: u32,
    /// The other users.
    outside: Outside,
    /// Orders that took nothing off the stock.
    oversold: u32,
    /// Users who went in while another was inside, which lasts until the last moment at which the
    /// guard said that the lock was held: a worker that was paused inside did not ask it after
    /// that, and was refused.
    overlaps: u32,
    /// Reads and writes that the database refused because of an old token.
    fenced: u32,
    winners: Vec<u32>,
    seconds: f64,
    peak_lock_nodes: usize,
    /// Users who could not be served because of an error.
    failed: u32,
    /// Users whose reported outcome does not agree with the database.
    unaccounted: u32,
    left: u32,
    /// Items taken off the stock without an order.
    vanished: u32,
    /// Users who were refused as sold out although items were left.
    sent_away: u32,
    /// The worker that was killed, from 1.
    killed: Option<u32>,
    /// The worker that was paused while it held the lock, from 1, and for how long.
    paused: Option<u32>,
    paused_seconds: f64,
    wait_p50_ms: f64,
    wait_p99_ms: f64,
    skus: Vec<Product>,
}

/// Users who never went inside, by outcome.
#[derive(Debug, Default, Serialize)]
struct Outside {
    sold_out: u32,
    timed_out: u32,
    lost: u32,
    failed: u32,
}

impl Outside {
    fn add(&mut self, outcome: Option<&Outcome>) {
        *match outcome {
            Some(Outcome::SoldOut) => &mut self.sold_out,
            Some(Outcome::TimedOut) => &mut self.timed_out,
            // The worker ended first. A sale without a visit is not accounted for.
            None | Some(Outcome::Sold) => &mut self.lost,
            Some(Outcome::Failed(_)) => &mut self.failed,
        } += 1;
    }

    fn total(&self) -> u32 {
        self.sold_out + self.timed_out + self.lost + self.failed
    }

    /// Returns the outcomes as text, without the rows of zero.
    fn text(&self) -> String {
        let reasons = [
            (self.sold_out, "saw that nothing was left"),
            (self.timed_out, "did not get the lock in time"),
            (self.lost, "were of the worker that was killed"),
            (self.failed, "failed"),
        ];
        let reasons = reasons.iter().filter(|(users, _)| *users > 0);
        reasons
            .map(|(users, what)| format!("{users} {what}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The result for one product.
#[derive(Debug, Serialize)]
struct Product {
    sku: String,
    stock: u32,
    sold: u32,
    left: u32,
    oversold: u32,
    vanished: u32,
    /// Users who were refused because nothing was left.
    #[serde(rename = "sold_out")]
    sent_away: u32,
}

impl Product {
    fn new(stock: u32, count: &Count) -> Self {
        // Each order takes one item. More orders than items that were taken mean that an item was
        // sold twice; if updates of the stock were lost, some may even be left.
        let sold = count.orders.len() as u32;
        let taken = stock.saturating_sub(count.left);
        Self {
            sku: count.sku.clone(),
            stock,
            sold,
            left: count.left,
            oversold: sold.saturating_sub(taken),
            vanished: taken.saturating_sub(sold),
            sent_away: 0,
        }
    }
}

/// A buyer.
#[derive(Debug)]
struct Winner {
    user: u32,
    sku: String,
    /// The stock after the order.
    left: u32,
}

/// The part of one worker in the sale.
#[derive(Clone, Debug)]
struct Share {
    sections: u32,
    sold: u32,
}

/// The result.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) figures: Figures,
    config: Config,
    faults: Vec<Fault>,
    winners: Vec<Winner>,
    shares: Vec<Share>,
    first_failure: Option<String>,
}

impl Report {
    /// Returns what holds if nothing is broken.
    pub(crate) fn claim(&self) -> String {
        let Figures {
            sold, stock, users, ..
        } = self.figures;
        let of_one = if self.config.skus > 1 {
            " for one product"
        } else {
            ""
        };
        format!(
            "{sold} of {stock} sold, none twice; never two of {users} users inside at once{of_one}"
        )
    }

    /// Returns what must not happen and did, a line each.
    pub(crate) fn broken_promises(&self) -> Vec<String> {
        let figures = &self.figures;
        let promises = [
            (figures.oversold, "orders took nothing off the stock"),
            (figures.vanished, "items left the stock without an order"),
            (figures.overlaps, "users went in while another was inside"),
            (
                figures.sent_away,
                "users were told that nothing is left while something is",
            ),
            (figures.unaccounted, "users are not accounted for"),
        ];
        promises
            .iter()
            .filter(|(times, _)| *times > 0)
            .map(|(n, what)| format!("{n} {what}"))
            .collect()
    }

    /// Returns what could not be done as it was asked for, a line each.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let failed = self.figures.failed;
        let failure = self.first_failure.as_ref();
        let failure = failure.map(|failure| format!("{failed} users failed, the first: {failure}"));
        failure
            .into_iter()
            .chain(self.missed_fault().map(str::to_owned))
            .collect()
    }

    /// Returns why a fault that was asked for did not happen, or had no effect; `None` if all did.
    fn missed_fault(&self) -> Option<&'static str> {
        let figures = &self.figures;
        self.faults.iter().find_map(|fault| match fault {
            Fault::Kill if figures.killed.is_none() => {
                Some("there was nobody to kill: no worker was inside")
            }
            Fault::Pause if figures.paused.is_none() => {
                Some("there was nobody to stop: no worker was inside")
            }
            Fault::Pause if figures.fenced == 0 => {
                Some("no other worker got the lock while its holder was stopped")
            }
            _ => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (figures, config) = (&self.figures, &self.config);
        let lock = match config.lock {
            Lock::Mutex => "mutex",
            Lock::Fair => "fair lock",
            Lock::ReadWrite => "read-write lock",
            Lock::None => "without a lock",
        };
        let server = match (config.lock, figures.backend) {
            (Lock::None, _) => "",
            (_, Backend::InProcess) => ", server in this process",
            (_, Backend::ZooKeeper) => ", ZooKeeper",
        };
        writeln!(
            f,
            "{} users, {} in stock, {} workers, {lock}{server}: {:.3} s",
            config.users, config.stock, config.workers, figures.seconds
        )?;
        writeln!(f, "scenario {}", config.scenario.source())?;
        writeln!(f)?;
        let rows = [
            ("sold", figures.sold),
            ("sold out", figures.sold_out),
            ("timed out", figures.timed_out),
            ("lost with their worker", figures.lost),
            ("failed", figures.failed),
            ("not accounted for", figures.unaccounted),
            ("oversold", figures.oversold),
            ("two inside at once", figures.overlaps),
            ("refused by the token", figures.fenced),
        ];
        for (name, number) in rows.into_iter().filter(|(_, number)| *number > 0) {
            writeln!(f, "{name:<24}{number:>8}")?;
        }
        writeln!(f)?;
        if self.figures.skus.len() > 1 {
            writeln!(
                f,
                "{:<12}{:>12}{:>8}{:>8}",
                "product", "in stock", "sold", "left"
            )?;
            for Product {
                sku,
                stock,
                sold,
                left,
                ..
            } in self.figures.skus.iter().take(PRODUCTS)
            {
                writeln!(f, "{sku:<12}{stock:>12}{sold:>8}{left:>8}")?;
            }
            if self.figures.skus.len() > PRODUCTS {
                writeln!(f, "...")?;
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "{:<12}{:>12}{:>8}{:>8}",
            "worker", "was inside", "sold", "share"
        )?;
        for (worker, share) in (1..).zip(&self.shares) {
            let percent = f64::from(share.sold) * 100.0 / f64::from(figures.sold.max(1));
            writeln!(
                f,
                "{worker:<12}{:>12}{:>8}{percent:>7.0}%",
                share.sections, share.sold
            )?;
        }
        writeln!(f)?;
        write!(f, "{} users were inside", figures.inside)?;
        if figures.inside_again > 0 {
            write!(
                f,
                ", {} of them again after losing the lock",
                figures.inside_again
            )?;
        }
        if figures.outside.total() > 0 {
            write!(f, "; of the others, {}", figures.outside.text())?;
        }
        writeln!(f)?;
        if config.lock != Lock::None {
            writeln!(
                f,
                "waited for the lock: p50 {:.1} ms, p99 {:.1} ms; at most {} nodes in its queue",
                figures.wait_p50_ms, figures.wait_p99_ms, figures.peak_lock_nodes
            )?;
        }
        if let Some(worker) = figures.killed {
            writeln!(f, "worker {worker} was killed while it had the lock")?;
        }
        if let Some(worker) = figures.paused {
            let seconds = figures.paused_seconds;
            writeln!(
                f,
                "worker {worker} was stopped for {seconds:.3} s while it had the lock"
            )?;
        }
        if self.winners.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        writeln!(f, "{:<12}{:>12}{:>8}", "winner", "product", "left")?;
        for Winner { user, sku, left } in &self.winners {
            writeln!(f, "{user:<12}{sku:>12}{left:>8}")?;
        }
        if figures.sold as usize > WINNERS {
            writeln!(f, "...")?;
        }
        Ok(())
    }
}
