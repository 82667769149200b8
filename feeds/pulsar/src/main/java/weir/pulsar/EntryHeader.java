package weir.pulsar;

import java.io.IOException;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import weir.feed.Line;

/** What an entry says of itself: copied, since the broker re-uses its own objects. */
record EntryHeader(long publishTimeMs, int messages, Chunk chunk) {

    /** The place of a chunk in its message. */
    record Chunk(String uuid, int id, int count, long totalBytes) {}

    static EntryHeader of(MessageMetadata metadata) {
        boolean chunked = metadata.hasNumChunksFromMsg() && metadata.getNumChunksFromMsg() > 1
                && metadata.hasUuid() && metadata.hasChunkId() && metadata.hasTotalChunkMsgSize();
        return new EntryHeader(
                metadata.getPublishTime(), metadata.getNumMessagesInBatch(), chunked
                        ? new Chunk(metadata.getUuid(), metadata.getChunkId(),
                                metadata.getNumChunksFromMsg(), metadata.getTotalChunkMsgSize())
                        : null);
    }

    void write(Line line) throws IOException {
        line.number("publish_time_ms", publishTimeMs);
        line.number("num_messages", messages);
        if (chunk != null) {
            line.text("uuid", chunk.uuid());
            line.number("chunk_id", chunk.id());
            line.number("num_chunks", chunk.count());
            line.number("total_chunk_bytes", chunk.totalBytes());
        }
    }
}
