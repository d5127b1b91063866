"""The demo: a real cluster, a real failure, and a report that anyone can check.

    demo_run        one performance: prepares, runs, writes the report
    demo_scenario   the run as phases: start, calibrate, warm up, kill, return nodes, finish
    machine_load    the CPU that this machine gives a run, and waits for a CPU
    run_phases      waiting within a phase, with a limit
    driver_process  the driver as a process of its own, and its event file
    run_inputs      the pipeline and the settings that a driver is given
    demo_streams    the input: a replay, or topics of a broker that a producer writes
    topic_producer  writes the flights to topics, as a process of its own
    topic_witness   reads the topics of all queries and compares their rows
    demo_display    the live table, or plain lines where there is no terminal
    demo_evidence   the report's directory: outputs, plans, input record, figures, picture

Called by the commands `demo` and `bench`.
"""
