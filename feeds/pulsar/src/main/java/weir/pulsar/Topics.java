package weir.pulsar;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Whether each topic's events are taken: the filter is asked once per topic. */
final class Topics {

    private static final int MOST = 1_000_000;

    private final TopicFilter filter;
    private final Map<String, Boolean> taken = new ConcurrentHashMap<>();

    Topics(TopicFilter filter) {
        this.filter = filter;
    }

    boolean takes(String topic) {
        Boolean known = taken.get(topic);
        if (known != null) {
            return known;
        }
        if (taken.size() >= MOST) {
            taken.clear();
        }
        boolean takes = filter.takes(topic);
        taken.put(topic, takes);
        return takes;
    }
}
