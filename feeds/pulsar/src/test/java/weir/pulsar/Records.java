package weir.pulsar;

import java.nio.file.Path;
import java.util.Properties;

/** What several tests make. */
final class Records {

    private Records() {}

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
