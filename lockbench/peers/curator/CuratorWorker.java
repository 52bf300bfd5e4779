import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Apache Curator as a contender: reads one JSON object a line on stdin, answers one a line on stdout.
 * {@code {"run": JOB}} is a round, {@code {"quit": true}} the end, and so is the end of stdin.
 */
public final class CuratorWorker {
    /** A member that is neither an object nor an array: what is in a job, whose names are distinct. */
    private static final Pattern MEMBER =
            Pattern.compile("\"(\\w+)\"\\s*:\\s*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|(-?[0-9]+|true|false|null))");

    /** Contenders that differ in nothing but their lock objects take turns in one process. */
    private static final int MOST_PLACES = 2;

    private static final long WARM_UP_ROUND_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

    /** How long to be warm for the first scenario may take, and how long for each that follows. */
    private static final long FIRST_WARM_UP_NANOS = TimeUnit.SECONDS.toNanos(20);

    private static final long WARM_UP_NANOS = TimeUnit.SECONDS.toNanos(2);

    /** From which part of the time on the compilers take processors from what is measured. */
    private static final double COLD = 0.03;

    /** What this process is warm for. */
    private final Set<String> scenarios = new HashSet<>();

    /** Sessions and lock objects of the latest rounds, the latest last. */
    private final Deque<Place> places = new ArrayDeque<>();

    public static void main(String[] args) throws Exception {
        CuratorWorker worker = new CuratorWorker();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, String> members = members(line);
            if (members.containsKey("quit")) {
                break;
            }
            System.out.println(worker.answer(members));
            System.out.flush();
        }
        for (Place place : worker.places) {
            place.close();
        }
        // Not held up by what the client library has left running.
        System.exit(0);
    }

    private String answer(Map<String, String> members) {
        try {
            Job job = new Job(members);
            Place place = place(job);
            if (job.holdNanos == 0 && scenarios.add(job.scenario + job.sharedObjects)) {
                // Not in the counters that it shares: what these rounds add to those, nobody counts.
                Map<String, String> alone = new HashMap<>(members);
                alone.remove("counter_file");
                warm(new Job(alone), place);
            }
            return new Round(job, place, job.nanos).run();
        } catch (UnsupportedOperationException e) {
            return "{\"error\": " + quoted("unsupported: " + e.getMessage()) + "}";
        } catch (Exception e) {
            return "{\"error\": " + quoted(e.toString()) + "}";
        }
    }

    /** Runs a job, unmeasured, until the compilers have hardly anything to do, or for as long as it may. */
    private void warm(Job job, Place place) throws Exception {
        CompilationMXBean compilers = ManagementFactory.getCompilationMXBean();
        long limit = System.nanoTime() + (scenarios.size() == 1 ? FIRST_WARM_UP_NANOS : WARM_UP_NANOS);
        double share;
        do {
            long compiled = compilers.getTotalCompilationTime();
            long start = System.nanoTime();
            new Round(job, place, WARM_UP_ROUND_NANOS).run();
            share = (compilers.getTotalCompilationTime() - compiled) * 1e6 / (System.nanoTime() - start);
        } while (share > COLD && System.nanoTime() - limit < 0);
    }

    private Place place(Job job) throws InterruptedException {
        Place found = null;
        for (Place place : places) {
            found = place.isOf(job) ? place : found;
        }
        if (found == null) {
            if (places.size() == MOST_PLACES) {
                places.removeFirst().close();
            }
            found = new Place(job);
        } else {
            places.remove(found);
        }
        places.addLast(found);
        return found;
    }

    static Map<String, String> members(String line) {
        Map<String, String> members = new HashMap<>();
        for (Matcher found = MEMBER.matcher(line); found.find(); ) {
            String text = found.group(2);
            String value = text != null ? text.replaceAll("\\\\(.)", "$1") : found.group(3);
            if (!value.equals("null") || text != null) {
                members.put(found.group(1), value);
            }
        }
        return members;
    }

    static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else {
                quoted.append(c < ' ' ? ' ' : c);
            }
        }
        return quoted.append('"').toString();
    }
}
