#!/bin/sh
# The virtual environment /opt/rekindle with what extras of Rekindle need, without Rekindle and
# without pip, which is beside it in /opt/installer.
#
#   packages.sh EXTRA...      in a folder with pyproject.toml and constraints.txt; wheels that are at
#                             hand are in /context/wheels
set -eu
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
python3 -m venv /opt/installer
python3 -m venv --without-pip /opt/rekindle
/opt/rekindle/bin/python3 /spark-images/requirements.py "$@" > requirements.txt
/opt/installer/bin/pip --python /opt/rekindle/bin/python3 install --quiet \
  --find-links /context/wheels --constraint constraints.txt --requirement requirements.txt
cd /opt/rekindle/lib/python*/site-packages
# A tenth of the size, of no use to anybody who runs them.
find . -type d '(' -name tests -o -name include ')' -prune -exec rm -rf {} +
# Substrait stays: pyarrow's other libraries are linked against it.
rm -rf pyarrow/*arrow_flight* pyarrow/*arrow_python_flight* pyarrow/_flight*
find . -type f '(' -name '*.pyx' -o -name '*.pxd' -o -name '*.pyi' ')' -delete
