package weir.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import weir.feed.FileSink;

class SettingsTest {

    private static Settings of(String... pairs) {
        return Records.settings(Path.of("d"), pairs);
    }

    @Test
    void allHaveDefaults() {
        assertEquals(
                new Settings(
                        Settings.SinkKind.FILES, Path.of("d"),
                        new FileSink.Rotation(5_000, 67_108_864, true, 604_800_000), null, Map.of(),
                        131_072, 134_217_728, List.of(), List.of(), false,
                        Settings.SampleBy.NONE, 1, false, 1_000, true, 0, List.of(), 1_000), of());
    }

    @Test
    void propertiesOfTheKafkaClientArePassedOn() {
        Settings settings = of(
                "weirSink", "kafka", "weirTopic", "t", "weirKafka.bootstrap.servers", "k:9092",
                "weirKafka.security.protocol", "SSL");
        assertEquals(
                Map.of("bootstrap.servers", "k:9092", "security.protocol", "SSL"),
                settings.kafka());
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "weirSink | disk | weirSink: disk; allowed: files, kafka, pulsar",
        "weirSink | kafka | weirTopic: missing; allowed: the topic that weirSink=kafka writes to",
        "weirBufferEvents | many | weirBufferEvents: many; allowed: a whole number from 2 to 1073741824",
        "weirSampleShare | 0 | weirSampleShare: 0; allowed: a number above 0, at most 1",
        "weirPayload | yes | weirPayload: yes; allowed: true, false",
        "weirDigestMillis | 60001 | weirDigestMillis: 60001; allowed: a whole number from 0 to 60000",
        "weirDigestWhole | a//b | weirDigestWhole: a//b; allowed: tenant, tenant/namespace or tenant/namespace/topic",
        "weirInclude | a//b | weirInclude: a//b; allowed: tenant, tenant/namespace or tenant/namespace/topic",
    })
    void aWrongValueIsRefusedWithWhatIsAllowed(String key, String value, String message) {
        assertEquals(message, assertThrows(
                IllegalArgumentException.class, () -> of(key, value)).getMessage());
    }

    @Test
    void digestsNeedThePausesThatTheBrokerMakes() {
        String message = assertThrows(
                IllegalArgumentException.class,
                () -> of("weirDigestMillis", "1000", "weirObservePauses", "false")).getMessage();
        assertEquals(
                "weirObservePauses: false; allowed: true, since with weirDigestMillis nothing else shows"
                        + " pauses", message);
    }

    @Test
    void anUnknownKeyIsRefused() {
        String message = assertThrows(
                IllegalArgumentException.class, () -> of("weirSinks", "files")).getMessage();
        assertTrue(message.startsWith("weirSinks: unknown; allowed: [weirBufferBytes, "), message);
        of("weird", "not ours");
    }
}
