//! Jobs that run once per occasion: docs/protocol.md#once-record.

use test_support::prelude::*;
use tokio::sync::mpsc;
use zookeeper_client as zk;
use zookeeper_test_server::Member;

const JOB: &str = "/jobs/report";
const TODAY: &str = "2026-11-22";
const RECORD: &str = "/jobs/report/done/2026-11-22";

fn job(client: &Client, occasion: &str) -> OnceJob {
    OnceJob::new(client, JOB, occasion)
}

fn today(client: &Client) -> OnceJob {
    job(client, TODAY)
}

/// Runs a job that does nothing but count.
async fn count(job: OnceJob, runs: &Arc<AtomicU32>) -> Result<OnceOutcome<u32>, OnceError> {
    let runs = Arc::clone(runs);
    let run = job.run(|_| async move { Ok::<_, String>(runs.fetch_add(1, Ordering::Relaxed) + 1) });
    within("the end of the job", run).await
}

#[track_caller]
fn already<T>(outcome: OnceOutcome<T>) -> (String, Duration) {
    match outcome {
        OnceOutcome::AlreadyRun { by, at, .. } => (by, at),
        OnceOutcome::Ran(_) => panic!("the job ran again"),
    }
}

/// Another process takes the lock away from the run that has it.
#[track_caller]
fn delete_lock_node(server: &Server) {
    let [node] = &server.children("/jobs/report/lock")[..] else {
        panic!("one node")
    };
    server.delete(&format!("/jobs/report/lock/{node}")).unwrap();
}

/// Another process records today's job.
#[track_caller]
fn record_by_other(server: &Server) {
    server.create("/jobs/report/done", "").unwrap();
    server.create(RECORD, "web-2/7/other token 9.9").unwrap();
}

async fn lock_is_free(server: &Server) {
    until(server, "the release", |view| {
        view.children("/jobs/report/lock").is_empty()
    })
    .await;
}

/// The clocks differ by more than the job takes, so the runs do not overlap (gocron#841). The
/// occasion is a name, so the record prevents a second run.
// Shows: once-record
#[tokio::test]
async fn late_clock_finds_the_record() {
    let server = start();
    let runs = Arc::new(AtomicU32::new(0));
    let (early, late) = (connect(&server).await, connect(&server).await);
    assert_eq!(
        count(today(&early), &runs).await.unwrap(),
        OnceOutcome::Ran(1)
    );
    early.close().await.unwrap();
    let (by, at) = already(count(today(&late), &runs).await.unwrap());
    assert!(by.contains(&std::process::id().to_string()), "{by}");
    let raw = within("a session", zk::Client::connect(&server.connect_string()))
        .await
        .unwrap();
    let (data, stat) = within("the record", raw.get_data(RECORD)).await.unwrap();
    assert_eq!(at, Duration::from_millis(stat.ctime.try_into().unwrap()));
    assert_eq!(stat.ephemeral_owner, 0);
    let line = String::from_utf8(data).unwrap();
    assert!(line.starts_with(&by) && !line.contains('\n'), "{line}");
    // The next occasion runs again.
    assert_eq!(
        count(job(&late, "2026-11-23"), &runs).await.unwrap(),
        OnceOutcome::Ran(2)
    );
}

// Shows: once-record
#[tokio::test]
async fn failed_run_is_run_again() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let failed =
        today(&client).run(|_| async { Err::<u32, _>(std::io::Error::other("the disk is full")) });
    let failed = within("the failure", failed).await.unwrap_err();
    let OnceError::Failed {
        path,
        occasion,
        source,
        ..
    } = &failed
    else {
        panic!("{failed}")
    };
    assert_eq!((path.as_str(), occasion.as_str()), (JOB, TODAY));
    assert!(
        source.downcast_ref::<std::io::Error>().is_some() && failed.is_retryable(),
        "{failed}"
    );
    assert!(!server.exists(RECORD));
    let runs = Arc::default();
    assert_eq!(
        count(today(&other), &runs).await.unwrap(),
        OnceOutcome::Ran(1)
    );
}

