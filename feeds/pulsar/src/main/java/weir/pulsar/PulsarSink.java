package weir.pulsar;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.PulsarServerException;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;

/** A Pulsar topic, written by the broker's own client. The key is the broker. */
final class PulsarSink implements Sink {

    private static final int TIMEOUT_S = 10;
    private static final int MOST_IN_BATCH = 1_000;

    private final PulsarService pulsar;
    private final String topic;
    private final String key;
    private Producer<byte[]> producer;
    private List<Encoded> unsent;
    private List<Encoded> batch;

    PulsarSink(PulsarService pulsar, Settings settings, String broker) {
        this.pulsar = pulsar;
        this.topic = settings.topic();
        this.key = broker;
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
            answers.add(producer.newMessage()
                    .keyBytes(key.getBytes(StandardCharsets.UTF_8)).value(each.json()).sendAsync());
        }
        producer.flushAsync(); // its failure is that of the messages
        collect(answers);
        batch = null;
    }

    private void collect(List<CompletableFuture<MessageId>> answers)
            throws IOException, InterruptedException {
        List<Encoded> failed = new ArrayList<>();
        List<Encoded> refused = new ArrayList<>();
        Throwable cause = null;
        for (int i = 0; i < answers.size(); i++) {
            try {
                answers.get(i).get(2L * TIMEOUT_S, TimeUnit.SECONDS);
            } catch (ExecutionException | TimeoutException error) {
                cause = error.getCause() == null ? error : error.getCause();
                boolean tooLarge = cause instanceof PulsarClientException.InvalidMessageException;
                (tooLarge ? refused : failed).add(unsent.get(i));
            }
        }
        unsent = failed;
        if (!refused.isEmpty()) {
            throw new Vanished(cause.getMessage(), refused.get(0).stamped(), refused.size());
        }
        if (!failed.isEmpty()) {
            throw new IOException(cause);
        }
    }

    private Producer<byte[]> open() throws IOException {
        try {
            return pulsar.getClient().newProducer()
                    .topic(topic)
                    .sendTimeout(TIMEOUT_S, TimeUnit.SECONDS)
                    .blockIfQueueFull(true)
                    .batchingMaxMessages(MOST_IN_BATCH)
                    .create();
        } catch (PulsarServerException error) {
            throw new IOException(error);
        }
    }

    @Override
    public void close() throws IOException {
        if (producer != null) {
            producer.closeAsync();
            producer = null;
        }
    }
}
