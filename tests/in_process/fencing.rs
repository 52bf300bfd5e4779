//! Which tokens a resource has to refuse, and which comparison the documentation prescribes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use rusqlite::{Connection, params};
use test_support::in_process::read_write::{lock, read, write};
use test_support::prelude::*;

/// Pauses a client's process. Its session ends, and the process does not notice that.
async fn pause_for_long(server: &Server, client: &Client) {
    let id = session(client);
    let nodes = server.children(DIRECTORY).len();
    server.stall(id, Direction::Both);
    server.expire_session(id);
    until(server, "the end of its node", move |view| {
        view.children(DIRECTORY).len() < nodes
    })
    .await;
}

// Shows: reader-tokens
#[tokio::test]
async fn paused_reader_is_refused_after_writer() {
    let (server, [a, b]) = with_clients(start(), connect).await;
    let gate = FenceGate::new();
    let reader = read(&b).await;
    gate.admit(reader.fencing_token()).unwrap();
    pause_for_long(&server, &b).await;
    let writer = write(&a).await;
    gate.admit(writer.fencing_token()).unwrap();
    let refused = gate.admit(reader.fencing_token()).unwrap_err();
    assert_eq!(refused.token(), Token::Read(reader.fencing_token()));
    assert_eq!(refused.highest(), Token::Write(writer.fencing_token()));
}

// Shows: paused-process, reader-tokens
#[tokio::test]
async fn paused_writer_is_refused_beside_reader() {
    let (server, [a, b]) = with_clients(start(), connect).await;
    let gate = FenceGate::new();
    let writer = write(&a).await;
    gate.admit(writer.fencing_token()).unwrap();
    pause_for_long(&server, &a).await;
    let reader = read(&b).await;
    gate.admit(reader.fencing_token()).unwrap();
    let refused = gate.admit(writer.fencing_token()).unwrap_err();
    assert_eq!(refused.highest(), Token::Read(reader.fencing_token()));
    gate.admit(reader.fencing_token()).unwrap();
}

/// Each grant to write has its own token, above those of all earlier contenders and below those of
/// all later ones, even after a downgrade.
// Shows: token-order
#[tokio::test]
async fn write_token_is_between_its_neighbours() {
    let (server, [a, b, c, d]) = with_clients(start(), connect).await;
    let gate = FenceGate::new();
    let (one, two) = (read(&a).await, read(&b).await);
    assert!(two.fencing_token() > one.fencing_token());
    gate.admit(one.fencing_token()).unwrap();
    gate.admit(two.fencing_token()).unwrap();
    let mut waiting = Vec::new();
    for (client, nodes) in [(&c, 3), (&d, 4)] {
        waiting.push(tokio::spawn(lock(client).write_lock().lock()));
        until(&server, "the writer", move |view| {
            view.children(DIRECTORY).len() == nodes
        })
        .await;
    }
    let mut waiting = waiting.into_iter();
    one.release().await.unwrap();
    two.release().await.unwrap();

    let first = granted(waiting.next().unwrap()).await;
    let token = first.fencing_token();
    gate.admit(token).unwrap();
    // A downgrade keeps the token, although its node is younger than that of the next writer.
    let reader = within("the downgrade", first.downgrade()).await.unwrap();
    assert_eq!(
        reader.fencing_token(),
        ReadToken::from_parts(token.zxid(), token.counter())
    );
    gate.admit(reader.fencing_token()).unwrap();
    let second = waiting.next().unwrap();
    assert!(!second.is_finished());
    reader.release().await.unwrap();
    let second = granted(second).await;
    assert!(second.fencing_token() > token);
    gate.admit(second.fencing_token()).unwrap();
    assert!(gate.admit(token).is_err());
    assert!(
        gate.admit(ReadToken::from_parts(token.zxid(), token.counter()))
            .is_err()
    );
}

