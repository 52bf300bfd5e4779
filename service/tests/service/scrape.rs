//! What Prometheus gets.

use test_support::{SOON, within};
use tokio::time::timeout;
use zookeeper_recipes::{Client, InterProcessMutex};
use zookeeper_test_server::Server;

use crate::files::queries;
use crate::shop::{Program, ask, run};

/// The names in the dashboard's queries that a scrape does not have, as Prometheus stores them.
fn missing(scrape: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for query in queries() {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("zookeeper_recipes_")) {
            if !scrape.contains(&format!("\n{name} ")) && !scrape.contains(&format!("\n{name}{{")) {
                missing.push(name.to_owned());
            }
        }
    }
    missing
}

/// After an order that waited for its lock, and one that was served.
pub(crate) fn has_what_the_dashboard_shows() {
    run(async {
        let zookeeper = Server::start().unwrap();
        let program = Program::start(&zookeeper).await;
        let other = Client::connect(&zookeeper.connect_string()).await.unwrap();
        let lock = InterProcessMutex::keyed(&other, "/stock", "sku-42").unwrap();
        let guard = within("the lock", lock.lock()).await.unwrap();
        while !ask(program.address, "POST", "/orders/sku-42")
            .await
            .text
            .contains("held by")
        {}
        guard.release().await.unwrap();
        assert_eq!(program.order().await.status, 200);

        let mut scrape = ask(program.address, "GET", "/metrics").await.text;
        let complete = async {
            // No order waits for the thread that reports it.
            while !missing(&scrape).is_empty() {
                scrape = ask(program.address, "GET", "/metrics").await.text;
            }
        };
        let _ = timeout(SOON / 2, complete).await;
        assert_eq!(missing(&scrape), [""; 0], "{scrape}");
        assert!(
            scrape.contains("content-type: text/plain; version=0.0.4"),
            "{scrape}"
        );
        let grants = "zookeeper_recipes_lock_grants_total{recipe=\"mutex\",prefix=\"/stock\"";
        assert!(scrape.contains(grants), "{scrape}");
    });
}
