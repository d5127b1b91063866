"""The plugin `kubectl rekindle`: shows recoveries, and changes how they go on.

It talks to the API server alone, as whoever calls it, and changes four things: priorities and
`paused` of a RecoveryPolicy, each by server-side apply under a field manager of its own, `approved`
of a Recovery, and our scheduling gate of pods. docs/kubectl.md has every command.

    plugin_main         the command line: finds the command, turns errors into messages and exit
                        codes
    subcommands         a module for each command
    plugin_options      options that commands share
    api_connection      requests to the API server
    terminal_output     tables, sentences and JSON on standard output
    durations           durations and moments, as people write and read them
    resource_lookup     a Recovery or a policy by the name that a person gives
    recovery_text       the story of a recovery in words
    server_side_apply   server-side apply of a part of a policy
    application_reader  applications and the objects around each
    preflight_reader    those objects, read from the API server
"""
