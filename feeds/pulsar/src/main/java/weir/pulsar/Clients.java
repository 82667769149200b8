package weir.pulsar;

import io.netty.buffer.ByteBuf;
import org.apache.pulsar.broker.service.Consumer;
import org.apache.pulsar.broker.service.Producer;
import org.apache.pulsar.broker.service.ServerCnx;
import org.apache.pulsar.broker.service.Topic.PublishContext;
import org.apache.pulsar.broker.service.TransportCnx;
import org.apache.pulsar.common.api.proto.CommandAck;
import org.apache.pulsar.common.api.proto.CommandSubscribe.SubType;
import org.apache.pulsar.common.api.proto.MessageIdData;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.protocol.Commands;
import weir.feed.EventBuffer;

/** What clients do: producers and consumers come and go, messages are published, sent, acknowledged. */
final class Clients {

    /** Under this name a request carries what is known of it until it is persisted. */
    private static final String REQUEST = "weir";
    private static final ThreadLocal<MessageMetadata> METADATA =
            ThreadLocal.withInitial(MessageMetadata::new);

    /** A publish request on its way to storage. */
    private record Request(Sender sender, EntryHeader header) {}

    private final Connections connections;
    private final Topics topics;
    private final Policies policies;
    private final Digests digests;
    private final EventBuffer buffer;
    private final boolean payload;

    Clients(
            Connections connections, Topics topics, Policies policies, Digests digests,
            EventBuffer buffer, boolean payload) {
        this.connections = connections;
        this.topics = topics;
        this.policies = policies;
        this.digests = digests;
        this.buffer = buffer;
        this.payload = payload;
    }

    void connectionCreated(ServerCnx cnx) {
        connections.of(cnx);
    }

    void connectionClosed(ServerCnx cnx) {
        connections.closed(cnx);
    }

    void producerCreated(TransportCnx cnx, Producer producer) {
        sender(connections.of(cnx), producer);
    }

    void producerClosed(TransportCnx cnx, Producer producer) {
        Connection connection = connections.of(cnx);
        Sender sender = connection.senders().get(producer.getProducerId());
        if (sender != null && sender.producer() == producer) {
            connections.closed(connection, sender);
        }
    }

    void consumerCreated(TransportCnx cnx, Consumer consumer) {
        receiver(connections.of(cnx), consumer);
    }

    void consumerClosed(TransportCnx cnx, Consumer consumer) {
        Connection connection = connections.of(cnx);
        Receiver receiver = connection.receivers().get(consumer.consumerId());
        if (receiver != null && receiver.consumer() == consumer) {
            connections.closed(connection, consumer.consumerId(), receiver);
        }
    }

    void published(Producer producer, ByteBuf headersAndPayload, PublishContext context) {
        Sender sender = sender(connections.of(producer.getCnx()), producer);
        if (sender == null || !sender.taken()) {
            return;
        }
        policies.changed(producer.getTopic());
        boolean summed = digests.sumUp(
                sender, context.isChunked(), context.getNumberOfMessages(), context.getMsgSize());
        if (summed) {
            return;
        }
        MessageMetadata metadata = METADATA.get();
        int start = headersAndPayload.readerIndex();
        EntryHeader header;
        try {
            Commands.parseMessageMetadata(headersAndPayload, metadata);
            header = EntryHeader.of(metadata);
        } finally {
            headersAndPayload.readerIndex(start);
            metadata.clear();
        }
        context.setProperty(REQUEST, new Request(sender, header));
        buffer.offer(new BrokerEvent.Published(
                sender, context.getSequenceId(), context.getMsgSize(), header));
    }

    /** The broker has answered a request; it names no place for what it had stored before. */
    void produced(long ledgerId, long entryId, PublishContext context) {
        if (!(context.getProperty(REQUEST) instanceof Request request)) {
            return;
        }
        buffer.offer(new BrokerEvent.EntryAdded(
                request.sender(), context.getSequenceId(), Math.max(ledgerId, 0),
                Math.max(entryId, 0), context.getMsgSize(), request.header(),
                context.getEntryTimestamp() > 0 ? context.getEntryTimestamp() : null));
    }

