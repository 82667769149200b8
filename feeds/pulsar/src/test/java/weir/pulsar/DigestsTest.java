package weir.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import weir.feed.EventBuffer;
import weir.feed.Guard;
import weir.feed.Stamped;

class DigestsTest {

    private static final long SECOND = 1_700_000_000_000L;

    private final AtomicLong ms = new AtomicLong(SECOND);
    private final EventBuffer buffer = new EventBuffer(
            1 << 20, 1 << 30, 0, () -> 1_000_000 * (ms.get() - SECOND), ms::get);
    private final Connection connection = new Connection(null, "/c:1", 0, false, null, true);

    private Digests digests(String... more) {
        List<String> keys = new ArrayList<>(List.of("weirDigestMillis", "1000"));
        keys.addAll(List.of(more));
        return new Digests(
                Records.settings(Path.of("d"), keys.toArray(String[]::new)), buffer, new Guard());
    }

    private Sender sender(Digests digests, String topic) {
        Sender made = new Sender(connection, topic, 1, "p", null, true, digests.tally(topic));
        connection.senders().put(made.producerId(), made);
        return made;
    }

    private List<Stamped> taken() {
        List<Stamped> taken = buffer.take();
        buffer.delivered(taken);
        return taken;
    }

    private void at(long msOfTheSecond) {
        ms.set(SECOND + msOfTheSecond);
    }

    private static BrokerEvent.PublishDigest digest(
            Sender sender, int publishes, int messages, int bytes, long fromMs) {
        return new BrokerEvent.PublishDigest(
                sender, publishes, messages, bytes, 1_000_000 * fromMs, SECOND + fromMs);
    }

    @Test
    void aPublishAfterTheEndIsInTheNextDigest() {
        Digests digests = digests();
        Sender sender = sender(digests, "persistent://a/b/t");
        at(200);
        assertTrue(digests.sumUp(sender, false, 3, 100));
        at(900);
        assertTrue(digests.sumUp(sender, false, 1, 50));
        at(1003);
        assertTrue(digests.sumUp(sender, false, 1, 7));
        assertEquals(
                List.of(new Stamped(
                        digest(sender, 2, 4, 150, 200), 0, 999_000_000, SECOND + 999)), taken());
        digests.close(sender);
        assertEquals(
                List.of(new Stamped(
                        digest(sender, 1, 1, 7, 1003), 1, 1_003_000_000, SECOND + 1003)), taken());
    }

    @Test
    void aDigestThatComesLateIsNotStampedFurtherBack() {
        Digests digests = digests();
        Sender sender = sender(digests, "persistent://a/b/t");
        digests.sumUp(sender, false, 1, 1);
        at(3000);
        sender.tally().writeOver(sender);
        assertEquals(SECOND + 2750, taken().get(0).wallMs());
    }

    @Test
    void aClockThatIsSetBackEndsASpan() {
        Digests digests = digests();
        Sender sender = sender(digests, "persistent://a/b/t");
        digests.sumUp(sender, false, 1, 1);
        sender.tally().writeOver(sender);
        assertEquals(List.of(), taken());
        at(-3_600_000);
        sender.tally().writeOver(sender);
        assertEquals(List.of(digest(sender, 1, 1, 1, 0)), taken().stream().map(Stamped::event).toList());
    }

    @Test
    void whatWasPublishedComesBeforeThePauseAndWhatFollowsIsWhole() {
        Digests digests = digests("weirDigestWholeMillis", "500");
        Sender sender = sender(digests, "persistent://a/b/t");
        digests.sumUp(sender, false, 1, 1);
        at(300);
        digests.paused(connection);
        assertEquals(List.of(digest(sender, 1, 1, 1, 0)), taken().stream().map(Stamped::event).toList());
        at(800);
        assertFalse(digests.sumUp(sender, false, 1, 1));
        at(801);
        assertTrue(digests.sumUp(sender, false, 1, 1));
    }

    @Test
    void digestsGoOnWhereNothingIsToBeWhole() {
        Digests digests = digests("weirDigestWholeMillis", "0");
        Sender sender = sender(digests, "persistent://a/b/t");
        digests.paused(connection);
        assertTrue(digests.sumUp(sender, false, 1, 1));
    }

    @Test
    void chosenTopicsAndThoseWithChunksAreWhole() {
        Digests digests = digests("weirDigestWhole", "acme/orders,shop");
        assertNull(digests.tally("persistent://acme/orders/created-partition-3"));
        assertNull(digests.tally("persistent://shop/b/t"));
        assertFalse(digests.isWhole("persistent://acme/billing/t"));
        Sender sender = sender(digests, "persistent://acme/billing/t");
        assertTrue(digests.sumUp(sender, false, 1, 1));
        assertFalse(digests.sumUp(sender, true, 1, 1));
        assertFalse(digests.sumUp(sender, false, 1, 1));
        assertTrue(digests.isChunked("persistent://acme/billing/t"));
        digests.forget("persistent://acme/billing/t");
        assertTrue(digests.sumUp(sender, false, 1, 1));
    }

    @Test
    void withoutDigestsEverythingIsWhole() {
        Digests digests = new Digests(Records.settings(Path.of("d")), buffer, new Guard());
        Sender sender = sender(digests, "persistent://a/b/t");
        assertNull(sender.tally());
        assertTrue(digests.isWhole("persistent://a/b/t"));
        assertFalse(digests.sumUp(sender, false, 1, 1));
        digests.paused(connection);
        assertEquals(List.of(), taken());
    }

    @Test
    void everyPublishIsCountedOnce() throws InterruptedException {
        int each = 200_000;
        Digests digests = new Digests(
                Records.settings(Path.of("d"), "weirDigestMillis", "1", "weirDigestWholeMillis", "1"),
                buffer, new Guard());
        Sender sender = sender(digests, "persistent://a/b/t");
        AtomicLong whole = new AtomicLong();
        Thread publisher = new Thread(() -> {
            for (int i = 0; i < each; i++) {
                ms.incrementAndGet();
                if (!digests.sumUp(sender, false, 2, 3)) {
                    whole.incrementAndGet();
                }
            }
        });
        publisher.start();
        long publishes = 0;
        long bytes = 0;
        boolean closed = false;
        while (publisher.isAlive() || !closed) {
            closed = !publisher.isAlive();
            sender.tally().writeOver(sender);
            digests.paused(connection);
            if (closed) {
                digests.close(sender);
            }
            for (Stamped stamped : taken()) {
                BrokerEvent.PublishDigest one = (BrokerEvent.PublishDigest) stamped.event();
                assertEquals(2 * one.publishes(), one.messages());
                publishes += one.publishes();
                bytes += one.bytes();
            }
        }
        assertEquals(each, publishes + whole.get());
        assertEquals(3 * publishes, bytes);
        assertFalse(digests.sumUp(sender, false, 1, 1), "after the end it is to be written");
    }
}
