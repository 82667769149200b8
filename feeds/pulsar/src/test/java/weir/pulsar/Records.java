package weir.pulsar;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

/** What several tests make. */
final class Records {

    private Records() {}

    /** Records `from` to `to` - 1: their text is their number. */
    static List<Encoded> numbered(int from, int to) {
        List<Encoded> found = new ArrayList<>();
        for (int i = from; i < to; i++) {
            found.add(new Encoded(
                    new Stamped(new Event.CursorDeleted("t", "s"), i, i, i),
                    Integer.toString(i).getBytes(StandardCharsets.UTF_8)));
        }
        return found;
    }

    /** Settings with a folder; `more` is key, value, key, value. */
    static Settings settings(Path folder, String... more) {
        Properties properties = new Properties();
        properties.setProperty("weirDirectory", folder.toString());
        for (int i = 0; i < more.length; i += 2) {
            properties.setProperty(more[i], more[i + 1]);
        }
        return Settings.of(properties);
    }
}
