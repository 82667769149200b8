package weir.pulsar;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.broker.service.AbstractTopic;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.broker.service.ServerCnx;
import org.apache.pulsar.broker.service.Topic;
import org.apache.pulsar.broker.service.TopicEventsListener;
import org.apache.pulsar.broker.service.persistent.PersistentTopic;
import weir.feed.Guard;

/**
 * Looks regularly, on a thread of its own, at what brokers have no callback for: limits, ledgers,
 * cursors, and clients that the broker itself disconnected.
 */
final class Watch implements TopicEventsListener {

    private final BrokerService broker;
    private final Connections connections;
    private final Topics filter;
    private final Policies policies;
    private final Storage storage;
    private final Digests digests;
    private final Guard guard;
    private final ScheduledExecutorService thread;

    Watch(
            BrokerService broker, Connections connections, Topics filter, Policies policies,
            Storage storage, Digests digests, Guard guard) {
        this.broker = broker;
        this.connections = connections;
        this.filter = filter;
        this.policies = policies;
        this.storage = storage;
        this.digests = digests;
        this.guard = guard;
        this.thread = Executors.newSingleThreadScheduledExecutor(work -> {
            Thread made = new Thread(work, "weir-watch");
            made.setDaemon(true);
            return made;
        });
    }

    void start(long everyMs) {
        guard.run(policies::lookAtBroker);
        broker.addTopicEventListener(this);
        thread.scheduleWithFixedDelay(
                () -> guard.run(this::look), everyMs, everyMs, TimeUnit.MILLISECONDS);
    }

    void stop() {
        broker.removeTopicEventListener(this);
        thread.shutdownNow();
    }

    @Override
    public void handleEvent(
            String topic, TopicEvent event, EventStage stage, Throwable error) {
        if (stage != EventStage.SUCCESS) {
            return;
        }
        try {
            thread.execute(() -> guard.run(() -> changed(topic, event)));
        } catch (RejectedExecutionException stopped) {
            // the plug-in is closed
        }
    }

    private void changed(String name, TopicEvent event) {
        switch (event) {
            case CREATE, LOAD -> broker.getTopicReference(name).ifPresent(this::look);
            case UNLOAD -> {
                storage.unloaded(name);
                gone(name);
            }
            case DELETE -> {
                storage.deleted(name);
                gone(name);
            }
        }
    }

    private void look() {
        policies.lookAtBroker();
        Set<String> here = new HashSet<>();
        broker.forEachTopic(topic -> {
            here.add(topic.getName());
            guard.run(() -> look(topic));
        });
        for (String name : storage.topics()) {
            if (!here.contains(name)) {
                storage.unloaded(name);
                gone(name);
            }
        }
        connections.open().forEach(this::closeDisconnected);
    }

    private void look(Topic topic) {
        if (!filter.takes(topic.getName())) {
            return;
        }
        if (topic instanceof AbstractTopic each) {
            policies.look(each);
        }
        if (topic instanceof PersistentTopic each) {
            storage.look(each);
        }
    }

    private void gone(String topic) {
        policies.forget(topic);
        digests.forget(topic);
        connections.open().forEach(this::closeDisconnected);
    }

    /** The broker calls nothing when it is the one that disconnects a producer or consumer. */
    private void closeDisconnected(Connection connection) {
        ServerCnx cnx = connection.cnx();
        connection.senders().forEach((id, sender) -> {
            var now = cnx.getProducers().get(id);
            if (now == null || (now.isDone() && now.getNow(null) != sender.producer())) {
                connections.closed(connection, sender);
            }
        });
        connection.receivers().forEach((id, receiver) -> {
            var now = cnx.getConsumers().get(id);
            if (now == null || (now.isDone() && now.getNow(null) != receiver.consumer())) {
                connections.closed(connection, id, receiver);
            }
        });
    }
}
