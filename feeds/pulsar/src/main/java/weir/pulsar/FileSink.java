package weir.pulsar;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.List;

/**
 * Files of JSON lines in a folder.
 *
 * <p>An open file begins with a dot and ends with `.open`; a reader sees it only when it is whole,
 * by its new name. After a crash the whole lines of an open file are kept. Names sort by time.
 */
final class FileSink implements Sink {

    private static final String OPEN = ".open";
    private static final String WHOLE = ".ndjson";
    private static final DateTimeFormatter TIME =
            DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss.SSS'Z'").withZone(ZoneOffset.UTC);
    private static final long CLEAN_MS = 60_000;

    private final Path directory;
    private final String prefix;
    private final long fileMillis;
    private final long fileBytes;
    private final long keepMillis;

    private Path path;
    private FileChannel channel;
    private long size;
    private long lineCount;
    private Stamped first;
    private long openedMs;
    private long count;
    private long cleanedMs;
    private boolean recovered;

    FileSink(Settings settings, String broker) {
        this.directory = settings.directory();
        this.prefix = safe(broker) + "-";
        this.fileMillis = settings.fileMillis();
        this.fileBytes = settings.fileBytes();
        this.keepMillis = settings.keepMillis();
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
        rotate();
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
        if (channel != null) {
            present();
            return;
        }
        Files.createDirectories(directory);
        if (!recovered) {
            recover();
            recovered = true;
        }
        openedMs = System.currentTimeMillis();
        String name = prefix + TIME.format(Instant.ofEpochMilli(openedMs)) + "-" + count++;
        path = directory.resolve("." + name + OPEN);
        channel = FileChannel.open(
                path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        size = lineCount = 0;
    }

    private static int bytesOf(List<Encoded> records) {
        return records.stream().mapToInt(each -> each.json().length + 1).sum();
    }

    private void present() throws IOException {
        if (!Files.exists(path)) {
            forget();
            throw new Vanished(path + " is gone", first, lineCount);
        }
    }

    private void rotate() throws IOException {
        if (channel == null) {
            return;
        }
        boolean old = System.currentTimeMillis() - openedMs >= fileMillis;
        if (old || size >= fileBytes) {
            finish();
        }
    }

    /** Closes the open file and shows it to readers. */
    private void finish() throws IOException {
        if (channel == null) {
            return;
        }
        present();
        channel.force(false);
        show(path);
        forget();
    }

    private void forget() throws IOException {
        FileChannel closing = channel;
        channel = null;
        closing.close();
    }

    private void show(Path open) throws IOException {
        String name = open.getFileName().toString();
        String whole = name.substring(1, name.length() - OPEN.length()) + WHOLE;
        Files.move(open, open.resolveSibling(whole));
    }

    /** Shows what a killed run left open, up to its last whole line. */
    private void recover() throws IOException {
        try (DirectoryStream<Path> left = files("." + prefix, OPEN)) {
            for (Path each : left) {
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
        if (keepMillis == 0 || now - cleanedMs < CLEAN_MS || !Files.isDirectory(directory)) {
            return;
        }
        cleanedMs = now;
        try (DirectoryStream<Path> whole = files(prefix, WHOLE)) {
            for (Path each : whole) {
                if (now - Files.getLastModifiedTime(each).toMillis() > keepMillis) {
                    Files.deleteIfExists(each);
                }
            }
        }
    }

    private DirectoryStream<Path> files(String start, String end) throws IOException {
        return Files.newDirectoryStream(directory, path -> {
            String name = path.getFileName().toString();
            return name.startsWith(start) && name.endsWith(end);
        });
    }
}
