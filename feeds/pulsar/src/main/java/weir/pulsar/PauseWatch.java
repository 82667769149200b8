package weir.pulsar;

import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import weir.feed.EventBuffer;

/**
 * Sees when the broker stops reading a connection and when it reads again.
 *
 * <p>The broker switches the channel's automatic reading. Off, nothing is called, so it is looked
 * at after everything that was read; on, the channel asks for the next read at once. All of it is
 * on the connection's own thread.
 */
final class PauseWatch {

    private final Channel channel;
    private final Connection connection;
    private final EventBuffer buffer;
    private final Digests digests;
    private boolean paused;

    private PauseWatch(
            Channel channel, Connection connection, EventBuffer buffer, Digests digests) {
        this.channel = channel;
        this.connection = connection;
        this.buffer = buffer;
        this.digests = digests;
    }

    static void on(Channel channel, Connection connection, EventBuffer buffer, Digests digests) {
        PauseWatch watch = new PauseWatch(channel, connection, buffer, digests);
        channel.pipeline().addFirst(watch.new AfterReading()).addLast(watch.new BeforeReading());
    }

    private void look() {
        boolean now = !channel.config().isAutoRead();
        if (now != paused && !connection.closed()) {
            paused = now;
            digests.paused(connection);
            buffer.offer(new BrokerEvent.ConnectionChanged(
                    now ? BrokerEvent.ConnectionChanged.PAUSED : BrokerEvent.ConnectionChanged.RESUMED,
                    connection));
        }
    }

    private final class AfterReading extends ChannelInboundHandlerAdapter {
        @Override
        public void channelReadComplete(ChannelHandlerContext ctx) {
            ctx.fireChannelReadComplete();
            look();
        }
    }

    private final class BeforeReading extends ChannelOutboundHandlerAdapter {
        @Override
        public void read(ChannelHandlerContext ctx) {
            look();
            ctx.read(); // may hand over messages that were read before, and so pause again
            look();
        }
    }
}
