"""The commands of `kubectl rekindle`, a module each.

A command reads (`connection`, `lookup`, `gathering`), lets a pure module decide what to say, and
shows it. Modules are imported when their command is called.

    status      applications, and what recovers
    explain     the story of a recovery
    plan        what waits for the next plan
    priority    priorities of queries, for a while
    pause       a pause of a policy's applications
    resume      the end of that
    approve     the approval of a recovery
    preflight   what would keep an application from coming back
"""
