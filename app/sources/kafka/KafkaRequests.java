package weir;

import java.nio.charset.StandardCharsets;
import java.security.Provider;
import java.security.Security;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.security.auth.callback.CallbackHandler;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslClientFactory;
import javax.security.sasl.SaslException;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/**
 * Kafka's admin client, consumer and producer, whose collections come and go as JSON: one call of the
 * gateway, however many topics, partitions, groups or records there are.
 *
 * kafka_client.py compiles this file with Janino, the compiler of Spark's generated code. It knows no
 * lambdas and no type arguments. Only what kafka_client.py reads is written.
 */
public final class KafkaRequests {
    static final ObjectMapper JSON = new ObjectMapper();
    private Admin admin;

    /** The release of the client. */
    public static String release() {
        return AppInfoParser.getVersion();
    }

    /** Those of some options that neither the admin client nor the consumer has. */
    public static String unknown(String options) throws Exception {
        Set left = new HashSet(list(options));
        ClassLoader before = load(KafkaRequests.class.getClassLoader());
        try {
            left.removeAll(AdminClientConfig.configNames());
            left.removeAll(ConsumerConfig.configNames());
        } finally {
            load(before);
        }
        return JSON.writeValueAsString(left);
    }

    /** Creates the admin client, which connects with its first request. */
    public void open(String options) throws Exception {
        ClassLoader before = load(KafkaRequests.class.getClassLoader());
        try {
            Map given = map(options);
            separate(given, before);
            admin = AdminClient.create(given);
        } finally {
            load(before);
        }
    }

    public void close(int waitMs) {
        admin.close(Duration.ofMillis((long) waitMs));
    }

    /** The names of all topics, internal ones included. */
    public Answers names(int timeoutMs) {
        ListTopicsOptions options = new ListTopicsOptions().listInternal(true);
        options.timeoutMs(Integer.valueOf(timeoutMs));
        return new Answers().add(admin.listTopics(options).names());
    }

    /** By topic its id, and the leader of each partition. */
    public Answers topics(String names, int timeoutMs) throws Exception {
        List wanted = list(names);
        DescribeTopicsOptions options = new DescribeTopicsOptions();
        options.timeoutMs(Integer.valueOf(timeoutMs));
        return new Answers().add(wanted, admin.describeTopics(wanted, options).topicNameValues());
    }

    /** Two answers: the groups of some protocols with their states and types, and the brokers'
     * errors. */
    public Answers groups(String protocols, int timeoutMs) throws Exception {
        ListGroupsOptions options = new ListGroupsOptions();
        options.withProtocolTypes(new HashSet(list(protocols)));
        options.timeoutMs(Integer.valueOf(timeoutMs));
        ListGroupsResult result = admin.listGroups(options);
        return new Answers().add(result.valid()).add(result.errors());
    }

    /** By consumer group its members, each with the partitions that it has; `several` are lists of
     * groups. */
    public Answers consumers(String several, int timeoutMs) throws Exception {
        Answers answers = new Answers();
        for (Object names : list(several)) {
            DescribeConsumerGroupsOptions options = new DescribeConsumerGroupsOptions();
            options.timeoutMs(Integer.valueOf(timeoutMs));
            answers.add((List) names,
                admin.describeConsumerGroups((List) names, options).describedGroups());
        }
        return answers;
    }

    /** By share group what `consumers` has of a consumer group. */
    public Answers shareConsumers(String several, int timeoutMs) throws Exception {
        Answers answers = new Answers();
        for (Object names : list(several)) {
            DescribeShareGroupsOptions options = new DescribeShareGroupsOptions();
            options.timeoutMs(Integer.valueOf(timeoutMs));
            answers.add((List) names,
                admin.describeShareGroups((List) names, options).describedGroups());
        }
        return answers;
    }

