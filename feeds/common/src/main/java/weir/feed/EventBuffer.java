package weir.feed;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * Events on their way from the broker's threads to the sink: numbered, stamped, bounded.
 *
 * <p>The number and both times are taken under one short lock, so the order of the buffer is that
 * of `seq` and of the clocks. What is taken and not yet delivered counts as held. A full buffer
 * drops; it takes events again when half of it is free, and then says what is missing by a `gap`
 * before the next event. A dropped event has a number, too: the hole in `seq` is the count. A digest
 * alone has an earlier time than the events before it: that of its end.
 */
public final class EventBuffer {

    private final int mostEvents;
    private final long mostBytes;
    private final LongSupplier monoNs;
    private final LongSupplier wallMs;
    private final ReentrantLock lock = new ReentrantLock();

    private List<Stamped> waiting = new ArrayList<>();
    private int heldEvents;
    private long heldBytes;
    private long nextSeq;
    private boolean full;
    private boolean closed;
    private long dropped;
    private long droppedInAll;
    private Stamped firstDropped;

    public EventBuffer(
            int mostEvents, long mostBytes, long firstSeq, LongSupplier monoNs,
            LongSupplier wallMs) {
        this.mostEvents = mostEvents;
        this.mostBytes = mostBytes;
        this.nextSeq = firstSeq;
        this.monoNs = monoNs;
        this.wallMs = wallMs;
    }

    /** Takes an event, or drops it; never waits for the sink. */
    public void offer(Event event) {
        offer(() -> event, Long.MAX_VALUE);
    }

    /** Takes an event of a time (wall clock) that has passed; a later one is now. */
    public void offer(Event event, long atMs) {
        offer(() -> event, atMs);
    }

    /** Takes an event that is made at its place in the stream: quickly, and without waiting. */
    public void offer(Supplier<Event> made) {
        offer(made, Long.MAX_VALUE);
    }

    /** The clock of `ts_mono_ns`. */
    public long monoNs() {
        return monoNs.getAsLong();
    }

    /** The clock of `ts_wall_ms`. */
    public long wallMs() {
        return wallMs.getAsLong();
    }

    private void offer(Supplier<Event> made, long atMs) {
        lock.lock();
        try {
            if (closed) {
                return;
            }
            settle();
            Event event = made.get();
            Stamped stamped = stamp(event, atMs);
            int weight = event.weight();
            full = full || heldEvents >= mostEvents || heldBytes + weight > mostBytes;
            if (full) {
                drop(stamped, 1);
            } else {
                put(stamped, weight);
            }
        } finally {
            lock.unlock();
        }
    }

    /** All events that wait, in their order; they are held until {@link #delivered}. */
    public List<Stamped> take() {
        lock.lock();
        try {
            settle();
            List<Stamped> taken = waiting;
            waiting = new ArrayList<>(Math.min(taken.size(), mostEvents));
            return taken;
        } finally {
            lock.unlock();
        }
    }

    /** Frees the places of events that were taken. */
    public void delivered(List<Stamped> events) {
        long bytes = 0;
        for (Stamped stamped : events) {
            bytes += stamped.event().weight();
        }
        lock.lock();
        try {
            heldEvents -= events.size();
            heldBytes -= bytes;
        } finally {
            lock.unlock();
        }
    }

    /** Counts events that were taken and will never arrive; `first` is the earliest of them. */
    public void lost(Stamped first, long count) {
        lock.lock();
        try {
            drop(first, count);
        } finally {
            lock.unlock();
        }
    }

    /** Takes nothing more. */
    public void close() {
        lock.lock();
        try {
            closed = true;
        } finally {
            lock.unlock();
        }
    }

    /** Events that were dropped since the start. */
    public long droppedInAll() {
        lock.lock();
        try {
            return droppedInAll;
        } finally {
            lock.unlock();
        }
    }

    /** Ends a gap if there is room again. */
    private void settle() {
        if (full && heldEvents <= mostEvents / 2 && heldBytes <= mostBytes / 2) {
            full = false;
        }
        if (full || dropped == 0) {
            return;
        }
        Event gap = new Event.Gap(firstDropped.monoNs(), firstDropped.wallMs(), dropped);
        dropped = 0;
        firstDropped = null;
        put(stamp(gap, Long.MAX_VALUE), gap.weight());
    }

    private Stamped stamp(Event event, long atMs) {
        long now = wallMs.getAsLong();
        long ago = Math.max(now - atMs, 0);
        return new Stamped(
                event, nextSeq++, monoNs.getAsLong() - TimeUnit.MILLISECONDS.toNanos(ago), now - ago);
    }

    private void put(Stamped stamped, int weight) {
        waiting.add(stamped);
        heldEvents++;
        heldBytes += weight;
    }

    private void drop(Stamped stamped, long count) {
        if (firstDropped == null || stamped.seq() < firstDropped.seq()) {
            firstDropped = stamped;
        }
        dropped += count;
        droppedInAll += count;
    }
}
