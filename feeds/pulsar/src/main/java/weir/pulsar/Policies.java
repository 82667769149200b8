package weir.pulsar;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Field;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.resourcegroup.ResourceGroup;
import org.apache.pulsar.broker.service.AbstractTopic;
import org.apache.pulsar.broker.service.Topic;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.policies.data.BacklogQuota;
import org.apache.pulsar.common.policies.data.BacklogQuota.BacklogQuotaType;
import org.apache.pulsar.common.policies.data.HierarchyTopicPolicies;
import org.apache.pulsar.common.policies.data.PolicyHierarchyValue;
import org.apache.pulsar.common.policies.data.PublishRate;
import weir.feed.EventBuffer;

/**
 * The limits in force, as the broker's own memory has them: announced when first seen and when they
 * differ.
 *
 * <p>A topic's are looked at whenever something is published to it, so that a change stands before
 * the first request that it applies to; all of them are looked at regularly.
 */
final class Policies {

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TTL = "message_ttl_in_seconds";

    private final PulsarService pulsar;
    private final EventBuffer buffer;
    private final List<String> brokerKeys;
    private final Map<String, String> known = new ConcurrentHashMap<>();
    private final Map<String, Seen> seen = new ConcurrentHashMap<>();

    /** The values that a topic's documents were made from: the broker replaces them as a whole. */
    private record Seen(
            PublishRate ofNamespace, PublishRate ofTopic, ResourceGroup group) {}

    Policies(PulsarService pulsar, EventBuffer buffer, List<String> brokerKeys) {
        this.pulsar = pulsar;
        this.buffer = buffer;
        this.brokerKeys = brokerKeys;
    }

    /** Announces the publish limits of a topic if they are others than at the last look. */
    void changed(Topic topic) {
        if (!(topic instanceof AbstractTopic each)) {
            return;
        }
        PolicyHierarchyValue<PublishRate> rate = each.getHierarchyTopicPolicies().getPublishRate();
        Seen before = seen.get(topic.getName());
        if (before == null || before.ofNamespace() != rate.getNamespaceValue()
                || before.ofTopic() != ofTopic(rate)) {
            look(each);
        }
    }

    /** Announces what changed of the broker's own limits. */
    void lookAtBroker() {
        Map<String, Object> limits = new TreeMap<>();
        ServiceConfiguration configuration = pulsar.getConfiguration();
        for (String key : brokerKeys) {
            try {
                Field field = ServiceConfiguration.class.getDeclaredField(key);
                field.setAccessible(true);
                Object value = field.get(configuration);
                if (value instanceof Number || value instanceof Boolean) {
                    limits.put(key, value);
                } else if (value instanceof BacklogQuota.RetentionPolicy policy) {
                    limits.put(key, policy.name());
                }
            } catch (NoSuchFieldException | IllegalAccessException notInThisRelease) {
                continue;
            }
        }
        announce("broker", pulsar.getBrokerId(), limits);
    }

    /** Announces what changed of the limits of a topic, its namespace and its resource group. */
    void look(AbstractTopic topic) {
        TopicName name = TopicName.get(topic.getName());
        HierarchyTopicPolicies policies = topic.getHierarchyTopicPolicies();
        PolicyHierarchyValue<PublishRate> rate = policies.getPublishRate();
        PublishRate ofNamespace = rate.getNamespaceValue();
        PublishRate ofTopic = ofTopic(rate);
        ResourceGroup group = group(name);

        Map<String, Object> limits = rates(ofNamespace);
        Map<String, Object> quotas = new TreeMap<>();
        Map<String, Object> topicQuotas = new TreeMap<>();
        policies.getBackLogQuotaMap().forEach((type, value) -> {
            put(quotas, type, value.getNamespaceValue());
            put(topicQuotas, type, ofTopic(value));
        });
        if (!quotas.isEmpty()) {
            limits.put("backlog_quota", quotas);
        }
        if (group != null) {
            limits.put("resource_group", group.resourceGroupName);
            announce("resource_group", group.resourceGroupName, rates(group));
        }
        PolicyHierarchyValue<Integer> ttl = policies.getMessageTTLInSeconds();
        if (ttl.getNamespaceValue() != null) {
            limits.put(TTL, ttl.getNamespaceValue());
        }
        if (!topic.isSystemTopic()) { // the broker keeps them without limits of their namespace
            announce("namespace", name.getNamespace(), limits);
        }

        Map<String, Object> topicLimits = rates(ofTopic);
        if (!topicQuotas.isEmpty()) {
            topicLimits.put("backlog_quota", topicQuotas);
        }
        if (ofTopic(ttl) != null) {
            topicLimits.put(TTL, ofTopic(ttl));
        }
        announce("topic", name.getPartitionedTopicName(), topicLimits);
        seen.put(topic.getName(), new Seen(ofNamespace, ofTopic, group));
    }

    /** The topic is not on this broker any more. */
    void forget(String topic) {
        seen.remove(topic);
    }

    private static <T> T ofTopic(PolicyHierarchyValue<T> value) {
        return value.getTopicValue() == null ? value.getTopicGlobalValue() : value.getTopicValue();
    }

    private ResourceGroup group(TopicName name) {
        var groups = pulsar.getResourceGroupServiceManager();
        return groups == null ? null : groups.getNamespaceResourceGroup(name.getNamespaceObject());
    }

    private static Map<String, Object> rates(PublishRate rate) {
        return rate == null ? new TreeMap<>()
                : rates(rate.publishThrottlingRateInMsg, rate.publishThrottlingRateInByte);
    }

    /** This broker's share of a group's limits, as it is in force now. */
    private static Map<String, Object> rates(ResourceGroup group) {
        var limiter = group.getResourceGroupPublishLimiter();
        if (limiter == null) {
            return new TreeMap<>();
        }
        var values = limiter.getResourceGroupPublishValues();
        return rates(values.messages, values.bytes);
    }

    private static Map<String, Object> rates(long messages, long bytes) {
        Map<String, Object> limits = new TreeMap<>();
        if (messages > 0) {
            limits.put("publishRateInMsgs", messages);
        }
        if (bytes > 0) {
            limits.put("publishRateInBytes", bytes);
        }
        return limits;
    }

    /** A limit below 0 is kept: it switches the quota of weaker levels off. */
    private static void put(Map<String, Object> quotas, BacklogQuotaType type, BacklogQuota quota) {
        if (quota == null) {
            return;
        }
        boolean size = type == BacklogQuotaType.destination_storage;
        long limit = size ? quota.getLimitSize() : quota.getLimitTime();
        Map<String, Object> limits = new TreeMap<>();
        limits.put(size ? "limitSize" : "limitTime", limit);
        if (quota.getPolicy() != null) {
            limits.put("policy", quota.getPolicy().name());
        }
        quotas.put(type.name(), limits);
    }

    /** A document that was never there and limits nothing is no news. */
    private void announce(String scope, String name, Map<String, Object> limits) {
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("scope", scope);
        document.put("name", name);
        document.put("limits", limits);
        try {
            String text = JSON.writeValueAsString(document);
            String before = known.put(scope + " " + name, text);
            if (!text.equals(before) && (before != null || !limits.isEmpty())) {
                buffer.offer(new BrokerEvent.Policy(text));
            }
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