// Shows: once-record
#[tokio::test]
async fn panic_leaves_no_lock_or_record() {
    let (server, [client]) = with_clients(start(), connect).await;
    let panicking = tokio::spawn({
        let job = today(&client);
        async move {
            job.run(|_| async {
                if true {
                    panic!("a bug")
                } else {
                    Ok::<(), String>(())
                }
            })
            .await
        }
    });
    assert!(within("the panic", panicking).await.unwrap_err().is_panic());
    lock_is_free(&server).await;
    assert!(!server.exists(RECORD));
    assert_eq!(
        count(today(&client), &Arc::default()).await.unwrap(),
        OnceOutcome::Ran(1)
    );
}

// Shows: once-record
#[tokio::test]
async fn drop_at_any_point_leaves_nothing() {
    // The call is dropped at each of its requests: the look, the create and the list of the lock,
    // the read under the lock, and the record.
    for op in [
        Op::GetData,
        Op::Create,
        Op::GetChildren,
        Op::Sync,
        Op::Multi,
    ] {
        let (server, [client]) = with_clients(start(), connect).await;
        let gate = server.hold_request(Match::op(op).path_prefix(JOB));
        let running = tokio::spawn({
            let job = today(&client);
            async move { job.run(|_| async { Ok::<_, String>(()) }).await }
        });
        within("the request", gate.wait_hit()).await;
        running.abort();
        assert!(within("the end", running).await.unwrap_err().is_cancelled());
        gate.release();
        within("the cleanup", client.flush(SOON)).await.unwrap();
        lock_is_free(&server).await;
        // The next call runs the job, or finds the record that was under way.
        within(
            "the next run",
            today(&client).run(|_| async { Ok::<_, String>(()) }),
        )
        .await
        .unwrap();
        assert!(server.exists(RECORD), "{op:?}");
    }
}

/// The record is committed, and the reply is lost: the repetition finds it.
// Shows: once-record
#[tokio::test]
async fn lost_reply_finds_the_record() {
    for sent in [true, false] {
        let (server, [client]) = with_clients(start(), connect).await;
        server.create("/balance", "100").unwrap();
        // The first transaction is refused, because the directory of the records is missing.
        let written = Match::op(Op::Multi).path_prefix("/balance").nth(1);
        let fault = lose(&server, written, sent, Loss::Close);
        for round in 0..2 {
            let run = today(&client).run(|run| async move {
                let (balance, version) = run
                    .get_data("/balance")
                    .await?
                    .ok_or("there is no balance")?;
                let paid: u32 = String::from_utf8(balance)?.parse()?;
                run.record_with(move |writes| {
                    writes.set_data("/balance", (paid + 1).to_string(), version)
                });
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
            });
            let outcome = within("the end", run).await.unwrap();
            assert_eq!(outcome == OnceOutcome::Ran(()), round == 0, "{outcome:?}");
        }
        assert_eq!(fault.hits().len(), 1);
        assert_eq!(
            server.node("/balance").unwrap().data,
            b"101",
            "once, with the record"
        );
    }
}

/// The reply is lost and the session ends: whether the record exists is found out under the next
/// grant.
// Shows: once-record
#[tokio::test]
async fn session_end_leaves_no_doubt() {
    for committed in [true, false] {
        let server = start();
        // The client is calm, because the faults would match its heartbeats.
        let client = calm(&server).await;
        server.create("/jobs/report/done", "").unwrap();
        let matcher = Match::op(Op::Multi).path_prefix("/jobs/report/lock/");
        let id = session(&client);
        // The reply or the request is lost, and the session ends before the repetition arrives.
        let fault = match committed {
            true => server.drop_reply(matcher.clone().session(id), Loss::Close),
            false => server.drop_request(matcher.clone().session(id), Loss::Close),
        };
        let gate = server.hold_request(matcher.session(id).nth(1));
        let job = today(&client);
        let running = tokio::spawn(async move { job.run(|_| async { Ok::<_, String>(7) }).await });
        within("the loss", fault.wait_hit()).await;
        within("the repetition", gate.wait_hit()).await;
        assert_eq!(server.exists(RECORD), committed);
        assert!(server.expire_session(id));
        gate.release();
        let outcome = within("the end", running).await.unwrap();
        if committed {
            assert_eq!(outcome.unwrap(), OnceOutcome::Ran(7));
        } else {
            let error = outcome.unwrap_err();
            let OnceError::NotRecorded { source, .. } = &error else {
                panic!("{error}")
            };
            assert!(
                matches!(**source, TransactionError::Unknown { .. }),
                "{source}"
            );
            assert!(error.is_retryable());
            assert!(!error.to_string().contains("unknown"), "{error}");
        }
        assert_eq!(server.exists(RECORD), committed);
    }
}

