//! The books of a sale: what the workers reported, checked against what the database says.

use std::fmt;

use serde::Serialize;

use crate::common::{Backend, round};
use crate::diary::Diary;
use crate::options::{Fault, Lock, Terms};
use crate::protocol::{Event, How, Outcome, Visit, What};
use crate::store::Stocktaking;

/// How many winners are named.
const WINNERS: usize = 20;

/// How many products are listed.
const PRODUCTS: usize = 20;

/// What is known while the sale goes on.
#[derive(Debug)]
pub(crate) struct Books {
    terms: Terms,
    backend: Backend,
    verbose: bool,
    /// By user, less one.
    outcomes: Vec<Option<Outcome>>,
    /// By worker.
    dead: Vec<bool>,
    diary: Diary,
    peak_lock_nodes: usize,
}

impl Books {
    pub(crate) fn new(terms: Terms, backend: Backend, verbose: bool) -> Self {
        Self {
            outcomes: vec![None; terms.users as usize],
            dead: vec![false; terms.workers as usize],
            diary: Diary::open(),
            peak_lock_nodes: 0,
            terms,
            backend,
            verbose,
        }
    }

    /// The doors open.
    pub(crate) fn open(&mut self) {
        self.diary = Diary::open();
    }

    pub(crate) fn diary(&self) -> &Diary {
        &self.diary
    }

    pub(crate) fn diary_mut(&mut self) -> &mut Diary {
        &mut self.diary
    }

    /// Something happened in a turn.
    pub(crate) fn write(&mut self, worker: u32, event: &Event) {
        self.diary.write(worker, event, &self.terms);
    }

    /// What is to be said about an event that was written down, if anything.
    pub(crate) fn log_line(&self, event: &Event) -> Option<String> {
        let turn = self.diary.turn_of(event.user).filter(|_| self.verbose)?;
        let what = match &event.what {
            What::Entered { waited: Some(waited) } => {
                format!("got the lock after {:.3} s", *waited as f64 / 1e9)
            }
            What::Entered { waited: None } => "went in".to_owned(),
            What::Saw { left } => format!("sees {left}"),
            What::Suspended => "is not sure of the lock any more".to_owned(),
            What::Held => "is sure of the lock again".to_owned(),
            // Noticed again.
            What::Lost(_) if turn.marks.iter().all(|(at, _)| *at != event.at) => return None,
            What::Lost(reason) => format!("has lost the lock: {reason}"),
            What::Ended { how: How::Sold { left }, .. } => format!("bought one, left {left}, and releases"),
            What::Ended { how: How::SoldOut, .. } => "found nothing, and releases".to_owned(),
            What::Ended { how: How::Refused, .. } => "was refused: the token is too old".to_owned(),
            What::Ended { how: How::Failed, .. } => "failed".to_owned(),
        };
        let seconds = self.diary.seconds(event.at);
        let (worker, sku) = (turn.worker + 1, 42 + turn.product);
        Some(format!("{seconds:9.3} s  worker {worker}  sku-{sku}  user {}: {what}", event.user))
    }

    /// A user has left.
    pub(crate) fn enter(&mut self, visit: Visit) {
        self.outcomes[visit.user as usize - 1] = Some(visit.outcome);
    }

    /// A worker went before it was done.
    pub(crate) fn died(&mut self, worker: u32) {
        self.dead[worker as usize] = true;
    }

    /// The sale is over.
    pub(crate) fn shut(&mut self, peak_lock_nodes: usize) {
        self.diary.close();
        self.peak_lock_nodes = peak_lock_nodes;
    }

