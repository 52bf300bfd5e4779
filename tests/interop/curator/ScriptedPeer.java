import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.retry.RetryNTimes;

/**
 * Curator's locks, moved by the lines of stdin: {@code <thread> <verb> ..}. Each thread has lock objects of its own, does
 * one thing after the other and says {@code <thread> <answer>}. scripted_peer.rs has the other end.
 */
public final class ScriptedPeer {
    private static CuratorFramework client;
    private static final Map<String, InterProcessMutex> mutexes = new ConcurrentHashMap<>();
    private static final Map<String, InterProcessReadWriteLock> readWriteLocks = new ConcurrentHashMap<>();

    private static final Map<String, GroupMember> members = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        client = CuratorFrameworkFactory.newClient(args[0], 30_000, 15_000, new RetryNTimes(10, 100));
        client.start();
        Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ");
                String thread = words[0];
                String[] order = Arrays.copyOfRange(words, 1, words.length);
                threads.computeIfAbsent(thread, t -> Executors.newSingleThreadExecutor()).execute(() -> {
                    try {
                        say(thread, obey(thread, order));
                    } catch (Exception e) {
                        say(thread, "failed: " + e);
                    }
                });
            }
        }
        // The end of stdin is the end of the test.
        System.exit(0);
    }

    private static synchronized void say(String who, String what) {
        System.out.println(who + " " + what);
        System.out.flush();
    }

    private static InterProcessMutex lock(String thread, String kind, String path) {
        String key = thread + " " + path;
        if (kind.equals("mutex")) {
            return mutexes.computeIfAbsent(key, k -> new InterProcessMutex(client, path));
        }
        InterProcessReadWriteLock lock =
                readWriteLocks.computeIfAbsent(key, k -> new InterProcessReadWriteLock(client, path));
        return kind.equals("write") ? lock.writeLock() : lock.readLock();
    }

    private static String member(String thread, String[] order) throws Exception {
        switch (order[1]) {
            case "join":
                GroupMember joining = new GroupMember(client, order[2], order[3], order[4].getBytes("UTF-8"));
                members.put(thread, joining);
                joining.start();
                return "joins";
            case "set":
                members.get(thread).setThisData(order[2].getBytes("UTF-8"));
                return "sets";
            case "list":
                StringBuilder list = new StringBuilder("sees");
                for (Map.Entry<String, byte[]> one : new TreeMap<>(members.get(thread).getCurrentMembers()).entrySet()) {
                    list.append(' ').append(one.getKey()).append('=').append(new String(one.getValue(), "UTF-8"));
                }
                return list.toString();
            case "leave":
                members.remove(thread).close();
                return "left";
            default:
                throw new IllegalArgumentException(order[1]);
        }
    }

    private static String obey(String thread, String[] order) throws Exception {
        if (order[0].equals("session")) {
            client.blockUntilConnected();
            return "0x" + Long.toHexString(client.getZookeeperClient().getZooKeeper().getSessionId());
        }
        if (order[0].equals("revoke")) {
            Revoker.attemptRevoke(client, order[1]);
            return "asked";
        }
        if (order[0].equals("semaphore")) {
            return Semaphores.obey(client, thread, Arrays.copyOfRange(order, 1, order.length));
        }
        if (order[0].equals("leader")) {
            return Leaders.obey(client, Arrays.copyOfRange(order, 1, order.length));
        }
        if (order[0].equals("member")) {
            return member(thread, order);
        }
        InterProcessMutex lock = lock(thread, order[1], order[2]);
        switch (order[0]) {
            case "acquire":
                lock.acquire();
                return "holds";
            case "try":
                return lock.acquire(0, TimeUnit.SECONDS) ? "holds" : "may not";
            case "holds":
                return lock.isOwnedByCurrentThread() ? "holds" : "does not";
            case "release":
                lock.release();
                return "released";
            case "listen":
                // Must come before acquire. On the session's event thread, as by default.
                lock.makeRevocable(revoked -> say(thread + "-listener", "asked back"));
                return "listens";
            default:
                throw new IllegalArgumentException(order[0]);
        }
    }
}
