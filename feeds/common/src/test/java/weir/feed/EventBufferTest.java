package weir.feed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class EventBufferTest {

    private static final Event EVENT = new Records.Plain();

    private final AtomicLong ms = new AtomicLong();
    private final EventBuffer buffer =
            new EventBuffer(4, 1 << 20, 100, () -> ms.get() * 1_000_000, ms::get);

    private void offer(int count) {
        for (int i = 0; i < count; i++) {
            ms.incrementAndGet();
            buffer.offer(EVENT);
        }
    }

    private static List<Long> seqs(List<Stamped> taken) {
        return taken.stream().map(Stamped::seq).toList();
    }

    @Test
    void eventsComeInTheOrderOfTheirNumbers() {
        offer(3);
        assertEquals(
                List.of(new Stamped(EVENT, 100, 1_000_000, 1), new Stamped(EVENT, 101, 2_000_000, 2),
                        new Stamped(EVENT, 102, 3_000_000, 3)), buffer.take());
        assertEquals(List.of(), buffer.take());
    }

    @Test
    void aFullBufferDropsAndTellsTheHoleBeforeTheNextEvent() {
        offer(7); // 100 to 103 are kept, 104 to 106 are dropped at 5 to 7 ms
        List<Stamped> first = buffer.take();
        assertEquals(List.of(100L, 101L, 102L, 103L), seqs(first));
        buffer.delivered(first);
        offer(1);
        assertEquals(
                List.of(new Stamped(new Event.Gap(5_000_000L, 5L, 3L), 107, 8_000_000, 8),
                        new Stamped(EVENT, 108, 8_000_000, 8)), buffer.take());
        assertEquals(3, buffer.droppedInAll());
    }

    @Test
    void aGapEndsWithoutAFurtherEvent() {
        offer(5);
        buffer.delivered(buffer.take());
        assertEquals(new Event.Gap(5_000_000L, 5L, 1L), buffer.take().get(0).event());
        assertEquals(List.of(), buffer.take());
    }

    @Test
    void whatIsTakenAndNotDeliveredHasItsPlace() {
        offer(4);
        List<Stamped> taken = buffer.take();
        offer(1);
        assertEquals(List.of(), buffer.take());
        buffer.delivered(taken.subList(0, 1)); // not yet half of it
        offer(1);
        assertEquals(List.of(), buffer.take());
        buffer.delivered(taken.subList(1, 4));
        assertEquals(new Event.Gap(5_000_000L, 5L, 2L), buffer.take().get(0).event());
    }

    @Test
    void bytesAreBounded() {
        EventBuffer small = new EventBuffer(1_000, 2 * Event.WEIGHT, 0, ms::get, ms::get);
        small.offer(EVENT);
        small.offer(EVENT);
        small.offer(EVENT);
        assertEquals(List.of(0L, 1L), seqs(small.take()));
        assertEquals(1, small.droppedInAll());
    }

    @Test
    void whatTheSinkLosesIsAGap() {
        offer(2);
        List<Stamped> taken = buffer.take();
        buffer.delivered(taken);
        buffer.lost(taken.get(0), 2);
        assertEquals(new Event.Gap(1_000_000L, 1L, 2L), buffer.take().get(0).event());
    }

    @Test
    void nothingIsTakenAfterTheEnd() {
        buffer.close();
        offer(1);
        assertEquals(List.of(), buffer.take());
    }

    @Test
    void theHolesOfManyThreadsAreCounted() throws InterruptedException {
        int each = 20_000;
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            threads.add(new Thread(() -> {
                for (int n = 0; n < each; n++) {
                    buffer.offer(EVENT);
                }
            }));
        }
        threads.forEach(Thread::start);
        List<Stamped> all = new ArrayList<>();
        while (threads.stream().anyMatch(Thread::isAlive)) {
            List<Stamped> taken = buffer.take();
            all.addAll(taken);
            buffer.delivered(taken);
        }
        List<Stamped> rest = buffer.take();
        buffer.delivered(rest);
        all.addAll(rest);
        all.addAll(buffer.take());
        long next = 100;
        long events = 0;
        for (Stamped stamped : all) {
            long hole = stamped.seq() - next;
            if (stamped.event() instanceof Event.Gap gap) {
                assertEquals(hole, gap.dropped());
                events += hole;
            } else {
                assertEquals(0, hole);
                events++;
            }
            next = stamped.seq() + 1;
        }
        assertEquals(4L * each, events);
        assertTrue(buffer.droppedInAll() > 0);
    }
}