/// A guard keeps the kind of its token when used through `dyn`.
// Shows: reader-tokens
#[tokio::test]
async fn token_tells_reader_from_writer() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let reader = read(&client).await;
    let token = reader.fencing_token();
    assert_eq!(AnyGuard::from(reader).fencing_token(), Token::Read(token));
    let writer = write(&client).await;
    let shared = writer.reenter_as_reader().unwrap();
    let numbers = |token: Token| (token.zxid(), token.counter());
    assert_eq!(
        numbers(shared.fencing_token().into()),
        numbers(writer.fencing_token().into())
    );
    assert_eq!(
        AnyGuard::from(shared).fencing_token(),
        Token::Read(ReadToken::from_parts(writer.fencing_token().zxid(), 0))
    );
    assert_eq!(AnyGuard::from(writer).fencing_token().counter(), 0);
    let mutex = InterProcessMutex::new(&client, "/locks/other").unwrap();
    let locks: [(Box<dyn InterProcessLock>, bool); 3] = [
        (Box::new(lock(&client).read_lock()), true),
        (Box::new(lock(&client).write_lock()), false),
        (Box::new(mutex), false),
    ];
    for (lock, reads) in locks {
        let guard = within("the grant", lock.lock()).await.unwrap();
        let again = guard.reenter().unwrap();
        assert_eq!(
            matches!(guard.fencing_token(), Token::Read(_)),
            reads,
            "{lock:?}"
        );
        assert_eq!(again.fencing_token(), guard.fencing_token());
        drop(again);
        guard.release().await.unwrap();
    }
}

/// Returns the SQL statements of the documentation: the table's, a writer's and a reader's.
fn statements() -> [String; 3] {
    let source = include_str!("../../src/locks/fence.rs")
        .replace("\n/// ", "\n")
        .replace("\n///\n", "\n\n");
    let sql = source
        .split("```sql\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let sql: String = sql
        .lines()
        .filter(|line| !line.starts_with("--"))
        .map(|line| format!("{line}\n"))
        .collect();
    let all: Vec<String> = sql
        .split_terminator(';')
        .map(|sql| sql.trim().to_owned())
        .filter(|sql| !sql.is_empty())
        .collect();
    all.try_into().unwrap()
}

/// Generates the token of a writer or a reader, with few numbers, so that tokens collide.
fn token() -> impl Strategy<Value = Token> {
    (any::<bool>(), 1..4_i64, 0..3_u64).prop_map(|(reads, zxid, counter)| {
        if reads {
            Token::Read(ReadToken::from_parts(zxid, counter))
        } else {
            Token::Write(FencingToken::from_parts(zxid, counter))
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The rule: no contender is admitted after a later writer, and no writer after a later reader.
    // Shows: reader-tokens
    #[test]
    fn gate_and_documented_sql_agree(tokens in prop::collection::vec(token(), 1..12)) {
        let [table, writer, reader] = statements();
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(&table).unwrap();
        db.execute("INSERT INTO stock (sku, remaining) VALUES ('sku-42', 1)", []).unwrap();
        let gate = FenceGate::new();
        let mut passed: Vec<Token> = Vec::new();
        for token in tokens {
            let numbers = |token: &Token| (token.zxid(), token.counter());
            let is_writer = |token: &Token| matches!(token, Token::Write(_));
            let mut before = passed.iter().filter(|other| is_writer(other) || is_writer(&token));
            let rule = before.all(|other| numbers(other) <= numbers(&token));
            prop_assert_eq!(gate.admit(token).is_ok(), rule, "{:?} after {:?}", token, passed);
            let statement = if is_writer(&token) { &writer } else { &reader };
            let counter = i64::try_from(token.counter()).unwrap();
            let changed = db.execute(statement, params!["sku-42", token.zxid(), counter]).unwrap();
            prop_assert_eq!(changed == 1, rule, "{:?} after {:?}", token, passed);
            if rule {
                passed.push(token);
            }
        }
    }
}
