package weir.pulsar;

import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerImpl;
import org.apache.bookkeeper.mledger.proto.ManagedLedgerInfo.LedgerInfo;
import org.apache.pulsar.broker.service.persistent.PersistentSubscription;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import org.apache.pulsar.common.util.Codec;
import weir.feed.Event;
import weir.feed.EventBuffer;

/**
 * Ledgers and cursors of the topics on this broker: announced when first seen and when they differ.
 * One thread uses it.
 */
final class Storage {

    private static final int ATTEMPTS = 10;

    private final EventBuffer buffer;
    private final Map<String, Known> topics = new HashMap<>();

    /** What was announced of a topic. */
    private static final class Known {
        /** By ledger whether it was closed. */
        private Map<Long, Boolean> ledgers = new HashMap<>();
        private Map<String, BrokerEvent.CursorState> cursors = new HashMap<>();
    }

    Storage(EventBuffer buffer) {
        this.buffer = buffer;
    }

    /** Announces what changed of a topic. */
    void look(PersistentTopic topic) {
        if (topic.getManagedLedger() instanceof ManagedLedgerImpl ledger) {
            Known known = topics.computeIfAbsent(topic.getName(), name -> new Known());
            lookAtLedgers(topic.getName(), ledger, known);
            lookAtCursors(topic, ledger, known);
        }
    }

    /** The names of the topics that were announced. */
    Set<String> topics() {
        return Set.copyOf(topics.keySet());
    }

    /** The topic went to another broker: nothing is deleted, but its cache is gone. */
    void unloaded(String topic) {
        Known known = topics.remove(topic);
        if (known != null) {
            known.ledgers.keySet().forEach(ledger -> buffer.offer(
                    new BrokerEvent.LedgerGone(BrokerEvent.LedgerGone.LEFT_CACHE, topic, ledger)));
        }
    }

    /** The topic and all that it had is deleted. */
    void deleted(String topic) {
        Known known = topics.remove(topic);
        if (known != null) {
            delete(topic, known.ledgers.keySet(), known.cursors.keySet());
        }
    }

    private void delete(String topic, Set<Long> ledgers, Set<String> cursors) {
        ledgers.forEach(ledger -> buffer.offer(
                new BrokerEvent.LedgerGone(BrokerEvent.LedgerGone.DELETED, topic, ledger)));
        cursors.forEach(cursor -> buffer.offer(new BrokerEvent.CursorDeleted(topic, cursor)));
    }

    private void lookAtLedgers(String topic, ManagedLedgerImpl ledger, Known known) {
        List<LedgerInfo> listed = ledger.getLedgersInfoAsList();
        Map<Long, Boolean> found = new HashMap<>();
        for (LedgerInfo each : listed) {
            long id = each.getLedgerId();
            boolean closed = each.hasTimestamp() && each.getTimestamp() > 0;
            found.put(id, closed);
            Boolean before = known.ledgers.get(id);
            if (before != null && before == closed) {
                continue;
            }
            // The figures of an open ledger are read at the event's own place in the stream: every
            // entry before it is in them.
            Supplier<Event> state = () -> open(topic, ledger, id);
            if (closed) {
                buffer.offer(new BrokerEvent.LedgerState(
                        topic, id, each.getEntries(), each.getSize(), each.getTimestamp()));
            } else {
                buffer.offer(state);
            }
        }
        Set<Long> gone = new HashSet<>(known.ledgers.keySet());
        gone.removeAll(found.keySet());
        delete(topic, gone, Set.of());
        known.ledgers = found;
    }

    private static Event open(String topic, ManagedLedgerImpl ledger, long id) {
        long entries = ledger.getCurrentLedgerEntries();
        long bytes = ledger.getCurrentLedgerSize();
        for (int i = 0; i < ATTEMPTS && entries != ledger.getCurrentLedgerEntries(); i++) {
            entries = ledger.getCurrentLedgerEntries();
            bytes = ledger.getCurrentLedgerSize();
        }
        return new BrokerEvent.LedgerState(topic, id, entries, bytes, null);
    }

    private void lookAtCursors(PersistentTopic of, ManagedLedgerImpl ledger, Known known) {
        String topic = of.getName();
        Map<String, BrokerEvent.CursorState> found = new HashMap<>();
        for (ManagedCursor cursor : ledger.getCursors()) {
            String name = Codec.decode(cursor.getName());
            BrokerEvent.CursorState state = new BrokerEvent.CursorState(
                    topic, name, text(cursor.getMarkDeletedPosition()),
                    text(cursor.getReadPosition()), cursor.isActive(), cursor.isDurable(),
                    expired(of.getSubscription(name)));
            found.put(name, state);
            if (!state.equals(known.cursors.get(name))) {
                buffer.offer(state);
            }
        }
        Set<String> gone = new HashSet<>(known.cursors.keySet());
        gone.removeAll(found.keySet());
        delete(topic, Set.of(), gone);
        known.cursors = found;
    }

    /** How many messages have expired since the topic was loaded; null where nothing expires. */
    private static Long expired(PersistentSubscription subscription) {
        return subscription == null || subscription.getExpiryMonitor() == null
                ? null : subscription.getExpiryMonitor().getTotalMessageExpired();
    }

    private static String text(Position position) {
        return position == null || position.getLedgerId() < 0
                ? null : position.getLedgerId() + ":" + position.getEntryId();
    }
}