    /** By share group [start offset, lag or null] of its partitions; `several` are lists of groups, a
     * request each. */
    public Answers shareOffsets(String several, int timeoutMs) throws Exception {
        Answers answers = new Answers();
        for (Object names : list(several)) {
            Map wanted = new LinkedHashMap();
            for (Object name : (List) names) {
                wanted.put(name, new ListShareGroupOffsetsSpec());
            }
            ListShareGroupOffsetsOptions options = new ListShareGroupOffsetsOptions();
            options.timeoutMs(Integer.valueOf(timeoutMs));
            ListShareGroupOffsetsResult result = admin.listShareGroupOffsets(wanted, options);
            for (Object name : (List) names) {
                answers.add(result.partitionsToOffsetInfo((String) name));
            }
        }
        return answers;
    }

    /** By group its committed offsets; `several` are lists of groups, a request each. */
    public Answers committed(String several, int timeoutMs) throws Exception {
        Answers answers = new Answers();
        for (Object names : list(several)) {
            Map wanted = new LinkedHashMap();
            for (Object name : (List) names) {
                wanted.put(name, new ListConsumerGroupOffsetsSpec());
            }
            ListConsumerGroupOffsetsOptions options = new ListConsumerGroupOffsetsOptions();
            options.timeoutMs(Integer.valueOf(timeoutMs));
            ListConsumerGroupOffsetsResult result = admin.listConsumerGroupOffsets(wanted, options);
            for (Object name : (List) names) {
                answers.add(result.partitionsToOffsetAndMetadata((String) name));
            }
        }
        return answers;
    }

    /** By group, of [name, partitions] each, the offsets among those partitions that are in no open
     * transaction (KIP-447). */
    public Answers settled(String groups, int timeoutMs) throws Exception {
        Map wanted = new LinkedHashMap();
        for (Object each : list(groups)) {
            List pairs = (List) ((List) each).get(1);
            wanted.put(((List) each).get(0),
                new ListConsumerGroupOffsetsSpec().topicPartitions(partitions(pairs)));
        }
        ListConsumerGroupOffsetsOptions options = new ListConsumerGroupOffsetsOptions();
        options.requireStable(true).timeoutMs(Integer.valueOf(timeoutMs));
        ListConsumerGroupOffsetsResult result = admin.listConsumerGroupOffsets(wanted, options);
        Answers answers = new Answers();
        for (Object name : wanted.keySet()) {
            answers.add(result.partitionsToOffsetAndMetadata((String) name));
        }
        return answers;
    }

    /** By partition the first offset of its log, the next one, or with `stable` that which a reader
     * of committed records comes to; `several` are lists of partitions, a request to each leader for
     * every list. */
    public Answers offsets(String several, String which, int timeoutMs) throws Exception {
        OffsetSpec spec = which.equals("first") ? OffsetSpec.earliest() : OffsetSpec.latest();
        IsolationLevel level = which.equals("stable")
            ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED;
        Answers answers = new Answers();
        for (Object pairs : list(several)) {
            Map wanted = new LinkedHashMap();
            for (Object partition : partitions((List) pairs)) {
                wanted.put(partition, spec);
            }
            ListOffsetsOptions options = new ListOffsetsOptions(level);
            options.timeoutMs(Integer.valueOf(timeoutMs));
            ListOffsetsResult result = admin.listOffsets(wanted, options);
            for (Object partition : wanted.keySet()) {
                answers.add(result.partitionResult((TopicPartition) partition));
            }
        }
        return answers;
    }

    /** By topic the values of some of its settings; `several` are lists of topics, a request each. */
    public Answers settings(String several, String keys, int timeoutMs) throws Exception {
        Answers answers = new Answers();
        answers.keys = list(keys);
        for (Object names : list(several)) {
            List wanted = new ArrayList();
            for (Object name : (List) names) {
                wanted.add(new ConfigResource(ConfigResource.Type.TOPIC, (String) name));
            }
            DescribeConfigsOptions options = new DescribeConfigsOptions();
            options.timeoutMs(Integer.valueOf(timeoutMs));
            answers.add(wanted, admin.describeConfigs(wanted, options).values());
        }
        return answers;
    }

    /** By partition the states of producers that its leader holds; `several` as of offsets. */
    public Answers producers(String several, int timeoutMs) throws Exception {
        Answers answers = new Answers();
        for (Object pairs : list(several)) {
            List wanted = partitions((List) pairs);
            DescribeProducersOptions options = new DescribeProducersOptions();
            options.timeoutMs(Integer.valueOf(timeoutMs));
            DescribeProducersResult result = admin.describeProducers(wanted, options);
            for (Object partition : wanted) {
                answers.add(result.partitionResult((TopicPartition) partition));
            }
        }
        return answers;
    }

