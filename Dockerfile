# The image of the operator, and of the sidecar beside drivers. docs/install.md says how to build it.
# Any base that has Python 3.11 or newer with venv and pip; nothing is compiled, so no build tools.
ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS packages
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
COPY pyproject.toml constraints.txt README.md ./
COPY recovery recovery
COPY operator operator
RUN python3 -m venv /opt/rekindle \
 && /opt/rekindle/bin/pip install --only-binary :all: --constraint constraints.txt '.[operator]' \
# Half of the size, 370 MB, which only drivers, executors and `rekindle verify` need.
 && /opt/rekindle/bin/pip uninstall --yes polars polars-runtime-32 pyarrow pip \
# What is imported when it runs has to be there, from a folder without the sources.
 && cd / \
 && /opt/rekindle/bin/python -P -c 'import rekindle_operator.shell.main, rekindle_sidecar.serving'

FROM ${BASE_IMAGE}
COPY --from=packages /opt/rekindle /opt/rekindle
# Safe path: a folder `operator` in the working directory would shadow the standard library's.
ENV PATH=/opt/rekindle/bin:$PATH PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /
# The sidecar runs as its driver's user instead. Neither writes anywhere but to /tmp.
USER 65532:65532
CMD ["rekindle-operator"]