/// A write that is to be committed with the record is refused: nothing is recorded, and the error
/// gives the reason.
// Shows: once-record
#[tokio::test]
async fn refused_write_records_nothing() {
    let (server, [client]) = with_clients(start(), connect).await;
    server.create("/balance", "100").unwrap();
    let run = today(&client).run(|run| async move {
        run.record_with(|writes| writes.check("/balance", 7));
        Ok::<_, String>(())
    });
    let error = within("the refusal", run).await.unwrap_err();
    let OnceError::NotRecorded { source, .. } = &error else {
        panic!("{error}")
    };
    let TransactionError::Rejected { index: 0, path, .. } = &**source else {
        panic!("{source}")
    };
    assert_eq!((path.as_str(), error.path()), ("/balance", JOB));
    assert!(!server.exists(RECORD));
    lock_is_free(&server).await;
}

/// A lock's node is deleted by hand: no record is written beside the next holder's.
// Shows: once-record
#[tokio::test]
async fn lost_lock_records_nothing() {
    let (server, [client]) = with_clients(start(), connect).await;
    let server = Arc::new(server);
    let run = today(&client).run({
        let server = Arc::clone(&server);
        |_| async move {
            delete_lock_node(&server);
            Ok::<_, String>(())
        }
    });
    let error = within("the end", run).await.unwrap_err();
    assert!(
        matches!(&error, OnceError::NotRecorded { source, .. } if matches!(**source, TransactionError::Lost(_)))
    );
    assert!(!server.exists(RECORD));
    assert_eq!(
        count(today(&client), &Arc::default()).await.unwrap(),
        OnceOutcome::Ran(1)
    );
}

/// Another run has recorded the job when the run that lost its lock ends.
// Shows: once-record
#[tokio::test]
async fn lost_lock_finds_the_other_record() {
    let (server, [client]) = with_clients(start(), connect).await;
    let server = Arc::new(server);
    let run = today(&client).run({
        let server = Arc::clone(&server);
        |_| async move {
            delete_lock_node(&server);
            record_by_other(&server);
            Ok::<_, String>(())
        }
    });
    let outcome = within("the end", run).await.unwrap();
    assert_eq!(already(outcome).0, "web-2/7/other");
}

/// The other run records the job after the transaction of the first was refused, and the server of
/// the first does not know the record yet.
// Shows: once-record
#[tokio::test]
async fn lost_lock_finds_a_new_record() {
    let server = Arc::new(start());
    let client = calm(&server).await;
    let refused = Match::op(Op::Multi).path_prefix("/jobs/report/lock/");
    let gate = server.hold_reply(refused.session(session(&client)));
    let job = today(&client);
    let running = tokio::spawn({
        let server = Arc::clone(&server);
        job.run(|_| async move {
            delete_lock_node(&server);
            Ok::<_, String>(())
        })
    });
    within("the refusal", gate.wait_hit()).await;
    server.set_member(0, Member::Behind);
    record_by_other(&server);
    gate.release();
    let outcome = within("the end", running).await.unwrap().unwrap();
    assert_eq!(already(outcome).0, "web-2/7/other");
}

