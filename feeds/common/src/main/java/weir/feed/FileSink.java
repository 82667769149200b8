package weir.feed;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.zip.Deflater;
import java.util.zip.GZIPOutputStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Files of JSON lines in a folder.
 *
 * <p>An open file is text; its name begins with a dot and ends with `.open`. A reader sees it only
 * when it is whole, packed and by its new name. After a crash the whole lines of an open file are
 * kept. Names sort by time.
 */
public final class FileSink implements Sink {

    private static final Logger LOG = LoggerFactory.getLogger(FileSink.class);
    private static final String OPEN = ".open";
    private static final String PART = ".part";
    private static final String WHOLE = ".ndjson";
    private static final String PACKED = WHOLE + ".gz";
    private static final int PIECE = 1 << 16;
    private static final DateTimeFormatter TIME =
            DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss.SSS'Z'").withZone(ZoneOffset.UTC);
    private static final long NS = 1_000_000;
    private static final long CLEAN_NS = 60_000 * NS;

    /**
     * Files are closed at an age and a size, compressed where `gzip`, and removed at the age
     * `keepMillis`, 0 for never.
     */
    public record Rotation(long fileMillis, long fileBytes, boolean gzip, long keepMillis) {}

    private final Path directory;
    private final String prefix;
    private final Rotation rotation;

    private Path path;
    private FileChannel channel;
    private long size;
    private long lineCount;
    private Stamped first;
    private long openedNs;
    private long count;
    private long cleanNs = System.nanoTime();
    private boolean recovered;

    public FileSink(Path directory, Rotation rotation, String broker) {
        this.directory = directory;
        this.rotation = rotation;
        this.prefix = safe(broker) + "-";
    }

    /** A name with the characters only that every file system takes. */
    static String safe(String name) {
        return name.replaceAll("[^A-Za-z0-9._-]", "_");
    }

    @Override
    public void write(List<Encoded> records) throws IOException {
        if (records.isEmpty()) {
            return;
        }
        rotate(); // not after these: what fails then would have them written again
        ready();
        ByteBuffer lines = ByteBuffer.allocate(bytesOf(records));
        for (Encoded each : records) {
            lines.put(each.json()).put((byte) '\n');
        }
        int bytes = lines.flip().remaining();
        try {
            while (lines.hasRemaining()) {
                channel.write(lines, size + lines.position());
            }
        } catch (IOException full) {
            channel.truncate(size); // half a record must not stay
            throw full;
        }
        first = size == 0 ? records.get(0).stamped() : first;
        size += bytes;
        lineCount += records.size();
    }

    @Override
    public void idle() throws IOException {
        rotate();
        clean();
    }

    @Override
    public void close() throws IOException {
        finish();
    }

