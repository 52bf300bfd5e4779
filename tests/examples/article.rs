//! The article's programs, run as a reader runs them, and their output.

use std::collections::HashSet;
use std::error::Error;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use test_support::{Suite, peers, shared_standalone, within};
use zookeeper_test_server::{Match, Op, Server};

use super::{TestResult, command};

const MUTEX_PATH: &str = "/lock/lockId_111/111";

/// Adds the trials, the longest first.
pub(crate) fn add_all(suite: &mut Suite) {
    suite.add("in-process", "article::mutex_on_its_own", || {
        mutex_sells_three(None)
    });
    suite.add(
        "in-process",
        "article::mutex_runs_tasks_of_one_client",
        mutex_runs_tasks_of_one_client,
    );
    suite.add(
        "in-process",
        "article::mutex_exits_1_on_a_loss",
        mutex_exits_1_on_a_loss,
    );
    suite.add("in-process", "article::read_write_on_its_own", || {
        read_write_in_some_order(None)
    });
    suite.add_needing("zookeeper", "article::mutex", peers::zookeeper(), |_| {
        mutex_sells_three(Some(&shared_standalone()?.connect_string()))
    });
    suite.add_needing(
        "zookeeper",
        "article::read_write",
        peers::zookeeper(),
        |_| read_write_in_some_order(Some(&shared_standalone()?.connect_string())),
    );
    suite.add("in-process", "article::mutex_as_threads", || {
        sold_three(&in_time(|| Ok(threads("mutex")?.output()?))?)
    });
    suite.add("in-process", "article::read_write_as_threads", || {
        in_some_order(&in_time(|| Ok(threads("read-write")?.output()?))?)
    });
}

/// Returns the example of this name, with its output readable while it runs.
fn example(name: &str, servers: Option<&str>) -> Result<Command, Box<dyn Error>> {
    let mut command = command(servers, name, &[])?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Returns the program as the example `threads` runs it.
fn threads(program: &str) -> Result<Command, Box<dyn Error>> {
    let mut command = example("threads", None)?;
    command.arg(program);
    Ok(command)
}

/// Returns the lines of a program that must end with success. Like the article's, the programs wait
/// for the lock for 200 ms or 2 s. If a busy machine takes longer, they are run again.
fn in_time(
    run: impl Fn() -> Result<Output, Box<dyn Error>>,
) -> Result<Vec<String>, Box<dyn Error>> {
    const LATE: [&str; 4] = [
        "no ZooKeeper server",
        "was not free within",
        "released too late",
        "is lost",
    ];
    for left in (0..20).rev() {
        let output = run()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if left > 0 && !output.status.success() && LATE.iter().any(|late| stderr.contains(late)) {
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        return Ok(String::from_utf8(output.stdout)?
            .lines()
            .map(str::to_owned)
            .collect());
    }
    Err("it was late each time".into())
}

/// Three calls buy, and the later ones find nothing. On a busy machine some may give up before
/// their turn.
fn sold_three(lines: &[String]) -> TestResult {
    let (last, before) = lines.split_last().ok_or("it printed nothing")?;
    assert_eq!(last, "remaining stock: 0");
    assert_eq!(before.len(), 99, "{lines:?}");
    let turns: Vec<_> = before.iter().filter(|&line| line != "too busy").collect();
    let (buyers, others) = turns.split_at(3);
    assert!(buyers.iter().all(|&line| line == "bought one"), "{lines:?}");
    assert!(
        others.iter().all(|&line| line == "out of stock"),
        "{lines:?}"
    );
    Ok(())
}

fn mutex_sells_three(servers: Option<&str>) -> TestResult {
    sold_three(&in_time(|| {
        Ok(example("article_mutex", servers)?.output()?)
    })?)
}

/// Runs the steps that control the example through the server, or stops when the example ends.
fn while_it_runs(program: &mut Child, steps: impl Future<Output = ()>) -> TestResult {
    let ended = async {
        while program.try_wait()?.is_none() {
            // No event reports the end of another process.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    let either = async {
        tokio::select! {
            () = steps => Ok(()),
            ended = ended => ended,
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async { within("the example to end", either).await })
}

fn server_with(path: &str) -> Result<Server, Box<dyn Error>> {
    let server = Server::start()?;
    // Without these nodes the first creates would fail, and be counted.
    server.create(path, "")?;
    Ok(server)
}

/// Holds the replies of this many creates below the path, so that all eight tasks of the pool wait
/// before one is granted the lock. The tasks share one node.
fn mutex_runs_tasks_of_one_client() -> TestResult {
    let run = || {
        let server = server_with(MUTEX_PATH)?;
        let creates = server.hold_reply(Match::op(Op::Create).path_prefix(MUTEX_PATH).times(8));
        let mut program = example("article_mutex", Some(&server.connect_string()))?.spawn()?;
        while_it_runs(&mut program, creates.wait_hit())?;
        let nodes = server.children(MUTEX_PATH).len();
        creates.release();
        let output = program.wait_with_output()?;
        if output.status.success() {
            let sessions: HashSet<_> = creates.hits().iter().map(|hit| hit.session).collect();
            assert_eq!((nodes, sessions.len()), (1, 1));
            assert!(server.sessions().is_empty(), "{:?}", server.sessions());
        }
        Ok(output)
    };
    sold_three(&in_time(run)?)
}

/// The session expires while a task has the lock. The program cannot know whether it was alone, and
/// must say so.
fn mutex_exits_1_on_a_loss() -> TestResult {
    let server = server_with(MUTEX_PATH)?;
    let release = server.hold_request(Match::op(Op::Delete).path_prefix(MUTEX_PATH));
    let mut program = example("article_mutex", Some(&server.connect_string()))?.spawn()?;
    while_it_runs(&mut program, release.wait_hit())?;
    if let Some(hit) = release.hits().first() {
        server.expire_session(hit.session);
    }
    release.release();
    let output = program.wait_with_output()?;
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Asserts an order that holds whatever the timing: a reader sees the last write, and a writer has
/// read.
fn read_write_in_some_order(servers: Option<&str>) -> TestResult {
    in_some_order(&in_time(|| {
        Ok(example("article_read_write", servers)?.output()?)
    })?)
}

fn in_some_order(lines: &[String]) -> TestResult {
    assert_eq!(lines.len(), 32, "{lines:?}");
    let (mut left, mut reads, mut writes) = (3, 0, 0);
    for line in lines {
        if line.starts_with("read ") {
            assert_eq!(line, &format!("read {left}"), "{lines:?}");
            reads += 1;
        } else {
            if left > 0 {
                left -= 1;
                assert_eq!(line, &format!("sold one, left {left}"), "{lines:?}");
            } else {
                assert_eq!(line, "out of stock", "{lines:?}");
            }
            writes += 1;
        }
        // A buyer reads before it writes, and at most eight have read and not yet written.
        assert!(writes <= reads && reads <= writes + 8, "{lines:?}");
    }
    assert_eq!((left, reads, writes), (0, 16, 16), "{lines:?}");
    Ok(())
}
