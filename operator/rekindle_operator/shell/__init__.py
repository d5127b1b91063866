"""The operator's shell: it watches, decides by what is pure, and writes.

    main            the command `rekindle-operator`
    options         what it is started with
    running         all parts put together, started, ended

Gathering:

    api             the API server: requests with deadlines, failures as three kinds
    kinds           the kinds of objects that are read and written
    watching        pods and nodes: listed in pages, then watched
    handlers        kopf's handlers: policies, classes, recoveries, SparkApplications
    renewals        leases of nodes, listed again and again
    tellings        how objects become news
    inbox           what watching threads tell the deciding one
    sounding        servers of the store one by one, and other operators

Deciding, in one thread, within the coordinator's loop:

    surroundings    all that is known of the cluster
    judging         rounds of detection, and what follows from them
    avoiding        domains and nodes where new executors should not be
    limiting        how many applications of a policy recover at once
    overseer        provider of nodes and oversight, as the coordinator's loop sees them
    remedying       what has to be done to nodes themselves
    contacts        how drivers are in touch
    departures      losses that had been announced
    cases           what was decided last about each application
    consequences    what follows from decisions, left as errands

Writing:

    leadership      who acts
    errands         what takes a while and may fail, done by a few threads
    storytelling    Recovery objects and events
    announcing      announcements as Events
    evicting        executor pods of lost nodes
    requesting      replacement nodes
    tending         nodes fenced, deleted, tainted
    statuses        statuses of policies and classes

    namespace_credentials  credentials of the store, and the rights of each namespace there
    admitting       the webhook, served and trusted
    metrics         what is counted
    operator_reader  what the console shows: Recoveries beside what a coordinator knows
    libraries       what libraries say, as lines of the log
"""
