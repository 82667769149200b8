package weir.pulsar;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import weir.feed.FileSink;

/**
 * The plug-in's keys in the broker's configuration.
 *
 * <p>A value that is not allowed is an {@link IllegalArgumentException} that names the key and what
 * is: the broker then does not start.
 */
record Settings(
        SinkKind sink, Path directory, FileSink.Rotation rotation, String topic, Map<String, String> kafka, int bufferEvents, long bufferBytes,
        List<String> include, List<String> exclude, boolean systemTopics, SampleBy sampleBy,
        double sampleShare, boolean payload, long watchMillis, boolean observePauses,
        long digestMillis, List<String> digestWhole, long digestWholeMillis) {

    /** Where records go. */
    enum SinkKind { FILES, KAFKA, PULSAR }

    /** What is left out as a whole. */
    enum SampleBy { NONE, CONNECTION, TOPIC }

    static final String PREFIX = "weir";
    static final String KAFKA_PREFIX = "weirKafka.";
    private static final Set<String> KEYS = Set.of(
            "weirSink", "weirDirectory", "weirFileMillis", "weirFileBytes", "weirFileGzip",
            "weirKeepMillis", "weirTopic", "weirBufferEvents", "weirBufferBytes", "weirInclude",
            "weirExclude", "weirSystemTopics", "weirSampleBy", "weirSampleShare", "weirPayload",
            "weirWatchMillis", "weirObservePauses", "weirDigestMillis", "weirDigestWhole",
            "weirDigestWholeMillis");

    static Settings of(Properties properties) {
        Keys keys = new Keys(properties);
        keys.refuseUnknown();
        SinkKind sink = keys.choice("weirSink", SinkKind.class, SinkKind.FILES);
        Map<String, String> kafka = keys.below(KAFKA_PREFIX);
        String topic = keys.text("weirTopic", null);
        if (sink != SinkKind.FILES && topic == null) {
            throw new IllegalArgumentException(
                    "weirTopic: missing; allowed: the topic that weirSink=" + keys.text("weirSink", "")
                            + " writes to");
        }
        if (sink == SinkKind.KAFKA && !kafka.containsKey("bootstrap.servers")) {
            throw new IllegalArgumentException(
                    KAFKA_PREFIX + "bootstrap.servers: missing; allowed: host:port,host:port");
        }
        boolean observePauses = keys.flag("weirObservePauses", true);
        long digestMillis = keys.whole("weirDigestMillis", 0, 0, 60_000);
        if (digestMillis > 0 && !observePauses) {
            throw new IllegalArgumentException(
                    "weirObservePauses: false; allowed: true, since with weirDigestMillis nothing else"
                            + " shows pauses");
        }
        return new Settings(
                sink,
                Path.of(keys.text("weirDirectory", "data/weir")),
                new FileSink.Rotation(
                        keys.whole("weirFileMillis", 5_000, 1, Long.MAX_VALUE),
                        keys.whole("weirFileBytes", 64 << 20, 1, Long.MAX_VALUE),
                        keys.flag("weirFileGzip", true),
                        keys.whole("weirKeepMillis", 7 * 86_400_000L, 0, Long.MAX_VALUE)),
                topic,
                kafka,
                (int) keys.whole("weirBufferEvents", 131_072, 2, 1 << 30),
                keys.whole("weirBufferBytes", 128 << 20, 1 << 16, Long.MAX_VALUE),
                keys.list("weirInclude"),
                keys.list("weirExclude"),
                keys.flag("weirSystemTopics", false),
                keys.choice("weirSampleBy", SampleBy.class, SampleBy.NONE),
                keys.share("weirSampleShare"),
                keys.flag("weirPayload", false),
                keys.whole("weirWatchMillis", 1_000, 10, 3_600_000),
                observePauses,
                digestMillis,
                keys.list("weirDigestWhole"),
                keys.whole("weirDigestWholeMillis", 1_000, 0, 3_600_000));
    }

    /** Reads one key after the other. */
    private record Keys(Properties properties) {

        void refuseUnknown() {
            for (String key : properties.stringPropertyNames()) {
                boolean ours = key.startsWith(PREFIX) && key.length() > PREFIX.length()
                        && Character.isUpperCase(key.charAt(PREFIX.length()));
                if (ours && !key.startsWith(KAFKA_PREFIX) && !KEYS.contains(key)) {
                    throw new IllegalArgumentException(
                            key + ": unknown; allowed: " + KEYS.stream().sorted().toList());
                }
            }
        }

        String text(String key, String otherwise) {
            String value = properties.getProperty(key, "").trim();
            return value.isEmpty() ? otherwise : value;
        }

        long whole(String key, long otherwise, long least, long most) {
            String value = text(key, Long.toString(otherwise));
            try {
                long number = Long.parseLong(value);
                if (number >= least && number <= most) {
                    return number;
                }
            } catch (NumberFormatException notOne) {
                // refused below
            }
            throw refused(key, value, "a whole number from " + least + " to " + most);
        }

        double share(String key) {
            String value = text(key, "1");
            try {
                double share = Double.parseDouble(value);
                if (share > 0 && share <= 1) {
                    return share;
                }
            } catch (NumberFormatException notOne) {
                // refused below
            }
            throw refused(key, value, "a number above 0, at most 1");
        }

        boolean flag(String key, boolean otherwise) {
            String value = text(key, Boolean.toString(otherwise));
            if (!value.equals("true") && !value.equals("false")) {
                throw refused(key, value, "true, false");
            }
            return value.equals("true");
        }

        <E extends Enum<E>> E choice(String key, Class<E> type, E otherwise) {
            String value = text(key, otherwise.name().toLowerCase());
            List<String> allowed = new ArrayList<>();
            for (E each : type.getEnumConstants()) {
                if (each.name().toLowerCase().equals(value)) {
                    return each;
                }
                allowed.add(each.name().toLowerCase());
            }
            throw refused(key, value, String.join(", ", allowed));
        }

        List<String> list(String key) {
            List<String> found = new ArrayList<>();
            for (String name : Arrays.asList(text(key, "").split(","))) {
                if (name.isBlank()) {
                    continue;
                }
                if (!TopicFilter.isPattern(name.trim())) {
                    throw refused(
                            key, name.trim(), "tenant, tenant/namespace or tenant/namespace/topic");
                }
                found.add(name.trim());
            }
            return List.copyOf(found);
        }

        Map<String, String> below(String prefix) {
            Map<String, String> found = new TreeMap<>();
            for (String key : properties.stringPropertyNames()) {
                if (key.startsWith(prefix)) {
                    found.put(key.substring(prefix.length()), properties.getProperty(key));
                }
            }
            return found;
        }

        private static IllegalArgumentException refused(String key, String value, String allowed) {
            return new IllegalArgumentException(key + ": " + value + "; allowed: " + allowed);
        }
    }
}
