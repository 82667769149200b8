package weir.pulsar;

import weir.feed.Event;
import weir.feed.EventBuffer;

/**
 * The publishes of one producer since its last digest.
 *
 * <p>A span ends with a multiple of the interval on the wall clock, or before it: so none reaches
 * over the end of a second, a minute or a window. Whoever publishes after the end writes the digest,
 * so that it has no later publish.
 */
final class Tally {

    /** A digest is stamped with the end of its span, but no further back than this. */
    private static final long MOST_BACK_MS = 250;
    /** The contract has 32 bits for messages. */
    private static final long MOST_MESSAGES = Integer.MAX_VALUE;

    private final long everyMs;
    private final EventBuffer buffer;
    private boolean closed;
    private long publishes;
    private long messages;
    private long bytes;
    private long fromMonoNs;
    private long fromWallMs;
    private long endMs;

    Tally(long everyMs, EventBuffer buffer) {
        this.everyMs = everyMs;
        this.buffer = buffer;
    }

    /** Adds a publish; false, and nothing added, after {@link #close}. */
    synchronized boolean add(Sender sender, long moreMessages, long moreBytes) {
        if (closed) {
            return false;
        }
        long nowMs = buffer.wallMs();
        if (isOver(nowMs) || messages + moreMessages > MOST_MESSAGES) {
            write(sender, nowMs);
        }
        if (publishes == 0) {
            fromMonoNs = buffer.monoNs();
            fromWallMs = nowMs;
            endMs = (nowMs / everyMs + 1) * everyMs;
        }
        publishes++;
        messages += moreMessages;
        bytes += moreBytes;
        return true;
    }

    /** Writes the digest of a span that has ended. */
    synchronized void writeOver(Sender sender) {
        long nowMs = buffer.wallMs();
        if (isOver(nowMs)) {
            write(sender, nowMs);
        }
    }

    /** Writes the digest up to now. */
    synchronized void write(Sender sender) {
        write(sender, buffer.wallMs());
    }

    /** Writes the last digest. */
    synchronized void close(Sender sender) {
        closed = true;
        write(sender, buffer.wallMs());
    }

    /** A clock that was set back ends a span, too. */
    private boolean isOver(long nowMs) {
        return nowMs >= endMs || nowMs < endMs - everyMs;
    }

    private void write(Sender sender, long nowMs) {
        if (publishes == 0) {
            return;
        }
        Event digest = new BrokerEvent.PublishDigest(
                sender, publishes, messages, bytes, fromMonoNs, fromWallMs);
        buffer.offer(digest, Math.max(endMs - 1, nowMs - MOST_BACK_MS));
        publishes = 0;
        messages = 0;
        bytes = 0;
    }
}
