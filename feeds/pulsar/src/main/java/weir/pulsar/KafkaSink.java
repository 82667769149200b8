package weir.pulsar;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
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
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A Kafka topic. The key is the broker, so that one partition has all of its records. */
final class KafkaSink implements Sink {

    private static final Map<String, Object> DEFAULTS = Map.of(
            "acks", "all", "linger.ms", 5, "max.block.ms", 5_000, "request.timeout.ms", 5_000,
            "delivery.timeout.ms", 10_000, "client.id", "weir");

    private final String topic;
    private final byte[] key;
    private final Map<String, Object> properties;
    private KafkaProducer<byte[], byte[]> producer;
    private List<Encoded> unsent;
    private List<Encoded> batch;

    KafkaSink(Settings settings, String broker) {
        this.topic = settings.topic();
        this.key = broker.getBytes(StandardCharsets.UTF_8);
        this.properties = new HashMap<>(DEFAULTS);
        properties.putAll(settings.kafka());
    }

    @Override
    public void write(List<Encoded> records) throws IOException, InterruptedException {
        if (records != batch) {
            batch = unsent = records;
        }
        try {
            send();
        } catch (KafkaException error) {
            renew();
            throw new IOException(error);
        }
    }

    /** Sends what is left of the batch; afterwards `unsent` is what failed. */
    private void send() throws IOException, InterruptedException {
        if (producer == null) {
            producer = new KafkaProducer<>(
                    properties, new ByteArraySerializer(), new ByteArraySerializer());
        }
        List<Future<RecordMetadata>> answers = new ArrayList<>(unsent.size());
        for (Encoded each : unsent) {
            answers.add(producer.send(new ProducerRecord<>(topic, key, each.json())));
        }
        producer.flush();
        List<Encoded> failed = new ArrayList<>();
        List<Encoded> refused = new ArrayList<>();
        Throwable cause = null;
        for (int i = 0; i < answers.size(); i++) {
            try {
                answers.get(i).get();
            } catch (ExecutionException error) {
                boolean tooLarge = error.getCause() instanceof RecordTooLargeException;
                (tooLarge ? refused : failed).add(unsent.get(i));
                cause = error.getCause();
            }
        }
        unsent = failed;
        if (!refused.isEmpty()) {
            throw new Vanished(cause.getMessage(), refused.get(0).stamped(), refused.size());
        }
        if (!failed.isEmpty()) {
            renew();
            throw new IOException(cause);
        }
        batch = null;
    }

    /** A producer that failed may not serve again. */
    private void renew() {
        if (producer != null) {
            producer.close(java.time.Duration.ZERO);
            producer = null;
        }
    }

    @Override
    public void close() {
        renew();
    }
}
