import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

/** Curator's mutex at a path, moved by the lines of stdin: {@code acquire <ms>}, {@code release}. */
public final class Turns {
    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryNTimes(10, 100));
        client.start();
        InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("release")) {
                mutex.release();
                System.out.println("released");
            } else {
                long wait = Long.parseLong(line.split(" ")[1]);
                System.out.println(mutex.acquire(wait, TimeUnit.MILLISECONDS) ? "held" : "busy");
            }
        }
        // The end of stdin is the end of the test.
        System.exit(0);
    }
}
