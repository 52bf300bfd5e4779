import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.CachedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.retry.RetryNTimes;

/** Counts with Curator's counters; counters.rs says what a worker is told and does. */
public final class Counters {
    private static FileChannel journal;
    private static String name;
    private static volatile boolean enough;

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        int session = Integer.parseInt(args[1]);
        String path = args[2];
        Path dir = Path.of(args[3]);
        name = args[4];
        journal = FileChannel.open(dir.resolve("journal"), StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        CuratorFramework client = CuratorFrameworkFactory.newClient(servers, session, 10_000, new RetryNTimes(50, 100));
        client.start();
        Thread orders = new Thread(Counters::listen, "orders");
        orders.setDaemon(true);
        orders.start();
        DistributedAtomicLong ids = counter(client, path + "/ids");
        DistributedAtomicLong sum = counter(client, path + "/sum");
        CachedAtomicLong cached = new CachedAtomicLong(ids, 3);
        for (int round = 0; !enough; round++) {
            AtomicValue<Long> id = round % 2 == 0 ? ids.increment() : cached.next();
            if (id.succeeded()) {
                note("id " + name + " " + id.postValue());
            }
            note("adds " + name);
            try {
                note((sum.increment().succeeded() ? "added " : "not ") + name);
            } catch (Exception e) {
                note("unknown " + name);
            }
        }
        client.close();
        System.exit(0);
    }

    /** With a mutex, so that Java's processes take turns among themselves. */
    private static DistributedAtomicLong counter(CuratorFramework client, String path) {
        PromotedToLock mutex = PromotedToLock.builder()
                .lockPath(path + "-lock")
                .timeout(60, TimeUnit.SECONDS)
                .retryPolicy(new RetryNTimes(1_000, 1))
                .build();
        return new DistributedAtomicLong(client, path, new RetryNTimes(3, 1), mutex);
    }

    private static void listen() {
        try {
            while (System.in.read() >= 0) {
                // Its end says that it is enough.
            }
        } catch (Exception e) {
            e.printStackTrace();
        }
        enough = true;
    }

    private static void note(String record) throws Exception {
        journal.write(ByteBuffer.wrap(("\n" + record + " .").getBytes(StandardCharsets.US_ASCII)));
    }
}
