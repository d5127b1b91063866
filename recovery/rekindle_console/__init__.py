"""The console: how applications stand, on pages of a web browser, read only.

    console_reader         the source of the console's data: a protocol, and its values
    coordinator_reader     a coordinator's or operator's data in memory, and its plans in the
                           store
    page_addresses         which page an address means, and the address of a page
    page_text              figures, moments and states as text
    application_summaries  how each application stands, kept until its records change
    overview_page          the page of all applications
    application_page       the page of an application
    query_page             the page of one of its queries
    incident_page          the page of an incident, and the picture of its course
    forecast_page          the page of failure domains
    html_rendering         pages as HTML, by templates that escape everything
    console_questions      explanations and rehearsals, answered by a process of their own
    question_process       keeps answers, and starts that process
    page_router            from an address to its page
    console_server         HTTP and server-sent events

Pages are values, made without a socket; `console_server.serve` takes a reader and a port. The
coordinator and the operator serve it, in threads that take little from the one that decides.
"""
