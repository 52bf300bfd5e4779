import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.data.Stat;

/** The workers of Curator's side; worker.rs says what they are told and do. */
public final class Workers {
    private static final long PATIENCE_MS = 10_000;
    private static final long IMPATIENCE_MS = 4;
    private static final int IMPATIENT = 9;

    private static CuratorFramework client;
    private static String path;
    private static String name;
    private static FileChannel journal;
    private static FileChannel counter;
    private static volatile boolean enough;
    private static final CountDownLatch enoughIs = new CountDownLatch(1);
    private static final AtomicReference<String> stay = new AtomicReference<>();

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        int session = Integer.parseInt(args[1]);
        path = args[2];
        Path dir = Path.of(args[3]);
        name = args[4];
        String recipe = args[5];
        String crew = args[6];
        journal = FileChannel.open(dir.resolve("journal"), StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        counter = FileChannel.open(dir.resolve("counter"), StandardOpenOption.READ, StandardOpenOption.WRITE);
        client = CuratorFrameworkFactory.newClient(servers, session, 5_000, new RetryNTimes(50, 100));
        client.start();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < crew.length(); i++) {
            String worker = name + "." + i;
            boolean exclusive = crew.charAt(i) == 'x';
            Thread thread = new Thread(() -> work(worker, recipe, exclusive), worker);
            thread.start();
            threads.add(thread);
        }
        Thread orders = new Thread(Workers::listen, "orders");
        orders.setDaemon(true);
        orders.start();
        for (Thread thread : threads) {
            thread.join();
        }
        client.close();
        System.exit(0);
    }

    private static void listen() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                stay.set(line.substring("stay ".length()));
            }
        } catch (Exception e) {
            e.printStackTrace();
        }
        enough = true;
        enoughIs.countDown();
    }

    /** A lock that tells its node. */
    private interface Lock {
        boolean acquire(long millis) throws Exception;

        void release() throws Exception;

        String node();
    }

    private static final class Mutex extends InterProcessMutex implements Lock {
        Mutex() {
            super(client, path);
        }

        @Override
        public boolean acquire(long millis) throws Exception {
            return acquire(millis, TimeUnit.MILLISECONDS);
        }

        @Override
        public String node() {
            return getLockPath();
        }
    }

    private static final class Write extends InterProcessReadWriteLock.WriteLock implements Lock {
        Write() {
            super(client, path, null);
        }

        @Override
        public boolean acquire(long millis) throws Exception {
            return acquire(millis, TimeUnit.MILLISECONDS);
        }

        @Override
        public String node() {
            return getLockPath();
        }
    }

    private static final class Read extends InterProcessReadWriteLock.ReadLock implements Lock {
        Read() {
            super(client, path, null, new Write());
        }

        @Override
        public boolean acquire(long millis) throws Exception {
            return acquire(millis, TimeUnit.MILLISECONDS);
        }

        @Override
        public String node() {
            return getLockPath();
        }
    }

    private static void work(String worker, String recipe, boolean exclusive) {
        Lock lock = recipe.equals("mutex") ? new Mutex() : exclusive ? new Write() : new Read();
        try {
            for (int round = 1; !enough; round++) {
                try {
                    if (lock.acquire(round % IMPATIENT == 0 ? IMPATIENCE_MS : PATIENCE_MS)) {
                        hold(worker, lock, exclusive);
                    }
                } catch (InterruptedException e) {
                    throw e;
                } catch (Exception e) {
                    // A session that has ended, for example: Curator begins another.
                    note("trouble", worker, e.toString().replace('\n', ' '));
                }
            }
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void note(String what, String worker, String more) throws Exception {
        String record = "\n" + (what + " " + worker + " " + more).trim() + " .";
        journal.write(ByteBuffer.wrap(record.getBytes(StandardCharsets.US_ASCII)));
    }

    private static void hold(String worker, Lock lock, boolean exclusive) throws Exception {
        String node = lock.node();
        Stat stat = client.checkExists().forPath(node);
        if (stat == null) {
            lock.release();
            throw new IllegalStateException("the lock node is gone at once");
        }
        String session = "0x" + Long.toHexString(stat.getEphemeralOwner());
        note("enter", worker, (exclusive ? "x " : "r ") + stat.getCzxid() + " " + session);
        boolean kept = false;
        try {
            if (exclusive) {
                increment(worker);
            } else {
                look(worker);
            }
            // Curator tells a holder nothing. Node names are unique, so while it is there the lock was held until now.
            kept = client.checkExists().forPath(node) != null;
        } finally {
            note(kept ? "leave" : "lost", worker, "");
            lock.release();
        }
    }

    private static long readCounter() throws Exception {
        ByteBuffer digits = ByteBuffer.allocate(20);
        counter.read(digits, 0);
        return Long.parseLong(new String(digits.array(), StandardCharsets.US_ASCII));
    }

    private static void increment(String worker) throws Exception {
        long value = readCounter();
        note("read", worker, Long.toString(value));
        mayStay(worker, "entered");
        value++;
        note("intent", worker, Long.toString(value));
        mayStay(worker, "intended");
        Thread.sleep(1);
        counter.write(ByteBuffer.wrap(String.format("%020d", value).getBytes(StandardCharsets.US_ASCII)), 0);
        mayStay(worker, "written");
        note("commit", worker, Long.toString(value));
        mayStay(worker, "committed");
    }

    private static void look(String worker) throws Exception {
        note("read", worker, Long.toString(readCounter()));
        mayStay(worker, "reading");
        Thread.sleep(1);
        note("read", worker, Long.toString(readCounter()));
    }

    private static void mayStay(String worker, String point) throws Exception {
        String asked = stay.get();
        if (point.equals(asked) && stay.compareAndSet(asked, null)) {
            note("stays", worker, point);
            enoughIs.await();
            // The parent that would kill us is gone.
            System.exit(2);
        }
    }
}
