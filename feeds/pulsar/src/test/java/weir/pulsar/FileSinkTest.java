package weir.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FileSinkTest {

    @TempDir
    private Path folder;

    private FileSink sink(String... more) {
        return new FileSink(Records.settings(folder, more), "host:8080");
    }

    private List<Path> files(String ending) throws IOException {
        try (Stream<Path> all = Files.list(folder)) {
            return all.filter(file -> file.toString().endsWith(ending)).sorted().toList();
        }
    }

    private List<String> shown() throws IOException {
        return files(".ndjson").stream().flatMap(file -> {
            try {
                return Files.readAllLines(file).stream();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }).toList();
    }

    @Test
    void aFileIsShownWhenItIsWhole() throws IOException {
        FileSink sink = sink("weirFileMillis", "3600000");
        sink.write(Records.numbered(0, 3));
        assertEquals(List.of(), shown());
        assertEquals(1, files(".open").size());
        sink.close();
        assertEquals(List.of("0", "1", "2"), shown());
        assertEquals(List.of(), files(".open"));
    }

    @Test
    void aFileEndsAtItsSize() throws IOException {
        FileSink sink = sink("weirFileMillis", "3600000", "weirFileBytes", "4");
        sink.write(Records.numbered(0, 2));
        sink.write(Records.numbered(2, 3));
        assertEquals(List.of("0", "1"), shown());
        sink.close();
        assertEquals(2, files(".ndjson").size());
    }

    @Test
    void aFileEndsAtItsAgeWithoutAFurtherRecord() throws IOException, InterruptedException {
        FileSink sink = sink("weirFileMillis", "1");
        sink.write(Records.numbered(0, 1));
        while (shown().isEmpty()) {
            sink.idle();
        }
        assertEquals(List.of("0"), shown());
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
        FileSink sink = sink("weirFileMillis", "3600000");
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
    void aFolderThatCannotBeIsAFailureUntilItCan() throws IOException {
        Path place = folder.resolve("later");
        Files.createFile(place);
        FileSink sink = new FileSink(Records.settings(place), "b");
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
        Path foreign = Files.createFile(folder.resolve("other-old.ndjson"));
        for (Path each : List.of(old, foreign)) {
            Files.setLastModifiedTime(each, FileTime.fromMillis(1));
        }
        sink("weirKeepMillis", "60000").idle();
        assertEquals(List.of(foreign), files(".ndjson"));
    }
}
