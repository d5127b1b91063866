"""The status of a Recovery: the core's decisions and observations as rows, phases and events.

kubernetes_events  Kubernetes Events, from what has changed between two statuses
recovery_writer    Recovery objects and events
event_writer       announcements as Events
recovery_inputs    what is known of an application at a moment
lost_nodes         which nodes were lost, suspected, and came back; and the driver
status_rows        rows of plans and queries, and why what waits does so
recovery_phases    how far it is, why, and the conditions that say so
recovery_reasons   the words that the core's list of reasons does not have
status_builder     all of it as the next status: `tell`
"""
