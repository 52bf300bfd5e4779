import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.curator.framework.recipes.locks.InterProcessLock;

/** A round: every task, a thread each, asks for its lock again and again until the time is up. */
final class Round {
    /**
     * How much longer than the round a task waits for the lock for which it has asked in time: a crowd behind
     * one lock object needs minutes to drain, and the rate is known long before. Where the number of cycles
     * is given instead, all are waited for.
     */
    private static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(2);

    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(240);

    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final Job job;
    private final long nanos;
    private final List<Task> tasks = new ArrayList<>();
    private final Counters counters;

    Round(Job job, Place place, long nanos) throws IOException {
        this.job = job;
        this.nanos = nanos;
        this.counters = new Counters(job);
        for (int session = 0; session < job.sessions; session++) {
            for (int task = 0; task < job.tasks; task++) {
                tasks.add(new Task(
                        place.locks(job, session, task), Place.path(job, session, task), session * job.tasks + task));
            }
        }
    }

    /** Returns the answer. */
    String run() throws Exception {
        try (counters) {
            CountDownLatch ready = new CountDownLatch(tasks.size());
            CountDownLatch go = new CountDownLatch(1);
            for (Task task : tasks) {
                task.ready = ready;
                task.go = go;
                task.start();
            }
            ready.await();
            long cpu = SYSTEM.getProcessCpuTime();
            long start = System.nanoTime();
            for (Task task : tasks) {
                task.until = start + nanos;
            }
            go.countDown();
            long end = start;
            for (Task task : tasks) {
                task.join();
                end = Math.max(end, task.end);
            }
            cpu = SYSTEM.getProcessCpuTime() - cpu;
            for (Task task : tasks) {
                if (task.failed != null) {
                    throw task.failed;
                }
            }
            return answer(end - start, cpu);
        }
    }

    private String answer(long elapsed, long cpu) {
        int cycles = 0;
        long exclusive = 0;
        long disturbed = 0;
        for (Task task : tasks) {
            cycles += task.cycles;
            exclusive += task.exclusive;
            disturbed += task.disturbed;
        }
        long[] latencies = new long[cycles];
        int filled = 0;
        for (Task task : tasks) {
            System.arraycopy(task.latencies, 0, latencies, filled, task.cycles);
            filled += task.cycles;
        }
        Arrays.sort(latencies);
        return String.format(
                Locale.ROOT,
                "{\"cycles\": %d, \"exclusive_cycles\": %d, \"elapsed_micros\": %d, \"cpu_micros\": %d, \"latency_micros\": "
                        + "{\"p50\": %s, \"p90\": %s, \"p99\": %s, \"p999\": %s, \"max\": %s}, \"lost_updates\": %d}",
                cycles, exclusive, elapsed / 1000, cpu / 1000, at(latencies, 0.5), at(latencies, 0.9),
                at(latencies, 0.99), at(latencies, 0.999), at(latencies, 1), counters.lost(exclusive) + disturbed);
    }

    /** The quantile in microseconds. */
    private static String at(long[] sorted, double quantile) {
        int index = Math.max((int) Math.ceil(quantile * sorted.length) - 1, 0);
        return String.format(Locale.ROOT, "%.3f", sorted.length == 0 ? 0 : sorted[index] / 1000.0);
    }

    private final class Task extends Thread {
        private final Place.Locks locks;
        private final int path;
        private long random;
        private long[] latencies = new long[1024];

        CountDownLatch ready;
        CountDownLatch go;
        volatile long until;
        int cycles;
        long exclusive;
        /** Reads during which a writer counted. */
        long disturbed;
        long end;
        Exception failed;

        Task(Place.Locks locks, int path, int number) {
            this.locks = locks;
            this.path = path;
            this.random = 0x9e3779b97f4a7c15L * (number + 1);
        }

        @Override
        public void run() {
            try {
                ready.countDown();
                go.await();
                long asked = System.nanoTime();
                long patience = until + (job.mostCycles > 0 ? PATIENCE_NANOS : GRACE_NANOS);
                while (cycles == 0 || asked - until < 0 && (job.mostCycles == 0 || cycles < job.mostCycles)) {
                    boolean reads = chance() < job.readPercent;
                    InterProcessLock lock = reads ? locks.read : locks.write;
                    if (!lock.acquire(patience - asked, TimeUnit.NANOSECONDS)) {
                        break;
                    }
                    long granted = System.nanoTime();
                    try {
                        long value = counters.read(path);
                        if (job.holdNanos > 0) {
                            TimeUnit.NANOSECONDS.sleep(job.holdNanos);
                        }
                        if (!reads) {
                            counters.write(path, value);
                            exclusive++;
                        } else if (counters.read(path) != value) {
                            disturbed++;
                        }
                    } finally {
                        lock.release();
                    }
                    end = System.nanoTime();
                    if (cycles == latencies.length) {
                        latencies = Arrays.copyOf(latencies, 2 * cycles);
                    }
                    latencies[cycles++] = granted - asked;
                    asked = end;
                }
            } catch (Exception e) {
                failed = e;
            }
        }

        /** From 0 to 99. */
        private int chance() {
            random ^= random << 13;
            random ^= random >>> 7;
            random ^= random << 17;
            return (int) Long.remainderUnsigned(random, 100);
        }
    }

    /** A counter for each path, whose update is not atomic as a whole: two at once lose one. */
    private static final class Counters implements AutoCloseable {
        private final AtomicLongArray own;
        private final FileChannel file;
        /** So that the computation is not optimised away. */
        private volatile long computed;

        Counters(Job job) throws IOException {
            own = new AtomicLongArray(job.paths);
            file = job.counterFile == null
                    ? null
                    : FileChannel.open(
                            Path.of(job.counterFile),
                            StandardOpenOption.READ,
                            StandardOpenOption.WRITE,
                            StandardOpenOption.CREATE);
        }

        long read(int path) throws IOException {
            if (file == null) {
                return own.get(path);
            }
            ByteBuffer buffer = ByteBuffer.allocate(8).order(ByteOrder.nativeOrder());
            while (buffer.hasRemaining() && file.read(buffer, 8L * path + buffer.position()) >= 0) {}
            return buffer.getLong(0);
        }

        void write(int path, long read) throws IOException {
            long value = next(read);
            if (file == null) {
                own.set(path, value);
            } else {
                ByteBuffer buffer = ByteBuffer.allocate(8).order(ByteOrder.nativeOrder());
                file.write(buffer.putLong(0, value), 8L * path);
            }
        }

        private long next(long value) {
            long mixed = value;
            for (int i = 0; i < 32; i++) {
                mixed = (mixed ^ (mixed >>> 27)) * 0x94d049bb133111ebL;
            }
            computed = mixed;
            return value + 1;
        }

        /** How many of so many updates are not there. Of a file only all its processes together know. */
        long lost(long updates) {
            if (file != null) {
                return 0;
            }
            long found = 0;
            for (int path = 0; path < own.length(); path++) {
                found += own.get(path);
            }
            return updates - found;
        }

        @Override
        public void close() throws IOException {
            if (file != null) {
                file.close();
            }
        }
    }
}
