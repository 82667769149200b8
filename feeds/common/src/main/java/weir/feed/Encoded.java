package weir.feed;

/** An event and its record in JSON. */
public record Encoded(Stamped stamped, byte[] json) {}
