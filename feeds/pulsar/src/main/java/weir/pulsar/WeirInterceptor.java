package weir.pulsar;

import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import javax.servlet.ServletRequest;
import javax.servlet.ServletResponse;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.intercept.BrokerInterceptor;
import org.apache.pulsar.broker.service.Consumer;
import org.apache.pulsar.broker.service.Producer;
import org.apache.pulsar.broker.service.ServerCnx;
import org.apache.pulsar.broker.service.Topic.PublishContext;
import org.apache.pulsar.common.api.proto.BaseCommand;
import org.apache.pulsar.common.api.proto.CommandAck;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import weir.feed.Delivery;
import weir.feed.Encoder;
import weir.feed.Event;
import weir.feed.EventBuffer;
import weir.feed.FileSink;
import weir.feed.Guard;
import weir.feed.KafkaSink;
import weir.feed.RunMarker;
import weir.feed.Sink;

/** What the broker loads: hands every callback on, and lets nothing come back. */
public final class WeirInterceptor implements BrokerInterceptor {

    private static final Logger LOG = LoggerFactory.getLogger(WeirInterceptor.class);
    static final String FEED = "pulsar_interceptor";
    /** Numbers of a later run are above those of an earlier one, up to a million events per ms. */
    private static final int SEQ_PER_MS_BITS = 20;
    private static final long PATIENCE_MS = 5_000;
    private static final long BROKER_PATIENCE_MS = 20_000;

    private final Guard guard = new Guard();
    private volatile Clients clients;
    private volatile boolean closed;
    private EventBuffer buffer;
    private Connections connections;
    private Digests digests;
    private Watch watch;
    private Delivery delivery;

    @Override
    public void initialize(PulsarService pulsar) throws IOException {
        Settings settings = Settings.of(pulsar.getConfiguration().getProperties());
        Sample sample = new Sample(settings.sampleBy(), settings.sampleShare());
        boolean toPulsar = settings.sink() == Settings.SinkKind.PULSAR;
        Topics topics = new Topics(
                new TopicFilter(settings, toPulsar ? settings.topic() : null, sample));
        buffer = new EventBuffer(
                settings.bufferEvents(), settings.bufferBytes(),
                System.currentTimeMillis() << SEQ_PER_MS_BITS,
                System::nanoTime, System::currentTimeMillis);
        boolean begins = pulsar.getState() == PulsarService.State.Init;
        buffer.offer(
                begins ? new Event.BrokerStarted(version()) : new Event.Gap(null, null, null));
        Policies policies = new Policies(pulsar, buffer, brokerKeys());
        digests = new Digests(settings, buffer, guard);
        connections = new Connections(settings, sample, buffer, digests);
        watch = new Watch(
                pulsar.getBrokerService(), connections, topics, policies, new Storage(buffer),
                digests, guard);
        clients = new Clients(connections, topics, policies, digests, buffer, settings.payload());
        Thread begin = new Thread(() -> guard.run(() -> begin(pulsar, settings)), "weir-begin");
        begin.setDaemon(true);
        begin.start();
    }

