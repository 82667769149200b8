package weir.kafka;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Quota;
import weir.feed.Guard;

/**
 * The sensors of clients that the broker has, in the order in which they came.
 *
 * <p>The broker's threads add and remove under a short lock; what a sensor shows is read outside it.
 */
final class Series {

    /** The metrics of an entity, null where missing: its use, and how long it was throttled. */
    private record Sensor(
            Entity entity, KafkaMetric value, KafkaMetric throttleTime, boolean taken) {}

    /** What the sensors show, and how many of those that are chosen were too many to be read. */
    record Reading(List<ClientRate> rates, int leftOut) {}

    private final Guard guard = new Guard();
    private final Map<Entity, Sensor> sensors = new LinkedHashMap<>();
    private Settings settings;

    /** Takes the sensors that these settings choose, from now on. */
    synchronized void choose(Settings changed) {
        settings = changed;
        sensors.replaceAll((entity, each) -> new Sensor(
                entity, each.value, each.throttleTime, isChosen(entity)));
    }

    private boolean isChosen(Entity entity) {
        return entity.exempt()
                || (settings.users().takes(entity.user())
                        && settings.clients().takes(entity.clientId()));
    }

    void add(KafkaMetric metric) {
        put(metric, metric);
    }

    void remove(KafkaMetric metric) {
        put(metric, null);
    }

    /** `now` is what the broker has in the place of the metric. */
    private void put(KafkaMetric metric, KafkaMetric now) {
        Entity entity = Entity.of(metric.metricName());
        String name = metric.metricName().name();
        boolean measures = entity != null && entity.type().measures(name);
        if (entity == null || (!measures && !name.equals(QuotaType.THROTTLE_TIME))) {
            return;
        }
        synchronized (this) {
            Sensor before = sensors.get(entity);
            KafkaMetric value = before == null ? null : before.value;
            KafkaMetric throttleTime = before == null ? null : before.throttleTime;
            Sensor after = new Sensor(
                    entity, measures ? now : value, measures ? throttleTime : now,
                    before == null ? isChosen(entity) : before.taken);
            if (after.value == null && after.throttleTime == null) {
                sensors.remove(entity);
            } else {
                sensors.put(entity, after);
            }
        }
    }

    Reading read() {
        List<Sensor> taken = new ArrayList<>();
        int chosen = 0;
        synchronized (this) {
            for (Sensor each : sensors.values()) {
                if (each.taken && each.value != null && chosen++ < settings.maxSeries()) {
                    taken.add(each);
                }
            }
        }
        List<ClientRate> rates = new ArrayList<>(taken.size());
        for (Sensor each : taken) {
            guard.run(() -> add(each, rates)); // one that fails costs itself
        }
        return new Reading(rates, chosen - taken.size());
    }

    private static void add(Sensor sensor, List<ClientRate> rates) {
        Long value = thousandths(sensor.value);
        if (value != null) {
            rates.add(new ClientRate(
                    sensor.entity, value, bound(sensor.value.config().quota()),
                    sensor.throttleTime == null ? null : thousandths(sensor.throttleTime)));
        }
    }

    /** Null without a limit, for which Kafka has 2^63 - 1. */
    private static Long bound(Quota quota) {
        return quota == null || !(quota.bound() < Long.MAX_VALUE)
                ? null : Math.round(quota.bound() * 1000);
    }

    /** Null where the broker has recorded nothing, or no number. */
    private static Long thousandths(KafkaMetric metric) {
        return metric.metricValue() instanceof Double value && Double.isFinite(value)
                ? Math.round(value * 1000) : null;
    }
}
