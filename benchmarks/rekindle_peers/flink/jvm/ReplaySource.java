package rekindle.flink;

import java.util.List;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Converted rows that come in as the clock goes on, again and again, lap by lap.
 *
 * <p>Rows of one aircraft are in one split and stay in order, as a topic that is keyed by aircraft
 * would keep them. All rows of a reader are in the order of event time.
 */
final class ReplaySource<T>
    implements Source<T, ReplaySplit, List<ReplaySplit>>, ResultTypeQueryable<T> {
  private final String name;
  private final ReplaySettings settings;
  private final Decoder<T> decoder;
  private final Class<T> type;

  ReplaySource(String name, ReplaySettings settings, Decoder<T> decoder, Class<T> type) {
    this.name = name;
    this.settings = settings;
    this.decoder = decoder;
    this.type = type;
  }

  @Override
  public Boundedness getBoundedness() {
    return Boundedness.CONTINUOUS_UNBOUNDED;
  }

  @Override
  public SourceReader<T, ReplaySplit> createReader(SourceReaderContext context) {
    return new ReplayReader<>(name, settings, decoder, context);
  }

  @Override
  public SplitEnumerator<ReplaySplit, List<ReplaySplit>> createEnumerator(
      SplitEnumeratorContext<ReplaySplit> context) {
    return ReplayEnumerator.begin(name, settings, context);
  }

  @Override
  public SplitEnumerator<ReplaySplit, List<ReplaySplit>> restoreEnumerator(
      SplitEnumeratorContext<ReplaySplit> context, List<ReplaySplit> unassigned) {
    return new ReplayEnumerator(name, settings, context, unassigned);
  }

  @Override
  public SimpleVersionedSerializer<ReplaySplit> getSplitSerializer() {
    return new ReplaySplit.One();
  }

  @Override
  public SimpleVersionedSerializer<List<ReplaySplit>> getEnumeratorCheckpointSerializer() {
    return new ReplaySplit.Several();
  }

  @Override
  public TypeInformation<T> getProducedType() {
    return TypeInformation.of(type);
  }
}