    /** By broker the transactional ids of some producer ids, or without any of all, that are in some
     * states, or without any in all. */
    public Answers transactions(String producerIds, String states, int timeoutMs) throws Exception {
        List wanted = new ArrayList();
        for (Object id : list(producerIds)) {
            wanted.add(Long.valueOf(((Number) id).longValue()));
        }
        List named = new ArrayList();
        for (Object state : list(states)) {
            named.add(TransactionState.parse((String) state));
        }
        ListTransactionsOptions options = new ListTransactionsOptions().filterProducerIds(wanted);
        options.filterStates(named);
        options.timeoutMs(Integer.valueOf(timeoutMs));
        Answers answers = new Answers();
        answers.byBroker = admin.listTransactions(options).byBrokerId();
        return answers;
    }

    /** By transactional id its transaction, as the coordinator knows it. */
    public Answers described(String transactionalIds, int timeoutMs) throws Exception {
        List wanted = list(transactionalIds);
        DescribeTransactionsOptions options = new DescribeTransactionsOptions();
        options.timeoutMs(Integer.valueOf(timeoutMs));
        DescribeTransactionsResult result = admin.describeTransactions(wanted, options);
        Answers answers = new Answers();
        for (Object id : wanted) {
            answers.add(result.description((String) id));
        }
        return answers;
    }

    /** The limits of clients: for each entity its names by type, and its values by key. */
    public Answers quotas(int timeoutMs) {
        DescribeClientQuotasOptions options = new DescribeClientQuotasOptions();
        options.timeoutMs(Integer.valueOf(timeoutMs));
        DescribeClientQuotasResult result =
            admin.describeClientQuotas(ClientQuotaFilter.all(), options);
        Answers answers = new Answers();
        answers.quotas = true;
        return answers.add(result.entities());
    }

    /** By feature the highest level that a broker supports. */
    public Answers features(int timeoutMs) {
        DescribeFeaturesOptions options = new DescribeFeaturesOptions();
        options.timeoutMs(Integer.valueOf(timeoutMs));
        return new Answers().add(admin.describeFeatures(options).featureMetadata());
    }

    /** What ACLs allow on topics. */
    public Answers acls(int timeoutMs) {
        DescribeAclsOptions options = new DescribeAclsOptions();
        options.timeoutMs(Integer.valueOf(timeoutMs));
        AclBindingFilter filter = new AclBindingFilter(
            new ResourcePatternFilter(ResourceType.TOPIC, null, PatternType.ANY),
            new AccessControlEntryFilter(null, null, AclOperation.ANY, AclPermissionType.ALLOW));
        return new Answers().add(admin.describeAcls(filter, options).values());
    }

    /** A reader from positions [topic, partition, offset, end], each partition once. It takes so many
     * records of each, or so many bytes, and none once so many have come of all. */
    public static Reader reader(String options, String positions, int records, long bytes, long most)
            throws Exception {
        ClassLoader before = load(KafkaRequests.class.getClassLoader());
        try {
            Map given = map(options);
            separate(given, before);
            return new Reader(given, list(positions), records, bytes, most);
        } finally {
            load(before);
        }
    }

    /** Lets this thread, and those that it starts, load from there the classes that options name;
     * where it has loaded from before. */
    static ClassLoader load(ClassLoader loader) {
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        thread.setContextClassLoader(loader);
        return before;
    }

