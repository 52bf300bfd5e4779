//! A shop's web service: each order is a sale under the lock of its item. docs/service.md has the
//! design.

#[cfg(feature = "metrics")]
pub mod metrics;
mod stock;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use zookeeper_recipes::{
    AcquireError, BuildError, Client, ConnectionState, ErrorKind, InterProcessMutex,
};

pub use stock::{Sale, Stock};

/// Any failure.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// How long an order waits for the lock of its item: a customer waits for it.
pub const WAIT: Duration = Duration::from_secs(1);
/// How long a sale waits for the database, at each of two statements: no work under a lock is
/// longer. Reading the item, before the lock, waits as long.
pub const DATABASE_WAIT: Duration = Duration::from_secs(5);
/// After how long the servers end the session, and release the locks, of an instance that is gone.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stop waits for the sales under way.
pub const DRAIN: Duration = Duration::from_secs(12);
/// How long a stop waits for slow callers to read their answers, when the locks are released.
pub const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// When a caller who was refused should try again, in seconds.
pub const RETRY_AFTER_SECONDS: &str = "1";

/// What the handlers share.
#[derive(Clone, Debug)]
pub struct Shop {
    /// The client, for the locks.
    pub client: Client,
    /// The database.
    pub stock: Arc<Stock>,
    /// How long an order waits for its lock: [`WAIT`].
    pub wait: Duration,
}

impl Shop {
    /// Sells one item under its lock. An item that is not in the database gets no lock, whose
    /// directory would stay in ZooKeeper for a while: callers must not create them at will.
    ///
    /// # Errors
    /// - [`BuildError`] if the item's name is too long for a path.
    /// - That of the lock, which was not granted, or that of the database.
    async fn sell(&self, sku: String) -> Result<Sale, Error> {
        let lock = InterProcessMutex::keyed(&self.client, "/stock", &sku)?;
        let (stock, item) = (Arc::clone(&self.stock), sku.clone());
        if spawn_blocking(move || stock.left(&item)).await??.is_none() {
            return Ok(Sale::Unknown);
        }
        // A caller who leaves during the wait leaves the queue: axum drops this future.
        let guard = lock.acquire(self.wait).await?;
        let stock = Arc::clone(&self.stock);
        // A caller who leaves from here on changes nothing: the closure runs to its end, and holds
        // the lock until then.
        let sale = spawn_blocking(move || (stock.sell(&sku, guard.fencing_token()), guard));
        let (sale, guard) = sale.await?;
        if let Err(error) = guard.release().await {
            // The database has compared the token, so the sale is valid.
            eprintln!("{error}");
        }
        Ok(sale?)
    }
}

/// Answers an order.
async fn order(State(shop): State<Shop>, Path(sku): Path<String>) -> Response {
    match shop.sell(sku).await {
        Ok(Sale::Sold { left }) => format!("sold, {left} left\n").into_response(),
        Ok(Sale::SoldOut) => (StatusCode::CONFLICT, "sold out\n").into_response(),
        Ok(Sale::Unknown) => (StatusCode::NOT_FOUND, "no such item\n").into_response(),
        Ok(Sale::Refused) => try_again("the lock was lost, and another process has written since"),
        Err(error) if error.is::<BuildError>() => (
            StatusCode::BAD_REQUEST,
            "the name of the item is too long\n",
        )
            .into_response(),
        Err(error) => match error.downcast_ref::<AcquireError>() {
            // The message of a timeout names the holder.
            Some(busy) if busy.is_retryable() || busy.kind() == Some(ErrorKind::Closed) => {
                try_again(&busy.to_string())
            }
            _ => {
                eprintln!("{error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        },
    }
}

fn try_again(why: &str) -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(RETRY_AFTER, RETRY_AFTER_SECONDS)],
        format!("{why}\n"),
    )
        .into_response()
}

/// Says whether this instance can serve orders, for which it needs a session.
async fn ready(State(shop): State<Shop>) -> (StatusCode, String) {
    match shop.client.state() {
        ConnectionState::Connected => (StatusCode::OK, "ready\n".to_owned()),
        state => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the connection to ZooKeeper is {state}\n"),
        ),
    }
}

/// Serves orders until `stop` resolves, and then lets the sales under way end, for at most `drain`.
///
/// # Errors
/// - That of the listener.
/// - [`ReleaseError`](zookeeper_recipes::ReleaseError) if sales were still under way after `drain`.
pub async fn serve(
    listener: TcpListener,
    shop: Shop,
    stop: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> Result<(), Error> {
    let client = shop.client.clone();
    let routes = Router::new()
        .route("/orders/{sku}", post(order))
        // It does not ask ZooKeeper: a restart would not bring that back.
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .with_state(shop);
    #[cfg(feature = "metrics")]
    let routes = routes.route("/metrics", get(metrics::scrape));
    let (stops, stopped) = oneshot::channel();
    let stopping = async move {
        stop.await;
        // Its receiver is gone if the server has failed.
        let _ = stops.send(());
    };
    let mut served = tokio::spawn(
        axum::serve(listener, routes)
            .with_graceful_shutdown(stopping)
            .into_future(),
    );
    tokio::select! {
        // The server without a connection ends in the same moment, and the session is to be closed
        // all the same.
        biased;
        _ = stopped => {}
        failed = &mut served => return Ok(failed??),
    }
    // The listener is closed. This refuses orders that wait for a lock, and waits for sales under
    // way.
    let drained = client.drain(drain).await;
    // A caller that does not read its answer is not waited for.
    if let Ok(served) = tokio::time::timeout(LAST_ANSWERS, served).await {
        served??;
    }
    Ok(drained?)
}
