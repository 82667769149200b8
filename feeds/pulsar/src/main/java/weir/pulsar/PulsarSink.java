package weir.pulsar;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.PulsarServerException;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import weir.feed.Encoded;
import weir.feed.Sink;

/**
 * A Pulsar topic, written by the broker's own client. The key is the broker.
 *
 * <p>The client itself tries again, without end and in order: a record never overtakes an earlier
 * one, which would be late.
 */
final class PulsarSink implements Sink {

    private static final int MOST_IN_BATCH = 1_000;

    private final PulsarService pulsar;
    private final String topic;
    private final byte[] key;
    private Producer<byte[]> producer;
    private List<Encoded> batch;
    private List<Encoded> unsent;

    PulsarSink(PulsarService pulsar, Settings settings, String broker) {
        this.pulsar = pulsar;
        this.topic = settings.topic();
        this.key = broker.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public void write(List<Encoded> records) throws IOException, InterruptedException {
        if (records != batch) {
            batch = unsent = records;
        }
        if (producer == null) {
            producer = open();
        }
        List<CompletableFuture<MessageId>> answers = new ArrayList<>(unsent.size());
        for (Encoded each : unsent) {
            answers.add(producer.newMessage().keyBytes(key).value(each.json()).sendAsync());
        }
        producer.flushAsync(); // its failure is that of the messages
        collect(answers);
        batch = null;
    }

    /** After a failure `unsent` is what has to be sent again. */
    private void collect(List<CompletableFuture<MessageId>> answers)
            throws IOException, InterruptedException {
        List<Encoded> refused = new ArrayList<>();
        for (int i = 0; i < answers.size(); i++) {
            try {
                answers.get(i).get();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof PulsarClientException.InvalidMessageException)) {
                    unsent = unsent.subList(i, unsent.size());
                    close();
                    throw new IOException(error.getCause());
                }
                refused.add(unsent.get(i));
            }
        }
        unsent = List.of();
        if (!refused.isEmpty()) {
            throw new Vanished(
                    "records are too large for the topic", refused.get(0).stamped(),
                    refused.size());
        }
    }

    private Producer<byte[]> open() throws IOException {
        try {
            return pulsar.getClient().newProducer()
                    .topic(topic)
                    .sendTimeout(0, TimeUnit.SECONDS)
                    .blockIfQueueFull(true)
                    .batchingMaxMessages(MOST_IN_BATCH)
                    .create();
        } catch (PulsarServerException error) {
            throw new IOException(error);
        }
    }

    @Override
    public void close() {
        if (producer != null) {
            producer.closeAsync();
            producer = null;
        }
    }
}
