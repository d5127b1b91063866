"""Flow control: how large epochs and catch-up jobs may be, and how fast they may follow.

memory_budget      how large epochs and pieces may be, so that hosts keep within their memory
memory_pressure    applies that: smaller epochs and pieces, or the end of the run
catch_up_batching  how many epochs one job of catching up takes on
catch_up_throttle  how long catching up rests, so that live queries keep their time
stragglers         which executors are slow
cost_statistics    windows of measured cost, calibration of the replay's rate
partition_costs    what each operator partition costs
"""
