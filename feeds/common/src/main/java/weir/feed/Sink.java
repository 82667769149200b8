package weir.feed;

import java.io.IOException;
import java.util.List;

/** A place that records go to. Only the delivery thread calls it, so it may wait. */
public interface Sink extends AutoCloseable {

    /**
     * Stores the records in their order. An IOException says that none, or not all, are stored: the
     * same ones come again, after a {@link Vanished} at once.
     */
    void write(List<Encoded> records) throws IOException, InterruptedException;

    /** Called when nothing waits, every few milliseconds. */
    default void idle() throws IOException {
        // most sinks have nothing to do
    }

    @Override
    void close() throws IOException;

    /** Records that had been stored are gone; the sink goes on. */
    final class Vanished extends IOException {
        private static final long serialVersionUID = 1;

        private final transient Stamped first;
        private final long count;

        public Vanished(String message, Stamped first, long count) {
            super(message);
            this.first = first;
            this.count = count;
        }

        /** The earliest event that is gone. */
        public Stamped first() {
            return first;
        }

        public long count() {
            return count;
        }
    }
}
