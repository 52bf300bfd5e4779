import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;

/** Curator's semaphores, for the workers and for the scripted peer. */
final class Semaphores {
    /** The node of a limit that changes, below the semaphore's path. */
    private static final String LIMIT = "/permits";

    private static SharedCount limit;
    private static InterProcessSemaphoreV2 shared;

    private Semaphores() {}

    /** A worker's semaphore: "semaphore-mutex", "permits-<limit>" or "live-permits-<limit>". */
    static synchronized Workers.Lock lock(
            CuratorFramework client, String path, String process, String recipe, char role) throws Exception {
        if (recipe.equals("semaphore-mutex")) {
            return role == 'x' ? new Mutex(client, path) : new One(client, path);
        }
        int permits = Integer.parseInt(recipe.substring(recipe.lastIndexOf('-') + 1));
        if (recipe.startsWith("live-")) {
            if (shared == null) {
                limit = new SharedCount(client, path + LIMIT, permits);
                limit.start();
                shared = new InterProcessSemaphoreV2(client, path, new Told(limit, process));
                Workers.note("sees", process, Integer.toString(limit.getCount()));
            }
            return new Permits(shared, path, role);
        }
        return new Permits(new InterProcessSemaphoreV2(client, path, permits), path, role);
    }

    static void setLimit(int permits) throws Exception {
        limit.setCount(permits);
    }

    /** Writes down which limit the semaphore goes by, once it does. */
    private static final class Told implements SharedCountReader {
        private final SharedCount count;
        private final String process;

        Told(SharedCount count, String process) {
            this.count = count;
            this.process = process;
        }

        @Override
        public int getCount() {
            return count.getCount();
        }

        @Override
        public VersionedValue<Integer> getVersionedValue() {
            return count.getVersionedValue();
        }

        private SharedCountListener telling(SharedCountListener listener) {
            return new SharedCountListener() {
                @Override
                public void countHasChanged(SharedCountReader reader, int now) throws Exception {
                    listener.countHasChanged(reader, now);
                    Workers.note("sees", process, Integer.toString(now));
                }

                @Override
                public void stateChanged(CuratorFramework client, ConnectionState state) {
                    listener.stateChanged(client, state);
                }
            };
        }

        @Override
        public void addListener(SharedCountListener listener) {
            count.addListener(telling(listener));
        }

        @Override
        public void addListener(SharedCountListener listener, Executor executor) {
            count.addListener(telling(listener), executor);
        }

        @Override
        public void removeListener(SharedCountListener listener) {
            throw new UnsupportedOperationException();
        }
    }

    private static final class Mutex extends InterProcessSemaphoreMutex implements Workers.Lock {
        private final String path;

        Mutex(CuratorFramework client, String path) {
            super(client, path);
            this.path = path;
        }

        @Override
        public boolean acquire(long millis) throws Exception {
            return acquire(millis, TimeUnit.MILLISECONDS);
        }

        @Override
        public List<String> nodes() throws Exception {
            // It tells no one which node it has.
            Field lease = InterProcessSemaphoreMutex.class.getDeclaredField("lease");
            lease.setAccessible(true);
            return Semaphores.nodes(path, Collections.singletonList((Lease) lease.get(this)));
        }

        @Override
        public String mode() {
            return "x";
        }

        @Override
        public boolean hasToken() {
            return false;
        }
    }

    /** As many permits at once as the role, a digit, says. */
    private static class Permits implements Workers.Lock {
        private final InterProcessSemaphoreV2 semaphore;
        private final String path;
        private final int quantity;
        private Collection<Lease> leases;

        Permits(InterProcessSemaphoreV2 semaphore, String path, char role) {
            this.semaphore = semaphore;
            this.path = path;
            this.quantity = Character.digit(role, 10);
        }

        @Override
        public boolean acquire(long millis) throws Exception {
            leases = semaphore.acquire(quantity, millis, TimeUnit.MILLISECONDS);
            return leases != null;
        }

        @Override
        public void release() {
            semaphore.returnAll(leases);
        }

        @Override
        public List<String> nodes() {
            return Semaphores.nodes(path, leases);
        }

        @Override
        public String mode() {
            return Integer.toString(quantity);
        }

        @Override
        public boolean hasToken() {
            return false;
        }
    }

    /** The only permit of a semaphore that has one. */
    private static final class One extends Permits {
        One(CuratorFramework client, String path) {
            super(new InterProcessSemaphoreV2(client, path, 1), path, '1');
        }

        @Override
        public String mode() {
            return "x";
        }
    }

    private static List<String> nodes(String path, Collection<Lease> leases) {
        List<String> nodes = new ArrayList<>();
        for (Lease lease : leases) {
            nodes.add(path + "/leases/" + lease.getNodeName());
        }
        return nodes;
    }

    private static final Map<String, InterProcessSemaphoreV2> semaphores = new ConcurrentHashMap<>();
    private static final Map<String, Collection<Lease>> held = new ConcurrentHashMap<>();
    private static final Map<String, SharedCount> limits = new ConcurrentHashMap<>();

    /** For the scripted peer: "acquire|try PATH LIMIT|live QUANTITY", "release PATH", "limit PATH LIMIT". */
    static String obey(CuratorFramework client, String thread, String[] order) throws Exception {
        String path = order[1];
        String key = thread + " " + path;
        switch (order[0]) {
            case "acquire":
            case "try": {
                InterProcessSemaphoreV2 semaphore = semaphore(client, key, path, order[2]);
                int quantity = Integer.parseInt(order[3]);
                Collection<Lease> leases = order[0].equals("try")
                        ? semaphore.acquire(quantity, 0, TimeUnit.SECONDS)
                        : semaphore.acquire(quantity);
                if (leases == null) {
                    return "may not";
                }
                held.put(key, leases);
                return "holds";
            }
            case "release":
                semaphores.get(key).returnAll(held.remove(key));
                return "released";
            case "limit":
                // Makes the node if there is none, as each of its users does.
                limit(client, path, Integer.parseInt(order[2])).setCount(Integer.parseInt(order[2]));
                return "set";
            default:
                throw new IllegalArgumentException(order[0]);
        }
    }

    private static synchronized InterProcessSemaphoreV2 semaphore(
            CuratorFramework client, String key, String path, String permits) throws Exception {
        if (!semaphores.containsKey(key)) {
            semaphores.put(key, permits.equals("live")
                    ? new InterProcessSemaphoreV2(client, path, limit(client, path, 1))
                    : new InterProcessSemaphoreV2(client, path, Integer.parseInt(permits)));
        }
        return semaphores.get(key);
    }

    private static synchronized SharedCount limit(CuratorFramework client, String path, int seed) throws Exception {
        if (!limits.containsKey(path)) {
            SharedCount count = new SharedCount(client, path + LIMIT, seed);
            count.start();
            limits.put(path, count);
        }
        return limits.get(path);
    }
}