    /// Compares the books with the shelves.
    pub(crate) fn close(self, shelves: &[Stocktaking], faults: &[Fault]) -> Report {
        let Terms { stock, users, workers, .. } = self.terms;
        let mut skus: Vec<_> = shelves.iter().map(|shelf| Shelf::new(stock, shelf)).collect();
        let mut shares = vec![Share { entered: 0, sold: 0 }; workers as usize];
        let mut waits = Vec::new();
        let mut fenced = 0;
        for turn in &self.diary.turns {
            shares[turn.worker as usize].entered += 1;
            waits.extend(turn.waited);
            fenced += u32::from(matches!(turn.ended, Some((_, How::Refused))));
        }
        waits.sort_unstable();
        let mut bought = vec![0_u32; users as usize];
        let mut winners = Vec::new();
        for shelf in shelves {
            for order in &shelf.orders {
                bought[order.user as usize - 1] += 1;
                shares[self.terms.worker_of(order.user) as usize].sold += 1;
                winners
                    .push((order.id, Winner { user: order.user, sku: shelf.sku.clone(), left: order.left }));
            }
        }
        winners.sort_unstable_by_key(|(id, _)| *id);
        let winners: Vec<_> = winners.into_iter().take(WINNERS).map(|(_, winner)| winner).collect();

        let (mut sold_out, mut timed_out, mut lost, mut failed, mut unaccounted) = (0, 0, 0, 0, 0);
        let mut first_failure = None;
        for (user, (outcome, &bought)) in (1..).zip(self.outcomes.iter().zip(&bought)) {
            let dead = self.dead[self.terms.worker_of(user) as usize];
            match (outcome, bought) {
                (Some(Outcome::Sold), 1) => {}
                (Some(Outcome::SoldOut), 0) => {
                    sold_out += 1;
                    skus[self.terms.product_of(user)].sent_away += 1;
                }
                (Some(Outcome::TimedOut), 0) => timed_out += 1,
                (Some(Outcome::Failed(error)), 0) => {
                    failed += 1;
                    first_failure.get_or_insert_with(|| error.clone());
                }
                // Killed after the sale, before it could report it: the order counts.
                (None, 1) if dead => {}
                (None, 0) if dead => lost += 1,
                _ => unaccounted += 1,
            }
        }
        let paused = self.diary.paused();
        let figures = Figures {
            backend: self.backend,
            stock: stock.saturating_mul(self.terms.skus),
            users,
            workers,
            sold: skus.iter().map(|shelf| shelf.sold).sum(),
            sold_out,
            timed_out,
            lost,
            oversold: skus.iter().map(|shelf| shelf.oversold).sum(),
            overlaps: self.diary.overlaps().len() as u32,
            fenced,
            winners: winners.iter().map(|winner| winner.user).collect(),
            seconds: round(self.diary.seconds(self.diary.closed)),
            peak_lock_nodes: self.peak_lock_nodes,
            failed,
            unaccounted,
            left: skus.iter().map(|shelf| shelf.left).sum(),
            vanished: skus.iter().map(|shelf| shelf.vanished).sum(),
            sent_away: skus.iter().filter(|shelf| shelf.left > 0).map(|shelf| shelf.sent_away).sum(),
            killed: self.diary.killed().map(|worker| worker + 1),
            paused: paused.map(|(worker, _)| worker + 1),
            paused_seconds: paused.map_or(0.0, |(_, seconds)| round(seconds)),
            wait_p50_ms: percentile(&waits, 50),
            wait_p99_ms: percentile(&waits, 99),
            skus,
        };
        Report { figures, terms: self.terms, faults: faults.to_vec(), winners, shares, first_failure }
    }
}

/// In milliseconds, of sorted nanoseconds: the smallest value that so many per cent do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(0.0, |&nanoseconds| nanoseconds as f64 / 1e6)
}

/// The result as a program reads it.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    backend: Backend,
    /// Of all products together, as all that follows.
    stock: u32,
    users: u32,
    workers: u32,
    /// Orders in the database.
    sold: u32,
    sold_out: u32,
    timed_out: u32,
    /// Users of a worker that was killed.
    lost: u32,
    /// Orders for which nothing was taken off the shelf.
    oversold: u32,
    /// How many went in while another was inside. A turn counts until the last moment at which its guard knew that it
    /// held the lock: a worker that was paused inside had no idea after that, and was refused.
    overlaps: u32,
    /// Looks and writes that the database refused because of an old token.
    fenced: u32,
    winners: Vec<u32>,
    seconds: f64,
    peak_lock_nodes: usize,
    /// Users who could not be served, because of an error.
    pub(crate) failed: u32,
    /// Users whose story does not agree with the database.
    unaccounted: u32,
    left: u32,
    /// Items off the shelf without an order.
    vanished: u32,
    /// Users who were told that there is nothing left, while there is.
    sent_away: u32,
    /// The worker that was killed, from 1.
    killed: Option<u32>,
    /// The worker that was stopped while it had the lock, from 1, and for how long.
    paused: Option<u32>,
    paused_seconds: f64,
    wait_p50_ms: f64,
    wait_p99_ms: f64,
    skus: Vec<Shelf>,
}