/// Nothing shows whether another run has recorded the job, because no server answers.
// Shows: once-record
#[tokio::test]
async fn lost_lock_without_servers_is_unknown() {
    let server = Arc::new(start());
    let client = connect_with(&server, RetryPolicy::n_times(1, Duration::from_millis(1))).await;
    let run = today(&client).run({
        let server = Arc::clone(&server);
        |_| async move {
            delete_lock_node(&server);
            server.fail(Match::op(Op::GetData).path(RECORD).always(), -127);
            Ok::<_, String>(())
        }
    });
    let error = within("the end", run).await.unwrap_err();
    assert!(matches!(error, OnceError::Unknown { .. }), "{error}");
    assert!(error.is_retryable());
}

// Shows: once-record
#[tokio::test]
async fn run_reports_its_locks_state() {
    let (server, [client]) = with_clients(start(), connect).await;
    // A run outlives its job, which has ended.
    let (sender, mut runs) = mpsc::unbounded_channel();
    let ended = sender.clone();
    let run = job(&client, "ended").run(|run| async move {
        let state = run.state();
        ended.send(run).unwrap();
        Ok::<_, String>(state)
    });
    let outcome = within("the end", run).await.unwrap();
    assert_eq!(outcome, OnceOutcome::Ran(LockState::Held));
    let ended = runs.recv().await.unwrap();
    assert_eq!(ended.state(), LockState::Lost(LostReason::GivenUp));
    // A run's job is dropped at the loss.
    let lost = today(&client).run(|run| async move {
        sender.send(run).unwrap();
        std::future::pending::<Result<(), String>>().await
    });
    let expiry = async {
        let run = runs.recv().await.unwrap();
        assert!(server.expire_session(client.session_id().unwrap()));
        run
    };
    let (error, run) = within("the loss", async { tokio::join!(lost, expiry) }).await;
    assert!(matches!(error, Err(OnceError::Lost(_))), "{error:?}");
    assert_eq!(run.state(), LockState::Lost(LostReason::SessionExpired));
}

/// The latest records stay, whatever their names, and a run deletes the others.
// Shows: once-record
#[tokio::test]
async fn old_records_are_pruned() {
    let (server, [client]) = with_clients(start(), connect).await;
    let runs = Arc::default();
    // The days are not in the order of their names.
    for day in ["d", "a", "c", "b", "f", "e"] {
        assert!(matches!(
            count(job(&client, day).keep(3), &runs).await.unwrap(),
            OnceOutcome::Ran(_)
        ));
    }
    let mut kept = server.children("/jobs/report/done");
    kept.sort();
    assert_eq!(kept, ["b", "e", "f"]);
    for day in ["b", "e", "f"] {
        already(count(job(&client, day).keep(3), &runs).await.unwrap());
    }
    assert_eq!(runs.load(Ordering::Relaxed), 6);
}

/// A record may have children from an administrator, or be gone since it was listed.
// Shows: once-record
#[tokio::test]
async fn undeletable_record_blocks_no_other() {
    let (server, [client]) = with_clients(start(), connect).await;
    let runs = Arc::default();
    for day in ["a", "b", "c", "d"] {
        assert!(matches!(
            count(job(&client, day).keep(9), &runs).await.unwrap(),
            OnceOutcome::Ran(_)
        ));
    }
    server.create("/jobs/report/done/a/note", b"").unwrap();
    lock_is_free(&server).await;
    let gate = server.hold_reply(
        Match::op(Op::Exists)
            .path("/jobs/report/done/b")
            .session(session(&client)),
    );
    let job = job(&client, "e").keep(1);
    let run = tokio::spawn(async move { count(job, &runs).await });
    within("the look", gate.wait_hit()).await;
    server.delete("/jobs/report/done/b").unwrap();
    gate.release();
    assert_eq!(
        within("the end", run).await.unwrap().unwrap(),
        OnceOutcome::Ran(5)
    );
    let mut kept = server.children("/jobs/report/done");
    kept.sort();
    assert_eq!(kept, ["a", "e"]);
}

