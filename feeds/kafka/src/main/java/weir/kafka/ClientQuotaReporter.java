package weir.kafka;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsContext;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import weir.feed.Guard;

/**
 * What `metric.reporters` names: use, limit and throttle time of every client, each second.
 *
 * <p>Kafka calls `configure`, `contextChange` and `init`, in this order, then `metricChange` and
 * `metricRemoval` on whichever thread makes or expires a sensor. None of them waits for the sink.
 */
public final class ClientQuotaReporter implements MetricsReporter {

    private static final Logger LOG = LoggerFactory.getLogger(ClientQuotaReporter.class);
    private static final long PATIENCE_MS = 500;

    private final Series series = new Series();
    private final Guard guard = new Guard();
    /** Begins and ends the sampling, one after the other. */
    private final ExecutorService turns = Executors.newSingleThreadExecutor(work -> {
        Thread thread = new Thread(work, "weir-turns");
        thread.setDaemon(true);
        return thread;
    });
    private volatile Settings settings;
    private volatile Map<String, String> labels = Map.of();
    private Sampling sampling;

    @Override
    public void configure(Map<String, ?> configs) {
        settings = Settings.of(configs);
        series.choose(settings);
    }

    @Override
    public void contextChange(MetricsContext context) {
        labels = Map.copyOf(context.contextLabels());
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
        metrics.forEach(this::metricChange);
        turns.execute(() -> guard.run(this::begin));
    }

    @Override
    public void metricChange(KafkaMetric metric) {
        guard.run(() -> series.add(metric));
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
        guard.run(() -> series.remove(metric));
    }

    @Override
    public Set<String> reconfigurableConfigs() {
        return Settings.reconfigurable();
    }

    @Override
    public void validateReconfiguration(Map<String, ?> configs) {
        Settings.of(configs);
    }

    @Override
    public void reconfigure(Map<String, ?> configs) {
        Settings changed = Settings.of(configs);
        turns.execute(() -> guard.run(() -> {
            end();
            settings = changed;
            series.choose(changed);
            begin();
        }));
    }

    /** Waits until the records are delivered, for a second at most. */
    @Override
    public void close() {
        turns.execute(() -> guard.run(this::end));
        turns.shutdown();
        try {
            turns.awaitTermination(2 * PATIENCE_MS, TimeUnit.MILLISECONDS);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private void begin() {
        String cluster = label(settings.cluster(), "kafka.cluster.id", "kafka");
        String broker = label(settings.broker(), "kafka.node.id", labels.get("kafka.broker.id"));
        sampling = new Sampling(series, settings, cluster, broker);
        sampling.start();
        LOG.info("Weir: rates of clients of broker {} go to {}", broker, settings.sink());
    }

    private String label(String configured, String name, String otherwise) {
        return configured != null ? configured : labels.getOrDefault(name, otherwise);
    }

    private void end() {
        if (sampling != null) {
            sampling.close(PATIENCE_MS);
            sampling = null;
        }
    }
}
