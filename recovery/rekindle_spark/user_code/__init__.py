"""Functions of users: checked, located, limited, and searched for rows at which they raise.

argument_checks    checks of what a user gives to all these
code_locations     the files and lines of users' functions
print_forwarding   what their functions print and log, on its way to the driver's log
dead_letter_sieve  finds rows for which a user's function raises, and makes them dead letters
watchdog           what a process works on, noted where it outlives it, and a limit on each call
"""
