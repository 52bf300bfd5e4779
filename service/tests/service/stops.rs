//! The start and the end of the service.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use service::WAIT;
use test_support::within;
use tokio::net::TcpStream;
use zookeeper_recipes::{ConnectionState, InterProcessMutex, ReleaseError};
use zookeeper_test_server::{Server, View};

use crate::shop::{FOREVER, Program, Running, answer, run, send};

async fn until(shop: &Running, state: ConnectionState) {
    within(
        "the state",
        shop.client.watch_state().wait_for(|now| *now == state),
    )
    .await
    .unwrap();
}

pub(crate) fn before_zookeeper() {
    run(async {
        let zookeeper = Server::start().unwrap();
        zookeeper.stop_async().await;
        let shop = Running::on(zookeeper, WAIT, FOREVER).await;
        assert_eq!(
            (shop.get("/livez").await, shop.get("/readyz").await),
            (200, 503)
        );
        let refused = shop.order().await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(
            refused.text.contains("\r\nretry-after: 1\r\n"),
            "{refused:?}"
        );

        shop.zookeeper.restart_async().await.unwrap();
        until(&shop, ConnectionState::Connected).await;
        assert_eq!(shop.get("/readyz").await, 200);
        assert_eq!(shop.order().await.status, 200);

        shop.zookeeper.stop_async().await;
        until(&shop, ConnectionState::Suspended).await;
        assert_eq!(
            (shop.get("/livez").await, shop.get("/readyz").await),
            (200, 503)
        );
    });
}

/// A sale is completed, and an order that still waits for its lock is refused.
pub(crate) fn waits_for_sales() {
    run(async {
        let shop = Running::waiting(FOREVER).await;
        let other = shop.other().await;
        shop.stock.set("sku-7", 1).unwrap();
        let guard = InterProcessMutex::keyed(&other, "/stock", "sku-7")
            .unwrap()
            .lock()
            .await
            .unwrap();
        let database = shop.block_database();
        let sale = shop.send_order().await;
        within("the lock", shop.client.wait_until_held("/stock/sku-42"))
            .await
            .unwrap();
        let waiting = send(shop.address, "POST", "/orders/sku-7").await;
        let is_queued = |view: View<'_>| view.children("/stock/sku-7").len() == 2;
        assert!(within("the waiter", shop.zookeeper.wait_until(is_queued, FOREVER)).await);

        shop.stop.send(()).unwrap();
        assert_eq!(answer(waiting).await.status, 503);
        // The order may be refused before the listener is closed.
        let refused = async { while TcpStream::connect(shop.address).await.is_ok() {} };
        within("the end of the listener", refused).await;
        assert!(!shop.served.is_finished());
        database.execute_batch("ROLLBACK").unwrap();
        assert_eq!(answer(sale).await.status, 200);
        within("the end", shop.served).await.unwrap().unwrap();
        assert_eq!(shop.zookeeper.sessions().len(), 1, "only the other's");
        guard.release().await.unwrap();
    });
}

pub(crate) fn waits_no_longer() {
    run(async {
        let drain = Duration::from_millis(50); // passes
        let shop = Running::on(Server::start().unwrap(), FOREVER, drain).await;
        let database = shop.block_database();
        let _sale = shop.send_order().await;
        within("the lock", shop.client.wait_until_held("/stock/sku-42"))
            .await
            .unwrap();
        shop.stop.send(()).unwrap();
        let error = within("the end", shop.served).await.unwrap().unwrap_err();
        let error = error.downcast_ref::<ReleaseError>();
        assert!(
            matches!(error, Some(ReleaseError::StillHeld { .. })),
            "{error:?}"
        );
        database.execute_batch("ROLLBACK").unwrap();
    });
}

pub(crate) fn sigterm() {
    run(async {
        let zookeeper = Server::start().unwrap();
        let mut program = Program::start(&zookeeper).await;
        assert_eq!(program.order().await.status, 200);
        let pid = Pid::from_raw(program.process.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let status = within("the end", program.process.wait()).await.unwrap();
        assert_eq!(status.code(), Some(0));
        assert!(
            zookeeper.sessions().is_empty(),
            "its session is closed, so its locks are free"
        );
    });
}
