//! Metrics of locks, served to Prometheus: two clients contend for a few locks until the program is
//! interrupted.
//!
//! ```text
//! cargo run --example prometheus --features metrics
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example prometheus --features metrics -- 127.0.0.1:9898
//! curl http://127.0.0.1:9898/metrics
//! ```
//!
//! In a service the recorder is the one that it has anyway. With its feature `http-listener`,
//! `metrics-exporter-prometheus` brings a server of its own.

mod serve;

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::net::TcpListener;
use zookeeper_recipes::{Acquisition::Acquired, Client, InterProcessMutex, OrBusy};
use zookeeper_test_server::Server;

/// Any failure; it ends the program with exit code 1.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// The upper limits of the buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];
const ITEMS: u32 = 5;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // The recorder is installed before the client, which describes the metrics when it connects.
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
        .install_recorder()?;

    // A server inside this process, unless ZK_CONNECT names others.
    let local = Server::start()?;
    let servers = std::env::var("ZK_CONNECT").unwrap_or_else(|_| local.connect_string());
    for seed in 1..=2 {
        // The inventory has a label; all other locks share the label `other`.
        let client = Client::builder()
            .metrics_prefixes(["/inventory"])
            .connect(&servers)
            .await?;
        tokio::spawn(async move {
            if let Err(error) = sell(&client, seed).await {
                eprintln!("no more sales: {error}");
            }
        });
    }

    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    tokio::select! {
        served = serve::serve(listener, metrics) => Ok(served?),
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
    }
}

/// Sells one item after the other.
async fn sell(client: &Client, seed: u32) -> Result<(), Error> {
    for sale in 0_u32.. {
        let item = sale.wrapping_mul(seed) % ITEMS;
        let mutex = InterProcessMutex::new(client, format!("/inventory/sku-{item}"))?;
        if let Acquired(guard) = mutex.acquire(Duration::from_millis(50)).await.or_busy()? {
            // The customer pays.
            tokio::time::sleep(Duration::from_millis(5 * u64::from(seed))).await;
            guard.release().await?;
        }
    }
    Ok(())
}
