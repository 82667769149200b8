package weir.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import weir.feed.FileSink;

class SettingsTest {

    private static Settings of(String... pairs) {
        Map<String, Object> configs = new HashMap<>();
        configs.put("node.id", "1");
        for (int i = 0; i < pairs.length; i += 2) {
            configs.put(pairs[i], pairs[i + 1]);
        }
        return Settings.of(configs);
    }

    @Test
    void allButTheFolderHaveDefaults() {
        NameFilter all = new NameFilter(Set.of(), List.of());
        assertEquals(
                new Settings(
                        "files", Path.of("/d"),
                        new FileSink.Rotation(5_000, 67_108_864, true, 86_400_000), null, Map.of(),
                        65_536, 1_000, all, all, 10_000, null, null),
                of("weir.directory", "/d"));
    }

    @Test
    void optionsOfTheProducerArePassedOn() {
        assertEquals(
                Map.of("bootstrap.servers", "k:9092", "security.protocol", "SSL"),
                of("weir.sink", "kafka", "weir.topic", "t", "weir.kafka.bootstrap.servers", "k:9092",
                        "weir.kafka.security.protocol", "SSL").kafka());
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "weir.sink | kafka | weir.topic: missing; allowed: the topic that weir.sink=kafka writes to",
        "weir.sink | tape | Invalid value tape for configuration weir.sink: String must be one of: files, kafka",
        "weir.interval.ms | 5 | Invalid value 5 for configuration weir.interval.ms: Value must be at least 100",
        "weir.clients | ^( | Invalid value ^( for configuration weir.clients: Unclosed group",
    })
    void whatIsNotAllowedIsRefusedByName(String key, String value, String message) {
        assertEquals(
                message,
                assertThrows(
                        ConfigException.class, () -> of("weir.directory", "/d", key, value)).getMessage());
    }

    @Test
    void anUnknownKeyIsRefused() {
        String message = assertThrows(
                ConfigException.class, () -> of("weir.folder", "/d")).getMessage();
        assertTrue(
                message.startsWith("weir.folder: unknown; allowed: [weir.broker, weir.buffer.records, "),
                message);
        assertEquals(
                "weir.directory: missing; allowed: the folder that weir.sink=files writes to",
                assertThrows(ConfigException.class, SettingsTest::of).getMessage());
    }

    @Test
    void everyKeyCanBeChangedWhileTheBrokerRuns() {
        assertTrue(Settings.reconfigurable().containsAll(
                Set.of("weir.users", "weir.sink", "weir.kafka.sasl.jaas.config")));
    }

    @Test
    void namesAreWholeAndPatternsBeginWithACaret() {
        NameFilter filter = NameFilter.of(List.of("alice", "^team-"));
        assertTrue(filter.takes("alice") && filter.takes("team-a"));
        assertFalse(filter.takes("alice2") || filter.takes("a-team-") || filter.takes(""));
    }
}
