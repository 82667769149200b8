package weir.kafka;

import java.util.Locale;

/** What Kafka limits: the group of its metrics, and the metric that is compared with the bound. */
enum QuotaType {
    PRODUCE("Produce", "byte-rate"),
    FETCH("Fetch", "byte-rate"),
    REQUEST("Request", "request-time"),
    CONTROLLER_MUTATION("ControllerMutation", "tokens");

    /** Of the requests that the request quota exempts; it has no entity and no bound. */
    static final String EXEMPT = "exempt-request-time";
    static final String THROTTLE_TIME = "throttle-time";

    private final String group;
    private final String metric;

    QuotaType(String group, String metric) {
        this.group = group;
        this.metric = metric;
    }

    /** The type of a group of metrics; null for the many other groups. */
    static QuotaType ofGroup(String group) {
        for (QuotaType type : values()) {
            if (type.group.equals(group)) {
                return type;
            }
        }
        return null;
    }

    /** Whether a metric of the group is the one that is compared with the bound. */
    boolean measures(String name) {
        return name.equals(metric) || (this == REQUEST && name.equals(EXEMPT));
    }

    /** The contract's name. */
    String column() {
        return name().toLowerCase(Locale.ROOT);
    }
}
