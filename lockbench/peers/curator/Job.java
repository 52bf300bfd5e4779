import java.util.Map;

/** What to do in a round. */
final class Job {
    /** One thread a task: a machine with more than this many is no longer what is measured. */
    private static final int MOST_THREADS = 4096;

    final String scenario;
    final String servers;
    final String root;
    final int sessions;
    final int tasks;
    final int paths;
    final int readPercent;
    final boolean readWrite;
    /** What shows that lost updates are seen. */
    final boolean noLock;
    final boolean sharedObjects;
    final long nanos;
    /** After how many cycles a task ends although the round lasts. */
    final long mostCycles;
    /** How long a task holds the lock while it counts, so that a lock that does not exclude is found out. */
    final long holdNanos;
    /** Where the counters are that several processes share; null when they are this process's own. */
    final String counterFile;

    Job(Map<String, String> members) {
        scenario = text(members, "scenario");
        servers = text(members, "servers");
        root = text(members, "root");
        sessions = number(members, "sessions");
        tasks = number(members, "tasks");
        paths = number(members, "paths");
        nanos = Long.parseLong(text(members, "micros")) * 1000;
        mostCycles = Long.parseLong(members.getOrDefault("cycles_per_task", "0"));
        holdNanos = Long.parseLong(members.getOrDefault("hold_micros", "0")) * 1000;
        counterFile = members.get("counter_file");
        sharedObjects = members.getOrDefault("objects", "per_task").equals("shared");
        // InterProcessMutex is Curator's only exclusive lock that may be entered again, and it is fair.
        // Nothing in Curator hands over in memory, so it stands for that as well.
        String recipe = text(members, "recipe");
        readWrite = recipe.equals("read_write");
        noLock = recipe.equals("none");
        readPercent = readWrite ? Integer.parseInt(members.getOrDefault("read_percent", "0")) : 0;
        if ((long) sessions * tasks > MOST_THREADS) {
            throw new UnsupportedOperationException((long) sessions * tasks + " threads, a thread for every task");
        }
    }

    private static int number(Map<String, String> members, String name) {
        return Integer.parseInt(text(members, name));
    }

    private static String text(Map<String, String> members, String name) {
        String value = members.get(name);
        if (value == null) {
            throw new IllegalArgumentException("the job has no \"" + name + "\"");
        }
        return value;
    }
}