    /**
     * Lets the clients of both releases log in. Java has one list of SASL clients for a mechanism,
     * into which the login module of a release enters its own by a name that only the first one
     * gets, and a SASL client of OAUTHBEARER takes the classes of its own release alone.
     */
    static void separate(Map options, ClassLoader others) throws Exception {
        String mechanism = (String) options.get("sasl.mechanism");
        String config = (String) options.get("sasl.jaas.config");
        if (mechanism == null || config == null) {
            return;
        }
        try {
            Class.forName(config.trim().split("\\s+")[0], true, others);
        } catch (ClassNotFoundException error) {
            return; // only this client has it
        }
        Provider[] providers = Security.getProviders("SaslClientFactory." + mechanism);
        for (int i = 0; providers != null && i < providers.length; i++) {
            String name = providers[i].getService("SaslClientFactory", mechanism).getClassName();
            Class ours = Class.forName(name, true, KafkaRequests.class.getClassLoader());
            if (ours.getClassLoader() != providers[i].getClass().getClassLoader()) {
                Object factory = ours.getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
                Security.insertProviderAt(new Login(mechanism, (SaslClientFactory) factory), 1);
            }
        }
    }

    static final class Login extends Provider {
        Login(String mechanism, SaslClientFactory factory) {
            super("Weir " + mechanism, "1.0", "SASL clients of Weir's release of kafka-clients");
            putService(new SaslClients(this, mechanism, factory));
        }
    }

    /** The SASL clients of this release, for its own handlers alone. */
    static final class SaslClients extends Provider.Service implements SaslClientFactory {
        private final SaslClientFactory factory;

        SaslClients(Provider provider, String mechanism, SaslClientFactory factory) {
            super(provider, "SaslClientFactory", mechanism, SaslClients.class.getName(), null, null);
            this.factory = factory;
        }

        public Object newInstance(Object parameter) {
            return this;
        }

        public String[] getMechanismNames(Map options) {
            return factory.getMechanismNames(options);
        }

        public SaslClient createSaslClient(String[] mechanisms, String id, String protocol,
                String server, Map options, CallbackHandler handler) throws SaslException {
            if (handler.getClass().getClassLoader() != factory.getClass().getClassLoader()) {
                return null;
            }
            return factory.createSaslClient(mechanisms, id, protocol, server, options, handler);
        }
    }

    static List list(String json) throws Exception {
        return (List) JSON.readValue(json, ArrayList.class);
    }

    static Map map(String json) throws Exception {
        return (Map) JSON.readValue(json, HashMap.class);
    }

    static List partitions(List pairs) {
        List partitions = new ArrayList(pairs.size());
        for (Object pair : pairs) {
            partitions.add(partition((List) pair));
        }
        return partitions;
    }

    static TopicPartition partition(List pair) {
        return new TopicPartition((String) pair.get(0), ((Number) pair.get(1)).intValue());
    }