    /** An open file that is still where it was made. */
    private void ready() throws IOException {
        if (channel != null && present()) {
            return;
        }
        Files.createDirectories(directory);
        if (!recovered) {
            recover();
            recovered = true;
        }
        openedNs = System.nanoTime();
        String name = prefix + TIME.format(Instant.now()) + "-" + count++;
        path = directory.resolve("." + name + OPEN);
        channel = FileChannel.open(
                path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        size = lineCount = 0;
    }

    private static int bytesOf(List<Encoded> records) {
        return records.stream().mapToInt(each -> each.json().length + 1).sum();
    }

    /** Whether the open file is where it was made; {@link Vanished} if records are gone with it. */
    private boolean present() throws IOException {
        if (Files.exists(path)) {
            return true;
        }
        forget();
        if (lineCount > 0) {
            throw new Vanished(path + " is gone", first, lineCount);
        }
        return false;
    }

    private void rotate() throws IOException {
        if (channel == null) {
            return;
        }
        boolean old = System.nanoTime() - openedNs >= rotation.fileMillis() * NS;
        if (old || size >= rotation.fileBytes()) {
            finish();
        }
    }

    /** Closes the open file and shows it to readers. */
    private void finish() throws IOException {
        if (channel == null || !present()) {
            return;
        }
        show(path);
        forget();
    }

    private void forget() throws IOException {
        FileChannel closing = channel;
        channel = null;
        closing.close();
    }

    private void show(Path open) throws IOException {
        if (rotation.gzip() && pack(open)) {
            Files.delete(open);
            return;
        }
        try (FileChannel file = FileChannel.open(open, StandardOpenOption.WRITE)) {
            file.force(false);
        }
        Files.move(open, named(open, "", WHOLE));
    }

    /** Shows a packed copy; false if there is no room for one, so that the file itself is shown. */
    private static boolean pack(Path open) throws IOException {
        Path part = named(open, ".", PART);
        try (InputStream text = Files.newInputStream(open);
                FileChannel file = FileChannel.open(
                        part, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING,
                        StandardOpenOption.WRITE);
                Packed packed = new Packed(Channels.newOutputStream(file))) {
            byte[] piece = new byte[PIECE];
            for (int read = text.read(piece); read >= 0; read = text.read(piece)) {
                packed.write(piece, 0, read);
            }
            packed.finish();
            file.force(false);
        } catch (IOException noRoom) {
            LOG.warn("Weir: {} is not compressed: {}", open, noRoom.toString());
            Files.deleteIfExists(part);
            return false;
        }
        Files.move(part, named(open, "", PACKED));
        return true;
    }

    /** Fast: records repeat so much that more effort gains little. */
    private static final class Packed extends GZIPOutputStream {
        Packed(OutputStream to) throws IOException {
            super(to, PIECE);
            def.setLevel(Deflater.BEST_SPEED);
        }
    }

    /** The file beside an open one with another beginning and ending of its name. */
    private static Path named(Path open, String start, String end) {
        String name = open.getFileName().toString();
        return open.resolveSibling(start + name.substring(1, name.length() - OPEN.length()) + end);
    }

    /** Shows what a killed run left open, up to its last whole line. */
    private void recover() throws IOException {
        try (DirectoryStream<Path> left = files("." + prefix, PART)) {
            for (Path each : left) {
                Files.delete(each);
            }
        }
        try (DirectoryStream<Path> left = files("." + prefix, OPEN)) {
            for (Path each : left) {
                if (Files.exists(named(each, "", PACKED))) {
                    Files.delete(each); // it was shown already
                    continue;
                }
                try (RandomAccessFile file = new RandomAccessFile(each.toFile(), "rw")) {
                    file.setLength(wholeLines(file));
                    if (file.length() > 0) {
                        show(each);
                        continue;
                    }
                }
                Files.delete(each);
            }
        }
    }

    private static long wholeLines(RandomAccessFile file) throws IOException {
        long end = file.length();
        for (; end > 0; end--) {
            file.seek(end - 1);
            if (file.read() == '\n') {
                break;
            }
        }
        return end;
    }

    /** Removes files that are older than they are kept. */
    private void clean() throws IOException {
        long now = System.currentTimeMillis();
        long keepMillis = rotation.keepMillis();
        long nowNs = System.nanoTime();
        if (keepMillis == 0 || nowNs - cleanNs < 0 || !Files.isDirectory(directory)) {
            return;
        }
        cleanNs = nowNs + CLEAN_NS;
        try (DirectoryStream<Path> whole = files(prefix, WHOLE, PACKED)) {
            for (Path each : whole) {
                if (now - Files.getLastModifiedTime(each).toMillis() > keepMillis) {
                    Files.deleteIfExists(each);
                }
            }
        }
    }

    private DirectoryStream<Path> files(String start, String... ends) throws IOException {
        return Files.newDirectoryStream(directory, path -> {
            String name = path.getFileName().toString();
            return name.startsWith(start) && List.of(ends).stream().anyMatch(name::endsWith);
        });
    }
}
