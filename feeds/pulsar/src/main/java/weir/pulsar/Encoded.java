package weir.pulsar;

/** An event and its record in JSON. */
record Encoded(Stamped stamped, byte[] json) {}
