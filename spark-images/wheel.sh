#!/bin/sh
# Rekindle's wheel, as files for /opt/rekindle under a folder of their own: a layer.
#
#   wheel.sh FOLDER DIST      after packages.sh; DIST has the wheel that `make wheel` has built
set -eu
found=$(ls "$2"/rekindle-*.whl 2> /dev/null) || {
  echo "$2: has no wheel of Rekindle; run \`make wheel\` first" >&2
  exit 2
}
mkdir -p "$1"
/opt/installer/bin/pip --python /opt/rekindle/bin/python3 install --quiet --no-deps --no-index \
  --root-user-action ignore --root "$1" "$found"
