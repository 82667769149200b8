package weir.feed;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;

/** One record as JSON; a null column is left out. */
public final class Line {

    private static final JsonFactory JSON = new JsonFactory();

    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream(512);
    private final JsonGenerator out;

    Line() throws IOException {
        out = JSON.createGenerator(bytes);
        out.writeStartObject();
    }

    public void text(String column, String value) throws IOException {
        if (value != null) {
            out.writeStringField(column, value);
        }
    }

    public void number(String column, long value) throws IOException {
        out.writeNumberField(column, value);
    }

    public void number(String column, Number value) throws IOException {
        if (value != null) {
            out.writeNumberField(column, value.longValue());
        }
    }

    public void flag(String column, boolean value) throws IOException {
        out.writeBooleanField(column, value);
    }

    public void binary(String column, byte[] value) throws IOException {
        if (value != null) {
            out.writeBinaryField(column, value);
        }
    }

    public void position(long ledgerId, long entryId) throws IOException {
        number("ledger_id", ledgerId);
        number("entry_id", entryId);
    }

    /** The record in UTF-8, without an end of line. */
    byte[] end() throws IOException {
        out.writeEndObject();
        out.close();
        return bytes.toByteArray();
    }
}
