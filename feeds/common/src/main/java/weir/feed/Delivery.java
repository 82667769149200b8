package weir.feed;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The one thread that takes events from the buffer to the sink, and tries again while it fails. */
public final class Delivery implements Runnable {

    private static final Logger LOG = LoggerFactory.getLogger(Delivery.class);
    private static final int BATCH = 4_096;
    private static final long IDLE_MS = 5;
    private static final long FIRST_PAUSE_MS = 100;
    private static final long LONGEST_PAUSE_MS = 5_000;

    private final EventBuffer buffer;
    private final Encoder encoder;
    private final Sink sink;
    private final RunMarker marker;
    private final Thread thread;
    private volatile boolean closing;
    private volatile long deadlineNs;
    private volatile long deliveredMs = System.currentTimeMillis();

    /** `marker` is null where nothing remembers that a run was killed. */
    public Delivery(EventBuffer buffer, Encoder encoder, Sink sink, RunMarker marker) {
        this.buffer = buffer;
        this.encoder = encoder;
        this.sink = sink;
        this.marker = marker;
        this.thread = new Thread(this, "weir-delivery");
        thread.setDaemon(true);
        thread.setContextClassLoader(Delivery.class.getClassLoader());
    }

    public void start() {
        thread.start();
    }

    /** Delivers what waits, for at most so long, and closes the sink. */
    public void close(long patienceMs) {
        buffer.close();
        deadlineNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
        closing = true;
        try {
            thread.join(patienceMs);
            thread.interrupt();
            thread.join(patienceMs);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** The time of the last event that was delivered; without any, that of the start. */
    public long deliveredMs() {
        return deliveredMs;
    }

    @Override
    public void run() {
        boolean whole = false;
        try {
            whole = deliverAll();
        } catch (InterruptedException stopped) {
            LOG.warn("Weir: time was up before all events were delivered");
        } catch (Throwable internal) {
            LOG.error("Weir: internal error, no event is delivered any more", internal);
            buffer.close();
        }
        finish(whole);
    }

    /** Delivers until the plug-in is closed; false if time was up before. */
    private boolean deliverAll() throws InterruptedException {
        while (true) {
            boolean last = closing;
            List<Stamped> taken = buffer.take();
            if (!deliver(taken)) {
                return false;
            }
            if (last) {
                return true;
            }
            if (taken.isEmpty()) {
                idle();
                Thread.sleep(IDLE_MS);
            }
        }
    }

    private boolean deliver(List<Stamped> taken) throws InterruptedException {
        for (int from = 0; from < taken.size(); from += BATCH) {
            List<Stamped> batch = taken.subList(from, Math.min(from + BATCH, taken.size()));
            if (!write(encoded(batch))) {
                return false;
            }
            buffer.delivered(batch);
            deliveredMs = batch.get(batch.size() - 1).wallMs();
        }
        return true;
    }

    private List<Encoded> encoded(List<Stamped> batch) {
        List<Encoded> records = new ArrayList<>(batch.size());
        for (Stamped stamped : batch) {
            try {
                records.add(new Encoded(stamped, encoder.encode(stamped)));
            } catch (IOException | RuntimeException error) {
                LOG.error("Weir: an event of kind {} is lost", stamped.event().kind(), error);
                buffer.lost(stamped, 1);
            }
        }
        return records;
    }

    /** False if the sink did not take the records until time was up. */
    private boolean write(List<Encoded> records) throws InterruptedException {
        long pause = FIRST_PAUSE_MS;
        boolean failing = false;
        while (true) {
            try {
                sink.write(records);
                touch();
                if (failing) {
                    LOG.info("Weir: the sink takes records again");
                }
                return true;
            } catch (Sink.Vanished vanished) {
                lose(vanished);
            } catch (IOException | RuntimeException error) {
                if (!failing) {
                    LOG.warn("Weir: the sink fails, and is tried again", error);
                }
                failing = true;
                if (closing && System.nanoTime() - deadlineNs > 0) {
                    return false;
                }
                Thread.sleep(pause);
                pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
            }
        }
    }

    private void idle() {
        try {
            sink.idle();
            touch();
        } catch (Sink.Vanished vanished) {
            lose(vanished);
        } catch (IOException | RuntimeException error) {
            LOG.debug("Weir: the sink fails", error); // the next write says so aloud
        }
    }

    /** Not a failure of the sink, which would get the same records again. */
    private void touch() {
        try {
            if (marker != null) {
                marker.touch(System.currentTimeMillis());
            }
        } catch (IOException | RuntimeException error) {
            LOG.debug("Weir: the time of the last delivery is not kept", error);
        }
    }

    private void lose(Sink.Vanished vanished) {
        LOG.warn("Weir: {} events are lost: {}", vanished.count(), vanished.getMessage());
        buffer.lost(vanished.first(), vanished.count());
    }

    private void finish(boolean whole) {
        try {
            sink.close();
            if (whole && marker != null) {
                marker.remove();
            }
        } catch (IOException | RuntimeException error) {
            LOG.warn("Weir: the sink does not close", error);
        }
    }
}
