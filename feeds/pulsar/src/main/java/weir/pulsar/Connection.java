package weir.pulsar;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.broker.service.ServerCnx;

/** A client connection as the contract names it, and what is open on it. */
final class Connection {

    private final ServerCnx cnx;
    private final String id;
    private final int ioThread;
    private final boolean supportsThrottle;
    private final String principal;
    private final boolean taken;
    private final Map<Long, Sender> senders = new ConcurrentHashMap<>();
    private final Map<Long, Receiver> receivers = new ConcurrentHashMap<>();
    private volatile boolean closed;
    private volatile boolean whole;
    private volatile long wholeUntilNs;

    Connection(
            ServerCnx cnx, String id, int ioThread, boolean supportsThrottle, String principal,
            boolean taken) {
        this.cnx = cnx;
        this.id = id;
        this.ioThread = ioThread;
        this.supportsThrottle = supportsThrottle;
        this.principal = principal;
        this.taken = taken;
    }

    ServerCnx cnx() {
        return cnx;
    }

    String id() {
        return id;
    }

    int ioThread() {
        return ioThread;
    }

    boolean supportsThrottle() {
        return supportsThrottle;
    }

    String principal() {
        return principal;
    }

    /** Whether the sample has it. */
    boolean taken() {
        return taken;
    }

    /** Producers that are open, by their number. */
    Map<Long, Sender> senders() {
        return senders;
    }

    /** Consumers that are open, by their number. */
    Map<Long, Receiver> receivers() {
        return receivers;
    }

    /** Publishes are written whole up to a time, whatever the digests. */
    void writeWhole(long untilNs) {
        wholeUntilNs = untilNs;
        whole = true;
    }

    /** Whether they are now. */
    boolean isWhole(long nowNs) {
        if (whole && nowNs - wholeUntilNs > 0) {
            whole = false;
        }
        return whole;
    }

    boolean closed() {
        return closed;
    }

    void close() {
        closed = true;
    }
}