/// A name is not a version: once another process may have the lock, a node of this name may be a
/// later record.
// Shows: once-record
#[tokio::test]
async fn pruning_needs_the_lock() {
    let (server, [client]) = with_clients(start(), connect).await;
    let runs = Arc::default();
    assert!(matches!(
        count(job(&client, "a").keep(1), &runs).await.unwrap(),
        OnceOutcome::Ran(1)
    ));
    lock_is_free(&server).await;
    let gate = server.hold_reply(
        Match::op(Op::Exists)
            .path("/jobs/report/done/a")
            .session(session(&client)),
    );
    let job = job(&client, "b").keep(1);
    let run = tokio::spawn(async move { count(job, &runs).await });
    within("the look", gate.wait_hit()).await;
    // An administrator deletes the node, so the client does not know of it.
    delete_lock_node(&server);
    gate.release();
    assert_eq!(
        within("the end", run).await.unwrap().unwrap(),
        OnceOutcome::Ran(2)
    );
    assert_eq!(server.children("/jobs/report/done").len(), 2);
}

// Shows: once-record
#[tokio::test]
async fn record_is_read_without_lock() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    count(today(&client), &Arc::default()).await.unwrap();
    let before = server.counters().total_requests_of(session(&other));
    already(count(today(&other), &Arc::default()).await.unwrap());
    assert_eq!(
        server.counters().total_requests_of(session(&other)) - before,
        1
    );
}

/// A waiter runs the job or finds the record, without reading a clock.
// Shows: once-record
#[tokio::test]
async fn waiters_find_the_record() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let (began, mut begun) = mpsc::channel(1);
    let (end, ended) = oneshot::channel::<()>();
    let first = today(&client).run(|_| async move {
        began.send(()).await.unwrap();
        ended.await.map_err(|error| error.to_string())
    });
    let runs = Arc::default();
    let second = async {
        begun.recv().await.unwrap();
        let waiting = count(today(&other), &runs);
        let finish = async {
            until(&server, "the waiter", |view| {
                view.children("/jobs/report/lock").len() == 2
            })
            .await;
            end.send(()).unwrap();
        };
        tokio::join!(waiting, finish).0
    };
    let (first, second) = within("both", async { tokio::join!(first, second) }).await;
    assert_eq!(first.unwrap(), OnceOutcome::Ran(()));
    already(second.unwrap());
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn rejects_impossible_values_before_sending() {
    let (server, [client]) = with_clients(start(), connect).await;
    let before = server.counters().total_requests();
    for (job, path) in [
        (OnceJob::new(&client, "no/slash", TODAY), "no/slash"),
        (job(&client, TODAY).keep(0), JOB),
        (job(&client, TODAY).keep(1_001), JOB),
    ] {
        let shown = format!("{job:?}");
        let error = count(job, &Arc::default()).await.unwrap_err();
        assert!(
            matches!(error, OnceError::Build(_)) && error.path() == path,
            "{shown}: {error}"
        );
        assert!(!error.is_retryable());
    }
    let _: fn(BuildError) -> OnceError = OnceError::from;
    assert_eq!(server.counters().total_requests(), before);
}

/// The name of an occasion may come from outside, and may be any text.
#[tokio::test]
async fn occasion_is_any_text() {
    let (server, [client]) = with_clients(start(), connect).await;
    let runs = Arc::default();
    for (number, occasion) in ["2026/11/22", "2026", "..", ""].into_iter().enumerate() {
        for round in 0..2 {
            let outcome = count(job(&client, occasion), &runs).await.unwrap();
            assert_eq!(
                matches!(outcome, OnceOutcome::Ran(_)),
                round == 0,
                "{occasion}"
            );
        }
        assert_eq!(server.children("/jobs/report/done").len(), number + 1);
    }
    assert!(server.exists("/jobs/report/done/2026%2F11%2F22"));
}

#[tokio::test]
async fn unanswered_look_ends_the_call() {
    let server = start();
    let client = connect_with(&server, RetryPolicy::n_times(1, Duration::from_millis(1))).await;
    server.fail(Match::op(Op::GetData).path(RECORD).always(), -127);
    let error = count(today(&client), &Arc::default()).await.unwrap_err();
    assert!(
        matches!(error, OnceError::Request(_)) && error.is_retryable(),
        "{error}"
    );
}
