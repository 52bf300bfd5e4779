import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Apache Curator as a contender: reads one JSON object a line on stdin, answers one a line on stdout.
 * {@code {"run": JOB}} is a round, {@code {"quit": true}} the end, and so is the end of stdin.
 */
public final class CuratorWorker {
    /** A member of an object that is neither an object nor an array: what is in a job, whose names are distinct. */
    private static final Pattern MEMBER =
            Pattern.compile("\"(\\w+)\"\\s*:\\s*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|(-?[0-9]+|true|false|null))");

    /** Contenders that differ in nothing but their lock objects take turns in one process. */
    private static final int MOST_PLACES = 2;

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
            return new Round(job, place(job)).run();
        } catch (UnsupportedOperationException e) {
            return "{\"error\": " + quoted("unsupported: " + e.getMessage()) + "}";
        } catch (Exception e) {
            return "{\"error\": " + quoted(e.toString()) + "}";
        }
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

    private static Map<String, String> members(String line) {
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

    private static String quoted(String text) {
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
