package weir.feed;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Keeps whatever goes wrong in the plug-in away from the broker's threads. */
public final class Guard {

    private static final Logger LOG = LoggerFactory.getLogger(Guard.class);
    private static final long QUIET_NS = TimeUnit.MINUTES.toNanos(1);

    private final AtomicLong quietUntilNs = new AtomicLong(System.nanoTime());
    private final AtomicLong failures = new AtomicLong();

    /** Runs it; a failure is logged, at most once a minute. */
    public void run(Runnable work) {
        try {
            work.run();
        } catch (Throwable error) {
            failed(error);
        }
    }

    private void failed(Throwable error) {
        try {
            long count = failures.incrementAndGet();
            long until = quietUntilNs.get();
            long now = System.nanoTime();
            if (now - until >= 0 && quietUntilNs.compareAndSet(until, now + QUIET_NS)) {
                LOG.error("Weir: internal error, {} since the start; the broker goes on", count, error);
            }
        } catch (Throwable hopeless) {
            // nothing is left to try
        }
    }
}
