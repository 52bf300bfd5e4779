import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.CachedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicValue;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Locker;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentEphemeralNode;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.recipes.queue.DistributedIdQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/** Curator's recipes on the server whose address is the argument. Prints a line for each: whether it works. */
public final class Curator {
    private static final int CLIENTS = 4;
    private static final int ROUNDS = 25;

    private interface Check {
        void run(List<CuratorFramework> clients) throws Exception;
    }

    private static final Map<String, Check> RECIPES = new LinkedHashMap<>();

    static {
        RECIPES.put("InterProcessMutex", Curator::mutex);
        RECIPES.put("InterProcessSemaphoreMutex", Curator::semaphoreMutex);
        RECIPES.put("InterProcessReadWriteLock", Curator::readWriteLock);
        RECIPES.put("InterProcessSemaphoreV2", Curator::semaphore);
        RECIPES.put("InterProcessMultiLock", Curator::multiLock);
        RECIPES.put("Revoker", Curator::revoker);
        RECIPES.put("Locker", Curator::locker);
        RECIPES.put("LeaderLatch", Curator::leaderLatch);
        RECIPES.put("LeaderSelector", Curator::leaderSelector);
        RECIPES.put("DistributedAtomicLong", Curator::atomicLong);
        RECIPES.put("DistributedAtomicInteger", Curator::atomicInteger);
        RECIPES.put("DistributedAtomicValue", Curator::atomicValue);
        RECIPES.put("CachedAtomicLong", Curator::cachedLong);
        RECIPES.put("PromotedToLock", Curator::promotedToLock);
        RECIPES.put("DistributedBarrier", Curator::barrier);
        RECIPES.put("DistributedDoubleBarrier", Curator::doubleBarrier);
        RECIPES.put("DistributedQueue", Curator::queue);
        RECIPES.put("DistributedIdQueue", Curator::idQueue);
        RECIPES.put("DistributedPriorityQueue", Curator::priorityQueue);
        RECIPES.put("DistributedDelayQueue", Curator::delayQueue);
        RECIPES.put("SimpleDistributedQueue", Curator::simpleQueue);
        RECIPES.put("SharedCount", Curator::sharedCount);
        RECIPES.put("SharedValue", Curator::sharedValue);
        RECIPES.put("CuratorCache", Curator::cache);
        RECIPES.put("NodeCache", Curator::nodeCache);
        RECIPES.put("PathChildrenCache", Curator::pathChildrenCache);
        RECIPES.put("TreeCache", Curator::treeCache);
        RECIPES.put("PersistentNode", Curator::persistentNode);
        RECIPES.put("PersistentEphemeralNode", Curator::persistentEphemeralNode);
        RECIPES.put("PersistentTtlNode", Curator::persistentTtlNode);
        RECIPES.put("GroupMember", Curator::groupMember);
        RECIPES.put("PersistentWatcher", Curator::persistentWatcher);
        RECIPES.put("transactions", Curator::transactions);
    }

