package weir.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import java.util.zip.GZIPInputStream;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.KafkaMetricsContext;
import org.apache.kafka.common.metrics.Measurable;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The reporter in a registry of metrics as a broker has it. */
@Timeout(60)
class ReporterTest {

    @TempDir
    private Path folder;

    private final Metrics metrics = new Metrics();

    @AfterEach
    void closeMetrics() {
        metrics.close();
    }

    private static Map<String, String> configs(Path folder, String... pairs) {
        Map<String, String> configs = new HashMap<>(Map.of(
                "weir.directory", folder.toString(), "weir.file.ms", "100",
                "weir.interval.ms", "100"));
        for (int i = 0; i < pairs.length; i += 2) {
            configs.put(pairs[i], pairs[i + 1]);
        }
        return configs;
    }

    private ClientQuotaReporter reporter(Map<String, String> configs) {
        ClientQuotaReporter reporter = new ClientQuotaReporter();
        reporter.configure(configs);
        reporter.contextChange(new KafkaMetricsContext(
                "kafka.server", Map.of("kafka.cluster.id", "cid", "kafka.node.id", "3")));
        metrics.addReporter(reporter);
        return reporter;
    }

    private MetricName name(String group, String name, String... tags) {
        Map<String, String> found = new LinkedHashMap<>();
        for (int i = 0; i < tags.length; i += 2) {
            found.put(tags[i], tags[i + 1]);
        }
        return metrics.metricName(name, group, "", found);
    }

    private void sensor(double value, Double bound, MetricName name) {
        MetricConfig config = new MetricConfig();
        metrics.addMetric(
                name, bound == null ? config : config.quota(Quota.upperBound(bound)),
                (Measurable) (c, now) -> value);
    }

    private MetricName user(String group, String name, String user, String client) {
        return name(group, name, "user", user, "client-id", client);
    }

    /** The records of all files that are shown, without numbers and times. */
    private List<Map<String, String>> records() throws IOException {
        List<Map<String, String>> found = new ArrayList<>();
        try (Stream<Path> all = Files.list(folder)) {
            for (Path file : all.filter(each -> each.toString().endsWith(".gz")).sorted().toList()) {
                try (InputStream in = new GZIPInputStream(Files.newInputStream(file))) {
                    String text = new String(in.readAllBytes(), StandardCharsets.UTF_8);
                    for (String line : text.lines().toList()) {
                        found.add(record(line));
                    }
                }
            }
        }
        return found;
    }

    private static Map<String, String> record(String line) throws IOException {
        Map<String, String> columns = new LinkedHashMap<>();
        try (JsonParser json = new JsonFactory().createParser(line)) {
            json.nextToken();
            while (json.nextToken() == JsonToken.FIELD_NAME) {
                String column = json.currentName();
                json.nextToken();
                columns.put(column, json.getText());
            }
        }
        for (String column : List.of("source_feed", "seq", "ts_mono_ns", "ts_wall_ms")) {
            assertTrue(columns.remove(column) != null, line);
        }
        return columns;
    }

    private List<Map<String, String>> await(int rates) throws IOException, InterruptedException {
        List<Map<String, String>> found = List.of();
        while (found.size() < rates) {
            Thread.sleep(20);
            found = records().stream()
                    .filter(each -> each.get("event_type").equals("client_rate")).toList();
        }
        return found;
    }

    private static Map<String, String> rate(String... pairs) {
        Map<String, String> columns = new LinkedHashMap<>(
                Map.of("event_type", "client_rate", "cluster", "cid", "broker", "3"));
        for (int i = 0; i < pairs.length; i += 2) {
            columns.put(pairs[i], pairs[i + 1]);
        }
        return columns;
    }

    @Test
    void eachSensorOfAClientIsARecordInThousandths() throws IOException, InterruptedException {
        sensor(1.5, 2_000.0, user("Produce", "byte-rate", "team%20a", "app 1"));
        sensor(12.25, null, user("Produce", "throttle-time", "team%20a", "app 1"));
        sensor(Double.NaN, null, user("Fetch", "throttle-time", "u", ""));
        sensor(0, (double) Long.MAX_VALUE, user("Fetch", "byte-rate", "u", ""));
        sensor(-3, 5.0, user("ControllerMutation", "tokens", "", "c"));
        sensor(9, null, user("ControllerMutation", "mutation-rate", "", "c"));
        sensor(0.125, null, name("Request", "exempt-request-time"));
        sensor(7, null, name("Request", "queue-size"));
        sensor(7, null, name("Produce", "byte-rate", "tenant", "a callback's own"));
        sensor(7, null, name("socket-server-metrics", "request-rate", "client-id", "c"));
        reporter(configs(folder));
        assertEquals(
                List.of(
                        rate("quota_type", "produce", "principal", "team a", "client_id", "app 1",
                                "value_milli", "1500", "bound_milli", "2000000",
                                "throttle_avg_milli", "12250"),
                        rate("quota_type", "fetch", "principal", "u", "client_id", "",
                                "value_milli", "0"),
                        rate("quota_type", "controller_mutation", "principal", "", "client_id", "c",
                                "value_milli", "-3000", "bound_milli", "5000"),
                        rate("quota_type", "request", "principal", "", "client_id", "",
                                "value_milli", "125", "exempt", "true")).stream()
                        .map(each -> Map.copyOf(each)).sorted(ReporterTest::byText).toList(),
                await(4).subList(0, 4).stream()
                        .map(each -> Map.copyOf(each)).sorted(ReporterTest::byText).toList());
    }

