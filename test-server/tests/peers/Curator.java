import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/** Curator's recipes on the server whose address is the argument. Exits with 0 when all is well. */
public final class Curator {
    private static final int CLIENTS = 4;
    private static final int ROUNDS = 25;

    public static void main(String[] args) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < CLIENTS; i++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(100, 5));
            client.start();
            clients.add(client);
        }
        mutex(clients);
        readWriteLock(clients);
        semaphore(clients);
        cache(clients);
        transactions(clients.get(0));
        for (CuratorFramework client : clients) {
            client.close();
        }
        System.exit(0);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            System.err.println("not so: " + what);
            System.exit(1);
        }
    }

    private interface Round {
        void run(CuratorFramework client) throws Exception;
    }

    /** Runs the rounds of every client in a thread of its own. */
    private static void contend(List<CuratorFramework> clients, Round round) throws Exception {
        CyclicBarrier start = new CyclicBarrier(clients.size());
        List<Thread> threads = new ArrayList<>();
        for (CuratorFramework client : clients) {
            Thread thread = new Thread(() -> {
                try {
                    start.await();
                    for (int i = 0; i < ROUNDS; i++) {
                        round.run(client);
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void mutex(List<CuratorFramework> clients) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        int[] total = {0};
        contend(clients, client -> {
            InterProcessMutex mutex = new InterProcessMutex(client, "/curator/mutex");
            check(mutex.acquire(30, TimeUnit.SECONDS), "the mutex is acquired in time");
            check(inside.incrementAndGet() == 1, "one holder");
            total[0]++;
            inside.decrementAndGet();
            mutex.release();
        });
        check(total[0] == CLIENTS * ROUNDS, "every round counted");
    }

    private static void readWriteLock(List<CuratorFramework> clients) throws Exception {
        AtomicInteger readers = new AtomicInteger();
        AtomicInteger writers = new AtomicInteger();
        AtomicInteger turn = new AtomicInteger();
        contend(clients, client -> {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, "/curator/rw");
            boolean write = turn.getAndIncrement() % 3 == 0;
            InterProcessMutex mutex = write ? lock.writeLock() : lock.readLock();
            check(mutex.acquire(30, TimeUnit.SECONDS), "the lock is acquired in time");
            (write ? writers : readers).incrementAndGet();
            check(writers.get() == 0 || writers.get() + readers.get() == 1, "a writer is alone");
            (write ? writers : readers).decrementAndGet();
            mutex.release();
        });
    }

    private static void semaphore(List<CuratorFramework> clients) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        contend(clients, client -> {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, "/curator/semaphore", 2);
            var lease = semaphore.acquire(30, TimeUnit.SECONDS);
            check(lease != null, "the lease is acquired in time");
            check(inside.incrementAndGet() <= 2, "two holders at most");
            inside.decrementAndGet();
            semaphore.returnLease(lease);
        });
        DistributedAtomicLong counter =
                new DistributedAtomicLong(clients.get(0), "/curator/counter", new ExponentialBackoffRetry(10, 5));
        check(counter.increment().succeeded() && counter.get().postValue() == 1, "the counter counts");
    }

    private static void expect(BlockingQueue<String> seen, String expected) throws Exception {
        String got = seen.poll(30, TimeUnit.SECONDS);
        check(expected.equals(got), "the cache sees '" + expected + "' and not '" + got + "'");
    }

    /** Persistent recursive watches. */
    private static void cache(List<CuratorFramework> clients) throws Exception {
        CuratorCache cache = CuratorCache.build(clients.get(0), "/curator/cached");
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forCreates(node -> seen.add("created " + node.getPath()))
                .forChanges((before, after) -> seen.add("changed " + after.getPath()))
                .forDeletes(node -> seen.add("deleted " + node.getPath()))
                .forInitialized(() -> seen.add("ready"))
                .build());
        cache.start();
        expect(seen, "ready");
        CuratorFramework other = clients.get(1);
        other.create().creatingParentContainersIfNeeded().forPath("/curator/cached/a", new byte[0]);
        expect(seen, "created /curator/cached");
        expect(seen, "created /curator/cached/a");
        other.setData().forPath("/curator/cached/a", new byte[] {1});
        expect(seen, "changed /curator/cached/a");
        other.delete().forPath("/curator/cached/a");
        expect(seen, "deleted /curator/cached/a");
        cache.close();
    }

    private static void transactions(CuratorFramework client) throws Exception {
        List<CuratorTransactionResult> results = client.transaction().forOperations(
                client.transactionOp().create().withMode(CreateMode.PERSISTENT).forPath("/curator/tx", new byte[0]),
                client.transactionOp().setData().withVersion(0).forPath("/curator/tx", new byte[] {1, 2}),
                client.transactionOp().check().withVersion(1).forPath("/curator/tx"));
        check(results.size() == 3 && results.get(1).getResultStat().getDataLength() == 2, "a transaction answers");
        try {
            client.transaction().forOperations(
                    client.transactionOp().delete().forPath("/curator/tx"),
                    client.transactionOp().delete().forPath("/curator/none"));
            check(false, "a transaction with a missing node fails");
        } catch (KeeperException.NoNodeException e) {
            check(e.getResults().size() == 2, "and says which");
        }
        Stat stat = client.checkExists().forPath("/curator/tx");
        check(stat != null && stat.getVersion() == 1, "and changes nothing");
        String ttl = client.create().withTtl(60_000).withMode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL)
                .forPath("/curator/ttl-", new byte[0]);
        check(ttl.matches("/curator/ttl-\\d{10}"), "a sequential TTL node");
    }
}
