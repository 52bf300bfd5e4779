import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** The sessions and the lock objects below one node, which outlast a round. */
final class Place implements AutoCloseable {
    /** The locks of one object: what excludes all, and what excludes writers only. */
    static final class Locks {
        final InterProcessLock write;
        final InterProcessLock read;

        Locks(InterProcessLock write, InterProcessLock read) {
            this.write = write;
            this.read = read;
        }
    }

    /** Excludes nobody. */
    private static final class NoLock implements InterProcessLock {
        @Override
        public void acquire() {}

        @Override
        public boolean acquire(long time, TimeUnit unit) {
            return true;
        }

        @Override
        public void release() {}

        @Override
        public boolean isAcquiredInThisProcess() {
            return true;
        }
    }

    private final String servers;
    private final String root;
    private final CuratorFramework[] clients;
    private final Map<String, Locks> locks = new HashMap<>();

    Place(Job job) throws InterruptedException {
        servers = job.servers;
        root = job.root;
        clients = new CuratorFramework[job.sessions];
        for (int i = 0; i < clients.length; i++) {
            clients[i] = CuratorFrameworkFactory.builder()
                    .connectString(servers)
                    .sessionTimeoutMs(30_000)
                    .connectionTimeoutMs(15_000)
                    .retryPolicy(new ExponentialBackoffRetry(100, 3))
                    .build();
            clients[i].start();
        }
        for (CuratorFramework client : clients) {
            if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
                close();
                throw new IllegalStateException("no connection to " + servers + " within 30 s");
            }
        }
    }

    boolean isOf(Job job) {
        return servers.equals(job.servers) && root.equals(job.root) && clients.length == job.sessions;
    }

    /** The lock that a task uses: its own object, or the one that all tasks of its session share. */
    Locks locks(Job job, int session, int task) {
        int path = path(job, session, task);
        String kind = job.readWrite ? "read-write" : job.noLock ? "none" : "mutex";
        String owner = job.sharedObjects ? "all" : "task " + task;
        String name = String.format("%s/lock-%d", root, path);
        return locks.computeIfAbsent(kind + " " + session + " " + owner + " " + path, key -> {
            if (job.readWrite) {
                InterProcessReadWriteLock lock = new InterProcessReadWriteLock(clients[session], name);
                return new Locks(lock.writeLock(), lock.readLock());
            }
            InterProcessLock lock = job.noLock ? new NoLock() : new InterProcessMutex(clients[session], name);
            return new Locks(lock, lock);
        });
    }

    /** Task {@code i} of all uses path {@code i % paths}. */
    static int path(Job job, int session, int task) {
        return (int) (((long) session * job.tasks + task) % job.paths);
    }

    @Override
    public void close() {
        for (CuratorFramework client : clients) {
            client.close();
        }
    }
}