    /** The names of an exception and its causes, then the message of the last. */
    static List error(Throwable error) {
        List texts = new ArrayList();
        Throwable last = error;
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (!(each instanceof ExecutionException)) {
                texts.add(each.getClass().getSimpleName());
            }
            last = each;
        }
        texts.add(String.valueOf(last.getMessage()));
        return texts;
    }

    /** The answers to requests, in the order in which they were asked for. */
    public static final class Answers {
        List keys;
        boolean quotas;
        KafkaFuture byBroker;
        private final List futures = new ArrayList();
        private KafkaFuture all;

        Answers add(KafkaFuture future) {
            futures.add(future);
            return this;
        }

        Answers add(Collection wanted, Map found) {
            for (Object key : wanted) {
                futures.add(found.get(key));
            }
            return this;
        }

        /** Whether all are there, after so long at most. */
        public boolean ready(int waitMs) throws Exception {
            try {
                if (byBroker != null && all == null) {
                    futures.add(byBroker);  // should the brokers not be known
                    Map known = (Map) byBroker.get((long) waitMs, TimeUnit.MILLISECONDS);
                    futures.clear();
                    futures.addAll(known.values());
                }
                if (all == null) {
                    all = KafkaFuture.allOf((KafkaFuture[]) futures.toArray(new KafkaFuture[0]));
                }
                all.get((long) waitMs, TimeUnit.MILLISECONDS);
            } catch (TimeoutException error) {
                return false;
            } catch (ExecutionException error) {
                return true;
            }
            return true;
        }

        /** `values` with null for what failed or is not there yet, and `errors` by their numbers. */
        public String json() throws Exception {
            List values = new ArrayList(futures.size());
            Map errors = new LinkedHashMap();
            for (int i = 0; i < futures.size(); i++) {
                KafkaFuture future = (KafkaFuture) futures.get(i);
                Object value = null;
                if (future.isDone()) {
                    try {
                        value = plain(future.get());
                    } catch (ExecutionException error) {
                        errors.put(Integer.valueOf(i), error(error));
                    }
                }
                values.add(value);
            }
            Map document = new HashMap();
            document.put("values", values);
            document.put("errors", errors);
            return JSON.writeValueAsString(document);
        }

        private Object plain(Object value) {
            if (value instanceof ListOffsetsResult.ListOffsetsResultInfo) {
                return Long.valueOf(((ListOffsetsResult.ListOffsetsResultInfo) value).offset());
            } else if (value instanceof TopicDescription) {
                return topic((TopicDescription) value);
            } else if (value instanceof Map) {
                return quotas ? entities((Map) value) : offsets((Map) value);
            } else if (value instanceof FeatureMetadata) {
                Map levels = new HashMap();
                for (Object each : ((FeatureMetadata) value).supportedFeatures().entrySet()) {
                    Map.Entry entry = (Map.Entry) each;
                    levels.put(entry.getKey(), Short.valueOf(
                        ((SupportedVersionRange) entry.getValue()).maxVersion()));
                }
                return levels;
            } else if (value instanceof Config) {
                return settings((Config) value);
            } else if (value instanceof DescribeProducersResult.PartitionProducerState) {
                return plain(((DescribeProducersResult.PartitionProducerState) value).activeProducers());
            } else if (value instanceof Collection) {
                List items = new ArrayList(((Collection) value).size());
                for (Object item : (Collection) value) {
                    items.add(plain(item));
                }
                return items;
            } else if (value instanceof ProducerState) {
                ProducerState state = (ProducerState) value;
                return Arrays.asList(new Object[] {
                    Long.valueOf(state.producerId()), Integer.valueOf(state.producerEpoch()),
                    Integer.valueOf(state.lastSequence()), Long.valueOf(state.lastTimestamp()),
                    whole(state.currentTransactionStartOffset())});
            } else if (value instanceof ConsumerGroupDescription) {
                ConsumerGroupDescription group = (ConsumerGroupDescription) value;
                return Arrays.asList(new Object[] {
                    plain(group.members()), group.groupEpoch().orElse(null),
                    group.targetAssignmentEpoch().orElse(null)});
            } else if (value instanceof ShareGroupDescription) {
                ShareGroupDescription group = (ShareGroupDescription) value;
                return Arrays.asList(new Object[] {
                    plain(group.members()), Integer.valueOf(group.groupEpoch()),
                    Integer.valueOf(group.targetAssignmentEpoch())});
            } else if (value instanceof ShareMemberDescription) {
                ShareMemberDescription member = (ShareMemberDescription) value;
                return Arrays.asList(new Object[] {
                    member.clientId(), member.host(),
                    pairs(member.assignment().topicPartitions())});
            } else if (value instanceof MemberDescription) {
                MemberDescription member = (MemberDescription) value;
                return Arrays.asList(new Object[] {
                    member.clientId(), member.host(),
                    pairs(member.assignment().topicPartitions())});
            } else if (value instanceof TransactionListing) {
                TransactionListing listed = (TransactionListing) value;
                return Arrays.asList(new Object[] {
                    listed.transactionalId(), Long.valueOf(listed.producerId()),
                    listed.state().toString()});
            } else if (value instanceof TransactionDescription) {
                TransactionDescription known = (TransactionDescription) value;
                return Arrays.asList(new Object[] {
                    Long.valueOf(known.producerId()), Integer.valueOf(known.producerEpoch()),
                    known.state().toString(), Long.valueOf(known.transactionTimeoutMs()),
                    whole(known.transactionStartTimeMs()), pairs(known.topicPartitions())});
            } else if (value instanceof GroupListing) {
                GroupListing group = (GroupListing) value;
                return Arrays.asList(new Object[] {
                    group.groupId(), text(group.groupState()), text(group.type())});
            } else if (value instanceof AclBinding) {
                AclBinding acl = (AclBinding) value;
                return Arrays.asList(new Object[] {
                    acl.pattern().name(), acl.pattern().patternType().name(),
                    acl.entry().principal(), acl.entry().operation().name(),
                    acl.entry().permissionType().name()});
            } else if (value instanceof Throwable) {
                return error((Throwable) value);
            } else if (value instanceof Uuid) {
                return value.toString();
            }
            return value;
        }

        private static String text(Optional value) {
            return value.isPresent() ? value.get().toString() : null;
        }

        private static Long whole(OptionalLong value) {
            return value.isPresent() ? Long.valueOf(value.getAsLong()) : null;
        }

        private static List pairs(Collection partitions) {
            List pairs = new ArrayList(partitions.size());
            for (Object each : partitions) {
                TopicPartition partition = (TopicPartition) each;
                pairs.add(Arrays.asList(new Object[] {
                    partition.topic(), Integer.valueOf(partition.partition())}));
            }
            return pairs;
        }

        private static List topic(TopicDescription topic) {
            List leaders = new ArrayList();
            for (Object each : topic.partitions()) {
                TopicPartitionInfo partition = (TopicPartitionInfo) each;
                Node leader = partition.leader();
                boolean led = leader != null && !leader.isEmpty();
                leaders.add(Arrays.asList(new Object[] {
                    Integer.valueOf(partition.partition()), led ? leader.idString() : null}));
            }
            boolean named = !Uuid.ZERO_UUID.equals(topic.topicId());
            // In the alphabet in which earlier releases have stored ids.
            String id = topic.topicId().toString().replace('-', '+').replace('_', '/');
            return Arrays.asList(new Object[] {named ? id : null, leaders});
        }

        private static Map offsets(Map committed) {
            Map topics = new HashMap();
            for (Object each : committed.entrySet()) {
                TopicPartition partition = (TopicPartition) ((Map.Entry) each).getKey();
                Object offset = offset(((Map.Entry) each).getValue());
                if (offset != null) {
                    Map parts = (Map) topics.get(partition.topic());
                    if (parts == null) {
                        parts = new HashMap();
                        topics.put(partition.topic(), parts);
                    }
                    parts.put(Integer.valueOf(partition.partition()), offset);
                }
            }
            return topics;
        }

        /** The offset of a group in a partition, of a share group with its lag; null for none. */
        private static Object offset(Object value) {
            if (value instanceof SharePartitionOffsetInfo) {
                SharePartitionOffsetInfo share = (SharePartitionOffsetInfo) value;
                return Arrays.asList(new Object[] {
                    Long.valueOf(share.startOffset()), share.lag().orElse(null)});
            }
            OffsetAndMetadata committed = (OffsetAndMetadata) value;
            return committed == null || committed.offset() < 0L
                ? null : Long.valueOf(committed.offset());
        }

        private static List entities(Map limits) {
            List entities = new ArrayList();
            for (Object each : limits.entrySet()) {
                Map.Entry entry = (Map.Entry) each;
                entities.add(Arrays.asList(new Object[] {
                    ((ClientQuotaEntity) entry.getKey()).entries(), entry.getValue()}));
            }
            return entities;
        }

        private Map settings(Config config) {
            Map values = new HashMap();
            for (Object key : keys) {
                ConfigEntry entry = config.get((String) key);
                values.put(key, entry == null ? null : entry.value());
            }
            return values;
        }
    }

    /** Reads some records of each partition; what it gives of a record has neither key nor value. */
    public static final class Reader {
        private final Consumer consumer;
        private final Map open = new LinkedHashMap();
        /* By partition: its number in the request, its end, records and bytes that are left. */

        private final long most;
        private long come;

        Reader(Map options, List positions, int records, long bytes, long most) {
            this.most = most;
            this.consumer = new KafkaConsumer(options);
            for (int i = 0; i < positions.size(); i++) {
                List position = (List) positions.get(i);
                long end = ((Number) position.get(3)).longValue();
                open.put(partition(position), new long[] {(long) i, end, (long) records, bytes});
            }
            consumer.assign(open.keySet());
            for (Object each : positions) {
                List position = (List) each;
                consumer.seek(partition(position), ((Number) position.get(2)).longValue());
            }
        }

        /**
         * What has come after so long at most: `records` as [number of the partition, offset,
         * timestamp or null, bytes of key and value, bytes of headers]; `ended` as [number, whether
         * the end of the log was reached], nothing more comes of them; `errors` as [number, names of
         * the exception and its message]; `left`, the number of partitions of which more may come;
         * `size`, the bytes of answers since the call before.
         */
        public String poll(int waitMs) throws Exception {
            List records = new ArrayList();
            List ended = new ArrayList();
            List errors = new ArrayList();
            Map document = new HashMap();
            document.put("records", records);
            document.put("ended", ended);
            document.put("errors", errors);
            try {
                for (Object each : consumer.poll(Duration.ofMillis((long) waitMs))) {
                    take((ConsumerRecord) each, records, ended);
                }
                for (Object each : new ArrayList(open.keySet())) {
                    // The last records may be markers, or records of an aborted transaction.
                    long end = ((long[]) open.get(each))[1];
                    if (position((TopicPartition) each) >= end) {
                        finish((TopicPartition) each, Boolean.TRUE, ended);
                    }
                }
            } catch (TopicAuthorizationException error) {
                refuse(error.unauthorizedTopics(), error, errors);
            } catch (KafkaException error) {
                refuse(null, error, errors);
            }
            long before = come;
            come = received();
            document.put("size", Long.valueOf(come - before));
            // The consumer has asked for the next answer, which may be as large.
            boolean more = come + come - before < most;
            document.put("left", Integer.valueOf(more ? open.size() : 0));
            return JSON.writeValueAsString(document);
        }

        public void close() {
            consumer.close(Duration.ZERO);
        }

        /** The bytes of all answers. */
        private long received() {
            for (Object each : consumer.metrics().values()) {
                Metric metric = (Metric) each;
                if (metric.metricName().name().equals("incoming-byte-total")
                        && metric.metricName().group().equals("consumer-metrics")) {
                    return ((Number) metric.metricValue()).longValue();
                }
            }
            return 0L;
        }

        private void take(ConsumerRecord record, List records, List ended) {
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            long[] left = (long[]) open.get(partition);
            if (left == null) {
                return;
            }
            int size = Math.max(record.serializedKeySize(), 0)
                + Math.max(record.serializedValueSize(), 0);
            int headers = 0;
            for (Object each : record.headers()) {
                Header header = (Header) each;
                headers += header.key().getBytes(StandardCharsets.UTF_8).length
                    + (header.value() == null ? 0 : header.value().length);
            }
            records.add(Arrays.asList(new Object[] {
                Long.valueOf(left[0]), Long.valueOf(record.offset()),
                record.timestamp() < 0L ? null : Long.valueOf(record.timestamp()),
                Integer.valueOf(size), Integer.valueOf(headers)}));
            left[2] -= 1L;
            left[3] -= (long) (size + headers);
            boolean last = record.offset() >= left[1] - 1L;
            if (last || left[2] <= 0L || left[3] <= 0L) {
                finish(partition, Boolean.valueOf(last), ended);
            }
        }

        private void finish(TopicPartition partition, Boolean whole, List ended) {
            long[] left = (long[]) open.remove(partition);
            ended.add(Arrays.asList(new Object[] {Long.valueOf(left[0]), whole}));
            consumer.pause(Collections.singleton(partition));
        }

        private long position(TopicPartition partition) {
            try {
                return consumer.position(partition, Duration.ofMillis(1L));
            } catch (org.apache.kafka.common.errors.TimeoutException error) {
                return -1L;
            }
        }

        /** Leaves out the partitions of some topics; without topics those that the error names, or
         * all. */
        private void refuse(Collection topics, Throwable error, List errors) {
            List refused = new ArrayList();
            for (Object each : open.keySet()) {
                if (topics == null ? String.valueOf(error.getMessage()).contains(each.toString())
                        : topics.contains(((TopicPartition) each).topic())) {
                    refused.add(each);
                }
            }
            if (refused.isEmpty()) {
                refused.addAll(open.keySet());
            }
            for (Object each : refused) {
                long[] left = (long[]) open.remove(each);
                errors.add(Arrays.asList(new Object[] {Long.valueOf(left[0]), error(error)}));
            }
            consumer.assign(open.keySet());
        }
    }
}
