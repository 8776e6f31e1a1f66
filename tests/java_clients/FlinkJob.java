import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
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

/** Numbers to a topic, exactly once; it can be frozen between the end of a checkpoint and its commit. */
public class FlinkJob {
    /** Its task commits only when it is not in `map`, which waits as soon as a checkpoint has begun and a file exists. */
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
                Files.createFile(Path.of(file + "-frozen-" + Thread.currentThread().getId()));
                Thread.sleep(Long.MAX_VALUE);
            }
            left = Math.max(left - 1, -1);
            return value;
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
            left = Files.exists(Path.of(file)) ? after : -1;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {}
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
        GeneratorFunction<Long, String> text = String::valueOf;
        DataGeneratorSource<String> source =
                new DataGeneratorSource<>(
                        text,
                        Long.parseLong(properties.getProperty("records")),
                        RateLimiterStrategy.perSecond(Double.parseDouble(properties.getProperty("rate"))),
                        Types.STRING);
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
                .fromSource(source, WatermarkStrategy.noWatermarks(), "numbers")
                .uid("numbers")
                .map(new Freeze(properties.getProperty("freeze"), Integer.parseInt(properties.getProperty("after"))))
                .uid("freeze")
                .sinkTo(sink)
                .uid("sink");
        environment.execute();
    }
}
