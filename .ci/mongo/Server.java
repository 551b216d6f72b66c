import de.bwaldvogel.mongo.MongoCollection;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.CollectionOptions;
import de.bwaldvogel.mongo.backend.CursorRegistry;
import de.bwaldvogel.mongo.backend.Index;
import de.bwaldvogel.mongo.backend.IndexKey;
import de.bwaldvogel.mongo.backend.KeyValue;
import de.bwaldvogel.mongo.backend.Missing;
import de.bwaldvogel.mongo.backend.QueryResult;
import de.bwaldvogel.mongo.backend.Utils;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import de.bwaldvogel.mongo.backend.memory.MemoryCollection;
import de.bwaldvogel.mongo.backend.memory.MemoryDatabase;
import de.bwaldvogel.mongo.backend.memory.index.MemoryUniqueIndex;
import de.bwaldvogel.mongo.bson.Document;
import de.bwaldvogel.mongo.wire.MongoDatabaseHandler;
import de.bwaldvogel.mongo.wire.MongoExceptionHandler;
import de.bwaldvogel.mongo.wire.MongoWireMessageEncoder;
import de.bwaldvogel.mongo.wire.MongoWireProtocolHandler;
import de.bwaldvogel.mongo.wire.MongoWireReplyEncoder;
import de.bwaldvogel.mongo.wire.message.MongoMessage;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.oio.OioEventLoopGroup;
import io.netty.channel.socket.oio.OioServerSocketChannel;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Serves the MongoDB protocol from memory on 127.0.0.1 at the given port, until it is killed.
 *
 * <p>It corrects three differences between mongo-java-server and MongoDB. mongo-java-server ignores
 * partialFilterExpression, so unique indexes here contain only documents that have all fields of the index, which is the
 * only such expression that Tenantry uses. It sends documents while other commands change them. It keeps the old order of
 * fields when a document is replaced.
 */
public class Server {
    public static void main(String[] args) throws Exception {
        Backend backend = new Backend();
        backend.version(new Version());
        int port = Integer.parseInt(args[0]);
        // A thread for each connection, because with MongoServer's few threads connections wait for each other's commands.
        EventLoopGroup threads = new OioEventLoopGroup();
        DefaultChannelGroup open = new DefaultChannelGroup(GlobalEventExecutor.INSTANCE);
        new ServerBootstrap().group(threads, threads).channel(OioServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, 1024).childOption(ChannelOption.TCP_NODELAY, true)
                .childHandler(new ChannelInitializer<Channel>() {
                    @Override
                    public void initChannel(Channel channel) {
                        channel.pipeline().addLast(
                                new MongoWireReplyEncoder(), new MongoWireMessageEncoder(), new MongoWireProtocolHandler(),
                                new MongoDatabaseHandler(backend, open), new MongoExceptionHandler());
                    }
                })
                .bind("127.0.0.1", port).sync();
        System.out.println("ready mongodb://127.0.0.1:" + port);
        Thread.currentThread().join();
    }

