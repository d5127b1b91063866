"""Detection of lost nodes: leases, driver reports, rounds of detection, failure domains.

loss_notices       what on a node says that it will go, and until when
noticed_nodes      the nodes that are announced to go, from round to round
detection_input    what a round of detection is told, and the rules by which it judges
node_detector      suspected and lost nodes, a round at a time
lease_timers       which leases have stopped, by our own clock
node_inventory     the nodes of the cluster as detection knows them
detection_events   what detection finds, one value per event
failure_domains    failure domains of nodes, and which of them are impaired
lease_poller       leases of nodes, listed again and again
detection_runner   rounds of detection, and what follows from them
"""
