"""The demo: a real cluster, a real failure, and a report that anyone can check.

    performance   one performance: prepares, runs, writes the report
    scenario      the run as phases: start, calibrate, warm up, kill, return nodes, finish
    machine_load  what this machine gives a run, and how long its processes wait for a CPU
    phases        waiting within a phase, with a limit
    driving       the driver as a process of its own, and what it says in its event file
    inputs        the pipeline and the settings that a driver is given
    display       the live table, or plain lines where there is no terminal
    evidence      the report's directory: outputs, plans, input record, figures, picture

Called by the commands `demo` and `bench`.
"""
