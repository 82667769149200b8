package weir.feed;

import java.io.IOException;

/** What the broker did: one kind of the event contract with its columns, without the time. */
public interface Event {

    /** Bytes that an event holds in the buffer, payload aside. */
    int WEIGHT = 256;

    /** The contract's name of the kind. */
    String kind();

    /** Writes the columns of the kind; those common to all kinds are written by {@link Encoder}. */
    void columns(Line line) throws IOException;

    /** An estimate of the bytes that the event holds while it waits. */
    default int weight() {
        return WEIGHT;
    }

    /** The broker process started, with a version of the plug-in. */
    record BrokerStarted(String version) implements Event {
        @Override
        public String kind() {
            return "broker_started";
        }

        @Override
        public void columns(Line line) throws IOException {
            line.text("plugin_version", version);
        }
    }

    /**
     * Events are missing since a time: `dropped` of them, null where nobody counted; without
     * times, since ever.
     */
    record Gap(Long fromMonoNs, Long fromWallMs, Long dropped) implements Event {
        @Override
        public String kind() {
            return "gap";
        }

        @Override
        public void columns(Line line) throws IOException {
            line.number("gap_from_mono_ns", fromMonoNs);
            line.number("gap_from_wall_ms", fromWallMs);
            line.number("dropped", dropped);
        }
    }
}
