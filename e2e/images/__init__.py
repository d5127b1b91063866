"""Builds the images of drivers, executors and operator, without a registry, once for each content.

    image_builder   what an image is made of, its digest, and the archive that is kept under it
    base_images     a base image of Debian's packages, where none can be pulled
    image_wheels    what pip installs into the images, and our own wheel
    locking         the locks of that: every package with version and SHA-256
    auditing        compares locks, or what is in an image, with a copy of OSV's advisories
    build_engines   buildah, podman or docker: who builds
    image_archives  what is in an archive: its layers and their sizes, and its files
    image_programs  runs a program; an error says what it said

The Dockerfiles say how an image is made; this only hands them what they take. Tests and
`python -m images` call it, nothing imports it but them.
"""
