package weir.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import weir.feed.Encoder;
import weir.feed.Event;
import weir.feed.Stamped;

class EncoderTest {

    private static final Connection CONNECTION =
            new Connection(null, "/10.0.0.1:5", 1, false, null, true);
    private static final Sender SENDER =
            new Sender(CONNECTION, "persistent://a/b/t", 3, "p\"1\u00e9", null, true, null);
    private static final Receiver RECEIVER =
            new Receiver(CONNECTION, "t", "s", "shared", "c", null, true, true);
    private static final String OF_RECEIVER =
            ",\"cnx_id\":\"/10.0.0.1:5\",\"topic\":\"t\",\"subscription\":\"s\","
                    + "\"sub_type\":\"shared\",\"consumer\":\"c\"";

    private static String json(Event event) throws IOException {
        byte[] line = new Encoder(WeirInterceptor.FEED, "east", "b1").encode(new Stamped(event, 7, 8, 9));
        String start = "{\"event_type\":\"" + event.kind() + "\",\"source_feed\":"
                + "\"pulsar_interceptor\",\"cluster\":\"east\",\"broker\":\"b1\",\"seq\":7,"
                + "\"ts_mono_ns\":8,\"ts_wall_ms\":9";
        String text = new String(line, StandardCharsets.UTF_8);
        assertEquals(start, text.substring(0, start.length()));
        return text.substring(start.length());
    }

    @Test
    void aChunkHasItsPlaceInTheMessage() throws IOException {
        EntryHeader header = new EntryHeader(5, 1, new EntryHeader.Chunk("u", 0, 3, 30));
        assertEquals(
                ",\"cnx_id\":\"/10.0.0.1:5\",\"topic\":\"persistent://a/b/t\",\"producer_id\":3,"
                        + "\"producer_name\":\"p\\\"1\u00e9\",\"sequence_id\":4,\"entry_bytes\":12,"
                        + "\"publish_time_ms\":5,\"num_messages\":1,\"uuid\":\"u\",\"chunk_id\":0,"
                        + "\"num_chunks\":3,\"total_chunk_bytes\":30}",
                json(new BrokerEvent.Published(SENDER, 4, 12, header)));
    }

    @Test
    void aDigestHasItsSumsAndItsBegin() throws IOException {
        assertEquals(
                ",\"cnx_id\":\"/10.0.0.1:5\",\"topic\":\"persistent://a/b/t\",\"producer_id\":3,"
                        + "\"producer_name\":\"p\\\"1\u00e9\",\"publishes\":2,\"num_messages\":30,"
                        + "\"entry_bytes\":900,\"digest_from_mono_ns\":5,\"digest_from_wall_ms\":6}",
                json(new BrokerEvent.PublishDigest(SENDER, 2, 30, 900, 5, 6)));
    }

    @Test
    void whatIsNotKnownIsLeftOut() throws IOException {
        assertEquals(",\"gap_from_wall_ms\":4}", json(new Event.Gap(null, 4L, null)));
        assertEquals(
                ",\"cnx_id\":\"/10.0.0.1:5\",\"supports_throttle\":false,\"io_thread\":1,"
                        + "\"reports_pauses\":true}",
                json(new BrokerEvent.ConnectionOpened(CONNECTION, true)));
    }

    @Test
    void aStartNamesTheVersionOfThePlugIn() throws IOException {
        assertEquals(",\"plugin_version\":\"1.0\"}", json(new Event.BrokerStarted("1.0")));
        assertEquals("1.0", WeirInterceptor.version());
    }

    @Test
    void recordsOfAConsumerNameItsConnection() throws IOException {
        assertEquals(
                OF_RECEIVER + "}",
                json(new BrokerEvent.ConsumerChanged(BrokerEvent.ConsumerChanged.CREATED, RECEIVER)));
        assertEquals(
                OF_RECEIVER + "}",
                json(new BrokerEvent.ConsumerChanged(BrokerEvent.ConsumerChanged.CLOSED, RECEIVER)));
        assertEquals(
                OF_RECEIVER + ",\"ledger_id\":1,\"entry_id\":2,\"ack_cumulative\":true}",
                json(new BrokerEvent.Acked(RECEIVER, 1, 2, true)));
    }

    @Test
    void aPayloadIsBase64() throws IOException {
        EntryHeader header = new EntryHeader(5, 1, null);
        assertEquals(
                OF_RECEIVER + ",\"ledger_id\":1,\"entry_id\":2,\"entry_bytes\":3,"
                        + "\"producer_name\":\"p\",\"sequence_id\":4,\"publish_time_ms\":5,\"num_messages\":1,"
                        + "\"payload\":\"AQID\"}",
                json(new BrokerEvent.Dispatched(
                        RECEIVER, 1, 2, 3, "p", 4, header, new byte[] {1, 2, 3})));
    }
}
