package weir.feed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class DeliveryTest {

    @TempDir
    private Path folder;

    private final EventBuffer buffer =
            new EventBuffer(8, 1 << 20, 0, System::nanoTime, System::currentTimeMillis);
    private final List<String> stored = new CopyOnWriteArrayList<>();
    private volatile boolean dead;

    private Delivery delivery() {
        return delivery(folder);
    }

    private Delivery delivery(Path place) {
        Sink sink = new Sink() {
            @Override
            public void write(List<Encoded> records) throws IOException {
                if (dead) {
                    throw new IOException("away");
                }
                records.forEach(each -> stored.add(each.stamped().event().kind()));
            }

            @Override
            public void close() {
                // nothing is open
            }
        };
        return new Delivery(
                buffer, new Encoder("f", "c", "b"), sink, new RunMarker(place, "b"));
    }

    private void offer(int count) {
        for (int i = 0; i < count; i++) {
            buffer.offer(new Records.Plain());
        }
    }

    @Test
    void aSinkThatIsAwayGetsEverythingThatHadRoomAndThenTheGap() throws InterruptedException {
        dead = true;
        Delivery delivery = delivery();
        delivery.start();
        offer(10);
        dead = false;
        while (stored.size() < 9) {
            Thread.sleep(1);
        }
        delivery.close(10_000);
        assertEquals(8, stored.stream().filter("plain"::equals).count());
        assertEquals("gap", stored.get(8));
        assertEquals(2, buffer.droppedInAll());
        assertEquals(null, new RunMarker(folder, "b").killedMs());
    }

    @Test
    void recordsArriveOnceWhereTheTimeOfTheDeliveryCannotBeKept()
            throws IOException, InterruptedException {
        Path file = Files.createFile(folder.resolve("file"));
        Delivery delivery = delivery(file.resolve("none"));
        delivery.start();
        for (int i = 1; i <= 3; i++) {
            offer(1);
            while (stored.size() < i) {
                Thread.sleep(1);
            }
            Thread.sleep(250); // longer than until the same would come again
        }
        delivery.close(10_000);
        assertEquals(List.of("plain", "plain", "plain"), stored);
    }

    @Test
    void theEndDoesNotWaitForADeadSinkAndIsRemembered() throws IOException {
        RunMarker marker = new RunMarker(folder, "b");
        marker.touch(5_000);
        dead = true;
        Delivery delivery = delivery();
        delivery.start();
        offer(1);
        delivery.close(50);
        assertEquals(List.of(), stored);
        assertTrue(marker.killedMs() >= 5_000);
        assertEquals(1, Files.list(folder).count());
    }
}
