//! Runs the same worlds for this library's mutex and for `zookeeper_client::Client::lock`:
//! `simulation/run --client-lock [SECONDS [FIRST_SEED]]`. Prints a JSON object for each; fails if
//! this library's lock did what no lock may do.

use std::process::ExitCode;
use std::time::Duration;

use simulation::two_locks::{Found, Kind, play};

fn json(kind: Kind, found: &Found) -> String {
    let hours = found.virtual_ms as f64 / 3.6e6;
    format!(
        "{{\"lock\":\"{kind:?}\",\"worlds\":{},\"grants\":{},\"faults\":{},\"virtual_hours\":{hours:.1},\
         \"overlaps\":{},\"worlds_with_overlaps\":{},\"nodes_left\":{},\"worlds_with_nodes_left\":{},\"stuck\":{},\
         \"worlds_with_stuck\":{},\"panics\":{}}}",
        found.worlds,
        found.grants,
        found.faults,
        found.overlaps.0,
        found.overlaps.1,
        found.left.0,
        found.left.1,
        found.stuck.0,
        found.stuck.1,
        found.panics.0,
    )
}

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (Ok(seconds), Ok(first)) = (number(60), number(1)) else {
        eprintln!("simulation/run --client-lock [SECONDS [FIRST_SEED]]");
        return ExitCode::from(2);
    };
    let began = simnet::real_now();
    let kinds = [Kind::Ours, Kind::ClientLock, Kind::ClientLockUndropped];
    let mut all = kinds.map(|_| Found::default());
    let mut seed = first;
    while simnet::real_now() - began < Duration::from_secs(seconds) {
        kinds
            .iter()
            .zip(&mut all)
            .for_each(|(kind, found)| found.add(play(*kind, seed)));
        seed += 1;
    }
    for (kind, found) in kinds.into_iter().zip(&all) {
        println!("{}", json(kind, found));
        found
            .examples
            .iter()
            .take(8)
            .for_each(|example| eprintln!("{kind:?} {example}"));
    }
    if all[0].is_fine() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
