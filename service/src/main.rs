//! The service as a program.
//!
//! ```text
//! ZK_CONNECT=zk1:2181 DATABASE=stock.db LISTEN=127.0.0.1:8080 cargo run -p service -- sku-42=100
//! ```

use std::env;
use std::process::ExitCode;
use std::sync::Arc;

use service::{DRAIN, Error, SESSION_TIMEOUT, Shop, Stock, WAIT, serve};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use zookeeper_recipes::Client;

fn main() -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(run());
    // A sale that hangs in the database would keep the process.
    runtime.shutdown_background();
    if let Err(error) = &result {
        eprintln!("{error}");
    }
    Ok(ExitCode::from(u8::from(result.is_err())))
}

async fn run() -> Result<(), Error> {
    // Before anything that takes time: an orchestrator may stop what it has just started.
    let mut terminate = signal(SignalKind::terminate())?;
    let variable =
        |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let stock = Stock::open(variable("DATABASE", "stock.db"))?;
    for item in env::args().skip(1) {
        let (sku, left) = item
            .split_once('=')
            .ok_or("an argument is an item and its stock: sku-42=100")?;
        stock.set(sku, left.parse()?)?;
    }
    let client = Client::builder().session_timeout(SESSION_TIMEOUT);
    #[cfg(feature = "metrics")]
    let client = {
        service::metrics::install()?;
        client.metrics_prefixes(["/stock"])
    };
    // It may start before ZooKeeper does, and is not ready until then.
    let client = client.connect_lazy(&variable("ZK_CONNECT", "127.0.0.1:2181"))?;
    let listener = TcpListener::bind(variable("LISTEN", "127.0.0.1:8080")).await?;
    println!("http://{}", listener.local_addr()?);
    let shop = Shop {
        client,
        stock: Arc::new(stock),
        wait: WAIT,
    };
    let stop = async move {
        terminate.recv().await;
    };
    serve(listener, shop, stop, DRAIN).await
}
