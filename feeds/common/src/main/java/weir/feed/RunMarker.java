package weir.feed;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Instant;

/**
 * A file that is there while the plug-in runs, and whose time is that of the last delivery.
 *
 * <p>It is removed when everything was delivered. One that is found at the start belongs to a run
 * that was killed: what it had not delivered is lost, from the file's time on.
 */
public final class RunMarker {

    private static final long TOUCH_MS = 1_000;

    private final Path file;
    private long touchedMs;

    public RunMarker(Path directory, String broker) {
        this.file = directory.resolve("." + FileSink.safe(broker) + ".running");
    }

    /** When the run before delivered last (ms since the epoch); null if it ended well. */
    public Long killedMs() {
        try {
            return Files.exists(file) ? Files.getLastModifiedTime(file).toMillis() : null;
        } catch (IOException unreadable) {
            return null;
        }
    }

    /** Everything up to now is delivered. */
    public void touch(long nowMs) throws IOException {
        if (Math.abs(nowMs - touchedMs) < TOUCH_MS) { // the clock may be set back
            return;
        }
        Files.createDirectories(file.getParent());
        if (!Files.exists(file)) {
            Files.createFile(file);
        }
        Files.setLastModifiedTime(file, FileTime.from(Instant.ofEpochMilli(nowMs)));
        touchedMs = nowMs;
    }

    /** The run ended and everything is delivered. */
    public void remove() throws IOException {
        Files.deleteIfExists(file);
    }
}
