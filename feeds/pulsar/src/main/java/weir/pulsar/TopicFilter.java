package weir.pulsar;

import java.util.List;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.naming.SystemTopicNames;
import org.apache.pulsar.common.naming.TopicName;

/** Which topics are taken: those of `include` (all, if empty) that are not in `exclude`. */
final class TopicFilter {

    private static final String SYSTEM_NAMESPACE = "pulsar/system";

    private final List<String> include;
    private final List<String> exclude;
    private final boolean systemTopics;
    private final String own;
    private final Sample sample;

    /** `own` is the topic that the plug-in writes to, or null. */
    TopicFilter(Settings settings, String own, Sample sample) {
        this.include = settings.include();
        this.exclude = settings.exclude();
        this.systemTopics = settings.systemTopics();
        this.own = own == null ? null : TopicName.get(own).getPartitionedTopicName();
        this.sample = sample;
    }

    /** Whether a name can be one of a tenant, a namespace or a topic. */
    static boolean isPattern(String name) {
        String[] parts = name.split("/", -1);
        if (parts.length > 3) {
            return false;
        }
        for (String part : parts) {
            if (part.isBlank()) {
                return false;
            }
        }
        return true;
    }

    boolean takes(String topic) {
        TopicName name = TopicName.get(topic);
        String whole = name.getPartitionedTopicName();
        if (whole.equals(own) || (!systemTopics && isSystem(name))) {
            return false;
        }
        return (include.isEmpty() || isIn(include, topic)) && !isIn(exclude, topic)
                && sample.takesTopic(whole);
    }

    /** Whether one of these tenants, namespaces and topics has a topic. */
    static boolean isIn(List<String> patterns, String topic) {
        String whole = TopicName.get(topic).getPartitionedTopicName();
        String path = whole.substring(whole.indexOf("://") + 3);
        return patterns.stream().anyMatch(p -> covers(p, path));
    }

    private static boolean isSystem(TopicName name) {
        return SystemTopicNames.isSystemTopic(name)
                || name.getNamespace().equals(SYSTEM_NAMESPACE)
                || NamespaceService.isSystemServiceNamespace(name.getNamespace())
                || NamespaceService.isHeartbeatNamespace(name.getNamespaceObject());
    }

    private static boolean covers(String pattern, String path) {
        return path.equals(pattern) || path.startsWith(pattern + "/");
    }
}