    /** What needs the broker's name, which it has when its ports are open. */
    private void begin(PulsarService pulsar, Settings settings) {
        String broker = awaitBrokerId(pulsar);
        String cluster = pulsar.getConfiguration().getClusterName();
        synchronized (this) {
            if (closed || broker == null) {
                return;
            }
            RunMarker marker = new RunMarker(settings.directory(), broker);
            Long killedMs = marker.killedMs();
            if (killedMs != null) {
                buffer.offer(new Event.Gap(null, killedMs, null));
            }
            delivery = new Delivery(
                    buffer, new Encoder(FEED, cluster, broker), sink(pulsar, settings, broker), marker);
            delivery.start();
            watch.start(settings.watchMillis());
            digests.start(connections);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> end(pulsar), "weir-end"));
        LOG.info("Weir: events of broker {} go to {}", broker, settings.sink());
        if (settings.digestMillis() > 0) {
            LOG.info(
                    "Weir: publishes are summed up over {} ms; deliveries and acknowledgements, which the"
                            + " jobs entry_cache and chunks need, are those of {} and of topics with chunks",
                    settings.digestMillis(),
                    settings.digestWhole().isEmpty() ? "no chosen topic" : settings.digestWhole());
        }
    }

    /** Null if the broker ends before it has a name. */
    private static String awaitBrokerId(PulsarService pulsar) {
        while (pulsar.getState() != PulsarService.State.Closed) {
            try {
                return pulsar.getBrokerId();
            } catch (NullPointerException notYet) {
                pause();
            }
        }
        return null;
    }

    private static void pause() {
        try {
            Thread.sleep(10);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static Sink sink(PulsarService pulsar, Settings settings, String broker) {
        return switch (settings.sink()) {
            case FILES -> new FileSink(settings.directory(), settings.rotation(), broker);
            case KAFKA -> new KafkaSink(settings.topic(), settings.kafka(), broker);
            case PULSAR -> new PulsarSink(pulsar, settings, broker);
        };
    }

    /** The broker settings that policy documents may name. */
    static List<String> brokerKeys() throws IOException {
        return linesOf("broker-keys.txt");
    }

    /** The version that this plug-in was built as. */
    static String version() throws IOException {
        return linesOf("version.txt").get(0);
    }

    private static List<String> linesOf(String resource) throws IOException {
        try (var in = WeirInterceptor.class.getResourceAsStream(resource)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8).lines().toList();
        }
    }

    /** No release calls `close`: the events of a broker's own end wait for the broker here. */
    private void end(PulsarService pulsar) {
        long until = System.currentTimeMillis() + BROKER_PATIENCE_MS;
        while (pulsar.getState() != PulsarService.State.Closed
                && System.currentTimeMillis() < until) {
            pause();
        }
        close();
    }

    @Override
    public void close() {
        guard.run(() -> {
            clients = null;
            synchronized (this) {
                closed = true;
                if (delivery == null) {
                    return;
                }
                watch.stop();
                digests.stop(connections);
                delivery.close(PATIENCE_MS);
            }
        });
    }

    @Override
    public void onConnectionCreated(ServerCnx cnx) {
        with(clients -> clients.connectionCreated(cnx));
    }

    @Override
    public void onConnectionClosed(ServerCnx cnx) {
        with(clients -> clients.connectionClosed(cnx));
    }

    @Override
    public void producerCreated(ServerCnx cnx, Producer producer, Map<String, String> metadata) {
        with(clients -> clients.producerCreated(cnx, producer));
    }

    @Override
    public void producerClosed(ServerCnx cnx, Producer producer, Map<String, String> metadata) {
        with(clients -> clients.producerClosed(cnx, producer));
    }

    @Override
    public void consumerCreated(ServerCnx cnx, Consumer consumer, Map<String, String> metadata) {
        with(clients -> clients.consumerCreated(cnx, consumer));
    }

    @Override
    public void consumerClosed(ServerCnx cnx, Consumer consumer, Map<String, String> metadata) {
        with(clients -> clients.consumerClosed(cnx, consumer));
    }

    @Override
    public void onMessagePublish(
            Producer producer, ByteBuf headersAndPayload, PublishContext context) {
        with(clients -> clients.published(producer, headersAndPayload, context));
    }

    @Override
    public void messageProduced(
            ServerCnx cnx, Producer producer, long startTimeNs, long ledgerId, long entryId,
            PublishContext context) {
        with(clients -> clients.produced(ledgerId, entryId, context));
    }

    @Override
    public void messageDispatched(
            ServerCnx cnx, Consumer consumer, long ledgerId, long entryId, ByteBuf entry) {
        with(clients -> clients.dispatched(cnx, consumer, ledgerId, entryId, entry));
    }

    @Override
    public void messageAcked(ServerCnx cnx, Consumer consumer, CommandAck ack) {
        with(clients -> clients.acked(cnx, consumer, ack));
    }

    @Override
    public void onPulsarCommand(BaseCommand command, ServerCnx cnx) {
        // the other callbacks have what is needed
    }

    @Override
    public void onWebserviceRequest(ServletRequest request) {
        // not used
    }

    @Override
    public void onWebserviceResponse(ServletRequest request, ServletResponse response) {
        // not used
    }

    private void with(java.util.function.Consumer<Clients> callback) {
        Clients now = clients;
        if (now != null) {
            guard.run(() -> callback.accept(now));
        }
    }
}
