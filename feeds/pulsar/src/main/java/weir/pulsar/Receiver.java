package weir.pulsar;

import java.io.IOException;
import org.apache.pulsar.broker.service.Consumer;
import weir.feed.Line;

/**
 * A consumer as the contract names it. `taken` says whether its events are; without `whole`, its
 * deliveries and acknowledgements are not.
 */
record Receiver(
        Connection connection, String topic, String subscription, String subType, String name,
        Consumer consumer, boolean taken, boolean whole) {

    void write(Line line) throws IOException {
        line.text("cnx_id", connection.id());
        line.text("topic", topic);
        line.text("subscription", subscription);
        line.text("sub_type", subType);
        line.text("consumer", name);
    }
}
