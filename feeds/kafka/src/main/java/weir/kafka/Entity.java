package weir.kafka;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.MetricName;

/**
 * Whose use a sensor measures: the tags `user` and `client-id`, empty where the limit names none.
 *
 * <p>Kafka percent-encodes users in tags, and leaves client ids as they are.
 */
record Entity(QuotaType type, String user, String clientId, boolean exempt) {

    private static final String USER = "user";
    private static final String CLIENT_ID = "client-id";

    /** Null if the metric is none of a client, or has the tags of a quota callback of its own. */
    static Entity of(MetricName name) {
        QuotaType type = QuotaType.ofGroup(name.group());
        if (type == null) {
            return null;
        }
        boolean exempt = name.name().equals(QuotaType.EXEMPT);
        Map<String, String> tags = name.tags();
        if (!exempt && !tags.containsKey(USER) && !tags.containsKey(CLIENT_ID)) {
            return null;
        }
        String user = URLDecoder.decode(tags.getOrDefault(USER, ""), StandardCharsets.UTF_8);
        return new Entity(type, user, tags.getOrDefault(CLIENT_ID, ""), exempt);
    }
}
