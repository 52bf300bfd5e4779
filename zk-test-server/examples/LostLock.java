// A process holds a lock of Curator, and its network fails. Another process is granted the lock
// while the first one still believes that it holds the lock. The arguments are the addresses in
// the first line of zk-test-server: "connect" and "admin".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;

public final class LostLock {
    static Socket admin;
    static BufferedReader replies;

    /** Has the server do something; returns its reply. */
    static String does(String command) throws Exception {
        admin.getOutputStream().write((command + "\n").getBytes(StandardCharsets.UTF_8));
        String reply = replies.readLine();
        check(reply.contains("\"ok\":true"), reply);
        return reply;
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            System.err.println("not so: " + what);
            System.exit(1);
        }
    }

    static CuratorFramework connect(String address) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, new RetryOneTime(100));
        client.start();
        return client;
    }

    public static void main(String[] args) throws Exception {
        String[] parts = args[1].split(":");
        admin = new Socket(parts[0], Integer.parseInt(parts[1]));
        replies = new BufferedReader(new InputStreamReader(admin.getInputStream(), StandardCharsets.UTF_8));

        CuratorFramework holder = connect(args[0]);
        CountDownLatch lost = new CountDownLatch(1);
        holder.getConnectionStateListenable().addListener((client, state) -> {
            if (state == ConnectionState.LOST) {
                lost.countDown();
            }
        });
        InterProcessMutex lock = new InterProcessMutex(holder, "/lock");
        lock.acquire();
        long session = holder.getZookeeperClient().getZooKeeper().getSessionId();

        // No byte passes in either direction, and the session's timeout passes at once.
        does("{\"do\":\"stall\",\"direction\":\"both\",\"session\":" + session + "}");
        does("{\"do\":\"advance_clock\",\"by_ms\":120000}");
        does("{\"do\":\"wait_until\",\"timeout_ms\":10000,\"ended\":" + session + "}");

        // Another process holds the lock now, and the first one does not know.
        CuratorFramework other = connect(args[0]);
        InterProcessMutex others = new InterProcessMutex(other, "/lock");
        check(others.acquire(10, TimeUnit.SECONDS), "the other gets the lock");
        check(lock.isAcquiredInThisProcess() && lost.getCount() == 1, "the holder does not know");

        // The network is back, and the holder learns of its loss.
        does("{\"do\":\"resume\",\"session\":" + session + "}");
        check(lost.await(60, TimeUnit.SECONDS), "the holder learns of its loss");
        others.release();
        System.exit(0);
    }
}
