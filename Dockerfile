# The image of the operator, and of the sidecar beside drivers. docs/install.md says how to build it.
# Any base that has Python 3.11 or newer with venv; nothing is compiled, so no build tools.
# By digest: what a tag names changes. `python:3.12-slim@sha256:...` would do.
ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS packages
ARG BASE_IMAGE
COPY spark-images/pinned.sh /spark-images/
RUN sh /spark-images/pinned.sh "${BASE_IMAGE}"
# 1 takes all packages from spark-images/wheels, and asks no index.
ARG PIP_NO_INDEX=
# Scripts are copied and not mounted: for buildah a layer does not depend on what is in its mounts.
COPY spark-images/packages.sh /spark-images/
COPY spark-images/locks /spark-images/locks
RUN --mount=type=bind,source=spark-images,target=/context sh /spark-images/packages.sh operator \
# Half of the size, 370 MB, which only drivers, executors and `rekindle verify` need.
 && /opt/installer/bin/pip --python /opt/rekindle/bin/python3 uninstall --quiet --yes \
      polars polars-runtime-32 pyarrow

FROM packages AS rekindle
COPY dist /dist
COPY spark-images/wheel.sh /spark-images/
RUN sh /spark-images/wheel.sh /added /dist \
# What is imported when it runs has to be there.
 && PYTHONPATH=$(echo /added/opt/rekindle/lib/python*/site-packages) \
    /opt/rekindle/bin/python3 -B -c 'import rekindle_operator.controller.operator_main, rekindle_operator.gates.gate_release, rekindle_operator.webhook.webhook_main, rekindle_sidecar.sidecar_process'

FROM ${BASE_IMAGE}
COPY --from=packages /opt/rekindle /opt/rekindle
COPY --from=rekindle /added /
# What is in the image, for audits: /opt/rekindle/sbom.cdx.json (CycloneDX).
COPY spark-images/sbom.py /opt/rekindle/
RUN cd /opt/rekindle && bin/python3 -IB sbom.py rekindle > sbom.cdx.json
# Safe path: a folder `operator` in the working directory would shadow the standard library's.
ENV PATH=/opt/rekindle/bin:$PATH PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /
# The sidecar runs as its driver's user instead. Neither writes anywhere but to /tmp.
USER 65532:65532
CMD ["rekindle-operator"]
