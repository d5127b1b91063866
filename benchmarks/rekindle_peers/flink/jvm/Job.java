package rekindle.flink;

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;

/**
 * Submits the job to a running cluster, prints its id and ends.
 *
 * <p>Its arguments are pairs `key=value`: those of the job (`job.` before them), and all others are
 * settings of Flink.
 */
public final class Job {
  /** Sources wait for each other when they are further apart than this, in event time. */
  private static final Duration APART_MAX = Duration.ofDays(180);
  private static final Duration ALIGNED_EVERY = Duration.ofMillis(100);

  private final Map<String, String> arguments = new HashMap<>();
  private final ReplaySettings replay;

  private Job(String[] pairs) {
    for (String pair : pairs) {
      int at = pair.indexOf('=');
      arguments.put(pair.substring(0, at), pair.substring(at + 1));
    }
    replay =
        new ReplaySettings(
            job("folder"),
            job("store"),
            Long.parseLong(job("lap-rows")),
            Long.parseLong(job("lap-millis")),
            Double.parseDouble(job("started-at")),
            Double.parseDouble(job("rows-per-second")));
  }

  public static void main(String[] pairs) throws Exception {
    JobClient client = new Job(pairs).submit();
    System.out.println("job=" + client.getJobID());
  }

  private JobClient submit() throws Exception {
    Configuration settings = new Configuration();
    arguments.forEach(
        (key, value) -> {
          if (!key.startsWith("job.")) settings.setString(key, value);
        });
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createRemoteEnvironment(
            job("host"), Integer.parseInt(job("port")), settings);
    Set<String> queries = new HashSet<>(Arrays.asList(job("queries").split(",")));
    DataStream<Flight> flights =
        source(environment, "flights", new Flight.Rows(), Flight.class);
    DataStream<Hour> weather =
        source(environment, "weather", new Hour.Rows(), Hour.class).setParallelism(1);
    new Queries(queries, this::sink).add(flights, weather);
    return environment.executeAsync("flights");
  }

  private <T> SingleOutputStreamOperator<T> source(
      StreamExecutionEnvironment environment, String name, Decoder<T> decoder, Class<T> type) {
    WatermarkStrategy<T> watermarks =
        WatermarkStrategy.<T>forMonotonousTimestamps()
            .withTimestampAssigner((row, time) -> time)
            .withWatermarkAlignment("replay", APART_MAX, ALIGNED_EVERY);
    return environment.fromSource(
        new ReplaySource<>(name, replay, decoder, type), watermarks, name);
  }

  /** Files are closed at every checkpoint, and get their names once it is complete. */
  private void sink(String query, SingleOutputStreamOperator<String> lines) {
    FileSink<String> sink =
        FileSink.forRowFormat(
                new Path(job("store") + "/outputs/" + query), new SimpleStringEncoder<String>())
            .withBucketAssigner(new BasePathBucketAssigner<>())
            .withRollingPolicy(OnCheckpointRollingPolicy.build())
            .build();
    lines.sinkTo(sink).name(query).setParallelism(lines.getParallelism());
  }

  private String job(String key) {
    return arguments.get("job." + key);
  }
}
