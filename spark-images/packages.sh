#!/bin/sh
# The virtual environment /opt/rekindle with what a lock names, without Rekindle and without pip,
# which is beside it in /opt/installer.
#
#   packages.sh LOCK          of /spark-images/locks, without its ending; wheels that are at hand are
#                             in /context/wheels
#
# Nothing is installed that has another SHA-256 than the lock says. Where /context/wheels has sums,
# `make images` has fetched it by that lock, and built what had no wheel: then the sums are compared.
set -eu
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
locks=/spark-images/locks wheels=/context/wheels
python3 -m venv /opt/installer
python3 -m venv --without-pip /opt/rekindle
if [ -e $wheels/SHA256SUMS ]; then
  (cd $wheels && sha256sum --check --quiet --strict SHA256SUMS)
else
  # PySpark comes as sources alone: what builds it is locked as well, and nothing else is asked for.
  /opt/installer/bin/pip install --quiet --find-links $wheels --target /opt/tools --no-deps \
    --require-hashes --requirement $locks/build.txt
  PYTHONPATH=/opt/tools /opt/installer/bin/pip wheel --quiet --find-links $wheels --no-deps \
    --no-build-isolation --require-hashes --requirement "$locks/$1.txt" --wheel-dir /opt/wheels
  wheels=/opt/wheels
fi
/opt/installer/bin/pip --python /opt/rekindle/bin/python3 install --quiet --no-deps --no-index \
  $wheels/*.whl
rm -rf /opt/tools /opt/wheels
cd /opt/rekindle/lib/python*/site-packages
# A tenth of the size, of no use to anybody who runs them.
find . -type d '(' -name tests -o -name include ')' -prune -exec rm -rf {} +
# Substrait stays: pyarrow's other libraries are linked against it.
rm -rf pyarrow/*arrow_flight* pyarrow/*arrow_python_flight* pyarrow/_flight*
find . -type f '(' -name '*.pyx' -o -name '*.pxd' -o -name '*.pyi' ')' -delete
