//! The books of a sale: what the workers reported, checked against what the database says.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::options::{Lock, Terms};
use crate::protocol::{Outcome, Visit, worker_of};
use crate::store::Stocktaking;

/// How many winners are named.
const WINNERS: usize = 20;

/// Who gives the lock.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Backend {
    #[serde(rename = "in-process")]
    InProcess,
    #[serde(rename = "zookeeper")]
    ZooKeeper,
}

/// What is known while the sale goes on.
#[derive(Debug)]
pub(crate) struct Books {
    terms: Terms,
    backend: Backend,
    /// By user, less one.
    outcomes: Vec<Option<Outcome>>,
    /// By worker.
    dead: Vec<bool>,
    /// From when until when somebody was inside.
    sections: Vec<(u64, u64)>,
    /// By worker: how often somebody was inside.
    entered: Vec<u32>,
    waits: Vec<u64>,
    fenced: u32,
    took: Duration,
    peak_lock_nodes: usize,
}

impl Books {
    pub(crate) fn new(terms: Terms, backend: Backend) -> Self {
        Self {
            outcomes: vec![None; terms.users as usize],
            dead: vec![false; terms.workers as usize],
            sections: Vec::new(),
            entered: vec![0; terms.workers as usize],
            waits: Vec::new(),
            fenced: 0,
            took: Duration::ZERO,
            peak_lock_nodes: 0,
            terms,
            backend,
        }
    }

    /// A user has left.
    pub(crate) fn enter(&mut self, worker: u32, visit: Visit) {
        self.outcomes[visit.user as usize - 1] = Some(visit.outcome);
        self.entered[worker as usize] += visit.inside.len() as u32;
        self.sections.extend(visit.inside);
        self.waits.extend(visit.waits);
        self.fenced += visit.fenced;
    }

    /// A worker went before it was done.
    pub(crate) fn died(&mut self, worker: u32) {
        self.dead[worker as usize] = true;
    }

    /// The sale is over.
    pub(crate) fn took(&mut self, took: Duration, peak_lock_nodes: usize) {
        self.took = took;
        self.peak_lock_nodes = peak_lock_nodes;
    }

    /// Compares the books with the shelf.
    pub(crate) fn close(mut self, shelf: &Stocktaking) -> Report {
        let Terms { stock, users, workers, .. } = self.terms;
        // Each order takes one off the shelf; what is sold beyond that was sold twice. With lost writes there may
        // even be some left.
        let sold = shelf.buyers.len() as u32;
        let taken = stock.saturating_sub(shelf.left);
        self.waits.sort_unstable();
        let mut figures = Figures {
            backend: self.backend,
            stock,
            users,
            workers,
            sold,
            sold_out: 0,
            timed_out: 0,
            lost: 0,
            oversold: sold.saturating_sub(taken),
            overlaps: overlaps(&mut self.sections),
            fenced: self.fenced,
            winners: shelf.buyers.iter().copied().take(WINNERS).collect(),
            seconds: (self.took.as_secs_f64() * 1e6).round() / 1e6,
            peak_lock_nodes: self.peak_lock_nodes,
            failed: 0,
            unaccounted: 0,
            left: shelf.left,
            vanished: taken.saturating_sub(sold),
            wait_p50_ms: percentile(&self.waits, 50),
            wait_p99_ms: percentile(&self.waits, 99),
        };

        let mut bought = vec![0_u32; users as usize];
        let mut shares: Vec<_> = self.entered.iter().map(|&entered| Share { entered, sold: 0 }).collect();
        for &user in &shelf.buyers {
            bought[user as usize - 1] += 1;
            shares[worker_of(user, &self.terms) as usize].sold += 1;
        }
        let mut first_failure = None;
        for (user, (outcome, &bought)) in (1..).zip(self.outcomes.iter().zip(&bought)) {
            let dead = self.dead[worker_of(user, &self.terms) as usize];
            match (outcome, bought) {
                (Some(Outcome::Sold), 1) => {}
                (Some(Outcome::SoldOut), 0) => figures.sold_out += 1,
                (Some(Outcome::TimedOut), 0) => figures.timed_out += 1,
                (Some(Outcome::Failed(error)), 0) => {
                    figures.failed += 1;
                    first_failure.get_or_insert_with(|| error.clone());
                }
                // Killed after the sale, before it could report it: the order counts.
                (None, 1) if dead => {}
                (None, 0) if dead => figures.lost += 1,
                _ => figures.unaccounted += 1,
            }
        }
        Report { figures, terms: self.terms, shares, first_failure }
    }
}

/// How many went in while another was still inside.
fn overlaps(sections: &mut [(u64, u64)]) -> u32 {
    sections.sort_unstable();
    let mut latest_leave = 0;
    let mut overlaps = 0;
    for &(enter, leave) in &*sections {
        if enter < latest_leave {
            overlaps += 1;
        }
        latest_leave = latest_leave.max(leave);
    }
    overlaps
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
    overlaps: u32,
    /// Writes that the database refused because of an old token.
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
    wait_p50_ms: f64,
    wait_p99_ms: f64,
}

/// What one worker had of it.
#[derive(Debug)]
struct Share {
    entered: u32,
    sold: u32,
}

/// The result.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) figures: Figures,
    terms: Terms,
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
            (figures.unaccounted, "users are not accounted for"),
        ];
        promises.iter().filter(|(times, _)| *times > 0).map(|(n, what)| format!("{n} {what}")).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (figures, terms) = (&self.figures, &self.terms);
        let by = match (terms.lock, figures.backend) {
            (Lock::None, _) => "without a lock",
            (Lock::Mutex, Backend::InProcess) => "mutex, server in this process",
            (Lock::Mutex, Backend::ZooKeeper) => "mutex, ZooKeeper",
        };
        writeln!(
            f,
            "{} users, {} in stock, {} workers, {by}: {:.3} s",
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
            ("writes fenced off", figures.fenced),
        ];
        for (name, number) in rows {
            writeln!(f, "{name:<24}{number:>8}")?;
        }
        writeln!(f)?;
        writeln!(f, "{:<12}{:>12}{:>8}{:>8}", "worker", "had a turn", "sold", "share")?;
        for (worker, share) in (1..).zip(&self.shares) {
            let percent = f64::from(share.sold) * 100.0 / f64::from(figures.sold.max(1));
            writeln!(f, "{worker:<12}{:>12}{:>8}{percent:>7.0}%", share.entered, share.sold)?;
        }
        writeln!(f)?;
        if terms.lock == Lock::Mutex {
            writeln!(
                f,
                "waited for the lock: p50 {:.1} ms, p99 {:.1} ms; at most {} nodes in its queue",
                figures.wait_p50_ms, figures.wait_p99_ms, figures.peak_lock_nodes
            )?;
        }
        if figures.winners.is_empty() {
            return Ok(());
        }
        let more = if figures.sold as usize > WINNERS { ", ..." } else { "" };
        let winners: Vec<_> = figures.winners.iter().map(u32::to_string).collect();
        writeln!(f, "bought by the users {}{more}", winners.join(", "))
    }
}
