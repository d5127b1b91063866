"""Flow control: how large epochs and catch-up jobs may be, and how fast they may follow.

memory_budget      how large epochs and pieces may be, so that hosts keep within their memory
memory_pressure    applies that: smaller epochs and pieces, or the end of the run
catch_up_pace      how many epochs one job of catching up takes on, and how long it rests
stragglers         which executors are slow
cost_statistics    windows of measured cost, calibration of the replay's rate
"""
