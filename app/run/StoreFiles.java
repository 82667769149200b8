package weir;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.TreeMap;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.spark.sql.execution.streaming.CheckpointFileManager;

/**
 * The files of Spark's checkpoints in an object store, with as few requests as they need.
 *
 * An object appears whole with the request that writes it, so nothing is renamed; a store has no
 * folders, so none is asked for or made. A log of batches is listed once and then known: the run that
 * holds the lease is the only one that writes it. Folders of states, which tasks of several
 * executors write in turn, are asked for each time. Files are deleted many at a time; those that wait
 * for it when a run ends are found by the next one.
 *
 * s3a.py compiles this file with Janino, which knows no lambdas and no type arguments.
 */
public final class StoreFiles implements CheckpointFileManager {
    private static final int DELETED_AT_ONCE = 50;

    private final FileSystem store;
    private final Path root;
    /** Whether the root is a log, or the states of a partition; a file may be one, too. */
    private final boolean isFolder;
    /** The files of a log by name; null for other folders. */
    private final TreeMap known;
    private final List unneeded = new ArrayList();

    public StoreFiles(Path root, Configuration conf) throws IOException {
        this.store = root.getFileSystem(conf);
        this.root = store.makeQualified(root);
        String parent = this.root.getParent() == null ? "" : this.root.getParent().getName();
        boolean isLog = this.root.getName().matches("offsets|commits") || parent.equals("sources");
        isFolder = isLog || this.root.getName().matches("[0-9]+");
        known = isLog ? new TreeMap() : null;
        if (isLog) {
            for (FileStatus file : listed(this.root)) {
                known.put(file.getPath().getName(), file);
            }
        }
    }

    public CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) throws IOException {
        synchronized (unneeded) {
            if (unneeded.contains(path)) {
                deleteAll();
            }
        }
        FSDataOutputStream out = (FSDataOutputStream) store.createFile(path).create().overwrite(true)
            .recursive().opt("fs.s3a.create.performance", true).build();
        return new Whole(this, path, out, overwrite);
    }

    public FSDataInputStream open(Path path) throws IOException {
        return store.open(path);
    }

    public FileStatus[] list(Path folder, PathFilter filter) throws IOException {
        List found = new ArrayList();
        for (Object each : isKnown(folder) ? files() : Arrays.asList(listed(folder))) {
            if (filter.accept(((FileStatus) each).getPath())) {
                found.add(each);
            }
        }
        return (FileStatus[]) found.toArray(new FileStatus[0]);
    }

    public FileStatus[] list(Path folder) throws IOException {
        return list(folder, new Every());
    }

    public void mkdirs(Path folder) {
    }

    public boolean exists(Path path) throws IOException {
        if (isFolder && isRoot(path)) {
            return true;
        }
        if (isKnown(path.getParent())) {
            synchronized (known) {
                return known.containsKey(path.getName());
            }
        }
        return store.exists(path);
    }

    public void delete(Path path) {
        forget(path);
        synchronized (unneeded) {
            unneeded.add(path);
            if (unneeded.size() >= DELETED_AT_ONCE) {
                try {
                    deleteAll();
                } catch (IOException error) {
                    // they wait for the next time
                }
            }
        }
    }

    public boolean isLocal() {
        return false;
    }

    public Path createCheckpointDirectory() {
        return root;
    }

    private boolean isRoot(Path path) {
        return path != null && store.makeQualified(path).equals(root);
    }

    private boolean isKnown(Path folder) {
        return known != null && isRoot(folder);
    }

    private Collection files() {
        synchronized (known) {
            return new ArrayList(known.values());
        }
    }

    private FileStatus[] listed(Path folder) throws IOException {
        try {
            return store.listStatus(folder);
        } catch (FileNotFoundException missing) {
            return new FileStatus[0];
        }
    }

    private void deleteAll() throws IOException {
        BulkDelete bulk = store.createBulkDelete(root);
        try {
            while (!unneeded.isEmpty()) {
                List some = unneeded.subList(0, Math.min(unneeded.size(), bulk.pageSize()));
                bulk.bulkDelete(new ArrayList(some));
                some.clear();
            }
        } finally {
            bulk.close();
        }
    }

    void forget(Path path) {
        if (isKnown(path.getParent())) {
            synchronized (known) {
                known.remove(path.getName());
            }
        }
    }

    void written(Path path, long bytes) {
        if (isKnown(path.getParent())) {
            synchronized (known) {
                known.put(path.getName(), new FileStatus(bytes, false, 1, bytes, System.currentTimeMillis(), path));
            }
        }
    }

    /** Whether there is an object of a path; one request, where `exists` looks for a folder, too. */
    boolean isThere(Path path) throws IOException {
        try {
            ((S3AFileSystem) store).getS3AInternals().getObjectMetadata(path);
            return true;
        } catch (FileNotFoundException missing) {
            return false;
        }
    }

    /** A file of which nothing is there before it is closed. */
    static final class Whole extends CheckpointFileManager.CancellableFSDataOutputStream {
        private final StoreFiles files;
        private final Path path;
        private final FSDataOutputStream to;
        private final boolean overwrite;
        private boolean ended;

        Whole(StoreFiles files, Path path, FSDataOutputStream to, boolean overwrite) {
            super(to);
            this.files = files;
            this.path = path;
            this.to = to;
            this.overwrite = overwrite;
        }

        public synchronized void close() throws IOException {
            if (ended) {
                return;
            }
            ended = true;
            if (!overwrite && files.isThere(path)) {
                to.abort();
                throw new FileAlreadyExistsException(path + " is there: another run has written it");
            }
            to.close();
            files.written(path, to.getPos());
        }

        public synchronized void cancel() {
            if (!ended) {
                ended = true;
                to.abort();
            }
        }
    }

    static final class Every implements PathFilter {
        public boolean accept(Path path) {
            return true;
        }
    }
}
