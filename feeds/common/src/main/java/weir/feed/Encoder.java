package weir.feed;

import java.io.IOException;

/** Turns events of a broker into records of the contract; `feed` is their `source_feed`. */
public record Encoder(String feed, String cluster, String broker) {

    public byte[] encode(Stamped stamped) throws IOException {
        Line line = new Line();
        line.text("event_type", stamped.event().kind());
        line.text("source_feed", feed);
        line.text("cluster", cluster);
        line.text("broker", broker);
        line.number("seq", stamped.seq());
        line.number("ts_mono_ns", stamped.monoNs());
        line.number("ts_wall_ms", stamped.wallMs());
        stamped.event().columns(line);
        return line.end();
    }
}
