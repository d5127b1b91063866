"""Builds the images of drivers, executors and operator, without a registry, once for each content.

    building   what an image is made of, its digest, and the archive that is kept under it
    bases      a base image of Debian's packages, where none can be pulled
    wheels     what pip installs into the images, and our own wheel
    engines    buildah, podman or docker: who builds
    archives   what is in an archive: its layers and their sizes
    programs   runs a program; an error says what it said

The Dockerfiles say how an image is made; this only hands them what they take. Tests and
`python -m images` call it, nothing imports it but them.
"""
