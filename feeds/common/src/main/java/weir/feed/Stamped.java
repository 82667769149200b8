package weir.feed;

/** An event with its place in the stream and both clocks at that place. */
public record Stamped(Event event, long seq, long monoNs, long wallMs) {}
