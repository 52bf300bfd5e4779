//! A running service, its ZooKeeper, and callers.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use service::{Error, SESSION_TIMEOUT, Shop, Stock, serve};
use tempfile::TempDir;
use test_support::within;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use zookeeper_recipes::{Client, InterProcessMutex, LockGuard};
use zookeeper_test_server::{Server, View};

/// Longer than a test takes: what ends earlier does so for another reason.
pub(crate) const FOREVER: Duration = Duration::from_secs(600);

pub(crate) fn run(test: impl Future<Output = ()>) {
    // Of one thread: a handler that blocks it blocks the test.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

/// A service with two of `sku-42`.
pub(crate) struct Running {
    pub(crate) zookeeper: Server,
    pub(crate) client: Client,
    pub(crate) stock: Arc<Stock>,
    pub(crate) address: SocketAddr,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) served: JoinHandle<Result<(), Error>>,
    directory: TempDir,
}

impl Running {
    /// On a ZooKeeper that may be down.
    pub(crate) async fn on(zookeeper: Server, wait: Duration, drain: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let stock = Arc::new(Stock::open(directory.path().join("stock.db")).unwrap());
        stock.set("sku-42", 2).unwrap();
        let client = Client::builder()
            .name("shop")
            .session_timeout(SESSION_TIMEOUT);
        let client = client.connect_lazy(&zookeeper.connect_string()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shop = Shop {
            client: client.clone(),
            stock: Arc::clone(&stock),
            wait,
        };
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { drop(stopped.await) };
        let served = tokio::spawn(serve(listener, shop, stopped, drain));
        Self {
            zookeeper,
            client,
            stock,
            address,
            stop,
            served,
            directory,
        }
    }

    pub(crate) async fn waiting(wait: Duration) -> Self {
        Self::on(Server::start().unwrap(), wait, FOREVER).await
    }

    /// Another process that uses the same locks.
    pub(crate) async fn other(&self) -> Client {
        Client::builder()
            .name("other")
            .connect(&self.zookeeper.connect_string())
            .await
            .unwrap()
    }

    /// Another process that holds the lock of `sku-42`.
    pub(crate) async fn held_elsewhere(&self) -> (Client, LockGuard) {
        let other = self.other().await;
        let lock = InterProcessMutex::keyed(&other, "/stock", "sku-42").unwrap();
        let guard = within("the lock", lock.lock()).await.unwrap();
        (other, guard)
    }

    /// Locks the database, so that a sale hangs in it until the end of this transaction.
    pub(crate) fn block_database(&self) -> Connection {
        let connection = Connection::open(self.directory.path().join("stock.db")).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }

    /// Waits until the lock of `sku-42` has so many nodes.
    pub(crate) async fn contenders(&self, count: usize) {
        let are = move |view: View<'_>| view.children("/stock/sku-42").len() == count;
        assert!(within("the contenders", self.zookeeper.wait_until(are, FOREVER)).await);
    }

    pub(crate) async fn order(&self) -> Answer {
        ask(self.address, "POST", "/orders/sku-42").await
    }

    /// Sends an order, and returns its connection.
    pub(crate) async fn send_order(&self) -> TcpStream {
        send(self.address, "POST", "/orders/sku-42").await
    }

    pub(crate) async fn get(&self, path: &str) -> u16 {
        ask(self.address, "GET", path).await.status
    }
}

/// The service as a program, with one of `sku-42`.
pub(crate) struct Program {
    pub(crate) process: Child,
    pub(crate) address: SocketAddr,
    _directory: TempDir,
}

impl Program {
    pub(crate) async fn start(zookeeper: &Server) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_service"))
            .arg("sku-42=1")
            .env("ZK_CONNECT", zookeeper.connect_string())
            .env("DATABASE", directory.path().join("stock.db"))
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = within("the address", lines.next_line())
            .await
            .unwrap()
            .unwrap();
        let address = line.strip_prefix("http://").unwrap().parse().unwrap();
        Self {
            process,
            address,
            _directory: directory,
        }
    }

    /// Orders `sku-42` until the order is decided.
    pub(crate) async fn order(&self) -> Answer {
        let mut answer = ask(self.address, "POST", "/orders/sku-42").await;
        // Its session may not be there yet.
        while answer.status == 503 {
            answer = ask(self.address, "POST", "/orders/sku-42").await;
        }
        answer
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// With the headers in lower case.
    pub(crate) text: String,
}

pub(crate) async fn send(address: SocketAddr, method: &str, path: &str) -> TcpStream {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

pub(crate) async fn answer(mut connection: TcpStream) -> Answer {
    let mut text = String::new();
    within("the answer", connection.read_to_string(&mut text))
        .await
        .unwrap();
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Answer {
        status: status.unwrap_or_else(|| panic!("no status: {text:?}")),
        text,
    }
}

pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str) -> Answer {
    answer(send(address, method, path).await).await
}

/// Leaves, and waits until the service has noticed that and dropped the handler: it closes without
/// an answer.
pub(crate) async fn leave(mut connection: TcpStream) {
    connection.shutdown().await.unwrap();
    let mut text = String::new();
    within(
        "the end of the connection",
        connection.read_to_string(&mut text),
    )
    .await
    .unwrap();
    assert_eq!(text, "");
}
