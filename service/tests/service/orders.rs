//! What an order is answered.

use service::WAIT;
use test_support::within;

use crate::shop::{FOREVER, Running, answer, ask, leave, run};

pub(crate) fn sells_until_the_stock_ends() {
    run(async {
        let shop = Running::waiting(FOREVER).await;
        let (first, second) = tokio::join!(shop.order(), shop.order());
        assert_eq!(
            (first.status, second.status),
            (200, 200),
            "{first:?} {second:?}"
        );
        let mut texts = [first.text, second.text];
        texts.sort_by_key(|text| text.contains("sold, 1 left"));
        assert!(
            texts[0].contains("sold, 0 left") && texts[1].contains("sold, 1 left"),
            "{texts:?}"
        );
        assert_eq!(shop.order().await.status, 409);
    });
}

/// The name of an item is one segment of a path, and callers create no others.
pub(crate) fn keys() {
    run(async {
        let shop = Running::waiting(FOREVER).await;
        shop.stock.set("a/b", 1).unwrap();
        assert_eq!(ask(shop.address, "POST", "/orders/a%2Fb").await.status, 200);
        assert_eq!(
            ask(shop.address, "POST", "/orders/none%2Fsuch")
                .await
                .status,
            404
        );
        let too_long = format!("/orders/{}", "a".repeat(20_000));
        assert_eq!(ask(shop.address, "POST", &too_long).await.status, 400);
        assert_eq!(shop.zookeeper.children("/stock"), ["a%2Fb"]);
    });
}

pub(crate) fn busy_is_503_with_the_holder() {
    run(async {
        let shop = Running::waiting(WAIT).await;
        let (_other, guard) = shop.held_elsewhere().await;
        let refused = shop.order().await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(
            refused.text.contains("\r\nretry-after: 1\r\n"),
            "{refused:?}"
        );
        assert!(refused.text.contains("/other for "), "{refused:?}");
        guard.release().await.unwrap();
        assert_eq!(shop.order().await.status, 200);
    });
}

pub(crate) fn blocked_database_blocks_nothing_else() {
    run(async {
        let shop = Running::waiting(WAIT).await;
        let database = shop.block_database();
        let sale = shop.send_order().await;
        shop.contenders(1).await;
        assert_eq!(shop.get("/livez").await, 200);
        let refused = shop.order().await;
        assert_eq!(refused.status, 503, "{refused:?}");
        database.execute_batch("ROLLBACK").unwrap();
        assert_eq!(answer(sale).await.status, 200);
    });
}

pub(crate) fn leaving_a_sale() {
    run(async {
        let shop = Running::waiting(FOREVER).await;
        let database = shop.block_database();
        let sale = shop.send_order().await;
        shop.contenders(1).await;
        within("the lock", shop.client.wait_until_held("/stock/sku-42"))
            .await
            .unwrap();
        leave(sale).await;
        assert_eq!(
            shop.client.holdings().len(),
            1,
            "the sale holds the lock without its handler"
        );
        database.execute_batch("ROLLBACK").unwrap();
        shop.contenders(0).await;
        assert_eq!(shop.stock.left("sku-42").unwrap(), Some(1));
    });
}

pub(crate) fn leaving_the_queue() {
    run(async {
        let shop = Running::waiting(FOREVER).await;
        let (_other, guard) = shop.held_elsewhere().await;
        let waiting = shop.send_order().await;
        shop.contenders(2).await;
        leave(waiting).await;
        shop.contenders(1).await;
        guard.release().await.unwrap();
        assert_eq!(shop.stock.left("sku-42").unwrap(), Some(2));
    });
}

/// While a sale hangs in the database, its lock is lost, and the next holder writes.
pub(crate) fn former_holder() {
    run(async {
        let shop = Running::waiting(FOREVER).await;
        let database = shop.block_database();
        let sale = shop.send_order().await;
        within("the lock", shop.client.wait_until_held("/stock/sku-42"))
            .await
            .unwrap();
        shop.zookeeper
            .expire_session(shop.client.session_id().unwrap());
        let (_other, guard) = shop.held_elsewhere().await;
        let (zxid, n): (i64, i64) = guard.fencing_token().into();
        let sql = "UPDATE stock SET left_over = 7, write_zxid = ?1, write_n = ?2";
        assert_eq!(database.execute(sql, [zxid, n]).unwrap(), 1);
        database.execute_batch("COMMIT").unwrap();
        let refused = answer(sale).await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.text.contains("the lock was lost"), "{refused:?}");
        assert_eq!(shop.stock.left("sku-42").unwrap(), Some(7));
    });
}
