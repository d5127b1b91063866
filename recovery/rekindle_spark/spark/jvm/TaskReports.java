package rekindle;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Reports of a job's tasks, and when each came in here: executors have clocks of their own. */
final class TaskReports {
  private final long began = System.nanoTime();
  private final List<byte[]> reports = new ArrayList<>();
  private final List<Long> arrived = new ArrayList<>();
  private long bytes;

  synchronized void add(byte[] report) {
    reports.add(report);
    arrived.add(System.nanoTime() - began);
    bytes += report.length;
  }

  /** Of all reports so far. */
  synchronized long bytes() {
    return bytes;
  }

  /** Count, then nanoseconds since the submission, length and bytes of each. */
  synchronized byte[] encoded() throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    out.writeInt(reports.size());
    for (int i = 0; i < reports.size(); i++) {
      out.writeLong(arrived.get(i));
      out.writeInt(reports.get(i).length);
      out.write(reports.get(i));
    }
    return bytes.toByteArray();
  }
}
