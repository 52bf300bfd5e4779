import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.data.Stat;

/**
 * Apache Curator as a holder of the matrix: reads one JSON object a line on stdin, a step of a lock, answers
 * one a line on stdout. src/step.rs says which steps there are.
 */
public final class CuratorHolder implements AutoCloseable {
    /** How often a holder asks its lock whether it is held. */
    private static final long EVERY_MILLIS = 5;

    /** For how long a caller asks again whose call has failed, and how soon. */
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(30);

    private static final long AGAIN_MILLIS = 50;

    private final CuratorFramework client;
    private final InterProcessMutex mutex;
    private final boolean careful;
    private final FileOutputStream journal;

    /** The connection as its listener knows it, and whether the session has ended since the grant. */
    private volatile boolean connected = true;

    private volatile boolean lost;
    private volatile boolean granted;
    private volatile boolean ended;

    public static void main(String[] args) throws Exception {
        CuratorHolder holder = null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, String> members = CuratorWorker.members(line);
            if (members.containsKey("quit")) {
                break;
            }
            String told;
            try {
                if (members.containsKey("journal")) {
                    if (holder != null) {
                        holder.close();
                    }
                    holder = new CuratorHolder(members);
                    told = "{}";
                } else {
                    told = holder.step(members);
                }
            } catch (Exception e) {
                told = "{\"error\": " + CuratorWorker.quoted(e.toString()) + "}";
            }
            System.out.println(told);
            System.out.flush();
        }
        if (holder != null) {
            holder.close();
        }
        // Not held up by what the client library has left running.
        System.exit(0);
    }

    private CuratorHolder(Map<String, String> open) throws Exception {
        careful = Boolean.parseBoolean(open.get("careful"));
        client = CuratorFrameworkFactory.builder()
                .connectString(open.get("servers"))
                .sessionTimeoutMs(Integer.parseInt(open.get("millis")))
                .connectionTimeoutMs(Integer.parseInt(open.get("millis")) / 2)
                .retryPolicy(new ExponentialBackoffRetry(100, 3))
                .build();
        client.getConnectionStateListenable().addListener((self, state) -> {
            connected = state.isConnected();
            lost = lost || state == ConnectionState.LOST;
        });
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection within 30 s");
        }
        mutex = new InterProcessMutex(client, open.get("path"));
        journal = new FileOutputStream(open.get("journal"));
        Thread asking = new Thread(this::askAlways);
        asking.setDaemon(true);
        asking.start();
    }

    /** What the lock answers to a holder that asks. */
    private boolean isHeld() {
        return mutex.isAcquiredInThisProcess() && (!careful || (connected && !lost));
    }

    private void askAlways() {
        try {
            while (!ended) {
                long asked = System.nanoTime();
                if (granted) {
                    int held = isHeld() ? 1 : 0;
                    String line = asked + " " + System.nanoTime() + " " + held + "\n";
                    journal.write(line.getBytes(StandardCharsets.UTF_8));
                }
                Thread.sleep(EVERY_MILLIS);
            }
        } catch (IOException | InterruptedException e) {
            System.err.println(e);
        }
    }

    private String step(Map<String, String> members) throws Exception {
        if (members.containsKey("acquire")) {
            return "{\"granted\": " + acquire() + "}";
        } else if (members.containsKey("ask")) {
            return "{\"held\": " + (granted && isHeld()) + "}";
        } else if (members.containsKey("release")) {
            granted = false;
            if (mutex.isOwnedByCurrentThread()) {
                mutex.release();
            }
            return "{}";
        }
        String node = members.get("node");
        String value = members.get("value");
        if (value == null) {
            Stat stat = new Stat();
            String data = new String(client.getData().storingStatIn(stat).forPath(node), StandardCharsets.UTF_8);
            return "{\"value\": " + CuratorWorker.quoted(data) + ", \"version\": " + stat.getVersion() + "}";
        }
        int version = Integer.parseInt(members.get("version"));
        client.setData().withVersion(version).forPath(node, value.getBytes(StandardCharsets.UTF_8));
        return "{}";
    }

    private long acquire() throws Exception {
        long asked = System.nanoTime();
        while (true) {
            lost = false;
            try {
                mutex.acquire();
                break;
            } catch (Exception e) {
                if (System.nanoTime() - asked > PATIENCE_NANOS) {
                    throw e;
                }
                Thread.sleep(AGAIN_MILLIS);
            }
        }
        long now = System.nanoTime();
        granted = true;
        return now;
    }

    @Override
    public void close() {
        ended = true;
        granted = false;
        client.close();
    }
}