    private static int byText(Map<String, String> one, Map<String, String> other) {
        return one.get("quota_type").compareTo(other.get("quota_type"));
    }

    @Test
    void aSensorThatFailsOrHasNoNumberCostsItself() {
        Series series = new Series();
        series.choose(Settings.of(configs(folder)));
        metrics.addMetric(user("Produce", "byte-rate", "", "a"), (Gauge<Double>) (config, now) -> {
            throw new IllegalStateException("broken");
        });
        metrics.addMetric(user("Produce", "byte-rate", "", "b"), (Gauge<Object>) (c, now) -> "text");
        metrics.addMetric(user("Produce", "byte-rate", "", "c"), (Gauge<Object>) (c, now) -> null);
        sensor(Double.POSITIVE_INFINITY, 1.0, user("Produce", "byte-rate", "", "d"));
        sensor(2, Double.NaN, user("Produce", "byte-rate", "", "e"));
        metrics.metrics().values().stream()
                .filter(each -> each.metricName().group().equals("Produce")).forEach(series::add);
        Entity last = new Entity(QuotaType.PRODUCE, "", "e", false);
        assertEquals(
                new Series.Reading(List.of(new ClientRate(last, 2_000, null, null)), 0),
                series.read());
    }

    @Test
    void sensorsComeAndGoAndBoundsChange() {
        Series series = new Series();
        series.choose(Settings.of(configs(folder, "weir.clients", "^app", "weir.max.series", "1")));
        MetricName name = user("Produce", "byte-rate", "", "app");
        sensor(1, 1.0, name);
        sensor(1, 1.0, user("Produce", "byte-rate", "", "app2"));
        sensor(1, 1.0, user("Produce", "byte-rate", "", "other"));
        metrics.metrics().values().stream()
                .filter(each -> each.metricName().group().equals("Produce")).forEach(series::add);
        assertEquals(1, series.read().rates().size());
        assertEquals(1, series.read().leftOut());
        series.choose(Settings.of(configs(folder, "weir.clients", "app")));
        metrics.metric(name).config(new MetricConfig().quota(Quota.upperBound(9)));
        Entity app = new Entity(QuotaType.PRODUCE, "", "app", false);
        assertEquals(
                new Series.Reading(List.of(new ClientRate(app, 1_000, 9_000L, null)), 0),
                series.read());
        series.remove(metrics.metric(name));
        assertEquals(new Series.Reading(List.of(), 0), series.read());
    }

    @Test
    void aFolderThatCannotBeCostsNothingAndAnotherIsTakenLater()
            throws IOException, InterruptedException {
        Path file = Files.createFile(folder.resolve("a file"));
        long beganMs = System.currentTimeMillis();
        ClientQuotaReporter reporter = reporter(configs(file, "weir.buffer.records", "2"));
        long beganNs = System.nanoTime();
        for (int i = 0; i < 1_000; i++) {
            sensor(1, 1.0, user("Produce", "byte-rate", "", "c" + i));
        }
        assertTrue(System.nanoTime() - beganNs < 1_000_000_000L);
        Thread.sleep(300);
        reporter.reconfigure(configs(folder, "weir.cluster", "east", "weir.broker", "b"));
        List<Map<String, String>> found = await(1_000);
        assertEquals("east b", found.get(0).get("cluster") + " " + found.get(0).get("broker"));
        Map<String, String> gap = records().get(0);
        assertEquals("gap", gap.get("event_type"));
        assertTrue(Long.parseLong(gap.get("gap_from_wall_ms")) >= beganMs);
    }

    @Test
    void anEndBeforeADeadSinkIsShort() throws IOException {
        Path file = Files.createFile(folder.resolve("a file"));
        sensor(1, 1.0, user("Produce", "byte-rate", "", "c"));
        ClientQuotaReporter reporter = reporter(configs(file));
        long beganNs = System.nanoTime();
        metrics.removeReporter(reporter); // closes it
        assertTrue(System.nanoTime() - beganNs < 2_000_000_000L);
    }

    @Test
    void theIntervalIsThatOfTheClock() {
        assertEquals(1_000, Sampling.untilNext(5_000, 1_000));
        assertEquals(600, Sampling.untilNext(5_400, 1_000));
        assertEquals(1_001, Sampling.untilNext(5_999, 1_000)); // woken a moment too early
        assertEquals("1.0", Sampling.version());
    }
}