    public static void main(String[] args) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < CLIENTS; i++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(100, 5));
            client.start();
            clients.add(client);
        }
        for (Map.Entry<String, Check> recipe : RECIPES.entrySet()) {
            failure.set(null);
            try {
                recipe.getValue().run(clients);
            } catch (Throwable e) {
                failure.compareAndSet(null, e);
            }
            System.out.println(recipe.getKey() + (failure.get() == null ? " ok" : " FAIL: " + failure.get()));
        }
        for (CuratorFramework client : clients) {
            client.close();
        }
        System.exit(0);
    }

    /** The first failure of a recipe, in whichever thread. */
    private static final AtomicReference<Throwable> failure = new AtomicReference<>();

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not so: " + what);
        }
    }

    private interface Round {
        void run(CuratorFramework client) throws Exception;
    }

    /** Runs the rounds of every client in a thread of its own. */
    private static void contend(List<CuratorFramework> clients, Round round) throws Exception {
        contend(clients, ROUNDS, round);
    }

    private static void contend(List<CuratorFramework> clients, int rounds, Round round) throws Exception {
        CyclicBarrier start = new CyclicBarrier(clients.size());
        List<Thread> threads = new ArrayList<>();
        for (CuratorFramework client : clients) {
            Thread thread = new Thread(() -> {
                try {
                    start.await();
                    for (int i = 0; i < rounds; i++) {
                        round.run(client);
                    }
                } catch (Throwable e) {
                    failure.compareAndSet(null, e);
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
    }

    private static void expect(BlockingQueue<String> seen, String expected) throws Exception {
        String got = seen.poll(30, TimeUnit.SECONDS);
        check(expected.equals(got), "'" + expected + "' is seen, and not '" + got + "'");
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(Condition condition, String what) throws Exception {
        for (int i = 0; i < 3000 && !condition.holds(); i++) {
            Thread.sleep(10);
        }
        check(condition.holds(), what);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
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

    private static void transactions(List<CuratorFramework> clients) throws Exception {
        CuratorFramework client = clients.get(0);
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

    private static void semaphoreMutex(List<CuratorFramework> clients) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        contend(clients, client -> {
            InterProcessSemaphoreMutex mutex = new InterProcessSemaphoreMutex(client, "/curator/semaphore-mutex");
            check(mutex.acquire(30, TimeUnit.SECONDS), "the mutex is acquired in time");
            check(inside.incrementAndGet() == 1, "one holder");
            inside.decrementAndGet();
            mutex.release();
        });
    }

    private static void multiLock(List<CuratorFramework> clients) throws Exception {
        List<String> paths = Arrays.asList("/curator/multi-a", "/curator/multi-b");
        AtomicInteger inside = new AtomicInteger();
        contend(clients, client -> {
            InterProcessMultiLock lock = new InterProcessMultiLock(client, paths);
            check(lock.acquire(30, TimeUnit.SECONDS), "the locks are acquired in time");
            check(inside.incrementAndGet() == 1, "one holder");
            inside.decrementAndGet();
            lock.release();
        });
    }

    private static void revoker(List<CuratorFramework> clients) throws Exception {
        InterProcessMutex lock = new InterProcessMutex(clients.get(0), "/curator/revoked");
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        lock.makeRevocable(held -> seen.add("revoked"));
        check(lock.acquire(30, TimeUnit.SECONDS), "the mutex is acquired in time");
        Revoker.attemptRevoke(clients.get(1), lock.getParticipantNodes().iterator().next());
        expect(seen, "revoked");
        lock.release();
    }

    private static void locker(List<CuratorFramework> clients) throws Exception {
        InterProcessMutex lock = new InterProcessMutex(clients.get(0), "/curator/locker");
        InterProcessMutex other = new InterProcessMutex(clients.get(1), "/curator/locker");
        try (Locker locker = new Locker(lock, 30, TimeUnit.SECONDS)) {
            check(!other.acquire(50, TimeUnit.MILLISECONDS), "it is held");
        }
        check(other.acquire(30, TimeUnit.SECONDS), "it is free");
        other.release();
    }

    private static void leaderLatch(List<CuratorFramework> clients) throws Exception {
        LeaderLatch first = new LeaderLatch(clients.get(0), "/curator/latch", "first");
        first.start();
        check(first.await(30, TimeUnit.SECONDS), "the first leads");
        LeaderLatch second = new LeaderLatch(clients.get(1), "/curator/latch", "second");
        second.start();
        await(() -> second.getParticipants().size() == 2, "two take part");
        check(!second.hasLeadership() && second.getLeader().getId().equals("first"), "one leads");
        first.close();
        check(second.await(30, TimeUnit.SECONDS), "the second follows");
        second.close();
    }

    private static void leaderSelector(List<CuratorFramework> clients) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        BlockingQueue<String> terms = new LinkedBlockingQueue<>();
        List<LeaderSelector> selectors = new ArrayList<>();
        for (CuratorFramework client : clients) {
            var leads = new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework leader) {
                    terms.add(inside.incrementAndGet() == 1 ? "alone" : "not alone");
                    inside.decrementAndGet();
                }
            };
            LeaderSelector selector = new LeaderSelector(client, "/curator/selector", leads);
            selector.autoRequeue();
            selector.start();
            selectors.add(selector);
        }
        for (int i = 0; i < 3 * CLIENTS; i++) {
            expect(terms, "alone");
        }
        for (LeaderSelector selector : selectors) {
            selector.close();
        }
    }

    private static void atomicLong(List<CuratorFramework> clients) throws Exception {
        contend(clients, client -> {
            DistributedAtomicLong counter =
                    new DistributedAtomicLong(client, "/curator/long", new ExponentialBackoffRetry(5, 25));
            check(counter.increment().succeeded(), "an increment succeeds");
        });
        DistributedAtomicLong counter =
                new DistributedAtomicLong(clients.get(0), "/curator/long", new ExponentialBackoffRetry(10, 5));
        check(counter.get().postValue() == CLIENTS * ROUNDS, "each increment counts");
        check(counter.subtract(1L).postValue() == CLIENTS * ROUNDS - 1, "it counts down");
        check(!counter.compareAndSet(7L, 8L).succeeded(), "another value is not replaced");
    }

    private static void atomicInteger(List<CuratorFramework> clients) throws Exception {
        DistributedAtomicInteger counter =
                new DistributedAtomicInteger(clients.get(0), "/curator/integer", new ExponentialBackoffRetry(10, 5));
        check(counter.initialize(5) && !counter.initialize(6), "it begins once");
        check(counter.add(-7).postValue() == -2 && counter.get().preValue() == -2, "it counts");
    }

    private static void atomicValue(List<CuratorFramework> clients) throws Exception {
        DistributedAtomicValue value =
                new DistributedAtomicValue(clients.get(0), "/curator/value", new ExponentialBackoffRetry(10, 5));
        check(value.trySet(bytes("a")).succeeded(), "it is set");
        check(value.compareAndSet(bytes("a"), bytes("b")).succeeded(), "it is replaced");
        check(Arrays.equals(value.get().postValue(), bytes("b")), "it is read");
    }

    private static void cachedLong(List<CuratorFramework> clients) throws Exception {
        DistributedAtomicLong counter =
                new DistributedAtomicLong(clients.get(0), "/curator/cached-long", new ExponentialBackoffRetry(10, 5));
        CachedAtomicLong cached = new CachedAtomicLong(counter, 10);
        for (long i = 1; i <= 15; i++) {
            check(cached.next().postValue() == i, "numbers follow each other");
        }
        check(counter.get().postValue() == 20, "tens are taken");
    }

    private static void promotedToLock(List<CuratorFramework> clients) throws Exception {
        PromotedToLock promoted = PromotedToLock.builder().lockPath("/curator/promoted-lock")
                .timeout(30, TimeUnit.SECONDS).retryPolicy(new ExponentialBackoffRetry(5, 25)).build();
        contend(clients, client -> check(
                new DistributedAtomicLong(client, "/curator/promoted", new RetryOneTime(1), promoted)
                        .increment().succeeded(), "an increment succeeds under a lock"));
        var counter = new DistributedAtomicLong(clients.get(0), "/curator/promoted", new RetryOneTime(1));
        check(counter.get().postValue() == CLIENTS * ROUNDS, "each increment counts");
    }

    private static void barrier(List<CuratorFramework> clients) throws Exception {
        DistributedBarrier mine = new DistributedBarrier(clients.get(0), "/curator/barrier");
        DistributedBarrier other = new DistributedBarrier(clients.get(1), "/curator/barrier");
        mine.setBarrier();
        check(!other.waitOnBarrier(50, TimeUnit.MILLISECONDS), "it is closed");
        Thread opens = new Thread(() -> {
            try {
                mine.removeBarrier();
            } catch (Exception e) {
                failure.compareAndSet(null, e);
            }
        });
        opens.start();
        check(other.waitOnBarrier(30, TimeUnit.SECONDS), "it is opened");
        opens.join();
    }

    private static void doubleBarrier(List<CuratorFramework> clients) throws Exception {
        AtomicInteger entered = new AtomicInteger();
        AtomicInteger left = new AtomicInteger();
        contend(clients, 1, client -> {
            DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client, "/curator/double", CLIENTS);
            check(left.get() == 0, "none has left");
            entered.incrementAndGet();
            check(barrier.enter(30, TimeUnit.SECONDS) && entered.get() == CLIENTS, "all have entered");
            check(barrier.leave(30, TimeUnit.SECONDS), "all leave");
            left.incrementAndGet();
        });
        check(left.get() == CLIENTS, "all have left");
    }

    private static final QueueSerializer<String> TEXT = new QueueSerializer<String>() {
        @Override
        public byte[] serialize(String item) {
            return bytes(item);
        }

        @Override
        public String deserialize(byte[] data) {
            return new String(data, StandardCharsets.UTF_8);
        }
    };

    private static QueueBuilder<String> builder(CuratorFramework client, BlockingQueue<String> seen, String path) {
        QueueConsumer<String> consumer = seen == null ? null : new QueueConsumer<String>() {
            @Override
            public void consumeMessage(String message) {
                seen.add(message);
            }

            @Override
            public void stateChanged(CuratorFramework changed, ConnectionState state) {
            }
        };
        return QueueBuilder.builder(client, consumer, TEXT, path);
    }

    private static void queue(List<CuratorFramework> clients) throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (DistributedQueue<String> in = builder(clients.get(0), null, "/curator/queue").buildQueue();
                DistributedQueue<String> out = builder(clients.get(1), seen, "/curator/queue")
                        .lockPath("/curator/queue-locks").buildQueue()) {
            in.start();
            out.start();
            for (int i = 0; i < 20; i++) {
                in.put("item " + i);
            }
            for (int i = 0; i < 20; i++) {
                expect(seen, "item " + i);
            }
        }
    }

    private static void idQueue(List<CuratorFramework> clients) throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (DistributedIdQueue<String> in = builder(clients.get(0), null, "/curator/ids").buildIdQueue()) {
            in.start();
            in.put("gone", "1");
            in.put("stays", "2");
            await(() -> clients.get(0).getChildren().forPath("/curator/ids").size() == 2, "both are there");
            check(in.remove("1") == 1 && in.remove("none") == 0, "one is removed");
            try (DistributedIdQueue<String> out = builder(clients.get(1), seen, "/curator/ids").buildIdQueue()) {
                out.start();
                expect(seen, "stays");
            }
        }
    }

    private static void priorityQueue(List<CuratorFramework> clients) throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (var in = builder(clients.get(0), null, "/curator/priority").buildPriorityQueue(0)) {
            in.start();
            for (int priority : new int[] {3, 1, 2}) {
                in.put("item " + priority, priority);
            }
            await(() -> clients.get(0).getChildren().forPath("/curator/priority").size() == 3, "all are there");
            try (var out = builder(clients.get(1), seen, "/curator/priority").buildPriorityQueue(0)) {
                out.start();
                for (int priority = 1; priority <= 3; priority++) {
                    expect(seen, "item " + priority);
                }
            }
        }
    }

    private static void delayQueue(List<CuratorFramework> clients) throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (var queue = builder(clients.get(0), seen, "/curator/delay").buildDelayQueue()) {
            queue.start();
            long now = System.currentTimeMillis();
            queue.put("later", now + 400);
            queue.put("soon", now + 100);
            expect(seen, "soon");
            expect(seen, "later");
            check(System.currentTimeMillis() >= now + 400, "not before its time");
        }
    }

    private static void simpleQueue(List<CuratorFramework> clients) throws Exception {
        SimpleDistributedQueue in = new SimpleDistributedQueue(clients.get(0), "/curator/simple");
        SimpleDistributedQueue out = new SimpleDistributedQueue(clients.get(1), "/curator/simple");
        check(in.offer(bytes("a")) && in.offer(bytes("b")), "two are put");
        check(Arrays.equals(out.peek(), bytes("a")) && Arrays.equals(out.take(), bytes("a")), "in their order");
        check(Arrays.equals(out.poll(30, TimeUnit.SECONDS), bytes("b")), "the second");
        check(out.poll(50, TimeUnit.MILLISECONDS) == null, "there is no third");
    }

    private static void sharedCount(List<CuratorFramework> clients) throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (SharedCount mine = new SharedCount(clients.get(0), "/curator/count", 10);
                SharedCount other = new SharedCount(clients.get(1), "/curator/count", 10)) {
            mine.start();
            other.start();
            other.addListener(new SharedCountListener() {
                @Override
                public void countHasChanged(SharedCountReader reader, int count) {
                    seen.add("count " + count);
                }

                @Override
                public void stateChanged(CuratorFramework client, ConnectionState state) {
                }
            });
            var before = mine.getVersionedValue();
            check(mine.trySetCount(before, 11) && !mine.trySetCount(before, 12), "one write of a version succeeds");
            expect(seen, "count 11");
        }
    }

    private static void sharedValue(List<CuratorFramework> clients) throws Exception {
        try (SharedValue mine = new SharedValue(clients.get(0), "/curator/shared", bytes("seed"));
                SharedValue other = new SharedValue(clients.get(1), "/curator/shared", bytes("seed"))) {
            mine.start();
            other.start();
            mine.setValue(bytes("new"));
            await(() -> Arrays.equals(other.getValue(), bytes("new")), "the other sees it");
        }
    }

    private static void nodeCache(List<CuratorFramework> clients) throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (NodeCache cache = new NodeCache(clients.get(0), "/curator/node")) {
            cache.getListenable().addListener(() -> {
                var data = cache.getCurrentData();
                seen.add(data == null ? "gone" : new String(data.getData(), StandardCharsets.UTF_8));
            });
            cache.start(true);
            clients.get(1).create().orSetData().forPath("/curator/node", bytes("a"));
            expect(seen, "a");
            clients.get(1).setData().forPath("/curator/node", bytes("b"));
            expect(seen, "b");
            clients.get(1).delete().forPath("/curator/node");
            expect(seen, "gone");
        }
    }

    private static void pathChildrenCache(List<CuratorFramework> clients) throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (PathChildrenCache cache = new PathChildrenCache(clients.get(0), "/curator/children", true)) {
            cache.getListenable().addListener((client, event) ->
                    seen.add(event.getType() + (event.getData() == null ? "" : " " + event.getData().getPath())));
            cache.start(PathChildrenCache.StartMode.POST_INITIALIZED_EVENT);
            expect(seen, "INITIALIZED");
            clients.get(1).create().forPath("/curator/children/a", bytes("1"));
            expect(seen, "CHILD_ADDED /curator/children/a");
            clients.get(1).setData().forPath("/curator/children/a", bytes("2"));
            expect(seen, "CHILD_UPDATED /curator/children/a");
            clients.get(1).delete().forPath("/curator/children/a");
            expect(seen, "CHILD_REMOVED /curator/children/a");
        }
    }

    private static void treeCache(List<CuratorFramework> clients) throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        CuratorFramework other = clients.get(1);
        other.create().creatingParentsIfNeeded().forPath("/curator/tree/a", bytes("1"));
        try (TreeCache cache = new TreeCache(clients.get(0), "/curator/tree")) {
            cache.getListenable().addListener((client, event) ->
                    seen.add(event.getType() + (event.getData() == null ? "" : " " + event.getData().getPath())));
            cache.start();
            expect(seen, "NODE_ADDED /curator/tree");
            expect(seen, "NODE_ADDED /curator/tree/a");
            expect(seen, "INITIALIZED");
            other.create().forPath("/curator/tree/a/b", bytes("2"));
            expect(seen, "NODE_ADDED /curator/tree/a/b");
            other.setData().forPath("/curator/tree/a/b", bytes("3"));
            expect(seen, "NODE_UPDATED /curator/tree/a/b");
            other.delete().deletingChildrenIfNeeded().forPath("/curator/tree/a");
            expect(seen, "NODE_REMOVED /curator/tree/a/b");
            expect(seen, "NODE_REMOVED /curator/tree/a");
        }
    }

    /** Checks that a node is made, and made again when another client deletes it. */
    private static void comesBack(CuratorFramework other, PersistentNode node) throws Exception {
        node.start();
        check(node.waitForInitialCreate(30, TimeUnit.SECONDS), "the node is made");
        String path = node.getActualPath();
        long first = other.checkExists().forPath(path).getCzxid();
        other.delete().forPath(path);
        await(() -> {
            Stat stat = other.checkExists().forPath(path);
            return stat != null && stat.getCzxid() > first;
        }, "the node is made again");
    }

    private static void persistentNode(List<CuratorFramework> clients) throws Exception {
        CuratorFramework other = clients.get(1);
        try (PersistentNode node = new PersistentNode(
                clients.get(0), CreateMode.EPHEMERAL, false, "/curator/persistent", bytes("a"))) {
            comesBack(other, node);
            check(other.checkExists().forPath("/curator/persistent").getEphemeralOwner() != 0, "it is ephemeral");
            node.setData(bytes("b"));
            await(() -> Arrays.equals(other.getData().forPath("/curator/persistent"), bytes("b")), "its data is set");
        }
        check(other.checkExists().forPath("/curator/persistent") == null, "it goes with its owner");
    }

    @SuppressWarnings("deprecation")
    private static void persistentEphemeralNode(List<CuratorFramework> clients) throws Exception {
        try (PersistentEphemeralNode node = new PersistentEphemeralNode(clients.get(0),
                PersistentEphemeralNode.Mode.PROTECTED_EPHEMERAL_SEQUENTIAL, "/curator/protected", bytes("a"))) {
            node.start();
            check(node.waitForInitialCreate(30, TimeUnit.SECONDS), "the node is made");
            check(node.getActualPath().matches("/curator/_c_.*-protected\\d{10}"), "it is protected and numbered");
        }
    }

    private static void persistentTtlNode(List<CuratorFramework> clients) throws Exception {
        try (PersistentTtlNode node = new PersistentTtlNode(clients.get(0), "/curator/ttl", 30_000, bytes("a"))) {
            node.start();
            check(node.waitForInitialCreate(30, TimeUnit.SECONDS), "the node is made");
            CuratorFramework other = clients.get(1);
            String touched = "/curator/ttl/" + PersistentTtlNode.DEFAULT_CHILD_NODE_NAME;
            await(() -> other.checkExists().forPath(touched) != null, "it is touched");
        }
    }

    private static void groupMember(List<CuratorFramework> clients) throws Exception {
        try (GroupMember a = new GroupMember(clients.get(0), "/curator/group", "a", bytes("1"))) {
            a.start();
            GroupMember b = new GroupMember(clients.get(1), "/curator/group", "b", bytes("2"));
            b.start();
            await(() -> a.getCurrentMembers().size() == 2 && b.getCurrentMembers().size() == 2, "both are members");
            b.close();
            await(() -> a.getCurrentMembers().keySet().equals(Collections.singleton("a")), "one is a member");
        }
    }

    private static void persistentWatcher(List<CuratorFramework> clients) throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        CuratorFramework other = clients.get(1);
        try (PersistentWatcher watcher = new PersistentWatcher(clients.get(0), "/curator/watched", true)) {
            watcher.getListenable().addListener(event -> seen.add(event.getType() + " " + event.getPath()));
            watcher.getResetListenable().addListener(() -> seen.add("set"));
            watcher.start();
            expect(seen, "set");
            other.create().creatingParentsIfNeeded().forPath("/curator/watched/a", bytes("1"));
            expect(seen, "NodeCreated /curator/watched");
            expect(seen, "NodeCreated /curator/watched/a");
            other.setData().forPath("/curator/watched/a", bytes("2"));
            expect(seen, "NodeDataChanged /curator/watched/a");
            other.delete().forPath("/curator/watched/a");
            expect(seen, "NodeDeleted /curator/watched/a");
        }
    }
}
