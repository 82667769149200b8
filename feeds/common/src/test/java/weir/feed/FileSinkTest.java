package weir.feed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.List;
import java.util.stream.Stream;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FileSinkTest {

    private static final long HOUR_MS = 3_600_000;

    @TempDir
    private Path folder;

    private FileSink sink(long fileMillis, long fileBytes, boolean gzip) {
        return new FileSink(
                folder, new FileSink.Rotation(fileMillis, fileBytes, gzip, HOUR_MS), "host:8080");
    }

    private FileSink sink() {
        return sink(HOUR_MS, 1 << 20, true);
    }

    private List<Path> files(String ending) throws IOException {
        try (Stream<Path> all = Files.list(folder)) {
            return all.filter(file -> file.toString().endsWith(ending)).sorted().toList();
        }
    }

    private List<String> shown() throws IOException {
        return files(".ndjson.gz").stream().flatMap(file -> unpacked(file).stream()).toList();
    }

    private static List<String> unpacked(Path file) {
        try (InputStream packed = new GZIPInputStream(Files.newInputStream(file));
                BufferedReader lines = new BufferedReader(
                        new InputStreamReader(packed, StandardCharsets.UTF_8))) {
            return lines.lines().toList();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Test
    void aFileIsShownWhenItIsWhole() throws IOException {
        FileSink sink = sink();
        sink.write(Records.numbered(0, 3));
        assertEquals(List.of(), shown());
        assertEquals(List.of("0", "1", "2"), Files.readAllLines(files(".open").get(0)));
        sink.close();
        assertEquals(List.of("0", "1", "2"), shown());
        assertEquals(List.of(), files(".open"));
    }

    @Test
    void aFileEndsAtItsSize() throws IOException {
        FileSink sink = sink(HOUR_MS, 4, true);
        sink.write(Records.numbered(0, 2));
        sink.write(Records.numbered(2, 3));
        assertEquals(List.of("0", "1"), shown());
        sink.close();
        assertEquals(2, files(".ndjson.gz").size());
    }

    @Test
    void aFileEndsAtItsAgeWithoutAFurtherRecord() throws IOException, InterruptedException {
        FileSink sink = sink(1, 1 << 20, true);
        sink.write(Records.numbered(0, 1));
        while (shown().isEmpty()) {
            sink.idle();
        }
        assertEquals(List.of("0"), shown());
    }

    @Test
    void filesAreTextWithoutGzip() throws IOException {
        FileSink sink = sink(HOUR_MS, 1 << 20, false);
        sink.write(Records.numbered(0, 3));
        sink.close();
        assertEquals(List.of(), shown());
        assertEquals(List.of("0", "1", "2"), Files.readAllLines(files(".ndjson").get(0)));
    }

    @Test
    void aFileThatCannotBeCompressedIsShownAsText() throws IOException {
        FileSink sink = sink();
        sink.write(Records.numbered(0, 3));
        String open = files(".open").get(0).getFileName().toString();
        Path part = folder.resolve(open.replace(".open", ".part"));
        Files.createDirectory(part);
        sink.close();
        assertEquals(List.of(), shown());
        assertEquals(List.of("0", "1", "2"), Files.readAllLines(files(".ndjson").get(0)));
        assertEquals(List.of(), files(".open"));
    }

    @Test
    void whatAKilledRunWasCompressingIsShownOnce() throws IOException {
        Files.writeString(folder.resolve(".host_8080-a.open"), "{\"a\":1}\n");
        Files.writeString(folder.resolve(".host_8080-a.part"), "torn");
        Files.writeString(folder.resolve(".host_8080-b.open"), "{\"b\":1}\n");
        try (OutputStream packed = new GZIPOutputStream(
                Files.newOutputStream(folder.resolve("host_8080-b.ndjson.gz")))) {
            packed.write("{\"b\":1}\n".getBytes(StandardCharsets.UTF_8));
        }
        FileSink sink = sink();
        sink.write(Records.numbered(7, 8));
        sink.close();
        assertEquals(List.of("7", "{\"a\":1}", "{\"b\":1}"), shown());
        assertEquals(List.of(), files(".open"));
        assertEquals(List.of(), files(".part"));
    }

    @Test
    void whatAKilledRunLeftIsShownUpToItsLastWholeLine() throws IOException {
        Files.writeString(folder.resolve(".host_8080-a.open"), "{\"a\":1}\n{\"b\"");
        Files.writeString(folder.resolve(".host_8080-b.open"), "{\"torn");
        Files.writeString(folder.resolve(".other_8080-c.open"), "{\"c\":1}\n");
        FileSink sink = sink();
        sink.write(Records.numbered(7, 8));
        sink.close();
        assertEquals(List.of("7", "{\"a\":1}"), shown());
        assertEquals(List.of(folder.resolve(".other_8080-c.open")), files(".open"));
    }

    @Test
    void aFileThatIsTakenAwayIsReportedAndTheNextOneIsMade() throws IOException {
        FileSink sink = sink();
        sink.write(Records.numbered(0, 3));
        Files.delete(files(".open").get(0));
        Sink.Vanished gone = assertThrows(
                Sink.Vanished.class, () -> sink.write(Records.numbered(3, 5)));
        assertEquals(3, gone.count());
        assertEquals(0, gone.first().seq());
        sink.write(Records.numbered(3, 5));
        sink.close();
        assertEquals(List.of("3", "4"), shown());
    }

    @Test
    void anEmptyFileThatIsTakenAwayLosesNothing() throws IOException {
        FileSink sink = sink(1, 1 << 20, true);
        sink.write(Records.numbered(0, 1));
        sink.close();
        // A record that cannot be written leaves an open file without one.
        assertThrows(RuntimeException.class, () -> sink.write(List.of(
                new Encoded(Records.numbered(1, 2).get(0).stamped(), null))));
        Files.delete(files(".open").get(0));
        sink.write(Records.numbered(1, 2));
        sink.close();
        assertEquals(List.of("0", "1"), shown());
    }

    @Test
    void recordsAreWrittenOnceWhereTheFileCannotBeShown() throws IOException {
        FileSink sink = sink(HOUR_MS, 1, false);
        sink.write(Records.numbered(0, 1));
        Path open = files(".open").get(0);
        String name = open.getFileName().toString();
        Path obstacle = folder.resolve(
                name.substring(1, name.length() - ".open".length()) + ".ndjson");
        Files.createDirectories(obstacle.resolve("inside"));
        assertThrows(IOException.class, () -> sink.write(Records.numbered(1, 2)));
        Files.delete(obstacle.resolve("inside"));
        Files.delete(obstacle);
        sink.write(Records.numbered(1, 2));
        sink.close();
        List<String> lines = files(".ndjson").stream().flatMap(FileSinkTest::text).toList();
        assertEquals(List.of("0", "1"), lines);
    }

    private static Stream<String> text(Path file) {
        try {
            return Files.readAllLines(file).stream();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Test
    void aFolderThatCannotBeIsAFailureUntilItCan() throws IOException {
        Path place = folder.resolve("later");
        Files.createFile(place);
        FileSink sink = new FileSink(
                place, new FileSink.Rotation(HOUR_MS, 1 << 20, true, HOUR_MS), "b");
        assertThrows(IOException.class, () -> sink.write(Records.numbered(0, 1)));
        Files.delete(place);
        sink.write(Records.numbered(0, 1));
        sink.close();
        try (Stream<Path> all = Files.list(place)) {
            assertEquals(1, all.count());
        }
    }

    @Test
    void oldFilesAreRemoved() throws IOException {
        Path old = Files.createFile(folder.resolve("host_8080-old.ndjson"));
        Path packed = Files.createFile(folder.resolve("host_8080-old.ndjson.gz"));
        Path foreign = Files.createFile(folder.resolve("other-old.ndjson"));
        for (Path each : List.of(old, packed, foreign)) {
            Files.setLastModifiedTime(each, FileTime.fromMillis(1));
        }
        sink().idle();
        assertEquals(List.of(foreign), files(".ndjson"));
        assertEquals(List.of(), files(".ndjson.gz"));
    }
}
