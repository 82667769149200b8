package weir.feed;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** What several tests make. */
final class Records {

    private Records() {}

    /** An event without columns. */
    record Plain() implements Event {
        @Override
        public String kind() {
            return "plain";
        }

        @Override
        public void columns(Line line) {
            // none
        }
    }

    /** Records `from` to `to` - 1: their text is their number. */
    static List<Encoded> numbered(int from, int to) {
        List<Encoded> found = new ArrayList<>();
        for (int i = from; i < to; i++) {
            found.add(new Encoded(
                    new Stamped(new Plain(), i, i, i),
                    Integer.toString(i).getBytes(StandardCharsets.UTF_8)));
        }
        return found;
    }
}
