//! The process that one contender runs in: it reads orders from stdin and answers on stdout.

mod bare;
mod client_lock;
mod counter;
mod drive;
mod ours;
mod redis;

use std::collections::HashMap;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use crate::Error;
use crate::contender::Program;
use crate::job::{Answer, Job, Order};
use crate::programs::Programs;
use drive::{Contender, Setup};

/// Runs this process as the worker of a contender until its input ends.
pub(crate) fn serve(name: &str, classes: Option<&Path>) -> Result<(), Error> {
    match name {
        "ours" => answer_orders::<ours::Session>(),
        "bare" => answer_orders::<bare::Session>(),
        "bare_apart" => answer_orders::<bare::SessionApart>(),
        "client_lock" => answer_orders::<client_lock::Session>(),
        "redis" => answer_orders::<redis::Session>(),
        "curator" => run_peer(Program::Curator, classes),
        "kazoo" => run_peer(Program::Kazoo, None),
        _ => Err(format!("there is no worker {name}").into()),
    }
}

/// Runs a peer's program with this process's input and output.
fn run_peer(program: Program, classes: Option<&Path>) -> Result<(), Error> {
    let mut programs = Programs::compiled_to(classes);
    match programs.command(program)?.status()? {
        status if status.success() => Ok(()),
        status => Err(format!("{}: {status}", program.name()).into()),
    }
}

fn answer_orders<C: Contender>() -> Result<(), Error> {
    // The runtime is that of a service: `#[tokio::main]`.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let mut setups: HashMap<(String, usize, String), Arc<Setup<C>>> = HashMap::new();
    for line in io::stdin().lock().lines() {
        let job = match serde_json::from_str(&line?)? {
            Order::Run(job) => job,
            Order::Quit(_) => break,
        };
        let done = runtime.block_on(async {
            let setup = find_or_make(&mut setups, &job).await?;
            drive::round(&setup, &job).await
        });
        let answer = done.map_or_else(
            |error| Answer::Failed {
                error: error.to_string(),
            },
            Answer::Done,
        );
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        out.flush()?;
    }
    // Sessions that end with the process would stay on the servers until they expire.
    runtime.block_on(async {
        for setup in setups.into_values() {
            setup.close().await;
        }
    });
    Ok(())
}

/// Returns the sessions and locks of earlier rounds with the same servers, sessions and root.
///
/// A create and a list that are sent together leave in one write in one session of five, and in
/// two writes in the others, until the session ends (docs/upstream/one-write.patch). A scenario in
/// which each cycle has such a pair gets another session in each round. With one session for all
/// rounds its result would be a matter of chance.
async fn find_or_make<C: Contender>(
    setups: &mut HashMap<(String, usize, String), Arc<Setup<C>>>,
    job: &Job,
) -> Result<Arc<Setup<C>>, Error> {
    let key = (job.servers.clone(), job.sessions, job.root.clone());
    if job.keep_from_succession {
        if let Some(setup) = setups.remove(&key) {
            setup.close().await;
        }
    }
    if let Some(setup) = setups.get(&key) {
        return Ok(Arc::clone(setup));
    }
    let setup = Arc::new(Setup::make(job).await?);
    setups.insert(key, Arc::clone(&setup));
    Ok(setup)
}
