package weir.pulsar;

import java.io.IOException;
import weir.feed.Event;
import weir.feed.Line;

/** What a Pulsar broker did. */
sealed interface BrokerEvent extends Event {

    /** A client connected; whether its pauses will be reported. */
    record ConnectionOpened(Connection connection, boolean reportsPauses) implements BrokerEvent {
        @Override
        public String kind() {
            return "connection_opened";
        }

        @Override
        public void columns(Line line) throws IOException {
            line.text("cnx_id", connection.id());
            line.flag("supports_throttle", connection.supportsThrottle());
            line.number("io_thread", connection.ioThread());
            line.text("principal", connection.principal());
            line.flag("reports_pauses", reportsPauses);
        }
    }

    /** A state of a connection that needs its name only: closed, paused or resumed. */
    record ConnectionChanged(String kind, Connection connection) implements BrokerEvent {
        static final String CLOSED = "connection_closed";
        static final String PAUSED = "reads_paused";
        static final String RESUMED = "reads_resumed";

        @Override
        public void columns(Line line) throws IOException {
            line.text("cnx_id", connection.id());
        }
    }

    /** A producer was created or closed. */
    record ProducerChanged(String kind, Sender sender) implements BrokerEvent {
        static final String CREATED = "producer_created";
        static final String CLOSED = "producer_closed";

        @Override
        public void columns(Line line) throws IOException {
            sender.write(line);
        }
    }

    /** A consumer was created or closed. */
    record ConsumerChanged(String kind, Receiver receiver) implements BrokerEvent {
        static final String CREATED = "consumer_created";
        static final String CLOSED = "consumer_closed";

        @Override
        public void columns(Line line) throws IOException {
            receiver.write(line);
        }
    }

    /** A publish request was accepted and charged to the limits. */
    record Published(Sender sender, long sequenceId, long bytes, EntryHeader header)
            implements BrokerEvent {
        @Override
        public String kind() {
            return "publish";
        }

        @Override
        public void columns(Line line) throws IOException {
            sender.write(line);
            line.number("sequence_id", sequenceId);
            line.number("entry_bytes", bytes);
            header.write(line);
        }
    }

    /** Publish requests of one producer since a time, summed up. */
    record PublishDigest(
            Sender sender, long publishes, long messages, long bytes, long fromMonoNs,
            long fromWallMs) implements BrokerEvent {
        @Override
        public String kind() {
            return "publish_digest";
        }

        @Override
        public void columns(Line line) throws IOException {
            sender.write(line);
            line.number("publishes", publishes);
            line.number("num_messages", messages);
            line.number("entry_bytes", bytes);
            line.number("digest_from_mono_ns", fromMonoNs);
            line.number("digest_from_wall_ms", fromWallMs);
        }
    }

    /** An entry was persisted. */
    record EntryAdded(
            Sender sender, long sequenceId, long ledgerId, long entryId, long bytes,
            EntryHeader header, Long brokerTimeMs) implements BrokerEvent {
        @Override
        public String kind() {
            return "entry_added";
        }

        @Override
        public void columns(Line line) throws IOException {
            sender.write(line);
            line.number("sequence_id", sequenceId);
            line.position(ledgerId, entryId);
            line.number("entry_bytes", bytes);
            header.write(line);
            line.number("broker_time_ms", brokerTimeMs);
        }
    }

    /** An entry was sent to a consumer. */
    record Dispatched(
            Receiver receiver, long ledgerId, long entryId, long bytes, String producerName,
            long sequenceId, EntryHeader header, byte[] payload) implements BrokerEvent {
        @Override
        public String kind() {
            return "dispatch";
        }

        @Override
        public void columns(Line line) throws IOException {
            receiver.write(line);
            line.position(ledgerId, entryId);
            line.number("entry_bytes", bytes);
            line.text("producer_name", producerName);
            line.number("sequence_id", sequenceId);
            header.write(line);
            line.binary("payload", payload);
        }

        @Override
        public int weight() {
            return WEIGHT + (payload == null ? 0 : payload.length);
        }
    }

    /** A consumer acknowledged an entry, or everything up to it. */
    record Acked(Receiver receiver, long ledgerId, long entryId, boolean cumulative)
            implements BrokerEvent {
        @Override
        public String kind() {
            return "ack";
        }

        @Override
        public void columns(Line line) throws IOException {
            receiver.write(line);
            line.position(ledgerId, entryId);
            line.flag("ack_cumulative", cumulative);
        }
    }

    /** Where a cursor stands. */
    record CursorState(
            String topic, String subscription, String markDelete, String readPosition,
            boolean active, boolean durable, Long expired) implements BrokerEvent {
        @Override
        public String kind() {
            return "cursor_state";
        }

        @Override
        public void columns(Line line) throws IOException {
            line.text("topic", topic);
            line.text("subscription", subscription);
            line.text("mark_delete", markDelete);
            line.text("read_pos", readPosition);
            line.flag("active", active);
            line.flag("durable", durable);
            line.number("expired_messages", expired);
        }
    }

    /** A cursor was removed. */
    record CursorDeleted(String topic, String subscription) implements BrokerEvent {
        @Override
        public String kind() {
            return "cursor_deleted";
        }

        @Override
        public void columns(Line line) throws IOException {
            line.text("topic", topic);
            line.text("subscription", subscription);
        }
    }

    /** What a ledger holds; the close time is null while it is open. */
    record LedgerState(String topic, long ledgerId, long entries, long bytes, Long closeMs)
            implements BrokerEvent {
        @Override
        public String kind() {
            return "ledger_state";
        }

        @Override
        public void columns(Line line) throws IOException {
            line.text("topic", topic);
            line.number("ledger_id", ledgerId);
            line.number("ledger_entries", entries);
            line.number("ledger_bytes", bytes);
            line.number("ledger_close_ms", closeMs);
        }
    }

    /** A whole ledger was trimmed, or left the cache. */
    record LedgerGone(String kind, String topic, long ledgerId) implements BrokerEvent {
        static final String DELETED = "ledger_deleted";
        static final String LEFT_CACHE = "entry_invalidated";

        @Override
        public void columns(Line line) throws IOException {
            line.text("topic", topic);
            line.number("ledger_id", ledgerId);
        }
    }

    /** Limits that hold from now on, as a policy document. */
    record Policy(String document) implements BrokerEvent {
        @Override
        public String kind() {
            return "policy";
        }

        @Override
        public void columns(Line line) throws IOException {
            line.text("policy_json", document);
        }
    }
}
