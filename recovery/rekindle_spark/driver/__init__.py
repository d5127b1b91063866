"""The driver's process: its main program, its loops, and the state that they share.

stopped_branches  parts of a chain that have stopped alone, as chains of their own
driver_main       opens the store, starts Spark, runs the loops to their end
driver_context    what the parts of one driver share
event_log         what happens, line by line
driver_clock      what time it is for a driver: seconds since 1970 that never jump
epoch_loop        the epoch loop: cut, run, commit, checkpoint
epoch_pipeline    epochs on their way: the awaited one and those that follow it
priority_classes  what matters less and holds up the epochs runs behind them
catch_up_loop     the catch-up loop: brings newly placed partitions forward
partition_table   where partitions are, how far, and which blocks are retained
epoch_cutter      when rows arrive, and how they are cut into epochs
source_intake     what an epoch takes of sources whose future is unknown, and watermarks behind
                  it
source_polls      asks these sources what has arrived
away_sources      sources that cannot be reached: their queries wait
"""
