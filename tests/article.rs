//! The article's programs, run as a reader runs them, and what they print.

use std::collections::HashSet;
use std::error::Error;
use std::process::{Command, Output, Stdio};

use test_support::{Suite, peers, shared_standalone, within};
use zookeeper_test_server::{Gate, Match, Op, Server};

type TestResult = Result<(), Box<dyn Error>>;

const MUTEX_PATH: &str = "/lock/lockId_111/111";
const READ_WRITE_PATH: &str = "/lock/lockId_111/1111";

fn main() {
    let mut suite = Suite::new();
    suite.add("in-process", "article::mutex_on_its_own", || mutex_sells_three(None));
    suite.add(
        "in-process",
        "article::mutex_runs_eight_tasks_of_one_client",
        mutex_runs_eight_tasks_of_one_client,
    );
    suite.add("in-process", "article::mutex_exits_1_when_a_lock_is_lost", mutex_exits_1_when_a_lock_is_lost);
    suite.add("in-process", "article::read_write_on_its_own", || read_write_in_some_order(None));
    suite.add(
        "in-process",
        "article::read_write_prints_what_the_article_prints",
        read_write_in_the_articles_order,
    );
    suite.add_needing("zookeeper", "article::mutex", peers::zookeeper(), |_| {
        mutex_sells_three(Some(&shared_standalone()?.connect_string()))
    });
    suite.add_needing("zookeeper", "article::read_write", peers::zookeeper(), |_| {
        read_write_in_some_order(Some(&shared_standalone()?.connect_string()))
    });
    suite.add("in-process", "article::mutex_as_threads", || sold_three(&lines(threads("mutex")?.output()?)?));
    suite.add("in-process", "article::read_write_as_threads", || {
        in_some_order(&lines(threads("read-write")?.output()?)?)
    });
    suite.run()
}

/// The example of this name, beside this test.
fn example(name: &str, servers: Option<&str>) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(test_support::example(name)?);
    command.env_remove("ZK_CONNECT").envs(servers.map(|servers| ("ZK_CONNECT", servers)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// The same program as threads.
fn threads(program: &str) -> Result<Command, Box<dyn Error>> {
    let mut command = example("threads", None)?;
    command.arg(program);
    Ok(command)
}

/// The lines that a program printed, which must have ended well.
fn lines(output: Output) -> Result<Vec<String>, Box<dyn Error>> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// Those after the third find nothing. On a busy machine some may give up before their turn.
fn sold_three(lines: &[String]) -> TestResult {
    let (last, before) = lines.split_last().ok_or("it printed nothing")?;
    assert_eq!(last, "remaining stock: 0");
    assert_eq!(before.len(), 99, "{lines:?}");
    let turns: Vec<_> = before.iter().filter(|&line| line != "too busy").collect();
    let (buyers, others) = turns.split_at(3);
    assert!(buyers.iter().all(|&line| line == "bought one"), "{lines:?}");
    assert!(others.iter().all(|&line| line == "out of stock"), "{lines:?}");
    Ok(())
}

fn mutex_sells_three(servers: Option<&str>) -> TestResult {
    sold_three(&lines(example("article_mutex", servers)?.output()?)?)
}

/// Runs what controls the example through the server.
fn block_on<T>(steps: impl Future<Output = T>) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    Ok(runtime.block_on(async { within("the example to end", steps).await }))
}

fn server_with(path: &str) -> Result<Server, Box<dyn Error>> {
    let server = Server::start()?;
    // Otherwise the first creates would fail, and be counted.
    server.create(path, "")?;
    Ok(server)
}

/// Holds the replies of so many creates below the path: all eight of the pool come before one is let in.
fn mutex_runs_eight_tasks_of_one_client() -> TestResult {
    let server = server_with(MUTEX_PATH)?;
    let creates = server.hold_reply(Match::op(Op::Create).path_prefix(MUTEX_PATH).times(8));
    let program = example("article_mutex", Some(&server.connect_string()))?.spawn()?;
    block_on(creates.wait_hits(8))?;
    let sessions: HashSet<_> = creates.hits().iter().map(|hit| hit.session).collect();
    creates.release();
    assert_eq!(sessions.len(), 1);
    sold_three(&lines(program.wait_with_output()?)?)?;
    assert!(server.sessions().is_empty(), "{:?}", server.sessions());
    Ok(())
}

/// The session expires while a task has the lock. The program cannot know then that it was alone, and must
/// say so.
fn mutex_exits_1_when_a_lock_is_lost() -> TestResult {
    let server = server_with(MUTEX_PATH)?;
    let release = server.hold_request(Match::op(Op::Delete).path_prefix(MUTEX_PATH));
    let program = example("article_mutex", Some(&server.connect_string()))?.spawn()?;
    block_on(release.wait_hits(1))?;
    server.expire_session(server.sessions()[0].id);
    release.release();
    let output = program.wait_with_output()?;
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// How the lines must follow each other whatever the timing: who reads sees what was left last, and who
/// writes has read.
fn read_write_in_some_order(servers: Option<&str>) -> TestResult {
    in_some_order(&lines(example("article_read_write", servers)?.output()?)?)
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
        // Who buys has looked, and no more than eight are between the one and the other.
        assert!(writes <= reads && reads <= writes + 8, "{lines:?}");
    }
    assert_eq!((left, reads, writes), (0, 16, 16), "{lines:?}");
    Ok(())
}

/// The protocol fixes the order in which nodes are granted; here the nodes come in the order that is natural.
fn read_write_in_the_articles_order() -> TestResult {
    let server = server_with(READ_WRITE_PATH)?;
    let hold = |op, kind: &str| Match::op(op).path_prefix(READ_WRITE_PATH).path_contains(kind);
    let gate = |matcher| server.hold_reply(matcher);
    let first_readers_come = gate(hold(Op::Create, "__READ__").times(8));
    let first_readers_leave = gate(hold(Op::Delete, "__READ__").times(8));
    let first_writers_come = gate(hold(Op::Create, "__WRIT__").times(8));
    // What comes after a held reply waits with it, so one is enough to keep all others from becoming writers.
    let ninth_reader_leaves = gate(hold(Op::Delete, "__READ__").nth(8));
    let last_reader_comes = gate(hold(Op::Create, "__READ__").nth(15));

    let program = example("article_read_write", Some(&server.connect_string()))?.spawn()?;
    let pass = async |gate: &Gate, hits| {
        gate.wait_hits(hits).await;
        gate.release();
    };
    block_on(async {
        pass(&first_readers_come, 8).await;
        pass(&first_readers_leave, 8).await;
        pass(&first_writers_come, 8).await;
        ninth_reader_leaves.wait_hit().await;
        pass(&last_reader_comes, 1).await;
        ninth_reader_leaves.release();
    })?;

    let mut expected = vec!["read 3"; 8];
    expected.extend(["sold one, left 2", "sold one, left 1", "sold one, left 0"]);
    expected.extend(["out of stock"; 5]);
    expected.extend(["read 0"; 8]);
    expected.extend(["out of stock"; 8]);
    assert_eq!(lines(program.wait_with_output()?)?, expected);
    Ok(())
}