    /** The version that the server reports: its own is too old for current clients, although its protocol is not. */
    private static class Version implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(5, 0, 0);
        }

        @Override
        public int getWireVersion() {
            return 13;
        }
    }

    private static class Backend extends MemoryBackend {
        @Override
        public MemoryDatabase openOrCreateDatabase(String name) {
            return new Database(name, getCursorRegistry());
        }

        private final Map<String, Object> locks = new ConcurrentHashMap<>();

        /** Runs one command at a time on a database, and copies the answer so that the next command cannot change it. */
        @Override
        public Document handleMessage(MongoMessage message) {
            synchronized (locks.computeIfAbsent(message.getDatabaseName(), name -> new Object())) {
                return super.handleMessage(message).cloneDeeply();
            }
        }
    }

    private static class Database extends MemoryDatabase {
        Database(String name, CursorRegistry cursors) {
            super(name, cursors);
        }

        @Override
        protected MemoryCollection openOrCreateCollection(String name, CollectionOptions options) {
            return new Collection(this, name, options, cursorRegistry);
        }

        @Override
        protected Index<Integer> openOrCreateUniqueIndex(String collection, String name, List<IndexKey> keys, boolean sparse) {
            if (keys.size() == 1) {
                return new IdIndex(name, keys, sparse);
            }
            return new PartialIndex(name, keys);
        }
    }

    /** Reads in the order of the id without sorting all documents first, as MongoDB does. */
    private static class Collection extends MemoryCollection {
        private IdIndex ids;

        Collection(MemoryDatabase database, String name, CollectionOptions options, CursorRegistry cursors) {
            super(database, name, options, cursors);
        }

        /** Gives a replaced document the fields in the order of the new one, as MongoDB does. */
        @Override
        protected void handleUpdate(Integer position, Document before, Document stored) {
            Document ordered = ids != null ? ids.latest : null;
            if (ordered != null && ordered.keySet().equals(stored.keySet())) {
                ordered = ordered.cloneDeeply();
                stored.clear();
                stored.putAll(ordered);
            }
        }

        @Override
        public void addIndex(Index<Integer> index) {
            super.addIndex(index);
            if (index instanceof IdIndex) {
                ids = (IdIndex) index;
            }
        }

        @Override
        protected QueryResult queryDocuments(Document query, Document order, int skip, int limit, int batch, Document fields) {
            boolean byId = order != null && List.of("_id").equals(List.copyOf(order.keySet())) && Integer.valueOf(1).equals(order.get("_id"));
            NavigableMap<String, Integer> range = byId && ids != null && limit > 0 ? ids.range(query) : null;
            if (range == null) {
                return super.queryDocuments(query, order, skip, limit, batch, fields);
            }
            return matchDocumentsFromStream(query, range.values().stream().map(this::getDocument), skip, limit, batch, null, fields);
        }
    }

    /** Finds documents by their id even if the query has other conditions, as MongoDB does. */
    private static class IdIndex extends MemoryUniqueIndex {
        private final TreeMap<String, Integer> ordered = new TreeMap<>();
        /** The result of the update that is being carried out. */
        private Document latest;

        IdIndex(String name, List<IndexKey> keys, boolean sparse) {
            super(name, keys, sparse);
        }

        @Override
        public void updateInPlace(Document before, Document after, Integer position, MongoCollection<Integer> collection) {
            latest = after;
            super.updateInPlace(before, after, position, collection);
        }

        @Override
        protected boolean putKeyPosition(KeyValue key, Integer position) {
            if (!super.putKeyPosition(key, position)) {
                return false;
            }
            if (key.get(0) instanceof String) {
                ordered.put((String) key.get(0), position);
            }
            return true;
        }

        @Override
        protected Integer removeDocument(KeyValue key) {
            if (key.get(0) instanceof String) {
                ordered.remove((String) key.get(0));
            }
            return super.removeDocument(key);
        }

        /** The ids between the bounds of a query, such as {_id: {$gt: "a"}}, also within an $and. */
        NavigableMap<String, Integer> range(Document query) {
            NavigableMap<String, Integer> range = ordered;
            if (query.get("_id") instanceof Document) {
                range = narrow(range, (Document) query.get("_id"));
            }
            if (query.get("$and") instanceof java.util.Collection) {
                for (Object part : (java.util.Collection<?>) query.get("$and")) {
                    if (((Document) part).get("_id") instanceof Document) {
                        range = narrow(range, (Document) ((Document) part).get("_id"));
                    }
                }
            }
            return range;
        }

        private static NavigableMap<String, Integer> narrow(NavigableMap<String, Integer> range, Document bounds) {
            for (String operator : bounds.keySet()) {
                if (bounds.get(operator) instanceof String) {
                    String bound = (String) bounds.get(operator);
                    boolean inclusive = operator.endsWith("e");
                    if (operator.startsWith("$gt") && (range.isEmpty() || bound.compareTo(range.lastKey()) <= 0)) {
                        range = bound.compareTo(range.isEmpty() ? bound : range.firstKey()) < 0 ? range : range.tailMap(bound, inclusive);
                    } else if (operator.startsWith("$lt") && (range.isEmpty() || bound.compareTo(range.firstKey()) >= 0)) {
                        range = bound.compareTo(range.isEmpty() ? bound : range.lastKey()) > 0 ? range : range.headMap(bound, inclusive);
                    }
                }
            }
            return range;
        }

        /** The part of the query that the index answers, or null. Results are checked against the whole query. */
        private Document own(Document query) {
            String key = keys().get(0);
            Object value = query.get(key);
            if (value instanceof Document && List.of("$eq").equals(List.copyOf(((Document) value).keySet()))) {
                value = ((Document) value).get("$eq");
                return value instanceof String ? new Document(key, value) : null;
            }
            boolean in = value instanceof Document && List.of("$in").equals(List.copyOf(((Document) value).keySet()));
            return value instanceof String || in ? new Document(key, value) : null;
        }

        @Override
        public synchronized boolean canHandle(Document query) {
            return own(query) != null || super.canHandle(query);
        }

        @Override
        public synchronized Iterable<Integer> getPositions(Document query) {
            Document own = own(query);
            return super.getPositions(own != null ? own : query);
        }
    }

    private static class PartialIndex extends MemoryUniqueIndex {
        PartialIndex(String name, List<IndexKey> keys) {
            super(name, keys, true);
        }

        private boolean holds(Document document) {
            for (String key : keys()) {
                Object value = Utils.getSubdocumentValue(document, key);
                if (value == null || value instanceof Missing) {
                    return false;
                }
            }
            return true;
        }

        @Override
        public synchronized void checkAdd(Document document, MongoCollection<Integer> collection) {
            if (holds(document)) {
                super.checkAdd(document, collection);
            }
        }

        @Override
        public synchronized void add(Document document, Integer position, MongoCollection<Integer> collection) {
            if (holds(document)) {
                super.add(document, position, collection);
            }
        }

        @Override
        public synchronized Integer remove(Document document) {
            return holds(document) ? super.remove(document) : null;
        }

        @Override
        public Integer getPosition(Document document) {
            return holds(document) ? super.getPosition(document) : null;
        }

        @Override
        public synchronized void checkUpdate(Document before, Document after, MongoCollection<Integer> collection) {
            if (!nullAwareEqualsKeys(before, after)) {
                checkAdd(after, collection);
            }
        }

        @Override
        public void updateInPlace(Document before, Document after, Integer position, MongoCollection<Integer> collection) {
            if (!nullAwareEqualsKeys(before, after)) {
                remove(before);
                add(after, position, collection);
            }
        }

        /** The index answers only queries for an equal value in every field. */
        @Override
        public synchronized boolean canHandle(Document query) {
            for (String key : keys()) {
                Object value = query.get(key);
                if (value == null || value instanceof Document && !List.of("$eq").equals(List.copyOf(((Document) value).keySet()))) {
                    return false;
                }
            }
            return super.canHandle(query);
        }
    }
}
