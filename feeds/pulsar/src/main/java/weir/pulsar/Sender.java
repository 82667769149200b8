package weir.pulsar;

import java.io.IOException;
import org.apache.pulsar.broker.service.Producer;
import weir.feed.Line;

/**
 * A producer as the contract names it. `taken` says whether its events are; `tally` sums up its
 * publishes, null where each is written.
 */
record Sender(
        Connection connection, String topic, long producerId, String producerName,
        Producer producer, boolean taken, Tally tally) {

    void write(Line line) throws IOException {
        line.text("cnx_id", connection.id());
        line.text("topic", topic);
        line.number("producer_id", producerId);
        line.text("producer_name", producerName);
    }
}
