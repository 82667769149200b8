package weir.kafka;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import weir.feed.Delivery;
import weir.feed.Encoder;
import weir.feed.Event;
import weir.feed.EventBuffer;
import weir.feed.FileSink;
import weir.feed.Guard;
import weir.feed.KafkaSink;
import weir.feed.RunMarker;
import weir.feed.Sink;

/** Reads the sensors once in an interval, and puts what they show into the buffer. */
final class Sampling implements Runnable {

    static final String FEED = "kafka_reporter";
    private static final Logger LOG = LoggerFactory.getLogger(Sampling.class);
    /** Numbers of a later run are above those of an earlier one, up to a million events per ms. */
    private static final int SEQ_PER_MS_BITS = 20;
    /** A reporter that begins later than this after its JVM was added to a running broker. */
    private static final long START_MS = TimeUnit.MINUTES.toMillis(5);
    private static final long LEFT_OUT_QUIET_NS = TimeUnit.MINUTES.toNanos(1);
    /** The last record of this JVM that was delivered; 0 before the first sampling has ended. */
    private static final AtomicLong DELIVERED_MS = new AtomicLong();

    private final Series series;
    private final Settings settings;
    private final EventBuffer buffer;
    private final Delivery delivery;
    private final Guard guard = new Guard();
    private final Thread thread = new Thread(this, "weir-sampling");
    private int saidLeftOut;
    private long quietUntilNs = System.nanoTime();
    private volatile boolean closed;

    Sampling(Series series, Settings settings, String cluster, String broker) {
        this.series = series;
        this.settings = settings;
        buffer = new EventBuffer(
                settings.bufferRecords(), (long) Event.WEIGHT * settings.bufferRecords(),
                System.currentTimeMillis() << SEQ_PER_MS_BITS, System::nanoTime,
                System::currentTimeMillis);
        boolean toFiles = settings.sink().equals(Settings.FILES);
        RunMarker marker = toFiles ? new RunMarker(settings.directory(), broker) : null;
        begin(marker);
        Sink sink = toFiles
                ? new FileSink(settings.directory(), settings.rotation(), broker)
                : new KafkaSink(settings.topic(), settings.kafka(), broker);
        delivery = new Delivery(buffer, new Encoder(FEED, cluster, broker), sink, marker);
        thread.setDaemon(true);
    }

    /** Says that the broker started, or from when on records are missing. */
    private void begin(RunMarker marker) {
        long deliveredMs = DELIVERED_MS.get();
        if (deliveredMs == 0) {
            if (ManagementFactory.getRuntimeMXBean().getUptime() < START_MS) {
                buffer.offer(new Event.BrokerStarted(version()));
            }
            Long killedMs = marker == null ? null : marker.killedMs();
            if (killedMs != null) {
                buffer.offer(new Event.Gap(null, killedMs, null));
            }
        } else if (System.currentTimeMillis() - deliveredMs > 2 * settings.intervalMs()) {
            buffer.offer(new Event.Gap(null, deliveredMs, null));
        }
    }

    /** The version that this reporter was built as. */
    static String version() {
        try (var in = Sampling.class.getResourceAsStream("version.txt")) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8).trim();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    void start() {
        delivery.start();
        thread.start();
    }

    /** Delivers what waits, for at most twice so long. */
    void close(long patienceMs) {
        closed = true;
        thread.interrupt();
        delivery.close(patienceMs);
        DELIVERED_MS.set(delivery.deliveredMs());
    }

    @Override
    public void run() {
        try {
            while (!closed) {
                Thread.sleep(untilNext(System.currentTimeMillis(), settings.intervalMs()));
                guard.run(this::sample);
            }
        } catch (InterruptedException stopped) {
            // closed
        }
    }

    /** The time to the next multiple of the interval; one that is too near was just read. */
    static long untilNext(long nowMs, long intervalMs) {
        long left = intervalMs - nowMs % intervalMs;
        return left < intervalMs / 10 ? left + intervalMs : left;
    }

    private void sample() {
        long nowMs = System.currentTimeMillis();
        Series.Reading reading = series.read();
        for (ClientRate rate : reading.rates()) {
            buffer.offer(rate, nowMs);
        }
        sayLeftOut(reading.leftOut());
    }

    private void sayLeftOut(int count) {
        long now = System.nanoTime();
        if (count != saidLeftOut && now - quietUntilNs >= 0) {
            LOG.warn("Weir: {} sensors are left out: weir.max.series is {}",
                    count, settings.maxSeries());
            saidLeftOut = count;
            quietUntilNs = now + LEFT_OUT_QUIET_NS;
        }
    }
}
