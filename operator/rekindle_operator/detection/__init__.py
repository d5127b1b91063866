"""Detection of lost nodes: leases, driver reports, rounds of detection, failure domains.

node_lookup        which pod a driver means by a node of its report
loss_notices       what on a node says that it will go, and until when
detection_input    what a round of detection is told, and the rules by which it judges
node_detector      suspected and lost nodes, a round at a time
lease_timers       which leases have stopped, by our own clock
node_inventory     the nodes of the cluster as detection knows them
detection_events   what detection finds, one value per event
detection_reasons  the words for it that the core's list of reasons does not have
failure_domains    failure domains of nodes, and which of them are impaired
lease_poller       leases of nodes, listed again and again
detection_runner   rounds of detection, and what follows from them
drained_nodes      losses that had been announced
"""
