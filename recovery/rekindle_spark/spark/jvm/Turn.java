package rekindle;

import java.util.Set;

/** Whether a task may run that follows the one of the same stage in the job before. */
enum Turn {
  /** Its partitions have run the job before, as far as that has to do with this executor. */
  NOW,
  LATER,
  /** They will not run the job before: this one would come to the host ahead of its turn. */
  NEVER;

  /** `ran`: the stages that have run of the job before, null where nothing is here of it any more. */
  static Turn of(int stage, Set<Integer> ran, boolean wasCancelled) {
    if (wasCancelled) return NEVER;
    return ran == null || ran.contains(stage) ? NOW : LATER;
  }
}
