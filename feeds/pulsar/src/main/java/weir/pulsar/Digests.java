package weir.pulsar;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import weir.feed.EventBuffer;
import weir.feed.Guard;

/**
 * What is summed up and what is written whole.
 *
 * <p>Each publish is in one record of its own or in one digest. A producer's publishes are whole if
 * its topic is chosen or has chunked messages, and while and shortly after its connection is paused.
 * Of other topics no delivery and no acknowledgement is written.
 */
final class Digests {

    private final long everyMs;
    private final long wholeNs;
    private final List<String> whole;
    private final EventBuffer buffer;
    private final Guard guard;
    private final Set<String> chunked = ConcurrentHashMap.newKeySet();
    private final ScheduledExecutorService thread;

    Digests(Settings settings, EventBuffer buffer, Guard guard) {
        this.everyMs = settings.digestMillis();
        this.wholeNs = TimeUnit.MILLISECONDS.toNanos(settings.digestWholeMillis());
        this.whole = settings.digestWhole();
        this.buffer = buffer;
        this.guard = guard;
        this.thread = Executors.newSingleThreadScheduledExecutor(work -> {
            Thread made = new Thread(work, "weir-digest");
            made.setDaemon(true);
            return made;
        });
    }

    /** Writes the digests of all producers whenever a span ends. */
    void start(Connections connections) {
        if (everyMs > 0) {
            awaitEnd(connections);
        }
    }

    private void awaitEnd(Connections connections) {
        long leftMs = everyMs - buffer.wallMs() % everyMs;
        thread.schedule(() -> {
            guard.run(() -> connections.open().forEach(connection ->
                    connection.senders().values().forEach(Digests::writeOver)));
            awaitEnd(connections);
        }, leftMs + 1, TimeUnit.MILLISECONDS);
    }

    /** Writes what is left. */
    void stop(Connections connections) {
        thread.shutdownNow();
        connections.open().forEach(
                connection -> connection.senders().values().forEach(this::close));
    }

    /** Where the publishes of a producer of this topic are summed up; null if they are whole. */
    Tally tally(String topic) {
        return isWhole(topic) ? null : new Tally(everyMs, buffer);
    }

    /** Whether all events of a topic are written. */
    boolean isWhole(String topic) {
        return everyMs == 0 || TopicFilter.isIn(whole, topic);
    }

    /** Whether a topic of digests is written whole since it has chunked messages. */
    boolean isChunked(String topic) {
        return !chunked.isEmpty() && chunked.contains(topic);
    }

    /** Sums up a publish; false if it is to be written. */
    boolean sumUp(Sender sender, boolean chunk, long messages, long bytes) {
        if (sender.tally() == null) {
            return false;
        }
        if (chunk) {
            chunked.add(sender.topic());
        }
        if (isChunked(sender.topic()) || sender.connection().isWhole(buffer.monoNs())) {
            return false;
        }
        return sender.tally().add(sender, messages, bytes);
    }

    /** A connection is about to be reported as paused or resumed: what it has published comes first. */
    void paused(Connection connection) {
        if (everyMs == 0) {
            return;
        }
        for (Sender sender : connection.senders().values()) {
            if (sender.tally() != null) {
                sender.tally().write(sender);
            }
        }
        if (wholeNs > 0) {
            connection.writeWhole(buffer.monoNs() + wholeNs);
        }
    }

    /** A producer is closed; its last digest comes before. */
    void close(Sender sender) {
        if (sender.tally() != null) {
            sender.tally().close(sender);
        }
    }

    /** The topic is not on this broker any more. */
    void forget(String topic) {
        chunked.remove(topic);
    }

    private static void writeOver(Sender sender) {
        if (sender.tally() != null) {
            sender.tally().writeOver(sender);
        }
    }
}
