import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.data.Stat;

/** The workers of Curator's side; worker.rs says what they are told and do. */
public final class Workers {
    private static final long PATIENCE_MS = 10_000;
    private static final long IMPATIENCE_MS = 4;
    /** With several permits, which some have and others need. */
    private static final long PATIENCE_FOR_MANY_MS = 400;
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
            Lock lock = lock(recipe, crew.charAt(i));
            Thread thread = new Thread(() -> work(worker, lock), worker);
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
                if (line.startsWith("stay ")) {
                    stay.set(line.substring("stay ".length()));
                } else if (line.startsWith("limit ")) {
                    String limit = line.substring("limit ".length());
                    Semaphores.setLimit(Integer.parseInt(limit));
                    note("set", name, limit);
                }
            }
        } catch (Exception e) {
            e.printStackTrace();
        }
        enough = true;
        enoughIs.countDown();
    }

    /** A lock that tells its nodes. */
    interface Lock {
        boolean acquire(long millis) throws Exception;

        void release() throws Exception;

        List<String> nodes() throws Exception;

        /** What enter says of a holder: x, r or how many permits it has. */
        String mode();

        /** Whether its nodes are those by which it stood in the queue. */
        default boolean hasToken() {
            return true;
        }
    }

    private static Lock lock(String recipe, char role) throws Exception {
        switch (recipe) {
            case "mutex":
                return new Mutex();
            case "multi":
                return new Multi();
            case "read-write":
                return role == 'x' ? new Write() : new Read();
            default:
                return Semaphores.lock(client, path, name, recipe, role);
        }
    }

    /** Of the path and of one behind it. */
    private static final class Multi extends InterProcessMultiLock implements Lock {
        private final Mutex first;

        Multi() {
            this(new Mutex());
        }

        private Multi(Mutex first) {
            super(Arrays.asList(first, new InterProcessMutex(client, path + "-too")));
            this.first = first;
        }

        @Override
        public boolean acquire(long millis) throws Exception {
            return acquire(millis, TimeUnit.MILLISECONDS);
        }

        @Override
        public List<String> nodes() {
            return first.nodes();
        }

        @Override
        public String mode() {
            return "x";
        }
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
        public List<String> nodes() {
            return Collections.singletonList(getLockPath());
        }

        @Override
        public String mode() {
            return "x";
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
        public List<String> nodes() {
            return Collections.singletonList(getLockPath());
        }

        @Override
        public String mode() {
            return "x";
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
        public List<String> nodes() {
            return Collections.singletonList(getLockPath());
        }

        @Override
        public String mode() {
            return "r";
        }
    }

    private static void work(String worker, Lock lock) {
        boolean permits = Character.isDigit(lock.mode().charAt(0));
        long patience = permits && !lock.mode().equals("1") ? PATIENCE_FOR_MANY_MS : PATIENCE_MS;
        try {
            for (int round = 1; !enough; round++) {
                try {
                    if (permits) {
                        note("asks", worker, "");
                    }
                    if (lock.acquire(round % IMPATIENT == 0 ? IMPATIENCE_MS : patience)) {
                        hold(worker, lock);
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

    static void note(String what, String worker, String more) throws Exception {
        String record = "\n" + (what + " " + worker + " " + more).trim() + " .";
        journal.write(ByteBuffer.wrap(record.getBytes(StandardCharsets.US_ASCII)));
    }

    private static void hold(String worker, Lock lock) throws Exception {
        List<String> nodes = lock.nodes();
        long token = 0;
        long session = 0;
        for (String node : nodes) {
            Stat stat = client.checkExists().forPath(node);
            if (stat == null) {
                lock.release();
                throw new IllegalStateException("the lock node is gone at once");
            }
            token = Math.max(token, stat.getCzxid());
            session = stat.getEphemeralOwner();
        }
        String tokens = lock.hasToken() ? Long.toString(token) : "-";
        note("enter", worker, lock.mode() + " " + tokens + " 0x" + Long.toHexString(session));
        boolean kept = false;
        try {
            switch (lock.mode()) {
                case "x":
                    increment(worker);
                    break;
                case "r":
                    look(worker);
                    break;
                default:
                    use(worker);
                    break;
            }
            // Curator tells a holder nothing. Node names are unique, so while they are there the lock was held until now.
            kept = true;
            for (String node : nodes) {
                kept &= client.checkExists().forPath(node) != null;
            }
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

    /** Permits protect nothing that could be counted. */
    private static void use(String worker) throws Exception {
        mayStay(worker, "entered");
        // Long enough for others to come in beside it, also where requests take longer than usual.
        Thread.sleep(30);
        mayStay(worker, "used");
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
