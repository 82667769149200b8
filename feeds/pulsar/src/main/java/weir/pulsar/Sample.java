package weir.pulsar;

import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;

/** A share of all connections, or of all topics: each is taken whole, or not at all. */
record Sample(Settings.SampleBy by, double share) {

    /** `name` is the topic without the ending of a partition: its partitions go together. */
    boolean takesTopic(String name) {
        return by != Settings.SampleBy.TOPIC || isBelow(name);
    }

    boolean takesConnection(String id) {
        return by != Settings.SampleBy.CONNECTION || isBelow(id);
    }

    private boolean isBelow(String name) {
        CRC32 crc = new CRC32();
        crc.update(name.getBytes(StandardCharsets.UTF_8));
        return crc.getValue() < share * (1L << 32);
    }
}
