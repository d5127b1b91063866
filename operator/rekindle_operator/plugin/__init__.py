"""The plugin `kubectl rekindle`: what an SRE sees of recoveries, and may say about them.

It talks to the API server alone, as whoever calls it, and changes three things: priorities and
`paused` of a RecoveryPolicy, each by server-side apply under a field manager of its own, and
`approved` of a Recovery. docs/kubectl.md has every command.

    main            the command line: finds the command, turns errors into messages and exit codes
    commands        a module for each command
    options         options that commands share
    kinds           kinds of objects, and where the API server has them
    connection      requests to the API server
    refusals        what an answer of the API server means, and what to do about it
    kubeconfig      which cluster, namespace and credentials are meant
    display         tables, sentences and JSON on standard output
    moments         durations and moments, as people write and read them
    lookup          a Recovery or a policy by the name that a person gives
    standing        how applications stand, from policies and recoveries
    telling         the story of a recovery in words
    waiting         what waits in a recovery, and for what
    consequences    what an approval will do
    ownership       which fields of an object a field manager has
    priorities      entries of spec.priorities under the plugin's own field manager
    applying        server-side apply of a part of a policy
    objects         applications and what is around each, from objects
    gathering       those objects, read from the API server
    manifests       those objects, read from a file
"""
