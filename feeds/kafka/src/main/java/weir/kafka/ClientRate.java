package weir.kafka;

import java.io.IOException;
import weir.feed.Event;
import weir.feed.Line;

/**
 * What a sensor shows, in thousandths of the type's unit. `bound` is null without a limit,
 * `throttle` where none was recorded.
 */
record ClientRate(Entity entity, long value, Long bound, Long throttle) implements Event {

    @Override
    public String kind() {
        return "client_rate";
    }

    @Override
    public void columns(Line line) throws IOException {
        line.text("quota_type", entity.type().column());
        line.text("principal", entity.user());
        line.text("client_id", entity.clientId());
        line.number("value_milli", value);
        line.number("bound_milli", bound);
        line.number("throttle_avg_milli", throttle);
        if (entity.exempt()) {
            line.flag("exempt", true);
        }
    }
}
