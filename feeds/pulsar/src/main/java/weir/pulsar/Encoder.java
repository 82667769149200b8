package weir.pulsar;

import java.io.IOException;

/** Turns events into records of the contract. */
record Encoder(String cluster, String broker) {

    static final String FEED = "pulsar_interceptor";

    byte[] encode(Stamped stamped) throws IOException {
        Line line = new Line();
        line.text("event_type", stamped.event().kind());
        line.text("source_feed", FEED);
        line.text("cluster", cluster);
        line.text("broker", broker);
        line.number("seq", stamped.seq());
        line.number("ts_mono_ns", stamped.monoNs());
        line.number("ts_wall_ms", stamped.wallMs());
        stamped.event().columns(line);
        return line.end();
    }
}
