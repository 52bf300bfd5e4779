import java.util.Collection;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;

/** Curator's participants of elections, by their ids, for the scripted peer. */
final class Leaders {
    private static final long SECONDS = 60;
    private static final Map<String, LeaderLatch> latches = new ConcurrentHashMap<>();
    private static final Map<String, Selector> selectors = new ConcurrentHashMap<>();

    private Leaders() {}

    /** A selector that leads until it is told to end. */
    private static final class Selector extends LeaderSelectorListenerAdapter {
        private final Semaphore leads = new Semaphore(0);
        private final Semaphore ends = new Semaphore(0);
        private LeaderSelector selector;

        @Override
        public void takeLeadership(CuratorFramework client) throws Exception {
            leads.release();
            ends.acquire();
        }
    }

    /** {@code start latch|selector <path> <id>}, and else {@code <verb> <id>}. */
    static String obey(CuratorFramework client, String[] order) throws Exception {
        if (order[0].equals("start")) {
            start(client, order[1], order[2], order[3]);
            return "started";
        }
        LeaderLatch latch = latches.get(order[1]);
        Selector selector = selectors.get(order[1]);
        switch (order[0]) {
            case "await":
                boolean leads = latch != null
                        ? latch.await(SECONDS, TimeUnit.SECONDS)
                        : selector.leads.tryAcquire(SECONDS, TimeUnit.SECONDS);
                return leads ? "leads" : "does not lead";
            case "has":
                boolean has = latch != null ? latch.hasLeadership() : selector.selector.hasLeadership();
                return has ? "leads" : "follows";
            case "leader":
                return (latch != null ? latch.getLeader() : selector.selector.getLeader()).getId();
            case "participants":
                return shown(latch != null ? latch.getParticipants() : selector.selector.getParticipants());
            case "close":
                if (latch != null) {
                    latch.close();
                } else {
                    selector.ends.release();
                    selector.selector.close();
                }
                return "closed";
            default:
                throw new IllegalArgumentException(order[0]);
        }
    }

    private static void start(CuratorFramework client, String kind, String path, String id) throws Exception {
        if (kind.equals("latch")) {
            LeaderLatch latch = new LeaderLatch(client, path, id);
            latches.put(id, latch);
            latch.start();
        } else {
            Selector selector = new Selector();
            selector.selector = new LeaderSelector(client, path, selector);
            selector.selector.setId(id);
            selectors.put(id, selector);
            selector.selector.start();
        }
    }

    private static String shown(Collection<Participant> participants) {
        return participants.stream()
                .map(participant -> participant.getId() + (participant.isLeader() ? "*" : ""))
                .collect(Collectors.joining(" "));
    }
}