/// One product.
#[derive(Debug, Serialize)]
struct Shelf {
    sku: String,
    stock: u32,
    sold: u32,
    left: u32,
    oversold: u32,
    vanished: u32,
    /// How many were told that there is nothing left.
    #[serde(rename = "sold_out")]
    sent_away: u32,
}

impl Shelf {
    fn new(stock: u32, shelf: &Stocktaking) -> Self {
        // Each order takes one off the shelf; what is sold beyond that was sold twice. With lost writes there may
        // even be some left.
        let sold = shelf.orders.len() as u32;
        let taken = stock.saturating_sub(shelf.left);
        Self {
            sku: shelf.sku.clone(),
            stock,
            sold,
            left: shelf.left,
            oversold: sold.saturating_sub(taken),
            vanished: taken.saturating_sub(sold),
            sent_away: 0,
        }
    }
}

/// A buyer, and what they left.
#[derive(Debug)]
struct Winner {
    user: u32,
    sku: String,
    left: u32,
}

/// What one worker had of it.
#[derive(Clone, Debug)]
struct Share {
    entered: u32,
    sold: u32,
}

/// The result.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) figures: Figures,
    terms: Terms,
    faults: Vec<Fault>,
    winners: Vec<Winner>,
    shares: Vec<Share>,
    pub(crate) first_failure: Option<String>,
}

impl Report {
    /// What must not happen and did, one line each.
    pub(crate) fn broken_promises(&self) -> Vec<String> {
        let figures = &self.figures;
        let promises = [
            (figures.oversold, "orders took nothing off the shelf"),
            (figures.vanished, "items left the shelf without an order"),
            (figures.overlaps, "times somebody went in while another was inside"),
            (figures.sent_away, "users were told that nothing is left, and something is"),
            (figures.unaccounted, "users are not accounted for"),
        ];
        promises.iter().filter(|(times, _)| *times > 0).map(|(n, what)| format!("{n} {what}")).collect()
    }

    /// What was to be done to a worker and was not.
    pub(crate) fn missed(&self) -> Option<&'static str> {
        let figures = &self.figures;
        self.faults.iter().find_map(|fault| match fault {
            Fault::Kill if figures.killed.is_none() => Some("there was nobody to kill: no worker was inside"),
            Fault::Pause if figures.paused.is_none() => {
                Some("there was nobody to stop: no worker was inside")
            }
            Fault::Pause if figures.fenced == 0 => Some("nobody got the lock while its holder was stopped"),
            _ => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (figures, terms) = (&self.figures, &self.terms);
        let lock = match terms.lock {
            Lock::Mutex => "mutex",
            Lock::Fair => "fair lock",
            Lock::ReadWrite => "read-write lock",
            Lock::None => "without a lock",
        };
        let server = match (terms.lock, figures.backend) {
            (Lock::None, _) => "",
            (_, Backend::InProcess) => ", server in this process",
            (_, Backend::ZooKeeper) => ", ZooKeeper",
        };
        writeln!(
            f,
            "{} users, {} in stock, {} workers, {lock}{server}: {:.3} s",
            terms.users, terms.stock, terms.workers, figures.seconds
        )?;
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
        for (name, number) in rows {
            writeln!(f, "{name:<24}{number:>8}")?;
        }
        writeln!(f)?;
        if self.figures.skus.len() > 1 {
            writeln!(f, "{:<12}{:>12}{:>8}{:>8}", "product", "in stock", "sold", "left")?;
            for Shelf { sku, stock, sold, left, .. } in self.figures.skus.iter().take(PRODUCTS) {
                writeln!(f, "{sku:<12}{stock:>12}{sold:>8}{left:>8}")?;
            }
            if self.figures.skus.len() > PRODUCTS {
                writeln!(f, "...")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "{:<12}{:>12}{:>8}{:>8}", "worker", "had a turn", "sold", "share")?;
        for (worker, share) in (1..).zip(&self.shares) {
            let percent = f64::from(share.sold) * 100.0 / f64::from(figures.sold.max(1));
            writeln!(f, "{worker:<12}{:>12}{:>8}{percent:>7.0}%", share.entered, share.sold)?;
        }
        writeln!(f)?;
        if terms.lock != Lock::None {
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
            writeln!(f, "worker {worker} was stopped for {seconds:.3} s while it had the lock")?;
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