    void dispatched(
            TransportCnx cnx, Consumer consumer, long ledgerId, long entryId, ByteBuf entry) {
        Receiver receiver = receiver(connections.of(cnx), consumer);
        if (receiver == null || !takesDeliveries(receiver)) {
            return;
        }
        MessageMetadata metadata = METADATA.get();
        int start = entry.readerIndex();
        try {
            int stored = entry.readableBytes();
            Commands.skipBrokerEntryMetadataIfExist(entry);
            Commands.parseMessageMetadata(entry, metadata);
            EntryHeader header = EntryHeader.of(metadata);
            boolean chunk = header.chunk() != null;
            buffer.offer(new BrokerEvent.Dispatched(
                    receiver, ledgerId, entryId, chunk ? entry.readableBytes() : stored,
                    metadata.getProducerName(), metadata.getSequenceId(), header,
                    chunk && payload ? bytesOf(entry) : null));
        } finally {
            entry.readerIndex(start);
            metadata.clear();
        }
    }

    /** An acknowledgement inside a transaction, or of a part of a batch, ends no entry. */
    void acked(TransportCnx cnx, Consumer consumer, CommandAck ack) {
        Receiver receiver = receiver(connections.of(cnx), consumer);
        if (receiver == null || !takesDeliveries(receiver) || ack.hasTxnidMostBits()) {
            return;
        }
        boolean cumulative = ack.getAckType() == CommandAck.AckType.Cumulative;
        for (int i = 0; i < ack.getMessageIdsCount(); i++) {
            MessageIdData id = ack.getMessageIdAt(i);
            if (isWhole(id)) {
                buffer.offer(new BrokerEvent.Acked(
                        receiver, id.getLedgerId(), id.getEntryId(), cumulative));
            }
        }
    }

    private boolean takesDeliveries(Receiver receiver) {
        return receiver.taken() && (receiver.whole() || digests.isChunked(receiver.topic()));
    }

    /** The bits of an acknowledgement are the messages of a batch that are left. */
    private static boolean isWhole(MessageIdData id) {
        for (int i = 0; i < id.getAckSetsCount(); i++) {
            if (id.getAckSetAt(i) != 0) {
                return false;
            }
        }
        return true;
    }

    private static byte[] bytesOf(ByteBuf entry) {
        byte[] bytes = new byte[entry.readableBytes()];
        entry.getBytes(entry.readerIndex(), bytes);
        return bytes;
    }

    /** The producer; one that was not met before is announced. Null if the connection is closed. */
    private Sender sender(Connection connection, Producer producer) {
        Sender known = connection.senders().get(producer.getProducerId());
        if (known != null && known.producer() == producer) {
            return known;
        }
        if (connection.closed()) {
            return null;
        }
        if (known != null) {
            connections.closed(connection, known);
        }
        String topic = producer.getTopic().getName();
        Sender made = new Sender(
                connection, topic, producer.getProducerId(), producer.getProducerName(), producer,
                connection.taken() && topics.takes(topic), digests.tally(topic));
        connection.senders().put(made.producerId(), made);
        if (made.taken()) {
            policies.changed(producer.getTopic());
            buffer.offer(new BrokerEvent.ProducerChanged(BrokerEvent.ProducerChanged.CREATED, made));
        }
        return made;
    }

    /** The consumer; one that was not met before is announced. Null if the connection is closed. */
    private Receiver receiver(Connection connection, Consumer consumer) {
        Receiver known = connection.receivers().get(consumer.consumerId());
        if (known != null && known.consumer() == consumer) {
            return known;
        }
        if (connection.closed()) {
            return null;
        }
        if (known != null) {
            connections.closed(connection, consumer.consumerId(), known);
        }
        String topic = consumer.getSubscription().getTopicName();
        Receiver made = new Receiver(
                connection, topic, consumer.getSubscription().getName(),
                nameOf(consumer.subType()), nameOf(connection, consumer), consumer,
                connection.taken() && topics.takes(topic), digests.isWhole(topic));
        connection.receivers().put(consumer.consumerId(), made);
        if (made.taken()) {
            buffer.offer(new BrokerEvent.ConsumerChanged(BrokerEvent.ConsumerChanged.CREATED, made));
        }
        return made;
    }

    private static String nameOf(Connection connection, Consumer consumer) {
        String name = consumer.consumerName();
        return name == null || name.isEmpty()
                ? connection.id() + ":" + consumer.consumerId() : name;
    }

    private static String nameOf(SubType type) {
        return switch (type) {
            case Exclusive -> "exclusive";
            case Shared -> "shared";
            case Failover -> "failover";
            case Key_Shared -> "key_shared";
        };
    }
}
