package weir.kafka;

import static org.apache.kafka.common.config.ConfigDef.Importance.HIGH;
import static org.apache.kafka.common.config.ConfigDef.Importance.LOW;
import static org.apache.kafka.common.config.ConfigDef.Importance.MEDIUM;

import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.PatternSyntaxException;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;
import weir.feed.FileSink;

/** The reporter's keys in the broker's configuration. */
record Settings(
        String sink, Path directory, FileSink.Rotation rotation, String topic,
        Map<String, String> kafka, int bufferRecords, long intervalMs, NameFilter users,
        NameFilter clients, int maxSeries, String cluster, String broker) {

    static final String FILES = "files";
    static final String KAFKA = "kafka";
    private static final String PREFIX = "weir.";
    private static final String KAFKA_PREFIX = "weir.kafka.";
    private static final String SERVERS = ProducerConfig.BOOTSTRAP_SERVERS_CONFIG;
    private static final String DIRECTORY = "weir.directory";
    private static final String TOPIC = "weir.topic";
    private static final String USERS = "weir.users";
    private static final String CLIENTS = "weir.clients";
    private static final long FILE_BYTES = 64 << 20;
    private static final ConfigDef KEYS = new ConfigDef()
            .define("weir.sink", Type.STRING, FILES, ValidString.in(FILES, KAFKA), HIGH,
                    "Where records go.")
            .define(DIRECTORY, Type.STRING, null, HIGH, "Folder of the files.")
            .define("weir.file.ms", Type.LONG, 5_000, Range.atLeast(1), LOW,
                    "A file is closed at this age.")
            .define("weir.keep.ms", Type.LONG, 86_400_000, Range.atLeast(0), MEDIUM,
                    "Files are removed at this age; 0: never.")
            .define(TOPIC, Type.STRING, null, HIGH, "Topic that the sink kafka writes to.")
            .define("weir.buffer.records", Type.INT, 65_536, Range.between(2, 1 << 30), LOW,
                    "Records that wait for the sink at most.")
            .define("weir.interval.ms", Type.LONG, 1_000, Range.between(100, 60_000), MEDIUM,
                    "How often the sensors are read.")
            .define(USERS, Type.LIST, "", MEDIUM,
                    "Users that are taken: names, and patterns, which begin with ^; none: all.")
            .define(CLIENTS, Type.LIST, "", MEDIUM, "Client ids that are taken, likewise.")
            .define("weir.max.series", Type.INT, 10_000, Range.atLeast(1), MEDIUM,
                    "Sensors that are taken at most.")
            .define("weir.cluster", Type.STRING, null, MEDIUM,
                    "Name of the cluster; none: the id of the cluster.")
            .define("weir.broker", Type.STRING, null, LOW,
                    "Name of the broker; none: its node id.");

    /** Every key that a running reporter takes over. */
    static Set<String> reconfigurable() {
        Set<String> keys = new HashSet<>(KEYS.names());
        ProducerConfig.configNames().forEach(name -> keys.add(KAFKA_PREFIX + name));
        return keys;
    }

    /** A ConfigException names the key and what is allowed. */
    static Settings of(Map<String, ?> configs) {
        Map<String, String> kafka = new TreeMap<>();
        for (Map.Entry<String, ?> each : configs.entrySet()) {
            String key = each.getKey();
            if (key.startsWith(KAFKA_PREFIX)) {
                kafka.put(key.substring(KAFKA_PREFIX.length()), String.valueOf(each.getValue()));
            } else if (key.startsWith(PREFIX) && !KEYS.names().contains(key)) {
                throw new ConfigException(
                        key + ": unknown; allowed: " + new TreeSet<>(KEYS.names()) + " and "
                                + KAFKA_PREFIX + "… with the options of a producer");
            }
        }
        Map<String, Object> values = KEYS.parse(configs);
        String sink = (String) values.get("weir.sink");
        String directory = text(values, DIRECTORY);
        String topic = text(values, TOPIC);
        if (sink.equals(FILES) && directory == null) {
            throw missing(DIRECTORY, "the folder that weir.sink=files writes to");
        }
        if (sink.equals(KAFKA) && topic == null) {
            throw missing(TOPIC, "the topic that weir.sink=kafka writes to");
        }
        if (sink.equals(KAFKA) && !kafka.containsKey(SERVERS)) {
            throw missing(KAFKA_PREFIX + SERVERS, "host:port,host:port");
        }
        return new Settings(
                sink,
                directory == null ? null : Path.of(directory),
                new FileSink.Rotation(
                        (Long) values.get("weir.file.ms"), FILE_BYTES, true,
                        (Long) values.get("weir.keep.ms")),
                topic,
                kafka,
                (Integer) values.get("weir.buffer.records"),
                (Long) values.get("weir.interval.ms"),
                filter(values, USERS),
                filter(values, CLIENTS),
                (Integer) values.get("weir.max.series"),
                text(values, "weir.cluster"),
                text(values, "weir.broker"));
    }

    private static String text(Map<String, Object> values, String key) {
        String value = (String) values.get(key);
        return value == null || value.isBlank() ? null : value.trim();
    }

    @SuppressWarnings("unchecked")
    private static NameFilter filter(Map<String, Object> values, String key) {
        try {
            return NameFilter.of((List<String>) values.get(key));
        } catch (PatternSyntaxException error) {
            throw new ConfigException(key, error.getPattern(), error.getDescription());
        }
    }

    private static ConfigException missing(String key, String allowed) {
        return new ConfigException(key + ": missing; allowed: " + allowed);
    }
}
