package rekindle;

/**
 * How much an executor may send another one, as the reader grants it: bytes, for outputs as a whole.
 *
 * <p>A reader answers each message with the bytes that it has room for from this sender. What was on
 * its way when it said so is to be taken off. An answer states what is, and not what has changed: a
 * message that is lost, or comes twice, makes no credit and loses none.
 *
 * <p>Nobody waits for credit: what it does not cover is read from the sender's shuffle file. So credit
 * that is never given back costs time, and stops nothing.
 *
 * <p>Why: docs/decisions/0059-readers-grant-links-credit.md.
 */
final class LinkCredit {
  private long grantedBytes;
  private long bytesOnTheirWay;
  private long answers;
  private long refusals;

  /** A reader that has not said anything yet has room for so much. */
  LinkCredit(long grantedBytes) {
    this.grantedBytes = grantedBytes;
  }

  /** Whether so much may be sent; it is on its way then. What is empty always may. */
  synchronized boolean take(long bytes) {
    if (bytes == 0) return true;
    if (bytes > grantedBytes - bytesOnTheirWay) {
      refusals++;
      return false;
    }
    refusals = 0;
    bytesOnTheirWay += bytes;
    return true;
  }

  /** The reader has so much of it, and says for how much more it has room. */
  synchronized void answered(long bytes, long grantedBytes) {
    bytesOnTheirWay -= bytes;
    this.grantedBytes = grantedBytes;
    answers++;
  }

  /** So much of it has failed on its way; if it did arrive, the next answer says so. */
  synchronized void failed(long bytes) {
    bytesOnTheirWay -= bytes;
  }

  /** What has been sent, or waits to be, and was not answered. */
  synchronized long bytesOnTheirWay() {
    return bytesOnTheirWay;
  }

  /** How many outputs in a row, up to the newest one, credit did not cover. */
  synchronized long refusals() {
    return refusals;
  }

  /** How many answers have come: a sign that the reader goes on. */
  synchronized long answers() {
    return answers;
  }
}
