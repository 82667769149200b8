package weir.feed;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A Kafka topic. The key is the broker, so that one partition has all of its records.
 *
 * <p>The client itself tries again, without end and one request at a time: a record never overtakes
 * an earlier one, which would be late.
 */
public final class KafkaSink implements Sink {

    private static final Map<String, Object> DEFAULTS = Map.of(
            "acks", "all", "linger.ms", 5, "max.in.flight.requests.per.connection", 1,
            "max.block.ms", 5_000, "delivery.timeout.ms", Integer.MAX_VALUE, "client.id", "weir");

    private final String topic;
    private final byte[] key;
    private final Map<String, Object> properties;
    private KafkaProducer<byte[], byte[]> producer;
    private List<Encoded> batch;
    private List<Encoded> unsent;

    /** `options` are the producer's own. */
    public KafkaSink(String topic, Map<String, String> options, String broker) {
        this.topic = topic;
        this.key = broker.getBytes(StandardCharsets.UTF_8);
        this.properties = new HashMap<>(DEFAULTS);
        properties.putAll(options);
    }

    @Override
    public void write(List<Encoded> records) throws IOException, InterruptedException {
        if (records != batch) {
            batch = unsent = records;
        }
        try {
            send();
        } catch (InterruptException stopped) {
            throw new InterruptedException();
        } catch (KafkaException error) {
            renew();
            throw new IOException(error);
        }
        batch = null;
    }

    /** Sends what is left of the batch; after a failure `unsent` is what has to be sent again. */
    private void send() throws IOException, InterruptedException {
        if (producer == null) {
            producer = new KafkaProducer<>(
                    properties, new ByteArraySerializer(), new ByteArraySerializer());
        }
        List<Future<RecordMetadata>> answers = new ArrayList<>(unsent.size());
        TimeoutException noRoom = null;
        try {
            for (Encoded each : unsent) {
                answers.add(producer.send(new ProducerRecord<>(topic, key, each.json())));
            }
        } catch (TimeoutException withoutAnswer) {
            noRoom = withoutAnswer; // what was sent before is on its way
        }
        producer.flush();
        List<Encoded> refused = new ArrayList<>();
        for (int i = 0; i < answers.size(); i++) {
            try {
                answers.get(i).get();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof RecordTooLargeException)) {
                    unsent = unsent.subList(i, unsent.size());
                    renew();
                    throw new IOException(error.getCause());
                }
                refused.add(unsent.get(i));
            }
        }
        unsent = unsent.subList(answers.size(), unsent.size());
        if (!refused.isEmpty()) {
            throw new Vanished(
                    "records are too large for the topic", refused.get(0).stamped(),
                    refused.size());
        }
        if (noRoom != null) {
            throw new IOException(noRoom);
        }
    }

    /** A producer that failed may not serve again. */
    private void renew() {
        if (producer != null) {
            producer.close(Duration.ZERO);
            producer = null;
        }
    }

    @Override
    public void close() {
        renew();
    }
}
