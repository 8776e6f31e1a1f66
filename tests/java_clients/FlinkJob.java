import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiter;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Numbers to a topic, exactly once; it can be frozen between the end of a checkpoint and its commit. */
public class FlinkJob {
    /** In the task of the sink, which commits between two records: some records after a checkpoint it stops for ever. */
    public static class Freeze implements MapFunction<String, String>, CheckpointedFunction {
        private final String file;
        private final int after;
        private int left = -1;

        Freeze(String file, int after) {
            this.file = file;
            this.after = after;
        }

        @Override
        public String map(String value) throws Exception {
            if (left == 0) {
                Files.createFile(Path.of(file + FROZEN + Thread.currentThread().getId()));
                Thread.sleep(Long.MAX_VALUE);
            }
            left = Math.max(left - 1, -1);
            return value;
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            left = isLast(file, context) ? after : -1;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {}
    }

    /** In a task of its own: the checkpoint is not complete before the tasks of the sink have stopped. */
    public static class Hold implements MapFunction<String, String>, CheckpointedFunction {
        private final String file;
        private final int count;

        Hold(String file, int count) {
            this.file = file;
            this.count = count;
        }

        @Override
        public String map(String value) {
            return value;
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            while (isLast(file, context) && frozen() < count) {
                Thread.sleep(20);
            }
        }

        private int frozen() {
            String name = Path.of(file).getFileName() + FROZEN;
            String[] found = Path.of(file).getParent().toFile().list((folder, each) -> each.startsWith(name));
            return found == null ? 0 : found.length;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {}
    }

    private static final String FROZEN = "-frozen-";

    /** Whether a file names this checkpoint as the one to stop after. */
    private static boolean isLast(String file, FunctionSnapshotContext context) throws Exception {
        Path path = Path.of(file);
        return Files.exists(path) && Files.readString(path).trim().equals(String.valueOf(context.getCheckpointId()));
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream file = new FileInputStream(args[0])) {
            properties.load(file);
        }
        Configuration configuration = new Configuration();
        for (String name : properties.stringPropertyNames()) {
            if (name.startsWith("execution.")) {
                configuration.setString(name, properties.getProperty(name));
            }
        }
        int parallelism = Integer.parseInt(properties.getProperty("parallelism"));
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration);
        String freeze = properties.getProperty("freeze");
        KafkaSink<String> sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(properties.getProperty("bootstrap.servers"))
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(properties.getProperty("prefix"))
                        .setTransactionNamingStrategy(
                                TransactionNamingStrategy.valueOf(properties.getProperty("naming")))
                        .setProperty("transaction.timeout.ms", properties.getProperty("timeout"))
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.<String>builder()
                                        .setTopic(properties.getProperty("topic"))
                                        .setValueSerializationSchema(new SimpleStringSchema())
                                        .build())
                        .build();
        environment
                .fromSource(numbers(properties), WatermarkStrategy.noWatermarks(), "numbers")
                .uid("numbers")
                .map(new Freeze(freeze, Integer.parseInt(properties.getProperty("after"))))
                .uid("freeze")
                .sinkTo(sink)
                .uid("sink");
        environment
                .fromSource(numbers(properties), WatermarkStrategy.noWatermarks(), "others")
                .uid("others")
                .setParallelism(1)
                .map(new Hold(freeze, parallelism))
                .uid("hold")
                .setParallelism(1)
                .sinkTo(new DiscardingSink<>())
                .uid("nothing")
                .setParallelism(1);
        environment.execute();
    }

    private static DataGeneratorSource<String> numbers(Properties properties) {
        GeneratorFunction<Long, String> text = String::valueOf;
        return new DataGeneratorSource<>(
                text,
                Long.parseLong(properties.getProperty("records")),
                paced(Double.parseDouble(properties.getProperty("rate")), properties.getProperty("unpaced")),
                Types.STRING);
    }

    /** So many records per second, until a file exists. */
    private static RateLimiterStrategy paced(double rate, String file) {
        return parallelism -> {
            RateLimiter limiter = RateLimiterStrategy.perSecond(rate).createRateLimiter(parallelism);
            return () -> Files.exists(Path.of(file)) ? CompletableFuture.completedFuture(null) : limiter.acquire();
        };
    }
}
