package weir.pulsar;

import io.netty.channel.Channel;
import io.netty.util.AttributeKey;
import io.netty.util.concurrent.EventExecutor;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.broker.service.ServerCnx;
import org.apache.pulsar.broker.service.TransportCnx;
import org.apache.pulsar.common.api.proto.FeatureFlags;
import weir.feed.EventBuffer;

/** The connections of the broker: each is announced once, and kept with its channel. */
final class Connections {

    /** The flag of PIP-385; no release has it yet. */
    private static final Method THROTTLE_FLAG = throttleFlag();

    private final AttributeKey<Connection> key =
            AttributeKey.valueOf("weir-" + System.identityHashCode(this));
    private final Map<String, Connection> open = new ConcurrentHashMap<>();
    private final Map<EventExecutor, Integer> threads = new ConcurrentHashMap<>();
    private final AtomicInteger nextThread = new AtomicInteger();
    private final Sample sample;
    private final EventBuffer buffer;
    private final Digests digests;
    private final boolean observePauses;

    Connections(Settings settings, Sample sample, EventBuffer buffer, Digests digests) {
        this.sample = sample;
        this.buffer = buffer;
        this.digests = digests;
        this.observePauses = settings.observePauses();
    }

    /** Those that are open. */
    Collection<Connection> open() {
        return open.values();
    }

    /** The connection; one that was not met before is announced. */
    Connection of(TransportCnx transport) {
        ServerCnx cnx = (ServerCnx) transport;
        Channel channel = cnx.ctx().channel();
        Connection known = channel.attr(key).get();
        if (known != null) {
            return known;
        }
        Connection made = make(cnx, channel);
        Connection before = channel.attr(key).setIfAbsent(made);
        if (before != null) {
            return before;
        }
        open.put(made.id(), made);
        if (made.taken()) {
            buffer.offer(new BrokerEvent.ConnectionOpened(made, observePauses));
            if (observePauses) {
                PauseWatch.on(channel, made, buffer, digests);
            }
        }
        return made;
    }

    /** The connection is closed, and everything on it. */
    void closed(ServerCnx cnx) {
        Connection connection = cnx.ctx().channel().attr(key).get();
        if (connection == null || connection.closed()) {
            return;
        }
        connection.close();
        open.remove(connection.id(), connection);
        connection.senders().values().forEach(sender -> closed(connection, sender));
        connection.receivers().forEach((id, receiver) -> closed(connection, id, receiver));
        if (connection.taken()) {
            buffer.offer(new BrokerEvent.ConnectionChanged(BrokerEvent.ConnectionChanged.CLOSED, connection));
        }
    }

    /** A producer is closed; nothing happens if that is known. */
    void closed(Connection connection, Sender sender) {
        if (connection.senders().remove(sender.producerId(), sender) && sender.taken()) {
            digests.close(sender);
            buffer.offer(new BrokerEvent.ProducerChanged(BrokerEvent.ProducerChanged.CLOSED, sender));
        }
    }

    /** A consumer is closed; nothing happens if that is known. */
    void closed(Connection connection, long id, Receiver receiver) {
        if (connection.receivers().remove(id, receiver) && receiver.taken()) {
            buffer.offer(new BrokerEvent.ConsumerChanged(BrokerEvent.ConsumerChanged.CLOSED, receiver));
        }
    }

    private Connection make(ServerCnx cnx, Channel channel) {
        String id = String.valueOf(cnx.clientAddress());
        int thread = threads.computeIfAbsent(
                channel.eventLoop(), loop -> nextThread.getAndIncrement());
        return new Connection(
                cnx, id, thread, supportsThrottle(cnx.getFeatures()), cnx.getAuthRole(),
                sample.takesConnection(id));
    }

    private static boolean supportsThrottle(FeatureFlags flags) {
        try {
            return THROTTLE_FLAG != null && flags != null && (boolean) THROTTLE_FLAG.invoke(flags);
        } catch (ReflectiveOperationException withoutIt) {
            return false;
        }
    }

    private static Method throttleFlag() {
        try {
            return FeatureFlags.class.getMethod("isSupportsThrottleProducerCommands");
        } catch (NoSuchMethodException notYet) {
            return null;
        }
    }
}
