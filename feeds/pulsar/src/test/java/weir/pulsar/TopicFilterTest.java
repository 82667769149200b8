package weir.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TopicFilterTest {

    private static final Sample ALL = new Sample(Settings.SampleBy.NONE, 1);

    @ParameterizedTest
    @CsvSource({
        "persistent://acme/orders/created, true",
        "non-persistent://acme/orders/created, true",
        "persistent://acme/orders/secret-partition-3, false",
        "persistent://acme/billing/created, false",
        "persistent://acme/orders2/created, false",
        "persistent://other/ns/t, true",
        "persistent://other/ns/__change_events, false",
        "persistent://pulsar/system/t, false",
        "persistent://other/weir/feed, false",
        "persistent://other/weir/feed-partition-1, false",
    })
    void topicsAreTakenByTheirNames(String topic, boolean taken) {
        Settings settings = Records.settings(
                Path.of("d"), "weirInclude", "acme/orders,other", "weirExclude", "acme/orders/secret");
        TopicFilter filter = new TopicFilter(settings, "persistent://other/weir/feed", ALL);
        assertEquals(taken, filter.takes(topic));
    }

    @Test
    void systemTopicsAreTakenOnRequest() {
        Settings settings = Records.settings(Path.of("d"), "weirSystemTopics", "true");
        assertTrue(new TopicFilter(settings, null, ALL).takes("persistent://a/b/__change_events"));
    }

    @Test
    void aSampleTakesAboutItsShareAndAllPartitionsOfATopic() {
        Settings settings = Records.settings(Path.of("d"));
        Sample sample = new Sample(Settings.SampleBy.TOPIC, 0.25);
        TopicFilter filter = new TopicFilter(settings, null, sample);
        long taken = IntStream.range(0, 4_000)
                .filter(i -> filter.takes("persistent://a/b/t" + i + "-partition-0")).count();
        assertTrue(taken > 900 && taken < 1_100, () -> taken + " of 4000");
        for (int i = 0; i < 100; i++) {
            assertEquals(
                    filter.takes("persistent://a/b/t" + i + "-partition-0"),
                    filter.takes("persistent://a/b/t" + i + "-partition-1"));
        }
        assertTrue(sample.takesConnection("any"));
    }
}
